"""Complete interrupted commits, and remove the staged files of killed runs.

Where folders can't be exchanged, there is a moment in a commit with neither old nor new results at their path. The new
results are complete by then, so the next driver brings them to their path::

    renamed    path is missing; STAGING/replaced and STAGING/ready exist        ready becomes the path
    moved      STAGING/commit.json names the files                              the rest is moved, old files are deleted
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyarrow import fs

from flumina.storage import lock
from flumina.storage.filesystem import list_directory, local_path, storage_errors
from flumina.storage.output_directory import OutputDirectory


def recover(output: OutputDirectory) -> None:
    """Repair the path of the results and remove the files of killed runs; the driver calls this before it starts."""
    with storage_errors("repair results in", output.path):
        for run, staging in list(_others(output)):
            other = replace(output, run=run, staging=staging)
            local = local_path(output.filesystem, staging)
            if local is None:  # no locks here: only an interrupted commit is touched
                if other.interrupted:
                    other.finish()
            elif lock.take_over(local):
                try:
                    _clear(other)
                finally:
                    lock.release(local)
            elif not lock.is_locked(local):  # of a version without locks, or made and not locked
                if other.interrupted:
                    other.finish()
                lock.remove_empty(local)


def _clear(other: OutputDirectory) -> None:
    """Complete the commit of a killed driver, or remove its files unless its run can be resumed."""
    if other.interrupted:
        other.finish()
    elif not other.is_resumable:
        other.discard()


def _others(output: OutputDirectory) -> Iterator[tuple[str, str]]:
    """Yield the other runs that have staged files for the same path, with their folders."""
    staged = output.staging.removesuffix(output.run)
    parent, _, prefix = staged.rpartition("/")
    for info in list_directory(output.filesystem, parent or ("/" if staged.startswith("/") else "")):
        run = info.base_name.removeprefix(prefix)
        is_run = info.base_name.startswith(prefix) and ".flumina-" not in run  # else of a folder with a longer name
        if info.type == fs.FileType.Directory and is_run and run != output.run:
            yield run, info.path

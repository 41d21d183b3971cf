"""Keep other text out of the JSON that a command prints."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

_STDOUT, _STDERR = 1, 2
"""File descriptors, which child processes inherit even if ``sys.stdout`` is replaced."""


@contextmanager
def json_output(*, alone: bool) -> Iterator[TextIO]:
    """Yield the stream to write JSON to; if ``alone``, all other output goes to standard error.

    That holds for child processes, too. The JSON is written at the end of the block, if there is no error.
    """
    if not alone:
        yield sys.stdout
        return
    text = io.StringIO()
    with _all_to_stderr():
        yield text
    sys.stdout.write(text.getvalue())


@contextmanager
def _all_to_stderr() -> Iterator[None]:
    stdout = sys.stdout
    stdout.flush()
    try:
        saved = os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)
    except OSError:  # one of them is closed
        with redirect_stdout(sys.stderr):
            yield
        return
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        stdout.flush()  # user code may have printed to its own reference
        os.dup2(saved, _STDOUT)
        os.close(saved)

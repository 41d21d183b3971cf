"""Has every Python process of a case write the stacks of all its threads when SIGUSR1 comes.

Python imports this module at its start, as its folder is on PYTHONPATH. The signal is handled in C: it also works while
a thread holds the interpreter's lock. The Python workers of Spark are forked, and get a file of their own.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path

FOLDER = "FLUMINA_SCALE_STACKS"
_kept: list[object] = []


def _register() -> None:
    # Kept open for as long as the process lives: the handler writes to the number of the file.
    file = (Path(os.environ[FOLDER]) / f"{os.getpid()}.txt").open("w")
    _kept[:] = [file]
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)


if FOLDER in os.environ:
    _register()
    os.register_at_fork(after_in_child=_register)

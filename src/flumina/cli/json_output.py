"""Standard output for one document: what a program prints on the way must not get into it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

_STDOUT, _STDERR = 1, 2
"""What processes inherit, whatever stands in for ``sys.stdout`` here."""


@contextmanager
def json_output(*, alone: bool) -> Iterator[TextIO]:
    """Where to write a document to; if it is to be ``alone``, all that anybody else prints goes to standard error.

    That holds for processes that are started meanwhile, too. The document is written at the end, if there is no error.
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
    shown = sys.stdout
    shown.flush()
    try:
        kept = os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)
    except OSError:  # one of them is closed
        with redirect_stdout(sys.stderr):
            yield
        return
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        shown.flush()  # what was printed by those who have kept it from before
        os.dup2(kept, _STDOUT)
        os.close(kept)

"""What a process of the pool does: one task after another, as they come in on its standard input, until that ends."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
from typing import Any, BinaryIO

from flumina.engine.host import host
from flumina.errors import FluminaError

HEADER = struct.Struct("!Q")
READY = b"."


def write(pipe: BinaryIO, order: bytes) -> None:
    """Send an order to a process."""
    pipe.write(HEADER.pack(len(order)))
    pipe.write(order)
    pipe.flush()


def read(pipe: BinaryIO) -> Any:  # noqa: ANN401
    """The next order, None if there will be none."""
    header = pipe.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    return pickle.loads(pipe.read(HEADER.unpack(header)[0]))  # noqa: S301 -- from the process that started this one


def main(ready: int) -> None:
    """Serve until the parent closes the pipe, which it does by ending, whatever way it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and calls the run off
    orders = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    os.write(ready, READY)
    while (order := read(orders)) is not None:
        path, folder, arguments = order
        sys.path[:] = path
        os.chdir(folder)
        with contextlib.suppress(FluminaError):  # the driver knows
            host(*pickle.loads(arguments))  # noqa: S301
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            os.write(ready, READY)
        except BrokenPipeError:
            return  # the parent is gone

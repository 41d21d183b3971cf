"""Serve tasks in a process of the pool, read from standard input until it ends."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import struct
import sys
import threading
import time
from typing import Any, BinaryIO

from flumina.engine.host import host, left_behind
from flumina.errors import FluminaError
from flumina.local.sample_request import SampleRequest

HEADER = struct.Struct("!Q")
READY = b"."

ORPHANED = 5.0
"""Seconds for a task to clean up and end after the parent has ended; user code may block its loop or a reader."""


def write(pipe: BinaryIO, order: bytes) -> None:
    """Write an order to the pipe of a process."""
    pipe.write(HEADER.pack(len(order)))
    pipe.write(order)
    pipe.flush()


def read(pipe: BinaryIO) -> Any:  # noqa: ANN401
    """Read the next order; return None at the end of the pipe."""
    header = pipe.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    size = HEADER.unpack(header)[0]
    order = pipe.read(size)
    if len(order) < size:
        return None  # the parent was killed while it wrote
    return pickle.loads(order)  # noqa: S301 -- from the process that started this one


def main(ready: int) -> None:
    """Serve orders until the pipe is closed, which happens at the latest when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and cancels the run
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
    pipe = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    threading.Thread(target=_take_orders, args=(pipe, orders), name="orders", daemon=True).start()
    waiting = _say_ready(ready)
    while waiting and (order := orders.get()) is not None:
        path, folder, arguments = order
        sys.path[:] = path
        os.chdir(folder)
        with contextlib.suppress(FluminaError):  # the driver raises it
            given = pickle.loads(arguments)  # noqa: S301
            if isinstance(given, SampleRequest):
                given.execute()
            else:
                host(*given)
        _flush()
        waiting = not left_behind() and _say_ready(ready)
    _flush()
    os._exit(0)  # a normal exit would wait for threads in user code


def _take_orders(pipe: BinaryIO, orders: queue.SimpleQueue[Any]) -> None:
    """Pass on orders until the parent has ended; then end this process, even in the middle of a task."""
    order = True
    while order is not None:
        order = read(pipe)
        orders.put(order)
    time.sleep(ORPHANED)
    os._exit(1)


def _say_ready(ready: int) -> bool:
    """Signal the parent that this process is idle; return False if the parent has ended."""
    try:
        os.write(ready, READY)
    except BrokenPipeError:
        return False
    return True


def _flush() -> None:
    with contextlib.suppress(OSError, ValueError):  # the reader of these streams may have ended
        sys.stdout.flush()
        sys.stderr.flush()

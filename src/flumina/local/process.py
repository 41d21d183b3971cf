"""What a process of the pool does: one task after another, as they come in on its standard input, until that ends."""

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
from flumina.engine.sampling import Sampling
from flumina.errors import FluminaError

HEADER = struct.Struct("!Q")
READY = b"."

ORPHANED = 5.0
"""Seconds that a task has to clear up and end once the parent is gone; its loop or a reader may sit in user code."""


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
    size = HEADER.unpack(header)[0]
    order = pipe.read(size)
    if len(order) < size:
        return None  # the parent was killed in the middle of it
    return pickle.loads(order)  # noqa: S301 -- from the process that started this one


def main(ready: int) -> None:
    """Serve until the parent closes the pipe, which it does by ending, whatever way it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and calls the run off
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
    pipe = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    threading.Thread(target=_take_orders, args=(pipe, orders), name="orders", daemon=True).start()
    waiting = _say_ready(ready)
    while waiting and (order := orders.get()) is not None:
        path, folder, arguments = order
        sys.path[:] = path
        os.chdir(folder)
        with contextlib.suppress(FluminaError):  # the driver knows
            given = pickle.loads(arguments)  # noqa: S301
            if isinstance(given, Sampling):
                given.execute()
            else:
                host(*given)
        _flush()
        waiting = not left_behind() and _say_ready(ready)
    _flush()
    os._exit(0)  # threads in user code would have a say in any other end


def _take_orders(pipe: BinaryIO, orders: queue.SimpleQueue[Any]) -> None:
    """Pass on orders until the parent is gone, and then end this process, whatever its task does."""
    order = True
    while order is not None:
        order = read(pipe)
        orders.put(order)
    time.sleep(ORPHANED)
    os._exit(1)


def _say_ready(ready: int) -> bool:
    """Tell the parent that this process waits for a task; whether there is a parent."""
    try:
        os.write(ready, READY)
    except BrokenPipeError:
        return False
    return True


def _flush() -> None:
    with contextlib.suppress(OSError, ValueError):  # whoever read them may be gone
        sys.stdout.flush()
        sys.stderr.flush()

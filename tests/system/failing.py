"""Programs that go wrong at one event, in each of the functions that users write."""

import ctypes
import os
import signal
import threading
from typing import Any

import flumina as fl
from flumina.apps.value_barrier import ValueBarrier, ValueBarrierByHand

BAD = 7777
"""The value that makes programs fail."""


class InUpdate(ValueBarrierByHand):
    """Fails in update, at one event."""

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        if event.tag is self.value and event.v == BAD:
            raise ZeroDivisionError("bad value")  #: update
        return super().update(state, event, emit)


class StandsStill(ValueBarrierByHand):
    """Stops its process in update, at one event, the first time that it gets there, and says in a file which."""

    def __init__(self, once: str) -> None:
        super().__init__()
        self.once = once

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        if event.tag is self.value and event.v == BAD and not os.path.exists(self.once):  # noqa: PTH110
            with open(self.once, "x", encoding="utf-8") as file:  # noqa: PTH123
                file.write(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().update(state, event, emit)


class InUpdateBatch(ValueBarrier):
    """Fails in update_batch, at the run with one event."""

    def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
        if batch.tag is self.value and BAD in batch["v"]:
            raise ZeroDivisionError("bad value")  #: update_batch
        super().update_batch(state, batch, emit)


class InFork(ValueBarrierByHand):
    """Fails in the second fork."""

    def fork(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        if state == 0 and os.environ.get("FLUMINA_NEVER") is None:
            raise ZeroDivisionError("bad value")  #: fork
        return super().fork(state, left, right)


class InJoin(ValueBarrierByHand):
    """Fails where sums are added up."""

    def join(self, left: int, right: int) -> int:
        raise ZeroDivisionError("bad value")  #: join


class InInit(ValueBarrierByHand):
    """Has no initial state."""

    def init(self) -> int:
        raise ZeroDivisionError("bad value")  #: init


class InOutput(ValueBarrierByHand):
    """Gives out what is not of the declared type."""

    def update(self, state: int, event: fl.Event, emit: Any) -> int:
        if event.tag is self.value and event.v == BAD:
            emit("many")
        return super().update(state, event, emit)


class Strange(Exception):  # noqa: N818
    """An exception that can't be made anew from its arguments."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


class InUpdateStrangely(ValueBarrierByHand):
    """Fails with an exception that can't be pickled and unpickled."""

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        if event.tag is self.value and event.v == BAD:
            raise Strange(1, 2)  #: strange
        return super().update(state, event, emit)


class Dies(ValueBarrierByHand):
    """Ends its process in the middle."""

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        if event.tag is self.value and event.v == BAD:
            os._exit(3)
        return super().update(state, event, emit)


class NoMemoryInJoin(ValueBarrierByHand):
    """Asks for more memory than there is where sums are added up."""

    def join(self, left: int, right: int) -> int:
        bytearray(1 << 62)  #: memory in join
        return super().join(left, right)


class NoMemoryInUpdate(ValueBarrierByHand):
    """Asks for more memory than there is, at one event."""

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        if event.tag is self.value and event.v == BAD:
            bytearray(1 << 62)  #: memory
        return super().update(state, event, emit)


class Heavy:
    """A state that is too large to be sent."""

    def __reduce__(self) -> tuple[object, ...]:
        raise MemoryError


class NoMemoryToSend(ValueBarrierByHand):
    """Runs out of memory in our code, which packs its state."""

    def init(self) -> Any:
        return Heavy()

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        return state

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return Heavy(), Heavy()

    def join(self, left: Any, right: Any) -> Any:
        return left


class HoldsTheLock(ValueBarrierByHand):
    """Calls C that keeps Python's lock, at one event: no thread of the process runs meanwhile."""

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        if event.tag is self.value and event.v == BAD:
            ctypes.PyDLL(None).usleep(4_000_000)
        return super().update(state, event, emit)


class Locked(ValueBarrierByHand):
    """Has a state that can't leave its process."""

    def init(self) -> Any:
        return threading.Lock()

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> Any:
        return state

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return threading.Lock(), threading.Lock()

    def join(self, left: Any, right: Any) -> Any:
        return left

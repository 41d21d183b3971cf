"""Checkpoints to try things on: in memory, with drivers that take turns, or that die."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pyarrow import fs

from flumina.checkpoint.store.checkpoint_owner import CheckpointOwner
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.layout import CheckpointDirectory
from flumina.checkpoint.store.manifest import Epoch, EpochOutputs, StateFile
from flumina.checkpoint.store.snapshot import Snapshot


def fill(store: Checkpoints, *, epochs: int = 2, snapshots: int = 2, **fingerprint: Any) -> CheckpointOwner:
    """Drivers one after the other, each with some snapshots; the last one's claim."""
    for term in range(epochs):
        owner = store.take_over(resumes=store.latest(), fingerprint=fingerprint)
        for n in range(snapshots):
            commit(owner, end=10 * n, state=b"state %d/%d" % (term, n), events=n, outputs=EpochOutputs(rows={"n": n}))
    return owner


def commit(
    owner: CheckpointOwner, number: int | None = None, state: bytes | Sequence[StateFile] = (), **epoch: Any
) -> Snapshot:
    """Commit an epoch, by default the next one, with a state as a whole or in files."""
    number = owner.next_number if number is None else number
    files = (owner.write_state(number, state),) if isinstance(state, bytes) else tuple(state)
    snapshot = owner.mark(owner.write(Epoch(number=number, state=files, **epoch)))
    owner.prune(snapshot)
    return snapshot


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def digest(snapshot: Snapshot | None) -> Any:
    """What a driver would go on from."""
    if snapshot is None:
        return None
    return snapshot.manifest, [hashlib.sha256(state).hexdigest() for state in snapshot.states()]


class InMemory(CheckpointDirectory):
    """A folder whose files are bytes in a dict, for thousands of damages in a second."""

    held: dict[str, bytes]

    @staticmethod
    def of_folder(path: Path) -> "InMemory":
        made = InMemory(fs.LocalFileSystem(), str(path))
        object.__setattr__(made, "held", {file.name: file.read_bytes() for file in path.iterdir()})
        return made

    def names(self) -> list[str]:
        return list(self.held)

    def read(self, name: str) -> bytes | None:
        return self.held.get(name)


class Stepwise(CheckpointDirectory):
    """A folder that asks before each step; steps are as atomic as those of a file system."""

    ask: Callable[[], None]

    @staticmethod
    def over(store: Checkpoints, ask: Callable[[], None]) -> Checkpoints:
        """The same checkpoint for another driver."""
        made = Checkpoints(store.folder.path, keep=store.keep)
        made.folder = Stepwise(store.folder.filesystem, store.folder.path)
        object.__setattr__(made.folder, "ask", ask)
        return made

    def create(self) -> None:
        self.ask()
        super().create()

    def names(self) -> list[str]:
        self.ask()
        return super().names()

    def read(self, name: str) -> bytes | None:
        self.ask()
        return super().read(name)

    def write(self, name: str, data: bytes) -> None:
        self.ask()
        super().write(name, data)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.ask()
            super().delete([name])


class Player(threading.Thread):
    """A driver that does one step when it is told to; ``result`` is what came of it, perhaps an error."""

    def __init__(self, store: Checkpoints, job: Callable[[Checkpoints], Any]) -> None:
        super().__init__(daemon=True)
        self._go, self._parked = threading.Semaphore(0), threading.Semaphore(0)
        self._job, self._store = job, Stepwise.over(store, self._wait)
        self.result: Any = None
        self.over = False
        self.start()

    def run(self) -> None:
        self._wait()
        try:
            self.result = self._job(self._store)
        except Exception as error:  # noqa: BLE001 -- it is what the test looks at
            self.result = error
        self.over = True
        self._parked.release()

    def _wait(self) -> None:
        self._parked.release()
        self._go.acquire()

    def step(self) -> None:
        if not self.over:
            self._parked.acquire()
            self._go.release()
            self._parked.acquire()
            self._parked.release()


def play(players: list[Player], schedule: Iterable[int]) -> None:
    """Let drivers take steps in this order, and then to their ends."""
    for who in schedule:
        players[who].step()
    for player in players:
        while not player.over:
            player.step()
        player.join()

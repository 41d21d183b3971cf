"""What tasks hand in becomes a snapshot when it is whole, and only with what others of the same gang hand in."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from flumina.apps import PageViews
from flumina.checkpoint.participant import TaskCheckpoint
from flumina.checkpoint.resume_point import Start
from flumina.checkpoint.run_committer import RunCommitter, next_number
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.output.staged_outputs import Manifest, Outputs, StagedFile
from flumina.program.base import define
from flumina.storage.output_directory import OutputDirectory
from tests.checkpoint.test_state_partitions import PLAN, STATES

TREES = (("one", "three"), ("two",))
"""Of the two tasks."""


class Gang:
    """Two tasks, which hand in what they have written; ``attempt`` tells one gang's files from another's."""

    def __init__(self, folder: Path) -> None:
        self.store = Checkpoints(folder / "kept", keep=9)
        location = OutputDirectory.of(folder / "out", "r", durable=True)
        self.outputs = Outputs(define(PageViews).outputs, pa.int64(), ("views",), "r", location, checked=True)
        self.outputs.prepare()
        self.owner = self.store.take_over(resumes=None, run="r")
        self.committer = RunCommitter(self.owner, self.outputs, PLAN, 2, Start(after=-1), None)

    def saved(self, task: int, epoch: int, attempt: str, events: int) -> TaskCheckpoint:
        assert self.outputs.location is not None
        trees = {tree: STATES[tree] for tree in TREES[task]}
        sizes = [(tree, len(state)) for tree, state in trees.items()]
        number = self.began + epoch
        states = self.store.write_state(self.owner.snapshot_id(number), b"".join(trees.values()), sizes)
        path = f"{self.outputs.location.staging}/{task}-{attempt}-{epoch}/output.parquet"
        file = StagedFile(path, rows=1, size=10, crc=1)
        manifest = Manifest("r", task, f"{attempt}-{epoch}", {"output": 1}, {"output": file}, {})
        return TaskCheckpoint(epoch, 100 * number, manifest, events, states)

    def begin(self) -> Start:
        start = self.committer.begin()
        self.began = next_number(self.committer.last)
        return start

    def add_checkpoint(self, task: int, epoch: int, attempt: str = "1", events: int = 5) -> None:
        self.committer.add_checkpoint(task, self.saved(task, epoch, attempt, events))

    def taken(self) -> list[tuple[int, int | None, int, set[str]]]:
        """Number, timestamp, events, and by which attempts the outputs were written."""
        return [
            (one.number, one.end, one.manifest.events, {file.path.split("-")[1] for file in one.manifest.outputs.files})
            for one in self.store.all()
        ]


@pytest.fixture
def gang(tmp_path: Path) -> Gang:
    return Gang(tmp_path)


def test_a_snapshot_is_taken_when_all_tasks_have_handed_in(gang: Gang) -> None:
    assert gang.begin() == Start(after=-1), "where the job begins"
    gang.add_checkpoint(1, 0)
    assert gang.taken() == []
    gang.add_checkpoint(1, 1, events=9)  # one task may be ahead
    gang.add_checkpoint(0, 0)
    assert gang.taken() == [(1, 100, 10, {"1"})]
    gang.add_checkpoint(0, 1, events=8)
    assert gang.taken()[-1] == (2, 200, 17, {"1"}), "tasks count from their beginning"
    assert gang.committer.snapshots == 2
    latest = gang.store.latest()
    assert latest is not None
    assert [[tree for tree, _ in file.tree_sizes] for file in latest.manifest.state] == [["one", "three"], ["two"]]
    assert latest.manifest.rows == {"output": 4}


def test_what_a_gang_that_was_lost_has_handed_in_is_no_part_of_a_snapshot(gang: Gang) -> None:
    gang.begin()
    gang.add_checkpoint(0, 0, "1")
    gang.begin()
    gang.add_checkpoint(1, 0, "2")
    assert gang.taken() == [], "one task of each gang"
    gang.add_checkpoint(0, 0, "2", events=7)
    assert gang.taken() == [(1, 100, 12, {"2"})]


def test_a_gang_goes_on_from_the_last_snapshot(gang: Gang) -> None:
    gang.begin()
    for task in (0, 1):
        gang.add_checkpoint(task, 0, "1")
    gang.add_checkpoint(0, 1, "1")
    start = gang.begin()
    assert (start.after, start.number) == (100, 2)
    assert start.state is not None
    assert start.state.size == sum(map(len, STATES.values()))
    for task in (0, 1):
        gang.add_checkpoint(task, 0, "2", events=3)
    assert gang.taken() == [(1, 100, 10, {"1"}), (2, 200, 16, {"1", "2"})], "events since the last snapshot come on top"

"""One driver at a time: takeovers, races, crashes."""

from itertools import combinations, count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from flumina.checkpoint.store.checkpoint_owner import CheckpointOwner
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.errors import CheckpointError
from tests.checkpoint.store.support import Player, commit, digest, fill, names, play
from tests.storage.crashing import PowerFailure, disk


def test_a_driver_that_was_replaced_is_told_and_writes_nothing(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    old = fill(store, epochs=1)
    new = store.take_over(resumes=store.latest())
    before = names(tmp_path)
    for late in (lambda: commit(old, state=b"late"), old.check):
        with pytest.raises(CheckpointError, match=r"CHECKPOINT_IN_USE.*took over with term 2, this one had 1"):
            late()
    assert names(tmp_path) == before
    new.check()
    assert commit(new, state=b"new").number == 3


def test_what_a_replaced_driver_still_writes_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked before the new driver claimed, and goes on writing afterwards."""
    store = Checkpoints(tmp_path, keep=1)
    old = fill(store, epochs=1)
    resumed = store.latest()
    monkeypatch.setattr(CheckpointOwner, "_check", lambda self, listing: None)
    monkeypatch.setattr(CheckpointOwner, "prune", lambda self, newest: None)
    new = store.take_over(resumes=resumed)
    commit(old, number=77, state=b"late", end=10**6)
    assert (1, 77) in store.folder.listing().manifests
    assert digest(store.latest()) == digest(resumed)
    made = commit(new, state=b"new")
    commit(old, number=78, state=b"later", end=10**6)
    assert digest(store.latest()) == digest(made)
    monkeypatch.undo()
    assert [finding.damaged for finding in store.verify()] == [False, False]  # told, but no damage
    made = commit(new, state=b"newer")
    assert digest(store.latest()) == digest(made)
    assert store.folder.listing().manifests == {made.manifest.snapshot_id}  # what was late is gone
    assert store.verify() == []


def test_a_snapshot_that_is_no_longer_the_latest_can_not_be_claimed(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    owner = fill(store, epochs=1)
    read = store.latest()
    commit(owner, state=b"meanwhile")
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_IN_USE.*committed snapshot 3"):
        store.take_over(resumes=read)
    read = store.latest()
    store.take_over(resumes=read)
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_IN_USE.*took over with term 2"):
        store.take_over(resumes=read)
    assert {owner.term for owner in store.folder.listing().owners} == {1, 2}


def test_a_checkpoint_with_snapshots_is_not_begun_anew(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    fill(store)
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_EXISTS.*up to 4"):
        store.take_over(resumes=None)


def test_drivers_that_die_before_their_first_snapshot_are_no_damage(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    for term in (1, 2, 3):
        assert store.take_over(resumes=store.latest()).token.term == term
    assert store.latest() is None
    fill(store, epochs=1)
    latest = store.latest()
    for term in (5, 6):
        assert store.take_over(resumes=store.latest()).token.term == term
        assert digest(store.latest()) == digest(latest)
    assert store.verify() == []


def test_a_checkpoint_that_is_deleted_under_a_driver_is_noticed(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    owner = fill(store)
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_MISSING_FILE.*owner-000002"):
        commit(owner, state=b"x")
    assert names(tmp_path) == []


@pytest.fixture
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of files that need not survive a power failure."""
    monkeypatch.setattr("flumina.storage.directory.sync", lambda filesystem, path: None)


def schedules(steps: tuple[int, int], at_most: int = 400) -> list[list[int]]:
    """Ways of mixing two drivers' steps: all of them, or as many as asked for."""
    both = range(sum(steps))
    every = list(combinations(both, steps[0]))
    chosen = every if len(every) <= at_most else Random(0).sample(every, at_most)
    return [[0 if n in first else 1 for n in both] for first in map(set, chosen)]


def test_of_two_drivers_that_claim_at_once_at_most_one_gets_it(tmp_path: Path, no_disk: None) -> None:
    outcomes = set()
    for n, schedule in enumerate(schedules((5, 5))):
        store = Checkpoints(tmp_path / str(n))
        players = [Player(store, lambda s: s.take_over(resumes=None)) for _ in range(2)]
        play(players, schedule)
        errors = [p.result for p in players if not isinstance(p.result, CheckpointOwner)]
        for error in errors:
            assert isinstance(error, CheckpointError), repr(error)
            assert error.condition == "CHECKPOINT_IN_USE"
        won = [p.result for p in players if isinstance(p.result, CheckpointOwner)]
        # Where one was through before the other looked for the first time, it is a takeover, and nobody's mistake.
        assert len({owner.token.term for owner in won}) == len(won)
        outcomes.add(tuple(sorted(owner.token.term for owner in won)))
        assert len(store.folder.listing().owners) == len(won)
    assert outcomes == {(), (1,), (2,), (1, 2)}


def test_a_commit_and_a_claim_at_once(tmp_path: Path, no_disk: None) -> None:
    """Nobody goes on from what the other one deletes, and no commit that succeeded is lost."""
    outcomes = set()

    def take_over(store: Checkpoints) -> tuple[CheckpointOwner, Snapshot | None]:
        snapshot = store.latest()
        return store.take_over(resumes=snapshot), snapshot

    for n, schedule in enumerate(schedules((9, 9))):
        store = Checkpoints(tmp_path / str(n), keep=1)
        old = fill(store, epochs=1)

        def commits(stepwise: Checkpoints, old: CheckpointOwner = old) -> Any:
            old._reader, old._folder = stepwise, stepwise.folder
            return commit(old, number=3, state=b"three")

        players = [Player(store, commits), Player(store, take_over)]
        play(players, schedule)
        committed, taken = players[0].result, players[1].result
        for result in (committed, taken):
            assert getattr(result, "condition", "CHECKPOINT_IN_USE") == "CHECKPOINT_IN_USE", repr(result)
        latest = store.latest()
        assert latest is not None
        latest.states()
        if not isinstance(taken, Exception):
            assert taken[0].resumes == latest.manifest.snapshot_id
        if isinstance(committed, Snapshot):
            assert latest.number == 3
        outcomes.add((isinstance(committed, Snapshot), isinstance(taken, tuple)))
    assert outcomes >= {(True, True), (True, False), (False, True)}


@pytest.mark.parametrize("renames", [True, False])
def test_a_driver_may_die_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, renames: bool) -> None:
    """What is found is what was committed before or what was being committed, and leftovers go with the next claim."""
    monkeypatch.setattr("flumina.storage.directory.can_rename", lambda _: renames)
    found, left_behind = [], set()
    for step in count():
        store = Checkpoints(tmp_path / str(step), keep=2)
        fill(store, epochs=1, snapshots=3)
        dying, died = Checkpoints(store.folder.path, disk(step, puts_at_once=not renames), keep=2), False
        try:
            commit(dying.take_over(resumes=dying.latest()), state=b"four", number=4)
        except PowerFailure:
            died = True
        latest = store.latest()
        assert latest is not None
        assert latest.states() == [b"four" if latest.number == 4 else b"state 0/2"]
        found.append(latest.number)
        findings = store.verify()
        left_behind |= {finding.what for finding in findings}
        assert not [finding for finding in findings if finding.damaged]
        owner = store.take_over(resumes=latest)
        assert store.verify() == []  # nothing is left behind
        assert commit(owner, state=b"five", number=5).state() == b"five"
        assert [snapshot.number for snapshot in store.all()] == [latest.number, 5]
        assert store.verify() == []
        if not died:
            break
    assert found == sorted(found)
    assert set(found) == {3, 4}
    assert len(found) > (20 if renames else 8)
    assert len(left_behind) == 1 + renames

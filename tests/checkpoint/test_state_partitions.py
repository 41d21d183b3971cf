"""States in shares: where they lie, what is read of them, and what becomes of them under another plan."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flumina.apps import PageViews
from flumina.checkpoint.state_partitions import (
    FinalStatePolicy,
    InMemoryPartition,
    PartitionedState,
    StoredPartition,
    settled,
)
from flumina.checkpoint.store.checkpoint_owner import CheckpointOwner
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.engine.message_codec import Codec
from flumina.errors import CheckpointError, UsageError
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.forest import Forest
from flumina.plan.render.json import to_json
from flumina.plan.tree import Itag, Plan, PlanWorker, StreamShape
from flumina.program.base import define
from tests.checkpoint.store.support import commit
from tests.plan.test_forest import Own

PAGES = define(PageViews)
CODEC = Codec(PAGES, ["views"])


def leaf(name: str, *keys: str) -> PlanWorker:
    return PlanWorker(name, "States", (Itag("views", frozenset({0}), TagSet({"view": KeySet.of(*keys)})),))


def forest(*leaves: PlanWorker) -> Plan:
    root, *rest = leaves
    for number, other in enumerate(rest):
        root = PlanWorker(f"above {number}", "States", (), (root, other))
    return Plan.of(PageViews, [StreamShape("views", 1, PAGES.everything)], root)


PLAN = forest(leaf("one", "a", "b"), leaf("two", "c"), leaf("three", "d"))
CROWN = Forest.of(PLAN.root)


def packed(*pages: str) -> bytes:
    states = PAGES.init()
    for page in pages:
        states[page].info = f"info of {page}"
    return CODEC.pack(states)


STATES = {"one": packed("a", "b"), "two": packed("c"), "three": packed("d")}


def infos(states: Any) -> dict[str, str]:
    return {page: state.info for page, state in states.items()}


def at_hand() -> PartitionedState:
    return PartitionedState(
        CROWN,
        (
            InMemoryPartition.of({"one": STATES["one"], "three": STATES["three"]}),
            InMemoryPartition.of({"two": STATES["two"]}),
        ),
    )


def in_files(store: Checkpoints, owner: CheckpointOwner, number: int = 1) -> PartitionedState:
    """As two tasks have written them, one of which has two trees."""
    final_state_policy = FinalStatePolicy(store, owner.snapshot_id(number), most=0)
    partitions = [
        final_state_policy.keep({name: STATES[name] for name in names}) for names in (("one", "three"), ("two",))
    ]
    assert all(isinstance(partition, StoredPartition) for partition in partitions)
    return PartitionedState(CROWN, tuple(partitions))


@pytest.fixture
def store(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path)


@pytest.fixture
def owner(store: Checkpoints) -> CheckpointOwner:
    return store.take_over(resumes=None)


def test_the_whole_of_it(store: Checkpoints, owner: CheckpointOwner) -> None:
    sent = pickle.loads(pickle.dumps(in_files(store, owner)))  # noqa: S301 -- as it comes to the tasks
    for tree_sizes in (at_hand(), in_files(store, owner), sent):
        assert infos(tree_sizes.whole(PAGES, CODEC)) == {page: f"info of {page}" for page in "abcd"}
        assert tree_sizes.size == sum(map(len, STATES.values()))


def test_the_same_trees_read_their_own_file_only(store: Checkpoints, owner: CheckpointOwner) -> None:
    tree_sizes = in_files(store, owner)
    renamed = Forest.of(forest(leaf("x", "a", "b"), leaf("y", "c"), leaf("z", "d")).root)
    other = store.folder.at(tree_sizes.partitions[1].file.name)  # type: ignore[union-attr]
    Path(other).unlink()
    assert {name: infos(state) for name, state in tree_sizes.under(renamed, ["x", "z"], PAGES, CODEC).items()} == {
        "x": {"a": "info of a", "b": "info of b"},
        "z": {"d": "info of d"},
    }
    with pytest.raises(CheckpointError, match="CHECKPOINT_MISSING_FILE"):
        tree_sizes.under(renamed, ["y"], PAGES, CODEC)


def test_shares_that_other_code_has_left_are_divided_anew(store: Checkpoints) -> None:
    """Of the same trees, too: who observes what may be another matter now."""
    owner = store.take_over(resumes=None, fingerprint={"code": {"update": "as it was"}})
    files, _ = in_files(store, owner).keep(store, owner.snapshot_id(1))
    snapshot = commit(owner, number=1, state=files, plan=to_json(PLAN))
    assert PartitionedState.of(snapshot, owner.fingerprint).is_divided_by(CROWN)
    foreign = PartitionedState.of(snapshot, {"code": {"update": "another one"}})
    assert not foreign.is_divided_by(CROWN)
    Path(store.folder.at(files[1].name)).unlink()
    with pytest.raises(CheckpointError, match="CHECKPOINT_MISSING_FILE"):
        foreign.under(CROWN, ["one"], PAGES, CODEC)


def test_what_tasks_might_divide_otherwise_is_divided_once() -> None:
    definition = define(Own)
    codec = Codec(definition, ["s"])

    def tree(name: str, *keys: str) -> PlanWorker:
        return PlanWorker(name, definition.initial, (Itag("s", frozenset({0}), TagSet({"put": KeySet.of(*keys)})),))

    def plan(*trees: PlanWorker) -> Plan:
        top = trees[0] if len(trees) == 1 else PlanWorker("top", definition.initial, (), trees)
        return Plan.of(Own, [StreamShape("s", 1, definition.everything)], top)

    two, alone = plan(tree("a", "x"), tree("b", "y")), plan(tree("c", "x", "y"))
    assert settled(None, alone, definition, codec) is None
    begun = settled(None, two, definition, codec)
    assert begun is not None
    assert begun.whole(definition, codec) == set()
    left = PartitionedState(
        Forest.of(alone.root), (InMemoryPartition.of({"c": codec.pack({f"item {n}" for n in range(50)})}),)
    )
    assert settled(left, alone, definition, codec) is left
    divided = settled(left, two, definition, codec)
    assert divided is not None
    sides = [divided.under(Forest.of(two.root), [name], definition, codec)[name] for name in ("a", "b")]
    assert [len(side) for side in sides] == [25, 25]
    assert len(sides[0] | sides[1]) == 50
    assert settled(divided, two, definition, codec) is divided
    assert settled(at_hand(), forest(leaf("x", "a"), leaf("y", "b")), PAGES, CODEC) == at_hand(), "derived"


def test_other_trees_are_given_what_they_need(store: Checkpoints, owner: CheckpointOwner) -> None:
    tree_sizes = in_files(store, owner)
    new = Forest.of(forest(leaf("x", "a", "c"), leaf("y", "b", "d")).root)
    found = {name: infos(tree_sizes.under(new, [name], PAGES, CODEC)[name]) for name in ("x", "y")}
    assert found == {"x": {"a": "info of a", "c": "info of c"}, "y": {"b": "info of b", "d": "info of d"}}
    alone = Forest.of(leaf("alone", *"abcd"))
    assert len(tree_sizes.under(alone, ["alone"], PAGES, CODEC)["alone"]) == 4


def test_a_snapshot_with_shares_is_read_again(store: Checkpoints, owner: CheckpointOwner) -> None:
    files, after = in_files(store, owner).keep(store, owner.snapshot_id(1))
    assert after.partitions == in_order(after, files)
    commit(owner, number=1, state=files, plan=to_json(PLAN))
    latest = store.latest()
    assert latest is not None
    assert [file.tree_sizes for file in latest.manifest.state] == [
        (("one", len(STATES["one"])), ("three", len(STATES["three"]))),
        (("two", len(STATES["two"])),),
    ]
    again = PartitionedState.of(latest)
    assert again.forest == CROWN
    assert len(again.whole(PAGES, CODEC)) == 4
    assert not store.verify()


def in_order(tree_sizes: PartitionedState, files: Sequence[Any]) -> tuple[StoredPartition, ...]:
    folder = tree_sizes.partitions[0].folder  # type: ignore[union-attr]
    return tuple(StoredPartition(folder, file) for file in files)


def test_what_is_at_hand_is_written_to_one_file_and_stays_at_hand(store: Checkpoints, owner: CheckpointOwner) -> None:
    files, after = at_hand().keep(store, owner.snapshot_id(1))
    assert [[tree for tree, _ in file.tree_sizes] for file in files] == [["one", "three", "two"]]
    assert after.partitions == at_hand().partitions
    commit(owner, number=1, state=files, plan=to_json(PLAN))
    latest = store.latest()
    assert latest is not None
    assert len(PartitionedState.of(latest).whole(PAGES, CODEC)) == 4


def test_files_of_another_snapshot_are_referred_to_and_kept_as_long(store: Checkpoints, owner: CheckpointOwner) -> None:
    store.keep = owner._keep = 1
    first, state = in_files(store, owner).keep(store, owner.snapshot_id(1))
    commit(owner, number=1, state=first, plan=to_json(PLAN))
    for number in (2, 3):
        files, state = state.keep(store, owner.snapshot_id(number))
        assert files == first
        commit(owner, number=number, state=files, plan=to_json(PLAN))
    assert [snapshot.number for snapshot in store.all()] == [3]
    assert len(state.whole(PAGES, CODEC)) == 4
    assert store.verify() == []
    owner = store.take_over(resumes=store.latest())
    commit(owner, number=4, state=files, plan=to_json(PLAN))
    commit(owner, number=5)
    assert not store.folder.listing().files, "no manifest names them any more"
    with pytest.raises(UsageError, match=r"STATE_FILES.*was not written for snapshot 6"):
        commit(owner, number=6, state=files)


def test_a_state_in_memory_is_written_once(store: Checkpoints, owner: CheckpointOwner) -> None:
    first, state = at_hand().keep(store, owner.snapshot_id(1))
    commit(owner, number=1, state=first, plan=to_json(PLAN))
    assert state.keep(store, owner.snapshot_id(2)) == (first, state)


def test_small_states_are_handed_over(store: Checkpoints, owner: CheckpointOwner) -> None:
    size = sum(map(len, STATES.values()))
    assert FinalStatePolicy().keep(STATES) == InMemoryPartition.of(STATES)
    assert FinalStatePolicy(store, owner.snapshot_id(1), most=size).keep(STATES) == InMemoryPartition.of(STATES)
    kept = FinalStatePolicy(store, owner.snapshot_id(1), most=size - 1).keep(STATES)
    assert isinstance(kept, StoredPartition)
    assert kept.read() == InMemoryPartition.of(STATES).data
    assert kept.file.is_of(owner.snapshot_id(1))


def test_a_share_that_was_changed_is_noticed(store: Checkpoints, owner: CheckpointOwner) -> None:
    tree_sizes = in_files(store, owner)
    file = Path(store.folder.at(tree_sizes.partitions[0].file.name))  # type: ignore[union-attr]
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED"):
        tree_sizes.under(CROWN, ["one"], PAGES, CODEC)


def test_sizes_that_do_not_make_up_the_file(store: Checkpoints, owner: CheckpointOwner) -> None:
    data = b"".join(STATES.values())
    wrong = [(tree, len(state) - 1) for tree, state in STATES.items()]
    commit(owner, number=1, state=[store.write_state(owner.snapshot_id(1), data, wrong)], plan=to_json(PLAN))
    latest = store.latest()
    assert latest is not None
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_DAMAGED.*do not add up to its size"):
        PartitionedState.of(latest).whole(PAGES, CODEC)
    assert [finding.damaged for finding in store.verify()] == [True]


def test_what_a_lost_task_wrote_is_deleted_with_the_commit_or_told(store: Checkpoints, owner: CheckpointOwner) -> None:
    snapshot_id = owner.snapshot_id(1)
    in_files(store, owner)
    files, _ = in_files(store, owner).keep(store, snapshot_id)
    commit(owner, number=1, state=files, plan=to_json(PLAN))
    assert not store.verify()
    left = {name for _, name in store.folder.listing().files}
    assert left == {file.name for file in files}
    late = store.write_state(snapshot_id, b"late", [("one", 4)])
    (finding,) = store.verify()
    assert (finding.damaged, late.name in finding.file) == (False, True)


@pytest.mark.parametrize(
    ("trees", "plan"),
    [(["one", "two"], PLAN), (["one", "two", "three", "three"], PLAN), (["one", "two", "three"], None), ([], PLAN)],
    ids=["one is lacking", "one is there twice", "nobody knows the plan", "none"],
)
def test_a_manifest_whose_states_do_not_fit_its_plan(
    store: Checkpoints, owner: CheckpointOwner, trees: list[str], plan: Plan | None
) -> None:
    files = [store.write_state(owner.snapshot_id(1), STATES[tree], [(tree, len(STATES[tree]))]) for tree in trees]
    snapshot = commit(owner, number=1, state=files, plan=None if plan is None else to_json(plan))
    with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED"):
        PartitionedState.of(snapshot)
    assert bool(trees) == any(finding.damaged for finding in store.verify())

"""A program as people write it: everything in one script, its state a class of its own. Run by test_scripts.py."""

import importlib
import sys
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

import flumina as fl
from tests.system.cluster import session


@dataclass
class Seen:
    """What has been seen since the last question."""

    values: list[int] = field(default_factory=list)
    most: int = 0


SCALE = 3


def scaled(value: int) -> int:
    """A function of the script that the program calls."""
    return value * SCALE


class Collect(fl.Program):
    """Collects values until somebody asks."""

    value = fl.Tag("v long NOT NULL")
    ask = fl.Tag()
    depends = fl.depends((ask, ask), (ask, value))
    output = "n long, most long"

    def init(self) -> Seen:
        return Seen()

    def update(self, state: Seen, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.value:
            state.values.append(event.v)
            state.most = max(state.most, scaled(event.v))
        else:
            emit(len(state.values), state.most)
            state.values, state.most = [], 0

    def fork(self, state: Seen, left: fl.TagSet, right: fl.TagSet) -> tuple[Seen, Seen]:
        return state, Seen()

    def join(self, left: Seen, right: Seen) -> Seen:
        return Seen(left.values + right.values, max(left.most, right.most))


class Views(fl.KeyedProgram):
    """Declared state, whose fork and join were derived from the source of this script."""

    view = fl.Tag("user long", key="page string")
    change = fl.Tag("info string", key="page string")
    depends = fl.depends((change, change), (change, view))
    output = "page string, info string"
    info = fl.Replicated("string")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.view:
            emit(event.page, state.info)
        else:
            state.info = event.info


def main(engine: str) -> None:
    """Run both on an engine, compare with the oracle, and say so."""
    if engine == "spark":
        session("local[2]")
    run = importlib.import_module(f"flumina.{engine}").run
    rows = np.arange(500)
    values = [pa.table({"ts": rows * 2 + part, "v": rows % 89}) for part in range(2)]
    asks = pa.table({"ts": np.arange(50, 1000, 100)})
    collect = [fl.Stream("asks", Collect.ask, asks), fl.Stream("values", Collect.value, values)]
    views = [pa.table({"ts": rows * 2 + p, "page": ["ab"[n % 2] for n in rows], "user": rows}) for p in range(2)]
    changes = pa.table({"ts": [100, 300, 500], "page": ["a", "b", "a"], "info": ["x", "y", "z"]})
    join = [fl.Stream("changes", Views.change, changes), fl.Stream("views", Views.view, views)]
    for program, streams in ((Collect, collect), (Views, join)):
        result = run(program, streams, workers=2, optimizer="greedy", ordered=True, return_state=True, progress=False)
        expected = fl.spec(program, streams)
        table = result.output.toArrow() if engine == "spark" else result.output
        assert table.to_pylist() == expected.output.to_pylist()
        assert len([stats for stats in result.stats.workers.values() if stats.events]) > 1
        assert isinstance(result.state, type(expected.state)), "the class of this script"
    print("agreed")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])

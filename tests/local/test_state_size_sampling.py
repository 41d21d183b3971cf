from pathlib import Path

import pyarrow as pa

import flumina as fl
from flumina import local
from flumina.apps import KeyCounter, ValueBarrier
from flumina.local.sample_request import SampleRequest
from flumina.local.state_size_sampling import FEW, sampled
from flumina.plan.survey import Survey
from tests.system import failing


def values(program: type[fl.Program], rows: int) -> list[fl.Stream]:
    """Values and one barrier."""
    return [
        fl.Stream("v", program.value, {"ts": range(rows), "v": [failing.BAD] * rows}),  # type: ignore[attr-defined]
        fl.Stream("b", program.barrier, {"ts": [rows]}),  # type: ignore[attr-defined]
    ]


def survey(program: type[fl.Program], rows: int) -> Survey:
    return Survey.of(program, values(program, rows))


def test_an_order_leaves_the_size_in_its_file_and_nothing_where_update_fails(tmp_path: Path) -> None:
    stream = fl.Stream("i", KeyCounter.inc, [{"ts": n, "k": n} for n in range(50)])
    order = SampleRequest.of(KeyCounter, [stream], 500.0, "error", tmp_path / "size")
    assert order.result() is None
    order.execute()
    found = order.result()
    assert found is not None
    assert found.keys == 500
    failed = SampleRequest.of(failing.InUpdate, values(failing.InUpdate, 5), 0.0, "error", tmp_path / "none")
    failed.execute()
    assert failed.result() is None


def test_states_are_sampled_in_a_process_that_may_die() -> None:
    """An update that ends its process does not end the driver, and the next sample has a process again."""
    assert sampled(failing.Dies, survey(failing.Dies, FEW), "error", 0.0) is None
    found = sampled(ValueBarrier, survey(ValueBarrier, FEW), "error", 0.0)
    assert found is not None
    assert found.rest_bytes > 0
    assert sampled(ValueBarrier, survey(ValueBarrier, 10), "error", 0.0) is None  # few events


def test_a_run_of_many_keys_with_an_unkeyed_tag_has_one_worker() -> None:
    """Joins of all keys took 25 to 160 times as long as one worker does."""
    program, count = ManyKeys, 4000
    keys = [0 if n % 10 else n for n in range(count)]
    sales = pa.table({"ts": range(count), "k": keys})
    streams = [
        fl.Stream("a", program.sale, [sales.take(pa.array(range(part, count, 2))) for part in range(2)]),
        fl.Stream("p", program.price, {"ts": range(0, count, 40), "k": [0] * (count // 40)}),
        fl.Stream("r", program.report, {"ts": [count]}),
    ]
    result = local.run(program, streams, workers=2, progress=False)
    assert not any(worker.children and worker.itags for worker in result.plan.workers)
    assert sorted(map(str, result.output.to_pylist())) == sorted(map(str, fl.spec(program, streams).output.to_pylist()))


class ManyKeys(fl.KeyedProgram):
    """Counts by key, and a report of all keys."""

    sale = fl.Tag(key="k long")
    price = fl.Tag(key="k long")
    report = fl.Tag()
    depends = fl.depends((price, price), (price, sale), (report, report), (report, sale), (report, price))
    output = "total long"
    total = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            state.total += 1
        else:
            emit(state.total)

    def update_all(self, states: dict[int, fl.State], event: fl.Event, emit: fl.Emit) -> None:
        emit(sum(state.total for state in states.values()))

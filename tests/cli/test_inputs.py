from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.apps import PageViewsByHand
from flumina.apps.registry import APPS, find_app
from flumina.cli.inputs import InputOptions, Named
from tests.cli.jobs import ORDERS, write


def events(named: Named, options: InputOptions) -> int:
    work = named.work(options)
    return fl.spec(work.program, work.streams).events


@pytest.fixture
def job(tmp_path: Path) -> str:
    return write(tmp_path, "orders_job.py", ORDERS)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"ts": [3, 1, 2], "amount": [1, 2, 3]}), tmp_path / "orders.parquet")
    pq.write_table(pa.table({"at": [3, 1, 2], "amount": [1, 2, 3]}), tmp_path / "others.parquet")
    pq.write_table(pa.table({"ts": [9]}), tmp_path / "closes.parquet")
    pq.write_table(pa.table({"at": [9]}), tmp_path / "others_closes.parquet")
    return tmp_path


def test_a_known_program_has_made_up_input() -> None:
    named = Named.find("value-barrier")
    assert events(named, InputOptions(set={"events": "1000", "ratio": "50"})) == 1010
    parts = {stream.name: stream.source().parts for stream in named.work(InputOptions(parts=4)).streams}
    assert parts == {"values": 4, "barriers": 1}
    given = named.work(InputOptions(parts=4, set={"parts": "3"})).streams
    assert given[0].source().parts == 3
    assert named.work(InputOptions(parts=1)).streams[0].source().parts == 2, "the same events as for two workers"


@pytest.mark.parametrize("name", APPS)
def test_programs_can_be_named_as_classes_and_so_can_their_twins(name: str) -> None:
    app = find_app(name)
    for program in filter(None, (app.program, app.by_hand)):
        named = Named.find(f"flumina.apps:{program.__name__}")
        assert named.app is app
        work = named.work(InputOptions())
        assert {tag for stream in work.streams for tag in stream.tags} <= set(fl.define(program).tags.values())


def test_the_twin_reads_the_same_events() -> None:
    options = InputOptions(set={"events": "500", "changes": "50"})
    assert Named.find("flumina.apps:PageViewsByHand").program is PageViewsByHand
    assert events(Named.find("flumina.apps:PageViewsByHand"), options) == events(Named.find("page-views"), options)


def test_an_app_of_ones_own(tmp_path: Path) -> None:
    text = "from flumina.apps.value_barrier import APP as theirs\nfrom dataclasses import replace\n"
    path = write(tmp_path, "own_app.py", text + "MINE = replace(theirs, name='mine')\n")
    assert events(Named.find(f"{path}:MINE"), InputOptions(set={"events": "100"})) == 100


def test_paced_input_has_a_rate_and_heartbeats() -> None:
    streams = Named.find("value-barrier").work(InputOptions(paced=True, heartbeats=7)).streams
    assert all(stream.data.rate is not None and stream.data.heartbeats == 7 for stream in streams)


def test_a_folder_for_a_known_program(tmp_path: Path) -> None:
    find_app("page-views").generate(events=300, changes=50).write(tmp_path / "visits")
    assert events(Named.find("page-views"), InputOptions([str(tmp_path / "visits")])) == 300 + 1 + 3


def test_a_file_in_its_own_format_with_options_and_bad_lines(tmp_path: Path) -> None:
    lines = [f"{1377986400 + n} {20 + n}.5 1 {n % 3} 0 {n % 2}" for n in range(60)]
    file = tmp_path / "plugs.txt"
    file.write_text("\n".join([*lines, "what?"]) + "\n")
    named = Named.find("smart-home")
    with pytest.raises(fl.InputError, match=r"plugs.txt:61"):
        events(named, InputOptions([str(file)]))
    work = named.work(InputOptions([str(file)], lenient=True, set={"slice_seconds": "20", "parts": "3"}))
    assert len(work.left_out) == 1
    assert max(stream.source().parts for stream in work.streams) == 3
    assert fl.spec(work.program, work.streams).output.num_rows == 20


def test_files_by_stream_and_tag(job: str, orders: Path) -> None:
    named = Named.find(f"{job}:Orders")
    files = [f"order={orders}/orders.parquet", f"ends:close={orders}/closes.parquet"]
    work = named.work(InputOptions(files, unsorted=True))
    assert [(stream.name, stream.tags[0].name) for stream in work.streams] == [("order", "order"), ("ends", "close")]
    assert fl.spec(work.program, work.streams).output.column("total").to_pylist() == [6]
    with pytest.raises(fl.InputError, match="sorted=False"):
        events(named, InputOptions(files))
    others = [text.replace("orders.parquet", "others.parquet").replace("closes", "others_closes") for text in files]
    assert events(named, InputOptions(others, unsorted=True, ts="at")) == 4


def test_files_by_the_streams_of_a_known_program(tmp_path: Path) -> None:
    find_app("value-barrier").generate(events=100, ratio=10).write(tmp_path)
    files = [f"values={tmp_path}/values", f"barriers={tmp_path}/barriers/*.parquet"]
    assert events(Named.find("value-barrier"), InputOptions(files)) == 105


def test_a_path_that_is_there_is_a_path_whatever_it_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_app("page-views").generate(events=100).write(tmp_path / "day=1")
    monkeypatch.chdir(tmp_path)
    assert events(Named.find("page-views"), InputOptions(["day=1"])) == 100


def test_a_function_gives_streams_and_takes_parameters(job: str) -> None:
    named = Named.find(f"{job}:Orders")
    assert events(named, InputOptions(streams=f"{job}:streams")) == 102
    work = named.work(InputOptions(streams=f"{job}:streams", set={"count": "10", "scale": "2.5", "parts": "3"}))
    assert work.streams[0].source().parts == 3
    assert fl.spec(work.program, work.streams).output.column("total").to_pylist() == [
        sum(int(n * 2.5) for n in range(6)),
        sum(int(n * 2.5) for n in range(6, 10)),
    ]
    assert events(named, InputOptions(streams=f"{job}:ready")) == 12


def test_what_the_function_raises_is_its_own(job: str) -> None:
    with pytest.raises(fl.UserCodeError, match=r"broken raised ZeroDivisionError[\s\S]*orders_job.py:26"):
        Named.find(f"{job}:Orders").work(InputOptions(streams=f"{job}:broken"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (InputOptions(), r"not known what Orders reads[\s\S]*--input order=PATH"),
        (InputOptions(["a.parquet"]), r"a.parquet does not say which stream"),
        (InputOptions(["foo=x.parquet"]), r"Orders has no tag 'foo'[\s\S]*order, close"),
        (InputOptions(["order:foo=x.parquet"]), r"Orders has no tag 'foo'"),
        (InputOptions(["order=missing.parquet"]), r"there is no file or folder missing.parquet"),
        (InputOptions(["order=a"], streams="x:y"), r"both say where events come from"),
        (InputOptions(["order=a"], set={"n": "1"}), r"--set has no meaning"),
        (InputOptions(["order=a"], lenient=True), r"--lenient is for --input PATH"),
        (InputOptions(["order=a"], paced=True), r"--paced is for made-up input"),
        (InputOptions(["order=a"], heartbeats=3), r"without --paced"),
        (InputOptions(streams="JOB:streams", unsorted=True), r"--unsorted is for --input"),
        (InputOptions(streams="JOB:streams", ts="at"), r"--ts is for --input"),
        (InputOptions(streams="JOB:streams", set={"n": "1"}), r"has no 'n'[\s\S]*count"),
        (InputOptions(streams="JOB:streams", set={"count": "x"}), r"expected count= as int, got 'x'"),
        (InputOptions(streams="JOB:ready", set={"n": "1"}), r"is a list and takes no --set n"),
        (InputOptions(streams="JOB:needy"), r"needs day[\s\S]*--set day=VALUE"),
        (InputOptions(streams="JOB:nothing"), r"needs a list of at least one Stream, got None"),
        (InputOptions(streams="JOB:Orders"), r"is no function but"),
        (InputOptions(streams="JOB"), r"names no function"),
    ],
)
def test_what_cannot_be_meant(job: str, options: InputOptions, said: str) -> None:
    streams = None if options.streams is None else options.streams.replace("JOB", job)
    with pytest.raises(fl.UsageError, match=said):
        Named.find(f"{job}:Orders").work(replace(options, streams=streams))


def test_a_known_program_reads_one_path(tmp_path: Path) -> None:
    with pytest.raises(fl.UsageError, match="one file or folder"):
        Named.find("page-views").work(InputOptions([str(tmp_path), "views=x"]))
    with pytest.raises(fl.UsageError, match=f"no file or folder {tmp_path}/x"):
        Named.find("page-views").work(InputOptions([f"{tmp_path}/x"]))


@pytest.mark.parametrize(
    ("text", "said"),
    [("nope", r"page-views.*module:Program.*file\.py:Program"), ("my/job.py", "my/job.py:NAME"), ("a.b", "a.b:NAME")],
)
def test_names_of_nothing(text: str, said: str) -> None:
    with pytest.raises(fl.UsageError, match=said):
        Named.find(text)

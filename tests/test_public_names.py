"""What ``import flumina as fl`` offers: adding or removing a name is a decision, made here."""

import inspect
import subprocess
import sys
from pathlib import Path

import flumina as fl

NAMES = [
    "AtEnd",
    "Atom",
    "Batch",
    "BoundedDelay",
    "Checkpoint",
    "CheckpointError",
    "CheckpointProgress",
    "ClosedBatches",
    "Count",
    "DISCARD",
    "DefinitionError",
    "Emit",
    "EngineOptions",
    "Event",
    "Every",
    "Field",
    "FluminaError",
    "GeneratorSource",
    "Heartbeats",
    "InOrder",
    "InputError",
    "KeySet",
    "KeyedProgram",
    "LawError",
    "Max",
    "Min",
    "OutputError",
    "Parquet",
    "PerKey",
    "Plan",
    "Point",
    "Program",
    "Replicated",
    "RunResult",
    "RunStats",
    "Set",
    "SpecResult",
    "State",
    "StateType",
    "Stream",
    "Sum",
    "TTL",
    "Tag",
    "TagSet",
    "Tuple",
    "UsageError",
    "UserCodeError",
    "Window",
    "check",
    "define",
    "depends",
    "duration",
    "fork",
    "greatest",
    "join",
    "least",
    "on",
    "repeat",
    "reset",
    "run",
    "spec",
    "start",
    "total",
    "update",
    "update_batch",
]


def test_the_list() -> None:
    assert sorted(fl.__all__) == NAMES
    assert len(fl.__all__) == len(set(fl.__all__))


def test_every_name_is_there_and_documented() -> None:
    for name in fl.__all__:
        member = getattr(fl, name)
        assert inspect.getdoc(member), name
        assert member.__module__.startswith("flumina."), name


def test_nothing_else_is_public() -> None:
    modules = {name for name, member in vars(fl).items() if inspect.ismodule(member)}
    assert {name for name in dir(fl) if not name.startswith("_")} - modules - {"TYPE_CHECKING"} == set(fl.__all__)
    assert not hasattr(fl, "no_such_name")


def test_the_errors_that_programs_catch_are_public_and_the_others_in_their_module() -> None:
    errors = {name for name in fl.__all__ if name.endswith("Error")}
    assert len(errors) == 8
    for name in errors:
        assert getattr(fl, name) is getattr(fl.errors, name)


def test_what_only_some_need_is_not_imported() -> None:
    """Programs load fast: the checker's, Spark's and the engine's dependencies come when they are used."""
    unwanted = {"hypothesis", "pandas", "pyspark", "pyarrow.dataset", "flumina.plan", "flumina.engine.job"}
    code = f"import sys, flumina; print(*sorted(set(sys.modules) & {unwanted!r}))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300)
    assert found.stdout.split() == []


USER = """
from dataclasses import dataclass

import flumina as fl


@dataclass
class Payment:
    ts: int
    account: str
    cents: int


class Accounts(fl.KeyedProgram):
    payment = fl.Tag(Payment, key="account")
    audit = fl.Tag()
    depends = fl.depends((audit, audit), (audit, payment))
    output = "account string, cents long"
    cents = fl.Sum("long")

    @fl.on(payment)
    def pay(self, state: fl.State, event: Payment, emit: fl.Emit) -> None:
        state.cents += event.cents

    @fl.on(audit)
    def report(self, states: dict[str, fl.State], event: fl.Event, emit: fl.Emit) -> None:
        for account, state in states.items():
            emit(account, state.cents)

    @fl.on(payment, audit)
    def both(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        pass



class PageViews(fl.KeyedProgram):
    view = fl.Tag("user long", key="page string")
    change = fl.Tag("info string", key="page string")
    depends = fl.depends((change, change), (change, view))
    output = "page string, user long, info string"
    info = fl.Replicated("string")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.view:
            emit(event.page, event.user, state.info)
        else:
            state.info = event.info


class Total(fl.Program[int]):
    add = fl.Tag("v long")
    depends = fl.depends()
    output = "total long"

    def init(self) -> int:
        return 0

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        return state + int(event.v)

    def fork(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        return state, 0

    def join(self, left: int, right: int) -> int:
        return left + right


streams = [fl.Stream("views", PageViews.view, [{"ts": 1, "page": "home", "user": 7}])]
fine = fl.run(PageViews, streams, workers=2, optimizer="greedy", out=fl.DISCARD, ordered=True)
plan: fl.Plan = fine.plan
stats: fl.RunStats = fine.stats
events: int = stats.events
checked: bool = fl.check(Total, examples=5).ok
kept: fl.RunResult = fl.run(Total(), streams, checkpoint=fl.Checkpoint("kept", when=lambda p: p.events > 5), out="o")
shown = reveal_type(fl.run)
"""

WRONG = {
    "fl.run(PageViews, streams, wrokers=2)": 'Unexpected keyword argument "wrokers"',
    'fl.run(PageViews, streams, workers="2")': '"workers" to "run" has incompatible type "str"',
    'fl.run(PageViews, streams, optimizer="magic")': "Literal['cost', 'greedy', 'sequential']",
    'fl.run(PageViews, streams, bad_rows="drop")': "Literal['error', 'dead-letter']",
    'fl.run(PageViews, streams, on="spark")': '"str"',
    'fl.start(PageViews, streams, "out", "kept", late="never")': "Literal['error', 'dead-letter', 'drop']",
    'fl.start(PageViews, streams, "out", "kept", trigger={"once": True})': "trigger",
    "fl.spec(PageViews, streams, bad_rows=3)": '"bad_rows" to "spec"',
    "@fl.on(Accounts.payment)\ndef other(self: Total, state: int, event: int, emit: fl.Emit) -> None: ...": "int",
    "@fl.on(Accounts.payment)\ndef pay(self: Total, state: int, event: Payment, emit: fl.Emit) -> str:\n"
    "    return event.amunt": '"Payment" has no attribute "amunt"',
    "fl.Programm": 'has no attribute "Programm"',
    "class A(fl.Program):\n    def update(self, state: int, event: fl.Event) -> int: return 3": 'Signature of "update"',
    "class B(Total):\n    def join(self, left: str, right: str) -> str: return left": '"join"',
}


def test_type_checkers_know_a_users_calls(tmp_path: Path) -> None:
    """Without a mistake there is no complaint, in strict mode; every mistake is found where it is."""
    lines = USER.count("\n")
    wrong = list(WRONG.items())
    (tmp_path / "job.py").write_text(USER + "\n".join(statement for statement, _ in wrong) + "\n")
    root = Path(__file__).parents[1]
    options = ["--strict", f"--config-file={root / 'pyproject.toml'}", f"--cache-dir={root / '.mypy_cache'}"]
    command = [sys.executable, "-m", "mypy", *options, str(tmp_path / "job.py")]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False).stdout
    told = [line for line in found.splitlines() if ": error:" in line]
    assert [line for line in told if int(line.split(":")[1]) <= lines] == [], found
    at = lines + 1
    for statement, said in wrong:
        last = at + statement.count("\n")
        assert [x for x in told if at <= int(x.split(":")[1]) <= last and said in x], f"{statement}: {said}\n{found}"
        at = last + 1
    (shown,) = (line for line in found.splitlines() if "Revealed type" in line)
    assert "Any" not in shown[shown.index("**options") :], shown

"""Keeps the tree as ARCHITECTURE.md says it is."""

import ast
import importlib
import inspect
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import waits
from tests.conftest import TOGETHER, group

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
TESTS = ROOT / "tests"

MAY_IMPORT = {
    "formatting": set(),
    "errors": {"formatting"},
    "storage": {"errors"},
    "model": {"errors"},
    "state": {"model"},
    "program": {"state"},
    "input": {"program", "storage"},
    "spec": {"input"},
    "check": {"spec"},
    "plan": {"input"},
    "runtime": {"plan"},
    "sim": {"runtime", "check"},
    "output": {"input"},
    "checkpoint": {"runtime", "output"},
    "engine": {"checkpoint"},
    "streaming": {"engine"},
    "local": {"engine"},
    "spark": {"streaming"},
    "report": {"engine"},
    "backend": {"spark", "local"},
    "flumina": {"backend", "check"},
    "apps": {"flumina"},
    "testing": {"check", "local"},
    "cli": {"apps", "report", "sim", "testing"},
    "__main__": {"cli"},
}
"""What each part of the package builds on; it may import what those build on, too. ``flumina`` is ``__init__.py``."""

ENTRY_POINTS = {"flumina", "flumina.__main__", "flumina.local", "flumina.spark", "flumina.report", "flumina.testing"}
"""What people import or call; everything else is reached from there."""
UNUSED = {
    "one_tag": "makes batches for whoever calls update_batch by hand",
    "_repr_html_": "called by notebooks",
    "processAllAvailable": "the name that it has in Spark",
    "assert_lawful": "called by tests of programs",
    "find_class": "called by pickle",
    "start_time": "read by programs",
    "end_time": "read by programs",
    "fromutc": "called by datetime",
    "dst": "called by datetime",
    "tzname": "called by datetime",
}
"""Functions that no module mentions, and who calls them."""
LONGEST = 450
TESTS_OF_SEVERAL = {
    "checkpoint/store/test_damage.py",
    "plan/render/test_pictures.py",
    "runtime/test_bounds.py",
    "runtime/test_flight.py",
    "runtime/test_literal_mailbox.py",
    "runtime/test_ablation.py",
    "runtime/test_ties.py",
    "runtime/test_timing.py",
    "runtime/test_unkeyed_tags.py",
    "sim/test_mutants.py",
    "sim/test_regressions.py",
    "streaming/test_kills.py",
    "test_docs.py",
    "test_doctests.py",
    "test_public_names.py",
    "test_tidy.py",
    "test_wires.py",
}
"""Tests of the whole, or of several modules together."""
HOSTS = {"www.apache.org", "www.w3.org", "github.com", "docs.python.org", "spark.apache.org", "arxiv.org", "doi.org"}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
every = pytest.mark.parametrize("name", MODULES)


def area(module: str) -> str:
    """The part of a module's name that the layers speak of."""
    return module.split(".")[1] if "." in module else module


def imports(path: Path) -> Iterator[str]:
    """Everything a file imports, at whatever place in it, as full module names where they are ours."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            ours = [name for name in inner if name in MODULES]
            yield from ours
            if len(ours) < len(inner):
                yield node.module


def below(part: str) -> set[str]:
    """Everything that a part of the package may import: itself, what it builds on, and what that builds on."""
    found, ahead = {part}, [part]
    while ahead:
        new = MAY_IMPORT[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def test_every_part_says_what_it_builds_on() -> None:
    assert {area(name) for name in MODULES} == set(MAY_IMPORT)


def test_no_part_builds_on_itself() -> None:
    assert not [part for part, others in MAY_IMPORT.items() if any(part in below(other) for other in others)]


@every
def test_imports_go_down(name: str) -> None:
    for imported in imports(MODULES[name]):
        if imported == "flumina" or imported.startswith("flumina."):
            assert area(imported) in below(area(name)), f"{name} imports {imported}, which is not below it"


@every
def test_only_spark_imports_pyspark(name: str) -> None:
    if area(name) != "spark":
        assert not [module for module in imports(MODULES[name]) if module.partition(".")[0] == "pyspark"]


def test_no_module_is_dead() -> None:
    """Every module is reached from what people import or call: nothing ships for tests or benchmarks alone."""
    reached: set[str] = set()
    waiting = list(ENTRY_POINTS)
    while waiting:
        name = waiting.pop()
        if name in MODULES and name not in reached:
            reached.add(name)
            by_name = mentioned(ast.parse(MODULES[name].read_text(encoding="utf-8")))  # importlib.import_module("...")
            waiting += [*imports(MODULES[name]), *by_name, name.rpartition(".")[0]]
    assert set(MODULES) - reached == set()


def mentioned(tree: ast.AST) -> Iterator[str]:
    """Every name in a piece of code, those in texts that are nothing but a name included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_function_is_dead() -> None:
    """Every function, method and class is mentioned in the package outside of itself, or in a list with a reason."""
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
    everywhere = Counter(word for tree in trees.values() for word in mentioned(tree))
    dead = set()
    for tree in trees.values():
        for owner in ast.walk(tree):
            for node in owner.body if isinstance(owner, ast.Module | ast.ClassDef) else ():
                if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith(("__", "on_")):
                    continue
                if everywhere[node.name] <= Counter(mentioned(node))[node.name]:
                    dead.add(node.name)
    assert dead == set(UNUSED)


@every
def test_names_use_the_words_of_the_glossary(name: str) -> None:
    """Names of modules, classes, functions and their parameters; docs/glossary.md has the words to use instead."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    names = {name.rpartition(".")[2]}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            names |= {parameter.arg for parameter in (*node.args.args, *node.args.kwonlyargs)}
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Retired words")[2]
    retired = set(re.findall(r"[a-z]+", glossary.partition(":")[2])) - {"for", "a", "dead"}
    assert len(retired) > 20
    for one in names:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", re.sub(r"[dD]ead_?[lL]etters?", "", one)).lower().split("_")
        assert not retired & set(words), f"{one} in {name}: see docs/glossary.md"


@every
def test_no_module_is_long(name: str) -> None:
    lines = MODULES[name].read_text(encoding="utf-8").count("\n")
    assert lines <= LONGEST, f"{name} has {lines} lines"


@every
def test_every_module_says_what_it_is_for(name: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[name].read_text(encoding="utf-8")))


def undocumented(cls: type) -> Iterator[str]:
    """Public methods of a class that neither have a docstring nor override one that has."""
    for name, member in vars(cls).items():
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        plain = getattr(plain, "fget", None) or getattr(plain, "func", None) or plain
        if name.startswith("_") or not inspect.isfunction(plain) or plain.__doc__:
            continue
        overridden = [vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)]
        protocols = any(getattr(base, "_is_protocol", False) for base in cls.__mro__)
        if not any(getattr(base, "__doc__", None) for base in overridden) and not protocols:
            yield f"{cls.__qualname__}.{name}"


@every
def test_everything_public_is_documented(name: str) -> None:
    module = importlib.import_module(name) if not name.endswith("__main__") else None
    missing: list[str] = []
    for label, member in vars(module).items() if module else ():
        if label.startswith("_") or getattr(member, "__module__", None) != name:
            continue
        if inspect.isfunction(member) and not member.__doc__:
            missing.append(label)
        elif inspect.isclass(member):
            tuple_made = (member.__doc__ or "").startswith(f"{member.__name__}(")  # what the language writes itself
            missing += [label] if not member.__doc__ or tuple_made else []
            missing += undocumented(member)
    assert set(missing) - IMPLEMENTS == set()


IMPLEMENTS = {
    f"{cls}.{method}"
    for cls in ("RuleDependence", "FunctionDependence")
    for method in ("between", "partners", "covers", "only_by_key")
}
"""Methods that the protocol they implement documents, without the class being derived from it."""


def test_tests_mirror_the_modules() -> None:
    """A test file of a part of the package has the name of the module it tests, or says that it tests several."""
    areas = {name.split(".")[1] for name, path in MODULES.items() if path.parent != SOURCE / "flumina"}
    modules = {
        path.relative_to(SOURCE / "flumina").with_name(f"test_{path.name.strip('_')}").as_posix()
        for path in MODULES.values()
        if path.name != "__init__.py"
    }
    packages = {f"{'/'.join(name.split('.')[1:])}/test_{name.rpartition('.')[2]}.py" for name in MODULES}
    found = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    own = {name for name in found if "/" not in name or name.split("/")[0] in areas}
    assert own - modules - packages - TESTS_OF_SEVERAL == set(), "tests without a module"
    assert TESTS_OF_SEVERAL - own == set(), "listed, but not there"


def tracked() -> list[Path]:
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no clone")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def named_files(text: str) -> Iterator[str]:
    """Yield names in backticks that look like paths of the repository or the package, outside of code blocks."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    folders = {"src", "tests", "benchmarks", "docs", "examples", "tools", "flumina"}
    folders |= {path.name for path in (SOURCE / "flumina").iterdir() if path.is_dir()}
    for name in re.findall(r"`([\w.-]+(?:/[\w.-]+)*/?)`", prose):
        if "/" in name and name.split("/")[0] in folders:
            yield name


def missing_files(text: str) -> list[str]:
    """Paths that a document names and that exist neither in the repository nor below the package."""
    roots = (ROOT, SOURCE, SOURCE / "flumina")
    return [name for name in named_files(text) if not any((root / name).exists() for root in roots)]


DOCUMENTS = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING")] + sorted(
    ROOT.glob("docs/**/*.md")
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_documents_name_files_that_exist(path: Path) -> None:
    assert missing_files(path.read_text(encoding="utf-8")) == []


def test_files_that_do_not_exist_are_found() -> None:
    text = (
        "`model/order.py`, `order/model.py`, `engine/order.py`, `docs/none.md`, `local/`\n```sh\n`tests/none.py`\n```\n"
    )
    assert missing_files(text) == ["engine/order.py", "docs/none.md"]
    assert set(named_files((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))) > {
        "engine/task.py",
        "model/order.py",
    }


def test_no_machine_and_no_package_index_is_named() -> None:
    wrong: list[str] = []
    machine = re.compile(r"(?<![\w.~>])/(?:root|work|home/(?!me\b)\w+|Users|mnt|private|tmp/\w)\b/?")
    places = [str(ROOT), str(Path.home())]
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        name = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(text.splitlines(), 1):
            if name != "tests/test_tidy.py" and (machine.search(line) or any(p in line for p in places if len(p) > 1)):
                wrong.append(f"{name}:{number}: {line.strip()}")
            hosts = set(re.findall(r"https?://([\w.-]+)", line))
            if {host for host in hosts - HOSTS if not host.endswith(("example.org", "example.com"))}:
                wrong.append(f"{name}:{number}: {line.strip()}")
            if (
                re.search(r"(?<!no-emit-)index-url\b|--extra-index|--find-links[ =]", line)
                and name != "tests/test_tidy.py"
            ):
                wrong.append(f"{name}:{number}: {line.strip()}")
    assert wrong == []


def test_tests_that_use_spark_run_in_one_process_of_their_group() -> None:
    """A mark of xdist's once stopped working without a word, and every process of the tests started a cluster."""
    listed = set.union(*TOGETHER.values())
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if re.search(r"\b(spark|spark_home|cluster): (SparkSession|None|Cluster)\b", path.read_text(encoding="utf-8")):
            assert path.stem in listed, f"{path.name} starts Spark: list it in tests/conftest.py"
            assert group(f"{path.relative_to(ROOT)}::test_x[1]") in TOGETHER
    assert group("tests/model/test_order.py::test_x") == "tests/model/test_order.py::test_x"


def test_every_wait_is_listed_with_what_ends_it() -> None:
    """A wait that is new in the code has to say what wakes it and what bounds it; one that is gone leaves the table."""
    rows = waits.listed()
    table = [waits.Wait(row["where"], row["call"]) for row in rows]
    assert len(set(table)) == len(table), "listed twice"
    assert set(waits.found(SOURCE / "flumina")) - set(table) == set(), "waits that are not in tests/waits.toml"
    assert set(table) - set(waits.found(SOURCE / "flumina")) == set(), "rows of tests/waits.toml without a wait"
    for row in rows:
        assert set(row) == {"where", "call", "wakes", "bound", "shown_by"}, row
        assert all(row.values()), row
        file, _, test = row["shown_by"].partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{row['where']}: there is no {test}"

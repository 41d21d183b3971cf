import re
import tomllib
from itertools import chain, combinations
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ["requirements.lock", "tools/build.lock", "tools/java.lock", "tools/docs.lock"]


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))


def wanted(lock: str) -> list[Requirement]:
    """The requirements that a lock was made from."""
    if lock == "requirements.lock":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        lines = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    else:
        text = (ROOT / lock).with_suffix(".in").read_text()
        lines = [line for line in (line.partition("#")[0].strip() for line in text.splitlines()) if line]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("lock", LOCKS)
def test_pins_satisfy_what_is_wanted(lock: str) -> None:
    pinned = pins(lock)
    for requirement in wanted(lock):
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"run `make lock`: {lock} lacks {name}"
        assert requirement.specifier.contains(pinned[name]), f"run `make lock`: {lock} needs {requirement}"


def test_build_backend_is_locked() -> None:
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    for requirement in map(Requirement, system["requires"]):
        assert requirement.specifier.contains(pins("tools/build.lock")[canonicalize_name(requirement.name)])


@pytest.mark.parametrize(("one", "other"), list(combinations(LOCKS, 2)))
def test_all_of_them_fit_into_one_environment(one: str, other: str) -> None:
    first, second = pins(one), pins(other)
    assert {name for name in first.keys() & second.keys() if first[name] != second[name]} == set()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes_and_nothing_names_a_place(lock: str) -> None:
    text = (ROOT / lock).read_text()
    hashed = re.findall(r"^[a-z0-9-]+==\S+ \\\n    --hash=sha256:", text, re.MULTILINE)
    assert len(hashed) == len(pins(lock)) > 0
    assert "://" not in text
    assert not re.search(r"^-|(?<![\w.])/\w", text, re.MULTILINE)

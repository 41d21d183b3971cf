"""Load objects that a command line names: ``module:object`` or ``path/to/file.py:object``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

import cloudpickle

from flumina.errors import FluminaError, UsageError
from flumina.program.base import Program
from flumina.program.definition import RAISED

_LOADED: dict[tuple[Path, int], ModuleType] = {}
"""Executed files, so that a program and the function that makes its streams share classes."""


def load_program(text: str) -> Program | type[Program]:
    """Return the program class (or instance) that ``text`` names."""
    found: Program | type[Program] = load_object(text, "program", is_program)
    return found


def is_program(found: object) -> TypeGuard[Program | type[Program]]:
    """Return whether it is a program, as a class or as an instance."""
    return isinstance(found, Program) or (isinstance(found, type) and issubclass(found, Program))


def load_object(text: str, kind: str, accepted: Callable[[object], bool]) -> Any:  # noqa: ANN401 -- any of a kind
    """Return the object that ``text`` names, if it is accepted; ``kind`` names such objects in errors."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        example = "flumina.apps:PageViews" if kind == "program" else "my/job.py:streams"
        raise UsageError(
            f"{kind.upper()}_NAME",
            f"{text!r} names no {kind}",
            hint=f"write module:{kind} or path/to/file.py:{kind}, for example {example}",
        )
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not None and accepted(found):
        return found
    others = sorted(n for n, member in vars(module).items() if accepted(member) and not getattr(member, "_abstract", 0))
    what = "is not there" if found is None else f"is no {kind} but {type(found).__name__}"
    raise UsageError(
        f"NO_{kind.upper()}", f"{name} in {place} {what}", hint=f"its {kind}s are: {', '.join(others) or 'none'}"
    )


def _load_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except FluminaError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError("NO_MODULE", f"there is no module {name!r}", hint="is its folder on PYTHONPATH?") from None
        raise _broken(name, error) from error
    except RAISED as error:
        raise _broken(name, error) from error


def _load_file(path: Path) -> ModuleType:
    """Execute a file once; its classes are pickled by value, since no worker has a module of this name."""
    if not path.is_file():
        raise UsageError("NO_FILE", f"there is no file {path}")
    where = path.resolve()
    version = (where, where.stat().st_mtime_ns)
    if version in _LOADED:
        return _LOADED[version]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _make_importable(where.parent)  # as for a script: modules beside it can be imported
    before = sys.modules.get(path.stem)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(path.stem, None)  # a later import must not find a half-executed module
        if before is not None:
            sys.modules[path.stem] = before
        if isinstance(error, FluminaError) or not isinstance(error, RAISED):
            raise
        raise _broken(str(path), error) from error
    cloudpickle.register_pickle_by_value(module)
    _LOADED[version] = module
    return module


def _make_importable(folder: Path) -> None:
    """Put a folder on the path; refuse one that holds a module named flumina."""
    ours = Path(__file__).resolve().parent
    for name in ("flumina.py", "flumina/__init__.py"):
        found = folder / name
        if found.exists() and found.resolve().parent != ours:
            what = f"{found} hides the library: Python imports it wherever a program says import flumina"
            raise UsageError("HIDDEN", what, hint="give it another name")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _broken(name: str, error: BaseException) -> UsageError:
    script = 'what a script does belongs under if __name__ == "__main__":'
    return UsageError(
        "BROKEN_MODULE",
        f"{name} can't be loaded: {type(error).__name__}: {error}",
        hint=script if isinstance(error, SystemExit) else None,
    )

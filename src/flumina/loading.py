"""Finding the program that a command line names: ``module:Program`` or ``path/to/file.py:Program``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from flumina.errors import FluminaError, UsageError
from flumina.program import Program


def load_program(text: str) -> Program | type[Program]:
    """The program class (or instance) that ``text`` names."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(
            "PROGRAM_NAME",
            f"{text!r} names no program",
            hint="write module:Program or path/to/file.py:Program, for example flumina.apps:PageViews",
        )
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Program) or (isinstance(found, type) and issubclass(found, Program)):
        return found
    programs = sorted(
        n
        for n, member in vars(module).items()
        if isinstance(member, type) and issubclass(member, Program) and not member._abstract
    )
    what = "is not there" if found is None else f"is no program but {type(found).__name__}"
    raise UsageError(
        "NO_PROGRAM", f"{name} in {place} {what}", hint=f"its programs are: {', '.join(programs) or 'none'}"
    )


def _load_module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except FluminaError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError("NO_MODULE", f"there is no module {name!r}", hint="is its folder on PYTHONPATH?") from None
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError("NO_FILE", f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except FluminaError:
        raise
    except Exception as error:
        raise _broken(str(path), error) from error
    return module


def _broken(name: str, error: Exception) -> UsageError:
    return UsageError("BROKEN_MODULE", f"{name} can't be loaded: {type(error).__name__}: {error}")

"""Which program a command line means, and where its events come from.

::

    flumina run page-views                              made-up input of a known program; --set events=1000
    flumina run smart-home --input plugs.csv.gz         a file or folder that the known program can read
    flumina run my.job:Orders --input order=orders/     a Parquet file or folder for each stream; NAME:TAG=PATH
    flumina run my.job:Orders --streams my.job:streams  a function that gives a list of fl.Stream
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_type_hints

from flumina.apps.app import App
from flumina.apps.registry import APPS, find_app
from flumina.apps.workload import arguments
from flumina.errors import FluminaError, UsageError
from flumina.input.files import Parquet
from flumina.input.stream import Stream
from flumina.input.stream_checks import check_streams
from flumina.model.tag import Tag
from flumina.program.base import AnyProgram, define
from flumina.program.definition import RAISED, user_error
from flumina.program.loading import is_program, load_object

_NAMED = re.compile(r"(?P<name>[^\W\d]\w*)(?::(?P<tag>[^\W\d]\w*))?=(?P<path>.+)", re.DOTALL)

_PARTS = 2
"""Made-up input has so many parts at least, so that one worker and two get the same events."""


@dataclass(frozen=True)
class Wanted:
    """What the command line says about the input.

    ``set``    parameters as text
    ``parts``  into how many parts input is divided that can be divided, unless ``set`` says otherwise
    """

    input: Sequence[str] = ()
    streams: str | None = None
    set: Mapping[str, str] = field(default_factory=dict)
    parts: int = 1
    paced: bool = False
    heartbeats: float | None = None
    lenient: bool = False
    unsorted: bool = False
    ts: str | None = None


@dataclass(frozen=True)
class Work:
    """A program with its streams; ``left_out`` says what is wrong with each row that was left out."""

    program: AnyProgram
    streams: Sequence[Stream]
    left_out: Sequence[str] = ()


@dataclass(frozen=True)
class Named:
    """The program that a command line names; ``app`` is there if it is known what input it has."""

    program: AnyProgram
    app: App | None

    @staticmethod
    def find(text: str) -> Named:
        """By the name of a known program, or ``module:object``."""
        if ":" not in text:
            if text not in APPS and (text.endswith(".py") or "." in text or "/" in text):
                raise UsageError("PROGRAM_NAME", f"{text!r} names no program", hint=f"write {text}:NAME_OF_THE_CLASS")
            app = find_app(text)
            return Named(app.program, app)
        found = load_object(text, "program", lambda it: is_program(it) or isinstance(it, App))
        if isinstance(found, App):
            return Named(found.program, found)
        known = [app for app in APPS.values() if found in (app.program, app.by_hand)]
        return Named(found, known[0] if known else None)

    def work(self, wanted: Wanted) -> Work:
        """The program with the input that is wanted."""
        _check(wanted, self)
        if wanted.streams is not None:
            return self._of(_from_function(wanted.streams, wanted.set), wanted)
        if wanted.input and all(_is_named(text) for text in wanted.input):
            return self._of([self._file(text) for text in wanted.input], wanted)
        assert self.app is not None
        if wanted.input:
            path, given = _there(wanted.input[0]), dict(wanted.set)
            parts = arguments(path, {"parts": int}, {"parts": given.pop("parts", wanted.parts)})["parts"]
            opened = self.app.open(path, parts=parts, lenient=wanted.lenient, **given)
            return self._of(opened.streams, wanted, opened.left_out)
        made = self.app.generate(**{"parts": max(_PARTS, wanted.parts), **wanted.set})
        often = {} if wanted.heartbeats is None else {"heartbeats": wanted.heartbeats}
        return self._of(made.streams(paced=wanted.paced, **often), wanted)

    def _of(self, streams: Sequence[Stream], wanted: Wanted, left_out: Sequence[str] = ()) -> Work:
        """The streams with the program's own tags: those of a known program may have been made for its twin."""
        tags = define(self.program).tags
        if self.app is not None and self.program is not self.app.program and wanted.streams is None:
            streams = [replace(s, tag=tags[s.tag.name]) if isinstance(s.tag, Tag) else s for s in streams]
        changes: dict[str, Any] = {"sorted": False} if wanted.unsorted else {}
        changes |= {} if wanted.ts is None else {"ts": wanted.ts}
        streams = [replace(stream, **changes) for stream in streams] if changes else streams
        check_streams(define(self.program), streams)
        return Work(self.program, streams, left_out)

    def _file(self, text: str) -> Stream:
        """A stream from NAME=PATH, where NAME is that of a stream or tag, or from NAME:TAG=PATH."""
        match = _NAMED.fullmatch(text)
        assert match is not None
        name, tags = match["name"], define(self.program).tags
        flows = {} if self.app is None else {flow.name: flow.tag.name for flow in self.app.workload().flows()}
        tag = match["tag"] or flows.get(name, name)
        if tag not in tags:
            what = f"{tag!r} is no tag of {define(self.program).name}"
            hint = f"write NAME:TAG=PATH; its tags are {', '.join(tags)}"
            raise UsageError("INPUT", f"--input {text}: {what}", hint=hint)
        return Stream(name, tags[tag], Parquet(_there(match["path"])))


def _check(wanted: Wanted, named: Named) -> None:
    """Refuse options that have no meaning together."""
    files = [text for text in wanted.input if not _is_named(text)]
    made = not wanted.input and wanted.streams is None
    name = define(named.program).name
    if wanted.streams is not None and wanted.input:
        raise UsageError("INPUT", "--streams and --input both say where events come from", hint="give one of them")
    if named.app is None and (made or files):
        what = f"--input {files[0]} does not say which stream it is" if files else f"it is not known what {name} reads"
        example = f"--input {next(iter(define(named.program).tags))}=PATH"
        raise UsageError("INPUT", what, hint=f"give {example} for each stream, or --streams module:function")
    if files and len(wanted.input) > 1:
        raise UsageError(
            "INPUT",
            f"{name} reads one file or folder, got {', '.join(wanted.input)}",
            hint="give one PATH, or NAME=PATH for each stream",
        )
    if wanted.set and wanted.input and not files:
        raise UsageError("SET", "--set has no meaning with --input NAME=PATH", hint="leave it out")
    if wanted.lenient and not files:
        raise UsageError("LENIENT", "--lenient is for --input PATH, files in a known program's own format")
    if wanted.paced and not made:
        hint = "streams of your own are paced by fl.GeneratorSource(..., rate=)"
        raise UsageError("PACED", "--paced is for made-up input", hint=hint)
    if wanted.heartbeats is not None and not wanted.paced:
        raise UsageError("HEARTBEATS", "--heartbeats has no meaning without --paced")
    if (wanted.unsorted or wanted.ts is not None) and not wanted.input:
        option = "--unsorted" if wanted.unsorted else "--ts"
        raise UsageError("INPUT", f"{option} is for --input", hint="streams of a function say that themselves")


def _is_named(text: str) -> bool:
    """Whether it says NAME=PATH rather than PATH."""
    return _NAMED.fullmatch(text) is not None and not Path(text).exists()


def _there(path: str) -> str:
    """A path on this machine that has to be there; URIs and patterns are left to who reads them."""
    if "://" not in path and not set("*?[") & set(path) and not Path(path).exists():
        raise UsageError("NO_INPUT", f"there is no file or folder {path}")
    return path


def function_parameters(text: str) -> dict[str, tuple[str, str]]:
    """The parameters of a function of ``--streams``: for each, its default and what its text becomes."""
    found = _function(text)
    if _is_streams(found):
        raise UsageError("SET", f"{text} is a list, and so has no parameters")
    signature = inspect.signature(found)
    types, given = _types(found, signature), signature.parameters
    return {
        name: ("" if given[name].default is inspect.Parameter.empty else repr(given[name].default), kind.__name__)
        for name, kind in types.items()
    }


def _function(text: str) -> Any:  # noqa: ANN401 -- a function, or a list of streams
    return load_object(text, "function", lambda it: inspect.isroutine(it) or _is_streams(it))


def _from_function(text: str, given: Mapping[str, str]) -> Sequence[Stream]:
    """The streams that a user's function gives, called with ``--set`` as far as its annotations say."""
    found = _function(text)
    if _is_streams(found):
        if given:
            raise UsageError("SET", f"{text} is a list and takes no --set {next(iter(given))}")
        return list(found)
    signature = inspect.signature(found)
    taken = arguments(text, _types(found, signature), given)
    needed = [p.name for p in signature.parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    missing = [name for name in needed if name not in taken]
    if missing:
        raise UsageError("SET", f"{text} needs {', '.join(missing)}", hint=f"give --set {missing[0]}=VALUE")
    try:
        made = found(**taken)
    except FluminaError:
        raise
    except RAISED as error:
        raise user_error(found, error) from error
    return list(made) if isinstance(made, list | tuple) else made  # what it is else, check_streams tells


def _types(function: Callable[..., object], signature: inspect.Signature) -> dict[str, type]:
    """What the text of each parameter is to become: a number where that is said, or by the default; else text."""
    hints = get_type_hints(function)
    found = {}
    for name, one in signature.parameters.items():
        wanted = hints.get(name, type(one.default))
        found[name] = wanted if wanted in (int, float) else str
    return found


def _is_streams(found: object) -> bool:
    return isinstance(found, list | tuple) and bool(found) and all(isinstance(one, Stream) for one in found)

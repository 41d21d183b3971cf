"""Find the program and the input streams that a command line names.

::

    flumina run page-views                              made-up input of a known program; --set events=1000
    flumina run smart-home --input plugs.csv.gz         a file or folder that the known program can read
    flumina run my.job:Orders --input order=orders/     a Parquet file or folder for each stream; NAME:TAG=PATH
    flumina run my.job:Orders --streams my.job:streams  a function that returns a list of fl.Stream
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
"""The least number of parts of made-up input, so that one worker and two get the same events."""


@dataclass(frozen=True)
class InputOptions:
    """Options of the command line about the input.

    ``set``    parameters as text
    ``parts``  the number of parts of input that can be divided, unless ``set`` has another
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
    """A program with its streams; ``left_out`` has the error of each row that was left out."""

    program: AnyProgram
    streams: Sequence[Stream]
    left_out: Sequence[str] = ()


@dataclass(frozen=True)
class Named:
    """Program that a command line names; ``app`` is set for a known program, with its input."""

    program: AnyProgram
    app: App | None

    @staticmethod
    def find(text: str) -> Named:
        """Return the program of a name: a known program, or ``module:object``."""
        if ":" not in text:
            if text not in APPS and (text.endswith(".py") or "." in text or "/" in text):
                what = f"expected a known program or module:Program, got {text!r}"
                raise UsageError("PROGRAM_NAME", what, hint=f"write {text}:NAME_OF_THE_CLASS")
            app = find_app(text)
            return Named(app.program, app)
        found = load_object(text, "program", lambda it: is_program(it) or isinstance(it, App))
        if isinstance(found, App):
            return Named(found.program, found)
        known = [app for app in APPS.values() if found in (app.program, app.by_hand)]
        return Named(found, known[0] if known else None)

    def work(self, options: InputOptions) -> Work:
        """Return the program with its input; raises UsageError for options that contradict each other."""
        _check(options, self)
        if options.streams is not None:
            return self._of(_from_function(options.streams, options.set), options)
        if options.input and all(_is_named(text) for text in options.input):
            return self._of([self._file(text) for text in options.input], options)
        assert self.app is not None
        if options.input:
            path, given = _existing(options.input[0]), dict(options.set)
            parts = arguments(path, {"parts": int}, {"parts": given.pop("parts", options.parts)})["parts"]
            opened = self.app.open(path, parts=parts, lenient=options.lenient, **given)
            return self._of(opened.streams, options, opened.left_out)
        made = self.app.generate(**{"parts": max(_PARTS, options.parts), **options.set})
        often = {} if options.heartbeats is None else {"heartbeats": options.heartbeats}
        return self._of(made.streams(paced=options.paced, **often), options)

    def _of(self, streams: Sequence[Stream], options: InputOptions, left_out: Sequence[str] = ()) -> Work:
        """Return the streams with the program's own tags; an app's streams may have those of its other program."""
        tags = define(self.program).tags
        if self.app is not None and self.program is not self.app.program and options.streams is None:
            streams = [replace(s, tag=tags[s.tag.name]) if isinstance(s.tag, Tag) else s for s in streams]
        changes: dict[str, Any] = {"sorted": False} if options.unsorted else {}
        changes |= {} if options.ts is None else {"ts": options.ts}
        streams = [replace(stream, **changes) for stream in streams] if changes else streams
        check_streams(define(self.program), streams)
        return Work(self.program, streams, left_out)

    def _file(self, text: str) -> Stream:
        """Return the stream of NAME=PATH, where NAME is that of a stream or tag, or of NAME:TAG=PATH."""
        match = _NAMED.fullmatch(text)
        assert match is not None
        name, tags = match["name"], define(self.program).tags
        flows = {} if self.app is None else {flow.name: flow.tag.name for flow in self.app.workload().flows()}
        tag = match["tag"] or flows.get(name, name)
        if tag not in tags:
            what = f"{define(self.program).name} has no tag {tag!r}"
            hint = f"write NAME:TAG=PATH; its tags are {', '.join(tags)}"
            raise UsageError("INPUT", f"--input {text}: {what}", hint=hint)
        return Stream(name, tags[tag], Parquet(_existing(match["path"])))


def _check(options: InputOptions, named: Named) -> None:
    """Raise UsageError for options that contradict each other."""
    files = [text for text in options.input if not _is_named(text)]
    made = not options.input and options.streams is None
    name = define(named.program).name
    if options.streams is not None and options.input:
        raise UsageError("INPUT", "--streams and --input both say where events come from", hint="give one of them")
    if named.app is None and (made or files):
        what = f"--input {files[0]} does not say which stream it is" if files else f"it is not known what {name} reads"
        example = f"--input {next(iter(define(named.program).tags))}=PATH"
        raise UsageError("INPUT", what, hint=f"give {example} for each stream, or --streams module:function")
    if files and len(options.input) > 1:
        raise UsageError(
            "INPUT",
            f"{name} reads one file or folder, got {', '.join(options.input)}",
            hint="give one PATH, or NAME=PATH for each stream",
        )
    if options.set and options.input and not files:
        raise UsageError("SET", "--set has no meaning with --input NAME=PATH", hint="leave it out")
    if options.lenient and not files:
        raise UsageError("LENIENT", "--lenient is for --input PATH, files in a known program's own format")
    if options.paced and not made:
        hint = "streams of your own are paced by fl.GeneratorSource(..., rate=)"
        raise UsageError("PACED", "--paced is for made-up input", hint=hint)
    if options.heartbeats is not None and not options.paced:
        raise UsageError("HEARTBEATS", "--heartbeats has no meaning without --paced")
    if (options.unsorted or options.ts is not None) and not options.input:
        option = "--unsorted" if options.unsorted else "--ts"
        raise UsageError("INPUT", f"{option} is for --input", hint="streams of a function say that themselves")


def _is_named(text: str) -> bool:
    """Return whether the text is NAME=PATH rather than PATH."""
    return _NAMED.fullmatch(text) is not None and not Path(text).exists()


def _existing(path: str) -> str:
    """Return a path; raises UsageError if it does not exist. Readers check URIs and patterns."""
    if "://" not in path and not set("*?[") & set(path) and not Path(path).exists():
        raise UsageError("NO_INPUT", f"there is no file or folder {path}")
    return path


def function_parameters(text: str) -> dict[str, tuple[str, str]]:
    """Return the parameters of a function of ``--streams``: for each, its default and its type."""
    found = _function(text)
    if _is_streams(found):
        raise UsageError("SET", f"{text} is a list, which has no parameters")
    signature = inspect.signature(found)
    types, given = _types(found, signature), signature.parameters
    return {
        name: ("" if given[name].default is inspect.Parameter.empty else repr(given[name].default), kind.__name__)
        for name, kind in types.items()
    }


def _function(text: str) -> Any:  # noqa: ANN401 -- a function, or a list of streams
    return load_object(text, "function", lambda it: inspect.isroutine(it) or _is_streams(it))


def _from_function(text: str, given: Mapping[str, str]) -> Sequence[Stream]:
    """Return the streams of a user's function, called with the values of ``--set``, converted by its annotations."""
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
    return list(made) if isinstance(made, list | tuple) else made  # check_streams refuses other values


def _types(function: Callable[..., object], signature: inspect.Signature) -> dict[str, type]:
    """Return the type of each parameter: that of its annotation or default if it is a number, else text."""
    hints = get_type_hints(function)
    found = {}
    for name, one in signature.parameters.items():
        kind = hints.get(name, type(one.default))
        found[name] = kind if kind in (int, float) else str
    return found


def _is_streams(found: object) -> bool:
    return isinstance(found, list | tuple) and bool(found) and all(isinstance(one, Stream) for one in found)

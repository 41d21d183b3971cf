"""Every error a user can meet, as one tree.

::

    FluminaError
    ├── DefinitionError     a program class is wrong: every mistake in it, each with file and line
    ├── SchemaError         a column list (Spark's DDL) does not parse
    ├── InputError          the data do not fit what was declared: stream, row and column are named
    ├── OrderError          two dependent events tie, so that the sequential program is not defined
    ├── OutputError         outputs do not fit what was declared, or can't be written where they should go
    ├── CheckpointError     a checkpoint is damaged, in use by another driver, or of another program
    ├── UserCodeError       the user's own function raised: which one, where, on which event
    ├── OutOfMemoryError    there was no memory left: where, in which task, and how much it had
    ├── LawError            a program breaks a law of consistency; carries the counterexample
    ├── PlanError           a plan is not valid for a program (all violations), or a plan file can't be read
    ├── UsageError          a call that cannot be meant: wrong argument, unknown name
    ├── HandshakeError      no connection to a process of the run: nobody there in time, or one with another secret
    ├── PeerLostError       the other end of a connection went away
    ├── FrameError          a message larger than a connection takes, or bytes that are no message
    ├── GangError           the tasks of a run did not all come together in time: which ones are missing
    ├── TaskLostError       the process of a task ended before its work did: task, process and machine are named
    │   └── TaskSilentError the process of a task gave no sign of life for longer than task_timeout=
    ├── TaskFailedError     a task raised an error that could not be carried here; its text and traceback could
    ├── ClusterError        Spark could not run the tasks: what it said, and where to look
    └── CalledOffError      a task was told that its run is over or was begun anew

An error has a *condition* (a stable upper-case name to match on), a message that says what and where,
and a hint that says what to do.
"""

from __future__ import annotations

import inspect
import os
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flumina.formatting import size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def location(filename: str, line: int) -> str:
    """``file:line`` as a person would type it: relative where the file lies below the working directory."""
    try:
        relative = os.path.relpath(filename)
    except ValueError:  # another drive
        relative = filename
    return f"{filename if relative.startswith('..') else relative}:{line}"


def location_of(function: Callable[..., Any]) -> str:
    """``file:line`` where a function begins."""
    code = inspect.unwrap(function).__code__
    return location(code.co_filename, code.co_firstlineno)


class FluminaError(Exception):
    """Base of everything flumina raises on purpose.

    >>> print(UsageError("NO_STREAMS", "spec was given no streams", hint="pass at least one Stream"))
    [NO_STREAMS] spec was given no streams
      hint: pass at least one Stream
    """

    def __init__(self, condition: str, message: str, *, hint: str | None = None) -> None:
        self.condition = condition
        self.message = message
        self.hint = hint
        text = f"[{condition}] {message}"
        super().__init__(text if hint is None else f"{text}\n  hint: {hint}")

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross process boundaries; the default would call ``__init__`` with one argument."""
        return (_revive, (type(self), self.args, self.__dict__))


def _revive(cls: type[FluminaError], args: tuple[object, ...], fields: dict[str, object]) -> FluminaError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class SchemaError(FluminaError):
    """A column list does not parse."""


class OrderError(FluminaError):
    """The order of two dependent events is not determined by the input."""


class OutputError(FluminaError):
    """An output does not fit the declared schema, or can't be written."""


class CheckpointError(FluminaError):
    """A checkpoint can't be used as it is; ``file`` is the one that is wrong, where it is one."""

    def __init__(self, condition: str, message: str, *, file: str | None = None, hint: str | None = None) -> None:
        self.file = file
        super().__init__(condition, message, hint=hint)


class UsageError(FluminaError):
    """A call that cannot be meant."""


class HandshakeError(FluminaError):
    """There is no way to a process that holds the secret of this run."""


class PeerLostError(FluminaError):
    """The other end of a connection went away."""


class FrameError(FluminaError):
    """Bytes that a connection does not take; it is closed before there is memory for them."""


class GangError(FluminaError):
    """Tasks that have to run together did not come together; ``missing`` has their numbers."""

    def __init__(self, message: str, *, missing: Sequence[int] = (), hint: str | None = None) -> None:
        self.missing = tuple(missing)
        super().__init__("GANG", message, hint=hint)


class TaskLostError(FluminaError):
    """The process of a task ended before its work did, or its connection did."""

    condition = "TASK_LOST"

    def __init__(self, task: int, *, pid: int, host: str) -> None:
        self.task, self.pid, self.host = task, pid, host
        super().__init__(self.condition, self._what(), hint=self._hint())

    def _what(self) -> str:
        return f"task {self.task} was lost: process {self.pid} on {self.host} ended before its work did"

    def _hint(self) -> str:
        return f"the log of that process, or the system log of {self.host}, says why it ended"


class TaskSilentError(TaskLostError):
    """A task gave no sign of life for longer than ``task_timeout=``; ``seconds`` has for how long."""

    condition = "TASK_SILENT"

    def __init__(self, task: int, *, pid: int, host: str, seconds: float, timeout: float) -> None:
        self.seconds, self.timeout = seconds, timeout
        super().__init__(task, pid=pid, host=host)

    def _what(self) -> str:
        return (
            f"task {self.task} gave no sign of life for {self.seconds:.3g} s, longer than task_timeout="
            f"{self.timeout:g}: process {self.pid} on {self.host}"
        )

    def _hint(self) -> str:
        return (
            "the process is stopped, its machine hangs or is gone, or one call in C holds Python's lock for that long; "
            "in the last case raise task_timeout="
        )


class TaskFailedError(FluminaError):
    """An error in a task that could not be carried to the driver, as text."""


class ClusterError(FluminaError):
    """The cluster could not run the tasks of a run."""


class CalledOffError(FluminaError):
    """A task was told by the driver to end; ``reason`` says why, ``over`` whether trying again makes no sense."""

    def __init__(self, reason: str, *, over: bool = False) -> None:
        self.reason, self.over = reason, over
        super().__init__("CALLED_OFF", f"the run was called off: {reason}")


class InputError(FluminaError):
    """A row of the input does not fit the declaration.

    ``stream``, ``part``, ``row`` (position in the part, from 0) and ``column`` are None where they do not apply.
    """

    def __init__(
        self,
        condition: str,
        message: str,
        *,
        stream: str,
        part: int | None = None,
        row: int | None = None,
        column: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.stream, self.part, self.row, self.column = stream, part, row, column
        where = [f"stream {stream!r}"]
        where += [f"part {part}"] if part is not None else []
        where += [f"row {row}"] if row is not None else []
        where += [f"column {column!r}"] if column is not None else []
        super().__init__(condition, f"{', '.join(where)}: {message}", hint=hint)


class UserCodeError(FluminaError):
    """The user's function raised; the original exception is ``__cause__``.

    Where it did something else that it must not, ``cause`` says what, and there is no ``__cause__``.
    """

    def __init__(self, function: str, cause: BaseException | str, *, where: str, event: str | None = None) -> None:
        self.function, self.where, self.event = function, where, event
        on = "" if event is None else f" on {event}"
        did = cause if isinstance(cause, str) else f"raised {type(cause).__name__}: {cause}"
        super().__init__("USER_CODE", f"{function} {did}{on}\n  at: {where}")


class OutOfMemoryError(FluminaError):
    """There was no memory left, in the user's function or elsewhere; the original exception is ``__cause__``.

    ``task`` is None outside of a task; ``memory`` (the most that its process had, in bytes) and ``state`` (the most
    that its states had when they were sent, in bytes) are None where that is not known.
    """

    def __init__(
        self,
        where: str,
        *,
        event: str | None = None,
        task: int | None = None,
        memory: int | None = None,
        state: int | None = None,
    ) -> None:
        self.where, self.event, self.task, self.memory, self.state = where, event, task, memory, state
        on = "" if event is None else f" on {event}"
        known = [] if memory is None else [f"its process had up to {size(memory)}"]
        known += [] if state is None else [f"the largest state that it sent had {size(state)}"]
        figures = f" ({'; '.join(known)})" if known else ""
        message = f"{'the process' if task is None else f'task {task}'} ran out of memory{figures} in {where}{on}"
        hint = (
            "keep less state, spread it over more workers (workers=), or give each process more memory (on Spark: "
            "spark.executor.memoryOverhead, spark.executor.pyspark.memory)"
        )
        super().__init__("OUT_OF_MEMORY", message, hint=hint)

    def of_task(self, task: int, memory: int | None, state: int | None) -> OutOfMemoryError:
        """Return the same error with what is known of the task."""
        return OutOfMemoryError(self.where, event=self.event, task=task, memory=memory, state=state)


class LawError(FluminaError):
    """A program breaks a law of consistency."""


class PlanError(FluminaError):
    """A plan can't be used; ``violations`` has everything that is wrong with a plan that could be read."""

    def __init__(
        self, condition: str, message: str, *, violations: Sequence[object] = (), hint: str | None = None
    ) -> None:
        self.violations = tuple(violations)
        lines = "".join(f"\n  {number}. {violation}" for number, violation in enumerate(self.violations, 1))
        super().__init__(condition, message + lines, hint=hint)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a program class; ``excerpt`` is the line that it is on, with carets below the mistake."""

    condition: str
    message: str
    where: str
    hint: str | None = None
    excerpt: str | None = None

    def __str__(self) -> str:
        shown = "" if self.excerpt is None else textwrap.indent(f"\n{self.excerpt}", " " * 8)
        tail = "" if self.hint is None else f"\n      hint: {self.hint}"
        return f"{self.where}: [{self.condition}] {self.message}{shown}{tail}"


class DefinitionError(FluminaError):
    """All the mistakes in one program class, at once."""

    def __init__(self, program: str, problems: Sequence[Problem]) -> None:
        self.program, self.problems = program, tuple(problems)
        count = f"{len(problems)} mistake{'s' if len(problems) > 1 else ''}"
        lines = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(problems, 1))
        super().__init__("DEFINITION", f"program {program} has {count}:\n{lines}")

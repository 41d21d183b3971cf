"""Errors that Flumina raises, as one class hierarchy.

::

    FluminaError
    ├── DefinitionError     a program class is wrong: every mistake in it, each with file and line
    ├── SchemaError         a column list (Spark's DDL) does not parse
    ├── InputError          the data do not fit what was declared: stream, row and column are named
    ├── OrderError          two dependent events tie, so that the sequential program is not defined
    ├── OutputError         outputs do not fit what was declared, or can't be written where they should go
    ├── CheckpointError     a checkpoint is damaged, in use by another driver, or of another program
    ├── UserCodeError       the user's own function raised: which one, where, on which event
    ├── OutOfMemoryError    a process ran out of memory: where, in which task, and how much it had
    ├── LawError            a program breaks a law of consistency; the message has the counterexample
    ├── PlanError           a plan is not valid for a program (all violations), or a plan file can't be read
    ├── UsageError          a call is wrong: invalid argument, unknown name
    ├── HandshakeError      no connection to a process of the run: it did not answer in time, or has another secret
    ├── PeerLostError       a peer closed its connection
    ├── FrameError          a message is larger than a connection accepts, or its bytes can't be decoded
    ├── GangError           not all tasks of a run registered in time: which ones are missing
    ├── TaskLostError       the process of a task ended before its work did: task, process and machine are named
    │   └── TaskSilentError the process of a task gave no sign of life for longer than task_timeout=
    ├── TaskFailedError     a task raised an error that could not be pickled; the message has its text and traceback
    ├── ClusterError        Spark could not run the tasks: its message, and where to look
    └── CalledOffError      the driver ended a task, since its run is over or was restarted

An error has a *condition* (a stable upper-case name to match on), a message that says what is wrong and where, and a
hint that says what to do.
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
    """Return ``file:line``, relative where the file lies below the working directory."""
    try:
        relative = os.path.relpath(filename)
    except ValueError:  # another drive
        relative = filename
    return f"{filename if relative.startswith('..') else relative}:{line}"


def location_of(function: Callable[..., Any]) -> str:
    """Return ``file:line`` of a function's definition."""
    code = inspect.unwrap(function).__code__
    return location(code.co_filename, code.co_firstlineno)


class FluminaError(Exception):
    """Base class of all errors that Flumina raises.

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
        """Support pickling: the default would call ``__init__`` with one argument."""
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
    """A checkpoint can't be used; ``file`` is the damaged file or the folder, where the error is about one."""

    def __init__(self, condition: str, message: str, *, file: str | None = None, hint: str | None = None) -> None:
        self.file = file
        super().__init__(condition, message, hint=hint)


class UsageError(FluminaError):
    """A call has an invalid argument or an unknown name."""


class HandshakeError(FluminaError):
    """No connection could be made to a process that holds the secret of this run."""


class PeerLostError(FluminaError):
    """A peer closed its connection."""


class FrameError(FluminaError):
    """A connection got a message that is too large or can't be decoded, and was closed."""


class GangError(FluminaError):
    """Not all tasks of a gang registered in time; ``missing`` has the numbers of the others."""

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
    """A task gave no sign of life for ``seconds``, longer than ``task_timeout=``."""

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
    """A task raised an error that could not be pickled; the message has its text and traceback."""


class ClusterError(FluminaError):
    """Spark could not run the tasks of a run."""


class CalledOffError(FluminaError):
    """The driver ended a task, for ``reason``; ``over`` if the run is over, so that the task must not be retried."""

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

    Where it did not raise, but broke a rule, ``cause`` is a text that says which, and ``__cause__`` is None.
    """

    def __init__(self, function: str, cause: BaseException | str, *, where: str, event: str | None = None) -> None:
        self.function, self.where, self.event = function, where, event
        on = "" if event is None else f" on {event}"
        did = cause if isinstance(cause, str) else f"raised {type(cause).__name__}: {cause}"
        super().__init__("USER_CODE", f"{function} {did}{on}\n  at: {where}")


class OutOfMemoryError(FluminaError):
    """A process ran out of memory, in the user's function or elsewhere; the original exception is ``__cause__``.

    ``task`` is None outside of a task; ``memory`` (the peak memory of its process, in bytes) and ``state`` (the size of
    the largest state that it sent, in bytes) are None where they are not known.
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
        """Return the same error with the task, its peak memory, and the size of its largest state."""
        return OutOfMemoryError(self.where, event=self.event, task=task, memory=memory, state=state)


class LawError(FluminaError):
    """A program breaks a law of consistency."""


class PlanError(FluminaError):
    """A plan is not valid, or can't be read; ``violations`` has all violations of a plan that is not valid."""

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
        excerpt = "" if self.excerpt is None else textwrap.indent(f"\n{self.excerpt}", " " * 8)
        tail = "" if self.hint is None else f"\n      hint: {self.hint}"
        return f"{self.where}: [{self.condition}] {self.message}{excerpt}{tail}"


class DefinitionError(FluminaError):
    """A program class has mistakes; ``problems`` has all of them."""

    def __init__(self, program: str, problems: Sequence[Problem]) -> None:
        self.program, self.problems = program, tuple(problems)
        count = f"{len(problems)} mistake{'s' if len(problems) > 1 else ''}"
        lines = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(problems, 1))
        super().__init__("DEFINITION", f"program {program} has {count}:\n{lines}")

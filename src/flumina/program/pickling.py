"""Pickle programs for other processes, including classes from scripts and notebooks.

A class that can be imported travels by its name. Any other travels by value; the members that were derived when it was
made travel with it, because the receiving process may not have its source.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle

from flumina.errors import UsageError
from flumina.model.tag import Tag
from flumina.program.base import Program, reviving


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # it ships no types
    """A pickler that rebuilds program classes without checking them again."""

    def reducer_override(self, obj: object) -> Any:  # noqa: ANN401
        """Return how to pickle an object, or NotImplemented for the default."""
        if isinstance(obj, Tag) and obj.owner is not None and super().reducer_override(obj.owner) is NotImplemented:
            return (getattr, (obj.owner, obj.name))  # programs compare tags by identity
        if isinstance(obj, Tag) and obj.event_type is not None:  # plain pickle could not send a class of a script
            return (object.__new__, (type(obj),), {**obj.__getstate__(), "event_type": obj.event_type})
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and issubclass(obj, Program) and isinstance(reduced, tuple):
            make, args, *rest = reduced
            return (_revive, (make, args), *rest)
        return reduced


def _revive(make: Callable[..., type], args: tuple[Any, ...]) -> type:
    with reviving():
        return make(*args)


def dumps(what: object) -> bytes:
    """Pickle an object that refers to a user's program."""
    file = io.BytesIO()
    try:
        _Pickler(file).dump(what)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise UsageError(
            "NOT_PICKLABLE",
            f"the program can't be sent to the workers: {error}",
            hint="a program must not hold on to open files, locks or connections; make them in update, or on first use",
        ) from error
    return file.getvalue()


def loads(data: bytes) -> Any:  # noqa: ANN401
    """Unpickle the result of :func:`dumps`."""
    try:
        return pickle.loads(data)  # noqa: S301 -- from the driver that started this task
    except ModuleNotFoundError as error:
        raise UsageError(
            "NOT_IMPORTABLE",
            f"the workers have no module {error.name!r}, which the program needs",
            hint="install it where the workers run, or hand it to them with spark.addArtifact / sc.addPyFile",
        ) from error

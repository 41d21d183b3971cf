"""What a deliberate bug is: functions of the runtime that are replaced, in tests only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar
from unittest import mock

from flumina.runtime.topology import ProtocolOptions

WAITING = ProtocolOptions(hand_over=False)
"""Leaves wait for their state: most rules are about that."""

Function = TypeVar("Function", bound=Callable[..., object])


@dataclass(frozen=True)
class Mutant:
    """A bug: what is replaced, which options it needs, and a seed that finds it (None: a written schedule)."""

    name: str
    why: str
    changes: tuple[tuple[object, str, object], ...]
    options: ProtocolOptions
    seed: int | None
    truncations: bool = False
    """Whether it shows in runs that are cut off."""

    @contextmanager
    def alive(self) -> Iterator[None]:
        """The runtime with this bug."""
        with ExitStack() as stack:
            for owner, name, new in self.changes:
                stack.enter_context(mock.patch.object(owner, name, new))
            yield


MUTANTS: dict[str, Mutant] = {}


def mutant(
    *targets: tuple[object, str],
    options: ProtocolOptions = WAITING,
    seed: int | None = 0,
    is_property: bool = False,
    truncations: bool = False,
) -> Callable[[Function], Function]:
    """Put the decorated function in the place of these; its docstring says which rule is broken."""

    def register(function: Function) -> Function:
        assert function.__doc__ is not None
        new = property(function) if is_property else function
        changes = tuple((owner, name, new) for owner, name in targets)
        MUTANTS[function.__name__] = Mutant(function.__name__, function.__doc__, changes, options, seed, truncations)
        return function

    return register

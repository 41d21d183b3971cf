"""All deliberate bugs of the protocol, by name; each must be found by random schedules or by a written one."""

from __future__ import annotations

from tests.sim import mutants_above, mutants_below, mutants_keyed, mutants_truncate
from tests.sim.mutant import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant", "mutants_above", "mutants_below", "mutants_keyed", "mutants_truncate"]

"""Compare the work of the protocol with and without its optimizations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flumina.runtime.stats import WorkerStats
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.trial import Trial

PROTOCOLS = {
    "plain": ProtocolOptions(coalesce=False, pipeline=False, hand_over=False),
    "coalesced": ProtocolOptions(coalesce=True, pipeline=False, hand_over=False),
    "also pipelined": ProtocolOptions(coalesce=True, pipeline=True, hand_over=False),
    "also handed over": ProtocolOptions(coalesce=True, pipeline=True, hand_over=True),
}


def ablation(trials: Iterable[Trial]) -> dict[str, WorkerStats]:
    """Return the total work over all trials, for each protocol."""
    totals = dict.fromkeys(PROTOCOLS, WorkerStats())
    for trial in trials:
        for name, options in PROTOCOLS.items():
            outcome = replace(trial, options=options, crashes=()).run()
            for stats in outcome.stats.values():
                totals[name] += stats
    return totals


def table(totals: dict[str, WorkerStats]) -> str:
    """Format the totals as a table."""
    lines = [f"{'protocol':<18}{'joins':>8}{'forks':>8}{'waits':>8}{'handed':>8}{'coalesced':>11}"]
    lines += [
        f"{name:<18}{s.joins:>8}{s.forks:>8}{s.blocked:>8}{s.handed:>8}{s.coalesced:>11}" for name, s in totals.items()
    ]
    return "\n".join(lines)

from collections import Counter

from flumina.sim.trial import trial

SEEDS = range(400)


def test_runs_that_are_cut_off_go_on_exactly_where_they_were() -> None:
    """Outputs and the state of every snapshot are judged inside."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        one = trial(seed)
        if not one.truncations:
            continue
        outcome = one.run()
        seen["runs"] += 1
        seen["cut"] += bool(outcome.snapshots)
        seen["cut twice or more"] += len(outcome.snapshots) > 1
        seen["with crashes"] += bool(one.crashes)
        seen["by key"] += bool(outcome.snapshots) and one.case.definition.lifted is not None and one.options.by_key
        seen["few credits"] += bool(outcome.snapshots) and one.conditions.credits < 10
        joined = sum(stats.joins for stats in outcome.stats.values())
        seen["joined"] += bool(outcome.snapshots) and joined > 2
    assert seen["runs"] > 100
    assert seen["cut"] > 0.3 * seen["runs"]
    for what in ("cut twice or more", "with crashes", "by key", "few credits", "joined"):
        assert seen[what] >= 3, (what, seen)


def test_a_trial_with_cuts_can_be_repeated() -> None:
    seed = next(seed for seed in SEEDS if trial(seed).truncations and trial(seed).run().snapshots)
    one, other = trial(seed).run(), trial(seed).run()
    assert one.steps == other.steps
    assert [(s.point, s.state) for s in one.snapshots] == [(s.point, s.state) for s in other.snapshots]

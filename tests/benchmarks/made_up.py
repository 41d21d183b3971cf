"""Results of all sections, made up, as a report needs them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.evaluation.case import PROGRAMS, RATIO
from benchmarks.evaluation.record import How, Record, Results

MACHINE = {"cores": 2, "memory GB": 8, "load before": 0.1, "date": "2026-01-01", "Python": "3.11", "Spark": "4"}


def records() -> dict[str, list[Record]]:
    """For each section as many records as its figures need."""
    found: dict[str, list[Record]] = {name: [] for name in ("throughput", "baselines", "curves", "latency")}
    for number, program in enumerate(PROGRAMS, 1):
        speed = 1e7 / number
        for workers in (1, 2, 8, 12, 20, 1_000):
            how: How = "measured" if workers <= 2 else "simulated"
            for kind in dict.fromkeys((how, "simulated")):
                found["throughput"].append(
                    Record(f"throughput {program}", f"ratio {RATIO}", workers, speed * workers**0.9, kind)
                )
        for workers in (1, 2):
            error = Record("model error", f"{program}, ratio {RATIO} (predicted)", workers, 0.1 * number, "simulated")
            found["throughput"].append(error)
            for form, rate in (
                ("Flumina", 1e7),
                ("Spark batch", 4e6),
                ("Spark streaming", 3e5),
                ("Spark by hand", 1e4),
            ):
                runs = [rate * workers * share for share in (0.9, 1.0, 1.2)]
                found["baselines"].append(Record.of(f"systems {program}", form, workers, runs))
        found["baselines"].append(Record.of(f"systems {program}", "Spark by hand", 12, [11e4]))
    for program in ("page-views", "fraud"):
        for rate in (1e4, 1e5, 1e6):
            late = 0.004 * (rate / 1e4) ** 0.2
            found["curves"] += [
                Record(f"curve {program}", "Flumina, 2 workers", rate, late, "measured", late / 2, late * 2),
                Record(f"curve {program}", "Flumina, 12 workers", 6 * rate, late, "simulated", late / 2, late * 2),
                Record(f"curve {program}", "Spark streaming, 2 cores", rate / 3, 200 * late, "measured"),
            ]
    for figure, places in (("latency workers", (1, 2, 8)), ("latency heartbeats", (10, 100, 1_000))):
        for ratio in (100, 10_000):
            found["latency"] += [Record(figure, f"ratio {ratio}", x, 0.003 + x / 1e6, "measured") for x in places]
            found["latency"] += [Record(figure, f"ratio {ratio}", x, 0.004 + x / 1e6, "simulated") for x in places]
    found["network"] = [
        Record(figure, series, workers, y * workers, "measured")
        for workers in (2, 4)
        for figure, series, y in (
            ("network", "between workers", 1e5),
            ("network", "read by workers", 1e8),
            ("network share", "of what is read", 1e-3),
        )
    ]
    found["outliers"] = [Record("outliers", "speed-up", n, 0.9 * n, "simulated") for n in range(1, 9)]
    found["outliers"].append(Record("outliers", "speed-up", 2, 1.8, "measured"))
    return found


def write(folder: Path) -> dict[str, Results]:
    """All of it as files."""
    made = {
        name: Results(name, MACHINE, quick=True, seconds=10, records=tuple(found)) for name, found in records().items()
    }
    for results in made.values():
        results.save(folder)
    return made

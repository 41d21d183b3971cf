"""Programs with very many keys, beside the three of the paper that ``flumina.apps`` has."""

from __future__ import annotations

import flumina as fl


class Totals(fl.KeyedProgram):
    """A sum for each key, which a read emits and resets."""

    add = fl.Tag("v long NOT NULL", key="k long")
    read = fl.Tag(key="k long")
    depends = fl.depends((read, read), (read, add))
    output = "k long, total long"
    total = fl.Sum("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """Add a value; emit the sum at a read and start again."""
        if event.tag is self.add:
            state.total += event.v
        else:
            emit(event.k, state.total)
            state.total = 0


class Reported(fl.KeyedProgram):
    """The same, and a report now and then that looks at all keys."""

    add = fl.Tag("v long NOT NULL", key="k long")
    read = fl.Tag(key="k long")
    report = fl.Tag()
    depends = fl.depends((read, read), (read, add), (report, report), (report, add), (report, read))
    output = {"totals": "k long, total long", "reports": "keys long, total long"}
    total = fl.Sum("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """Add a value; emit the sum at a read and start again."""
        if event.tag is self.add:
            state.total += event.v
        else:
            emit.totals(event.k, state.total)
            state.total = 0

    def update_all(self, states: dict[int, fl.State], event: fl.Event, emit: fl.Emit) -> None:
        """Emit how many keys have a sum, and the sum of all."""
        sums = [state.total for state in states.values() if state.total]
        emit.reports(len(sums), sum(sums))

from decimal import Decimal

import flumina as fl
from flumina.model.decimals import exact_decimals


class Money(fl.Program):
    move = fl.Tag("amount decimal(38,18) NOT NULL")
    close = fl.Tag()
    depends = fl.depends((close, close), (close, move))
    output = "total decimal(38,18)"
    total = fl.Sum("decimal(38,18)")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.move:
            state.total += event.amount
        else:
            emit(state.total)


def test_sums_of_money_are_exact_whatever_their_digits() -> None:
    """Python's default context keeps 28 digits and would lose the small amounts."""
    tiny = Decimal("4e-18")
    moves = [{"ts": t, "amount": a} for t, a in enumerate([Decimal("1e19"), tiny, tiny, tiny, Decimal("-1e19")])]
    result = fl.spec(Money, [fl.Stream("m", Money.move, moves), fl.Stream("c", Money.close, [{"ts": 9}])])
    assert result.output["total"].to_pylist() == [3 * tiny]


def test_joins_of_sums_are_exact() -> None:
    field = fl.Sum("decimal(38,18)")
    assert field.join(Decimal("1e19"), Decimal("4e-18")) - Decimal("1e19") in (Decimal("4e-18"), Decimal(0))
    with exact_decimals():
        assert field.join(Decimal("1e19"), Decimal("4e-18")) - Decimal("1e19") == Decimal("4e-18")

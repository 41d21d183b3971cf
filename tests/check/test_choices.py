from flumina.check.choices import BLOCK, Choices


def test_zero_bytes_and_missing_bytes_mean_the_simplest_choice() -> None:
    for choices in (Choices(b""), Choices(bytes(2 * BLOCK))):
        assert choices.below(7) == 0
        assert choices.pick("xyz") == "x"
        assert choices.chance(2) is False


def test_a_step_owns_its_block() -> None:
    data = bytes(range(1, 2 * BLOCK + 1))
    choices = Choices(data)
    for _ in range(BLOCK):
        choices.below(256)
    assert choices.below(256) == 0, "a block that is used up does not read on into the next"
    choices.step()
    assert choices.below(256) == BLOCK + 1
    choices.rewind(0)
    assert choices.below(256) == 1


def test_steps_that_use_fewer_choices_do_not_shift_those_after_them() -> None:
    data = bytes(range(3 * BLOCK))
    few, many = Choices(data), Choices(data)
    few.below(256)
    for _ in range(5):
        many.below(256)
    few.step(2)
    many.step(2)
    assert few.below(256) == many.below(256) == 2 * BLOCK

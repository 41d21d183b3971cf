import socket
from threading import Thread

import pytest

from flumina.engine.member import Failed, Member, Registration
from flumina.engine.transport import Channel, Listener, Secret
from flumina.errors import CalledOffError, GangError, HandshakeError, TaskFailedError, UserCodeError


def registration(task: int = 0) -> Registration:
    return Registration(task, "1", ("127.0.0.1", 1), 17, "here")


def test_no_roster_in_time() -> None:
    secret = Secret.make()
    came: list[Channel] = []
    listener = Listener("127.0.0.1", secret, lambda _, channel: came.append(channel))
    with pytest.raises(GangError, match=r"task 0 registered and was not told its peers within 0\.3 s"):
        Member.join(listener.address, secret, registration(), within=0.3)
    listener.close()
    for channel in came:
        channel.close()


def test_no_driver() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(HandshakeError):
        Member.join(address, Secret.make(), registration(), within=0.2)


def test_a_driver_that_goes_away_while_waiting() -> None:
    secret = Secret.make()
    listener = Listener("127.0.0.1", secret, lambda _, channel: channel.close())
    with pytest.raises(Exception, match="the driver went away"):
        Member.join(listener.address, secret, registration(), within=5)
    listener.close()


def test_an_error_arrives_as_it_was_with_its_cause() -> None:
    error = UserCodeError("P.update", ValueError("no"), where="a.py:3")
    error.__cause__ = ValueError("no")
    again = Failed.of(error).error(3)
    assert isinstance(again, UserCodeError)
    assert str(again) == str(error)
    assert isinstance(again.__cause__, ValueError)
    assert not hasattr(again, "__notes__")


def raised() -> ZeroDivisionError:
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError as error:
        return error
    raise AssertionError


def test_an_error_of_others_says_in_which_task_and_line() -> None:
    again = Failed.of(raised()).error(3)
    assert isinstance(again, ZeroDivisionError)
    assert "in task 3" in again.__notes__[0]
    assert "1 / 0" in again.__notes__[0]


class Unwritable(Exception):  # noqa: N818
    def __init__(self) -> None:
        super().__init__("holds a thread")
        self.thread = Thread()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError


class Unreadable(Exception):  # noqa: N818
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


@pytest.mark.parametrize("error", [Unwritable(), Unreadable(1, 2)], ids=["unwritable", "unreadable"])
def test_an_error_that_cannot_be_pickled_arrives_as_text(error: Exception) -> None:
    again = Failed.of(error).error(2)
    assert isinstance(again, TaskFailedError)
    assert type(error).__name__ in str(again)
    assert str(error) in str(again)
    assert "task 2" in str(again)


def test_a_cause_that_cannot_be_pickled_does_not_take_the_error_with_it() -> None:
    error = UserCodeError("P.update", ValueError("no"), where="a.py:3")
    error.__cause__ = Unwritable()
    again = Failed.of(error).error(1)
    assert isinstance(again, UserCodeError)
    assert again.__cause__ is None


def test_an_error_whose_class_is_not_here_arrives_as_text() -> None:
    again = Failed("Traceback\nnowhere.Error: what", b"cnowhere\nError\n.").error(1)
    assert isinstance(again, TaskFailedError)
    assert "nowhere.Error: what" in str(again)


def test_called_off_has_a_reason() -> None:
    assert CalledOffError("task 1 was lost").reason == "task 1 was lost"

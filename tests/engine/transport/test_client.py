import ctypes
import queue
import selectors
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Thread
from typing import Any

import pytest

from flumina.engine.transport.client import (
    CalledOff,
    ControlMessage,
    DriverClient,
    PeerTable,
    Ping,
    PingReply,
    Registration,
    TaskDone,
    TaskFailure,
)
from flumina.engine.transport.listener import Channel, Listener, Secret, dumps, loads
from flumina.errors import CalledOffError, HandshakeError, TaskFailedError, UserCodeError


def registration(task: int = 0) -> Registration:
    return Registration(task, "1", ("127.0.0.1", 1), 17, "here")


@pytest.fixture
def line() -> Iterator[tuple[Listener, Secret, queue.Queue[Channel]]]:
    """A listener that takes the driver's part, and the channels of tasks that have come."""
    secret = Secret.make()
    came: queue.Queue[Channel] = queue.Queue()
    taken: list[Channel] = []

    def take(hello: object, channel: Channel) -> None:
        taken.append(channel)
        came.put(channel)

    listener = Listener("127.0.0.1", secret, take)
    yield listener, secret, came
    listener.close()
    for channel in taken:
        channel.close()


def joined(line: tuple[Listener, Secret, queue.Queue[Channel]], **more: Any) -> tuple[DriverClient, Channel]:
    """A task that was told its peers, and the driver's end of its line."""
    listener, secret, came = line
    with ThreadPoolExecutor(1) as pool:
        client = pool.submit(DriverClient.join, listener.address, secret, registration(), within=300, **more)
        channel = came.get(timeout=300)
        channel.unblock()
        channel.put(dumps(PeerTable(1, {})))
        return client.result(300), channel


def heard(channel: Channel, kind: type) -> Any:
    """Wait for a message of a kind, and return it."""
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while selector.select(30):
            for frame in channel.take():
                message = loads(frame)
                if isinstance(message, kind):
                    return message
    raise AssertionError(f"no {kind.__name__} came")


def test_how_long_a_gang_assembles_is_for_the_driver_to_say(line: Any) -> None:
    """The time for the connection was counted for the whole: a task gave up on others that were slow to start."""
    listener, secret, came = line
    with ThreadPoolExecutor(1) as pool:
        client = pool.submit(DriverClient.join, listener.address, secret, registration(), within=0.3)
        channel = came.get(timeout=300)
        channel.unblock()
        assert wait([client], timeout=0.8).not_done
        channel.put(dumps(PeerTable(1, {})))
        assert client.result(300).generation == 1
        client.result().close()


def test_signs_of_life_come_while_the_loop_is_busy(line: Any) -> None:
    client, channel = joined(line, interval=0.02)
    numbers = [heard(channel, Ping).number for _ in range(3)]  # nothing calls the member meanwhile
    assert numbers == sorted(set(numbers))
    client.close()


def test_a_call_that_holds_the_lock_of_python_silences_and_does_not_end_a_task(line: Any) -> None:
    client, channel = joined(line, interval=0.02)
    heard(channel, Ping)
    ctypes.PyDLL(None).usleep(300_000)  # unlike CDLL, PyDLL keeps the lock
    heard(channel, Ping)
    client.check()
    client.close()


def test_the_last_word_waits_for_a_driver_that_is_busy(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was given 30 s, and a driver that took longer to read a large result lost the task that had done its part."""
    monkeypatch.setattr("flumina.engine.transport.client.LAST_WORD", 0.05, raising=False)
    client, channel = joined(line)
    result = bytes(30_000_000)
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(client.done, result)
        assert wait([told], timeout=0.5).not_done
        assert heard(channel, TaskDone).result == result
        assert told.result(300) is None


def test_a_task_that_has_lost_a_peer_waits_for_a_busy_driver_to_say_why(line: Any) -> None:
    """It left after some seconds, and the driver took it for the one that was lost."""
    client, channel = joined(line)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.wait_for_message, 0.0)
        first = heard(channel, Ping)
        assert wait([waiting], timeout=0.3).not_done
        channel.put(dumps(ControlMessage(PingReply(first.number))))
        heard(channel, Ping)
        assert wait([waiting], timeout=0.3).not_done
        channel.put(dumps(CalledOff("task 3 was lost")))
        with pytest.raises(CalledOffError, match="task 3 was lost"):
            waiting.result(300)
    client.close()


def test_a_task_that_has_lost_a_peer_leaves_if_the_driver_knows_nothing_of_it(line: Any) -> None:
    client, channel = joined(line)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.wait_for_message, 0.0)
        for _ in range(2):
            channel.put(dumps(ControlMessage(PingReply(heard(channel, Ping).number))))
        assert waiting.result(300) is None
    client.close()


def test_words_that_the_line_does_not_know_are_left_to_the_loop(line: Any) -> None:
    client, channel = joined(line)
    channel.put(dumps(ControlMessage("stop soon")))
    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ)
        assert selector.select(10), "the bell rings"
    client.check()
    client.close()


def test_a_line_that_is_closed_leaves_no_thread(line: Any) -> None:
    before = set(threading.enumerate())
    client, _ = joined(line)
    client.close()
    client.close()
    assert client.fileno() == -1
    assert not [thread for thread in set(threading.enumerate()) - before if "line" in thread.name]


def test_no_driver() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(HandshakeError):
        DriverClient.join(address, Secret.make(), registration(), within=0.2)


def test_a_driver_that_goes_away_while_waiting() -> None:
    secret = Secret.make()
    listener = Listener("127.0.0.1", secret, lambda _, channel: channel.close())
    with pytest.raises(Exception, match="the driver went away"):
        DriverClient.join(listener.address, secret, registration(), within=300)
    listener.close()


def test_an_error_arrives_as_it_was_with_its_cause() -> None:
    error = UserCodeError("P.update", ValueError("no"), where="a.py:3")
    error.__cause__ = ValueError("no")
    again = TaskFailure.of(error).error(3)
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
    again = TaskFailure.of(raised()).error(3)
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
    again = TaskFailure.of(error).error(2)
    assert isinstance(again, TaskFailedError)
    assert type(error).__name__ in str(again)
    assert str(error) in str(again)
    assert "task 2" in str(again)


def test_a_cause_that_cannot_be_pickled_does_not_take_the_error_with_it() -> None:
    error = UserCodeError("P.update", ValueError("no"), where="a.py:3")
    error.__cause__ = Unwritable()
    again = TaskFailure.of(error).error(1)
    assert isinstance(again, UserCodeError)
    assert again.__cause__ is None


def test_an_error_whose_class_is_not_here_arrives_as_text() -> None:
    again = TaskFailure("Traceback\nnowhere.Error: what", b"cnowhere\nError\n.").error(1)
    assert isinstance(again, TaskFailedError)
    assert "nowhere.Error: what" in str(again)


def test_called_off_has_a_reason() -> None:
    assert CalledOffError("task 1 was lost").reason == "task 1 was lost"

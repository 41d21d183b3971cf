import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from flumina.engine.liveness import Liveness
from flumina.engine.transport import rendezvous as module
from flumina.engine.transport.client import DriverClient, Registration
from flumina.engine.transport.listener import Secret, connect
from flumina.engine.transport.rendezvous import Rendezvous
from flumina.errors import (
    CalledOffError,
    ClusterError,
    FluminaError,
    FrameError,
    GangError,
    PeerLostError,
    TaskFailedError,
    TaskLostError,
    TaskSilentError,
    UsageError,
)
from tests.waiting import wait_until

SECRET = Secret.make()
JOINED: list[Future[DriverClient]] = []


@pytest.fixture(autouse=True)
def all_leave() -> Iterator[None]:
    yield
    while JOINED:
        with suppress(FluminaError):
            JOINED.pop().result().close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


class Gang:
    """Joins tasks in threads of their own."""

    def __init__(self, pool: ThreadPoolExecutor, meeting: Rendezvous) -> None:
        self.pool, self.meeting = pool, meeting

    def join(self, task: int, attempt: str = "1", interval: float = 5.0) -> Future[DriverClient]:
        registration = Registration(task, attempt, ("127.0.0.1", 1000 + task), 7000 + task, "node")
        joined = self.pool.submit(
            DriverClient.join, self.meeting.address, SECRET, registration, within=300, interval=interval
        )
        JOINED.append(joined)
        return joined

    def assemble(self, tasks: int, attempt: str = "1", interval: float = 5.0) -> list[DriverClient]:
        return [future.result(300) for future in [self.join(task, attempt, interval) for task in range(tasks)]]

    def settle(self, count: int) -> None:
        """Wait until so many registrations have been taken in."""
        until = time.monotonic() + 300
        while len(self.meeting._gang) != count:
            assert time.monotonic() < until
            time.sleep(0.005)


def outcome(client: DriverClient) -> str:
    """Why a member has to end."""
    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ)
        assert selector.select(300), "a member lingers"
    try:
        client.check()
    except CalledOffError as error:
        return error.reason
    finally:
        client.close()
    return "nothing"


@pytest.fixture(params=["plain", "tls"])
def secret(request: pytest.FixtureRequest) -> Secret:
    return Secret.make(tls=request.param == "tls")


def test_all_are_told_of_all_and_results_come_back(pool: ThreadPoolExecutor, secret: Secret) -> None:
    heard: list[tuple[int, object]] = []
    with Rendezvous(3, secret, on_progress=lambda task, progress: heard.append((task, progress))) as meeting:

        def task(number: int) -> tuple[int, dict[int, tuple[str, int]]]:
            me = Registration(number, f"a{number}", ("127.0.0.1", 1000 + number), os.getpid(), "here")
            client = DriverClient.join(meeting.address, secret, me, within=300)
            client.check()
            client.report({"events": number})
            client.done(f"result {number}")
            return client.generation, dict(client.peer_table.addresses)

        told = list(pool.map(task, range(3)))
        assert told == [(1, {number: ("127.0.0.1", 1000 + number) for number in range(3)})] * 3
        assert meeting.wait(300) == {0: "result 0", 1: "result 1", 2: "result 2"}
        assert meeting.over
        assert meeting.generation == 1
    assert sorted(heard, key=lambda pair: pair[0]) == [(number, {"events": number}) for number in range(3)]


def test_a_large_result(pool: ThreadPoolExecutor) -> None:
    data = os.urandom(20_000_000)
    with Rendezvous(1, SECRET) as meeting:
        (client,) = Gang(pool, meeting).assemble(1)
        client.done(data)
        assert meeting.wait(300) == {0: data}


def test_a_result_that_is_too_large_can_still_be_told(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(1, SECRET) as meeting:
        (client,) = Gang(pool, meeting).assemble(1)
        client._channel.limit = 10_000
        with pytest.raises(FrameError) as caught:
            client.done(bytes(20_000))
        client.fail(caught.value)
        with pytest.raises(FrameError):
            meeting.wait(300)


def test_missing_tasks_are_named() -> None:
    with ThreadPoolExecutor(2) as pool, Rendezvous(4, SECRET, assemble_within=0.5) as meeting:
        gang = Gang(pool, meeting)
        waiting = [gang.join(0), gang.join(2)]
        with pytest.raises(GangError, match=r"within 0\.5 s: 2 of 4 came, missing: 1, 3") as caught:
            meeting.wait(300)
        assert caught.value.missing == (1, 3)
        for future in waiting:
            with pytest.raises(CalledOffError, match="missing: 1, 3"):
                future.result(300)


def test_time_counts_from_when_tasks_can_come(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET, assemble_within=0.5) as meeting:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            meeting.restart_deadline()
            time.sleep(0.05)
        assert not meeting.over
        assert not meeting.assembled
        with pytest.raises(GangError, match="0 of 2 came"):
            meeting.wait(300)


def test_time_goes_on_once_a_task_has_come(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET, assemble_within=1) as meeting:
        gang = Gang(pool, meeting)
        gang.join(0)
        gang.settle(1)
        until = time.monotonic() + 300
        while not meeting.over and time.monotonic() < until:
            meeting.restart_deadline()
            time.sleep(0.05)
        with pytest.raises(GangError, match="1 of 2 came, missing: 1"):
            meeting.wait(0)


def test_a_gang_that_runs_is_assembled(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET) as meeting:
        gang = Gang(pool, meeting)
        first = gang.assemble(2)
        assert meeting.assembled
        first[0].close()
        assert outcome(first[1]) == "task 0 was lost"
        assert not meeting.assembled


def test_a_lost_task_calls_off_the_others_at_once_and_a_new_gang_may_come(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(3, SECRET) as meeting:
        gang = Gang(pool, meeting)
        first = gang.assemble(3)
        first[1].close()
        assert [outcome(first[0]), outcome(first[2])] == ["task 1 was lost"] * 2
        assert not meeting.over
        second = gang.assemble(3, "2")
        assert {client.generation for client in second} == {2}
        for number, client in enumerate(second):
            client.done(number)
        assert meeting.wait(300) == {0: 0, 1: 1, 2: 2}


def test_results_of_a_lost_generation_do_not_count(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET) as meeting:
        gang = Gang(pool, meeting)
        first = gang.assemble(2)
        first[0].done("old")
        first[1].close()
        with pytest.raises(TimeoutError):
            meeting.wait(0.1)
        second = gang.assemble(2, "2")
        second[1].done("new")
        with pytest.raises(TimeoutError):
            meeting.wait(0.1)
        second[0].done("new")
        assert meeting.wait(300) == {0: "new", 1: "new"}


class Handed:
    """Keeps what tasks hand in, and by which generation."""

    def __init__(self) -> None:
        self.what: list[tuple[int, object]] = []

    def begin(self) -> None:
        return None

    def add_checkpoint(self, task: int, what: object) -> None:
        self.what.append((task, what))


def test_nothing_is_heard_of_a_task_that_was_called_off(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have said much before it reads that: none of it is of the gang that runs now."""
    monkeypatch.setattr(module, "GRACE", 60.0)  # on a busy machine it may take a while
    told: list[tuple[int, object]] = []
    handed = Handed()
    with Rendezvous(2, SECRET, on_progress=lambda task, what: told.append((task, what)), committer=handed) as meeting:
        gang = Gang(pool, meeting)
        stale = gang.assemble(2)
        members = gang.assemble(2, "2")
        assert {client.generation for client in members} == {2}
        for client in stale:
            with pytest.raises(CalledOffError, match="was tried again"):
                client.wait_for_message(10)  # and goes on all the same
            client.report("old")
            client.save("old")
        stale[0].done("old")
        stale[1].fail(UsageError("OLD", "of an attempt that was given up"))
        members[0].report("new")
        members[0].save("new")
        until = time.monotonic() + 300
        while meeting._leaving:  # all that they said has come
            assert time.monotonic() < until
            time.sleep(0.005)
        for client in members:
            client.done("new")
        assert meeting.wait(300) == {0: "new", 1: "new"}
    assert told == [(0, "new")]
    assert handed.what == [(0, "new")]


def test_a_task_that_is_done_may_leave(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET, retry=False) as meeting:
        first, second = Gang(pool, meeting).assemble(2)
        first.done(1)
        time.sleep(0.05)
        second.check()
        second.done(2)
        assert meeting.wait(300) == {0: 1, 1: 2}


def test_the_deadline_counts_again_after_a_loss(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET, assemble_within=0.6) as meeting:
        gang = Gang(pool, meeting)
        first = gang.assemble(2)
        time.sleep(0.8)
        first[0].check()  # a gang that is complete has all the time
        first[0].close()
        assert outcome(first[1]) == "task 0 was lost"
        with pytest.raises(TimeoutError):
            meeting.wait(0.2)
        with pytest.raises(GangError, match="again after generation 1 was lost within"):
            meeting.wait(300)


def test_a_retry_ends_the_generation_before(pool: ThreadPoolExecutor) -> None:
    """Spark may start a stage anew before we notice that the old one is dead."""
    with Rendezvous(3, SECRET, assemble_within=0.5) as meeting:
        gang = Gang(pool, meeting)
        stale = gang.assemble(3)
        came_first = next(iter(meeting._gang))
        time.sleep(0.6)  # the new gang has time of its own
        fresh = [gang.join(came_first, "2")]
        assert [outcome(client) for client in stale] == [f"task {came_first} was tried again"] * 3
        fresh += [gang.join(task, "2") for task in {0, 1, 2} - {came_first}]
        assert {future.result(300).generation for future in fresh} == {2}


def test_a_retry_while_the_gang_assembles_drops_all_that_came_before(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(4, SECRET) as meeting:
        gang = Gang(pool, meeting)
        stale = []
        for task in (0, 1):
            stale.append(gang.join(task))
            gang.settle(task + 1)
        kept = gang.join(2, "2")
        gang.settle(3)
        fresh = gang.join(1, "2")
        for future in stale:
            with pytest.raises(CalledOffError, match="task 1 was tried again"):
                future.result(300)
        gang.settle(2)
        last = [gang.join(0, "2"), gang.join(3, "2")]
        members = [future.result(300) for future in (kept, fresh, *last)]
        assert {client.generation for client in members} == {1}
        for client in members:
            client.close()


def test_a_task_lost_while_the_gang_assembles(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(3, SECRET) as meeting:
        gang = Gang(pool, meeting)
        waiting = gang.join(0)
        gang.settle(1)
        connect(meeting.address, SECRET, Registration(1, "1", ("x", 1), 1, "h"), within=300).close()
        with pytest.raises(CalledOffError, match="task 1 was lost"):
            waiting.result(300)


def test_without_retry_a_lost_task_is_the_end(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET, retry=False) as meeting:
        first, second = Gang(pool, meeting).assemble(2)
        first.close()
        with pytest.raises(TaskLostError, match="task 0 was lost: process 7000 on node"):
            meeting.wait(300)
        assert "task 0 was lost" in outcome(second)


TASK = """
import pickle, sys, time
from flumina.engine.transport.client import DriverClient, Registration
address, secret = pickle.load(sys.stdin.buffer)
member = DriverClient.join(address, secret, Registration(1, "1", ("127.0.0.1", 1), 1, "h"), within=300, interval=0.05)
time.sleep(60)
"""


def test_a_killed_process_is_noticed_at_once(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET) as meeting:
        process = subprocess.Popen([sys.executable, "-c", TASK], stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(pickle.dumps((meeting.address, SECRET)))
        process.stdin.close()
        client = Gang(pool, meeting).join(0).result(300)
        os.kill(process.pid, signal.SIGKILL)
        assert outcome(client) == "task 1 was lost"
        process.wait()


SOON = Liveness(interval=0.05, warn_after=2.0)


def stopped(meeting: Rendezvous) -> subprocess.Popen[bytes]:
    """A process that is task 1 of a gang, and gives signs of life until it is stopped."""
    process = subprocess.Popen([sys.executable, "-c", TASK], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(pickle.dumps((meeting.address, SECRET)))
    process.stdin.close()
    return process


@contextmanager
def gone(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process, whatever state it is in."""
    try:
        yield
    finally:
        process.kill()
        process.wait()


def wait_for(caplog: pytest.LogCaptureFixture, what: str) -> None:
    until = time.monotonic() + 300
    while what not in caplog.text:
        assert time.monotonic() < until, f"{what!r} was not logged: {caplog.text!r}"
        time.sleep(0.01)


def test_a_silent_task_is_warned_of_by_name_and_may_come_back(
    pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    with Rendezvous(2, SECRET, retry=False, liveness=SOON) as meeting:
        process = stopped(meeting)
        with gone(process):
            client = Gang(pool, meeting).join(0, interval=0.05).result(300)
            os.kill(process.pid, signal.SIGSTOP)
            wait_for(caplog, "task 1 has given no sign of life")
            assert "process 1 on h)" in caplog.text
            assert "without limit, as no task_timeout= is set" in caplog.text
            os.kill(process.pid, signal.SIGCONT)
            wait_for(caplog, "task 1 is heard again")
            assert not meeting.over
            assert "task 0 has" not in caplog.text
            client.close()


def test_a_silent_task_is_lost_after_the_timeout(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET, retry=False, liveness=replace(SOON, timeout=3.0)) as meeting:
        process = stopped(meeting)
        with gone(process):
            client = Gang(pool, meeting).join(0, interval=0.05).result(300)
            os.kill(process.pid, signal.SIGSTOP)
            with pytest.raises(TaskSilentError, match=r"task 1 gave no sign of life for .*process 1 on h") as caught:
                meeting.wait(300)
            assert (caught.value.condition, caught.value.task, caught.value.host) == ("TASK_SILENT", 1, "h")
            assert "task 1 gave no sign of life" in outcome(client)


def test_a_silent_task_is_ended_and_a_new_gang_may_come(pool: ThreadPoolExecutor) -> None:
    ended: list[tuple[Registration, str]] = []
    soon = replace(SOON, timeout=3.0)
    with Rendezvous(2, SECRET, liveness=soon, on_silent=lambda whom, why: ended.append((whom, why))) as meeting:
        process = stopped(meeting)
        with gone(process):
            gang = Gang(pool, meeting)
            first = gang.join(0, interval=0.05).result(300)
            os.kill(process.pid, signal.SIGSTOP)
            assert "task 1 gave no sign of life" in outcome(first)
            wait_until("the silent task is ended", lambda: ended)  # after the others have been told
            assert [(whom.task, whom.attempt) for whom, _ in ended] == [(1, "1")]
            second = gang.assemble(2, "2", interval=0.05)
            os.kill(process.pid, signal.SIGCONT)  # what is left of it finds its line closed
            for number, client in enumerate(second):
                client.done(number)
            assert meeting.wait(300) == {0: 0, 1: 1}


def test_when_spark_gives_up_because_of_silence_the_silence_is_told(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET, liveness=replace(SOON, timeout=3.0)) as meeting:
        process = stopped(meeting)
        with gone(process):
            client = Gang(pool, meeting).join(0, interval=0.05).result(300)
            os.kill(process.pid, signal.SIGSTOP)
            assert "task 1 gave no sign of life" in outcome(client)
            meeting.cancel(ClusterError("SPARK", "Spark gave up on the run"))
            with pytest.raises(TaskSilentError) as caught:
                meeting.wait(300)
            assert isinstance(caught.value.__cause__, ClusterError)


def test_a_driver_that_stood_still_blames_no_task(pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture) -> None:
    """Its thread was kept from reading: what tasks have sent meanwhile counts."""

    def show(task: int, progress: object) -> None:
        time.sleep(1.5)

    liveness = Liveness(interval=0.05, warn_after=0.4, timeout=0.8)
    with Rendezvous(1, SECRET, liveness=liveness, on_progress=show, retry=False) as meeting:
        (client,) = Gang(pool, meeting).assemble(1, interval=0.05)
        client.report("this")
        with pytest.raises(TimeoutError):
            meeting.wait(2.5)
        client.done(1)
        assert meeting.wait(300) == {0: 1}
    assert "no sign of life" not in caplog.text


def test_a_task_that_is_done_may_be_silent(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET, retry=False, liveness=Liveness(0.05, 0.2, 0.4)) as meeting:
        first, second = Gang(pool, meeting).assemble(2, interval=0.05)
        first.done(1)
        with pytest.raises(TimeoutError):
            meeting.wait(1.0)
        second.done(2)
        assert meeting.wait(300) == {0: 1, 1: 2}


def test_an_error_in_one_task_ends_all(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(3, SECRET) as meeting:
        members = Gang(pool, meeting).assemble(3)
        members[2].fail(UsageError("BAD", "user code raised"))
        with pytest.raises(UsageError, match="user code raised"):
            meeting.wait(300)
        assert [outcome(client) for client in members[:2]] == ["UsageError: [BAD] user code raised"] * 2


def test_an_error_that_cannot_be_pickled(pool: ThreadPoolExecutor) -> None:
    class Local(Exception):  # noqa: N818
        pass

    with Rendezvous(1, SECRET) as meeting:
        (client,) = Gang(pool, meeting).assemble(1)
        client.fail(Local("what happened"))
        with pytest.raises(TaskFailedError, match="what happened"):
            meeting.wait(300)


def test_after_the_end_whoever_comes_is_sent_away(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(1, SECRET) as meeting:
        gang = Gang(pool, meeting)
        gang.assemble(1)[0].done(1)
        assert meeting.wait(300) == {0: 1}
        with pytest.raises(CalledOffError, match="the run is over"):
            gang.join(0, "2").result(300)
        assert meeting.wait(300) == {0: 1}


def test_cancel(pool: ThreadPoolExecutor) -> None:
    with Rendezvous(2, SECRET) as meeting:
        members = Gang(pool, meeting).assemble(2)
        meeting.cancel(UsageError("STOP", "the cluster went away"))
        meeting.cancel(UsageError("STOP", "a second reason"))
        with pytest.raises(UsageError, match="the cluster went away"):
            meeting.wait(300)
        assert all("the cluster went away" in outcome(client) for client in members)


def test_a_progress_function_that_raises_ends_the_run(pool: ThreadPoolExecutor) -> None:
    def show(task: int, progress: object) -> None:
        raise ValueError(f"cannot show {progress}")

    with Rendezvous(1, SECRET, on_progress=show) as meeting:
        (client,) = Gang(pool, meeting).assemble(1)
        client.report("this")
        with pytest.raises(ValueError, match="cannot show this"):
            meeting.wait(300)
        assert "cannot show" in outcome(client)


def test_a_slow_driver_blocks_no_task(pool: ThreadPoolExecutor) -> None:
    asleep = threading.Event()

    def show(task: int, progress: object) -> None:
        asleep.wait(300)

    with Rendezvous(1, SECRET, on_progress=show) as meeting:
        (client,) = Gang(pool, meeting).assemble(1)
        for _ in range(1_000):
            client.report(bytes(100_000))
        assert client._channel.pending <= 100_000 + 1_000, "reports that nobody reads don't pile up"
        asleep.set()
        client.done("done")
        assert meeting.wait(300) == {0: "done"}


DRIVER = """
import pickle, sys, time
from flumina.engine.transport.rendezvous import Rendezvous
meeting = Rendezvous(1, pickle.load(sys.stdin.buffer))
print(meeting.address[1], flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("last_word", [False, True])
def test_a_task_notices_that_the_driver_was_killed(*, last_word: bool) -> None:
    process = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(pickle.dumps(SECRET))
        process.stdin.close()
        address = "127.0.0.1", int(process.stdout.readline())
        client = DriverClient.join(address, SECRET, Registration(0, "1", address, 1, "h"), within=300)
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(PeerLostError, match="the driver went away"):
        client.done(bytes(50_000_000)) if last_word else client.check()
    client.close()


@pytest.mark.parametrize("hello", ["hello", None, Registration(5, "1", ("x", 1), 1, "h")], ids=str)
def test_members_only(pool: ThreadPoolExecutor, hello: object) -> None:
    with Rendezvous(1, SECRET) as meeting:
        channel = connect(meeting.address, SECRET, hello, within=300)
        (client,) = Gang(pool, meeting).assemble(1)
        client.done(1)
        assert meeting.wait(300) == {0: 1}
        channel.close()


def test_close_calls_off_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 60.0)
    before = set(threading.enumerate())
    with ThreadPoolExecutor(2) as pool:
        with Rendezvous(2, SECRET) as meeting:
            members = Gang(pool, meeting).assemble(2)
        with pytest.raises(GangError, match="closed"):
            meeting.wait(0)
        assert ["closed" in outcome(client) for client in members] == [True, True]
    assert set(threading.enumerate()) <= before
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(meeting.address)
    meeting.cancel(ValueError())  # too late, and no harm


def test_a_host_that_cannot_be_bound_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with pytest.raises(OSError, match=r"."):
        Rendezvous(1, SECRET, "192.0.2.1")
    assert set(threading.enumerate()) <= before

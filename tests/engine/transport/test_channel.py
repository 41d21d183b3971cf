import os
import random
import selectors
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from threading import Thread

import numpy as np
import pytest

from flumina.engine.transport import channel as module
from flumina.engine.transport.channel import INBOX, MOST_BUFFERS, Buffer, Channel, Frame, dumps, loads
from flumina.engine.transport.secret import Secret
from flumina.errors import FrameError, PeerLostError

Pair = tuple[Channel, Channel]


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        left = socket.create_connection(server.getsockname())
        right, _ = server.accept()
    return left, right


@pytest.fixture(scope="module")
def secret() -> Secret:
    return Secret.make(tls=True)


def encrypted(secret: Secret) -> Pair:
    left, right = connected()
    left, right = secret.wrap(left, server=True), secret.wrap(right, server=False)
    thread = Thread(target=secret.shake_hands, args=(left,))
    thread.start()
    secret.shake_hands(right)
    thread.join()
    return Channel(left, within=300), Channel(right, within=300)


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest, secret: Secret) -> Iterator[Pair]:
    if request.param == "tls":
        ends = encrypted(secret)
    else:
        left, right = connected()
        ends = Channel(left, within=300), Channel(right, within=300)
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def plain() -> Iterator[tuple[Channel, socket.socket]]:
    left, right = connected()
    with right:
        end = Channel(left, within=300)
        yield end, right
        end.close()


def exchange(sender: Channel, receiver: Channel, count: int) -> list[Frame]:
    """Let two unblocked ends work until so many frames have come: the way a loop does it."""
    frames: list[Frame] = []
    with selectors.DefaultSelector() as selector:
        selector.register(sender, selectors.EVENT_WRITE)
        selector.register(receiver, selectors.EVENT_READ)
        while len(frames) < count:
            ready = {key.fileobj for key, _ in selector.select(10)}
            assert ready, "nothing moves"
            if sender in ready and sender.flush():
                assert sender.pending == 0
                selector.unregister(sender)
            if receiver in ready:
                frames += receiver.take()
    return frames


def unblocked(pair: Pair) -> Pair:
    for end in pair:
        end.unblock()
    return pair


def test_bytes_with_a_deadline(pair: Pair) -> None:
    left, right = pair
    left.send_bytes(b"one")
    left.send_bytes(b"")
    left.send_bytes(b"x" * 1000)
    assert right.recv_bytes(256) == b"one"
    assert right.recv_bytes() == b""
    with pytest.raises(FrameError, match="1000 bytes"):
        right.recv_bytes(256)
    assert right.fileno() == -1


def test_nothing_is_read_beyond_a_frame(pair: Pair) -> None:
    left, right = pair
    left.send_bytes(b"challenge")
    left.unblock()
    left.put([b"first", b"frame"])
    assert right.recv_bytes() == b"challenge"
    right.unblock()
    assert exchange(left, right, 1) == [[b"first", b"frame"]]


def test_a_deadline_is_for_the_whole() -> None:
    """A byte now and then does not move it."""
    left, slow = connected()
    end = Channel(left, within=0.4)
    stopped = False

    def trickle() -> None:
        for byte in struct.pack("!IQQ", 1, 9, 9) * 100:
            if stopped:
                return
            slow.send(bytes([byte]))
            time.sleep(0.1)

    thread = Thread(target=trickle)
    thread.start()
    with pytest.raises(TimeoutError):  # the header alone takes 2 s
        end.recv_bytes()
    stopped = True
    thread.join()
    end.close()
    slow.close()


SIZES = [0, 1, 200, module.SMALL - 1, module.SMALL, INBOX - 28, INBOX - 20, INBOX, INBOX + 1, 300_000, 5_000_000]


@pytest.mark.parametrize("size", SIZES)
def test_a_frame_arrives_as_it_was(pair: Pair, size: int) -> None:
    left, right = unblocked(pair)
    data = random.Random(size).randbytes(size)
    left.put([data])
    left.put([b"head", memoryview(data), b"", bytearray(data)])
    left.put([b"end"])
    assert exchange(left, right, 3) == [[data], [b"head", data, b"", data], [b"end"]]


def test_random_frames_in_random_pieces(pair: Pair) -> None:
    left, right = unblocked(pair)
    draw = random.Random(7)
    sent: list[list[bytes]] = []
    got: list[Frame] = []
    for _ in range(300):
        frame = [draw.randbytes(int(10 ** draw.uniform(0, 5.3))) for _ in range(draw.choice((1, 1, 1, 2, 40)))]
        sent.append(frame)
        left.put(frame)
        if draw.random() < 0.3:
            got += right.take()
        left.flush()
    got += exchange(left, right, len(sent) - len(got))
    assert got == sent


def test_pieces_of_a_byte(plain: tuple[Channel, socket.socket]) -> None:
    end, peer = plain
    end.unblock()
    whole = struct.pack("!IQQQ", 2, 5, 2, 3) + b"abcde"
    frames: list[Frame] = []
    for byte in whole:
        peer.send(bytes([byte]))
        while not frames and selectors_ready(end):
            frames += end.take()
    assert frames == [[b"ab", b"cde"]]


def selectors_ready(end: Channel) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(end, selectors.EVENT_READ)
        return bool(selector.select(0.01))


def test_many_buffers_in_one_frame(pair: Pair) -> None:
    left, right = unblocked(pair)
    buffers: list[Buffer] = [str(number).encode() for number in range(20_000)]
    left.put(buffers)
    assert exchange(left, right, 1) == [buffers]


def test_arrays_are_neither_copied_to_send_nor_read_only_when_they_arrive(pair: Pair) -> None:
    left, right = unblocked(pair)
    array = np.arange(100_000)
    frame = dumps({"large": array, "small": np.arange(3)})
    assert len(frame) == 2
    assert np.shares_memory(np.frombuffer(frame[1], np.int64), array)
    left.put(frame)
    (arrived,) = exchange(left, right, 1)
    message = loads(arrived)
    assert isinstance(message, dict)
    assert (message["large"] == array).all()
    assert np.shares_memory(np.frombuffer(arrived[1], np.int64), message["large"])
    message["large"][0] = message["small"][0] = 5


def test_take_leaves_nothing_where_select_would_not_see_it(pair: Pair) -> None:
    """Several frames in one record of TLS: after take() there is nothing left to take."""
    left, right = unblocked(pair)
    for number in range(50):
        left.put([str(number).encode() * 50])
    time.sleep(0.1)
    assert selectors_ready(right)
    frames = right.take()
    while selectors_ready(right):
        frames += right.take()
    assert len(frames) == 50


def test_take_does_not_stop_where_tls_has_more(secret: Secret, monkeypatch: pytest.MonkeyPatch) -> None:
    """What TLS has decrypted is in no socket, so that nothing would wake the loop."""
    monkeypatch.setattr(module, "INBOX", 1_000)
    monkeypatch.setattr(module, "TURN", 1)
    left, right = unblocked(encrypted(secret))
    left.put([bytes(10_000)])
    assert selectors_ready(right)
    assert right.take() == [[bytes(10_000)]]
    left.close()
    right.close()


def test_a_full_socket_keeps_the_rest_for_later(pair: Pair) -> None:
    left, right = unblocked(pair)
    data = os.urandom(30_000_000)
    left.put([data])
    assert not left.flush()
    assert 0 < left.pending < 30_000_020
    left.put([b"after"])
    frames = exchange(left, right, 2)
    assert frames == [[data], [b"after"]]
    assert left.pending == 0
    assert left.flush()


def test_what_was_sent_before_leaving_still_arrives(pair: Pair) -> None:
    left, right = unblocked(pair)
    left.put([b"last words"])
    left.close()
    time.sleep(0.05)
    assert right.take() == [[b"last words"]]
    with pytest.raises(PeerLostError, match=r"127\.0\.0\.1:\d+ went away"):
        right.take()
    assert right.lost


def test_putting_to_a_lost_peer_leaves_it_to_take_to_say_so(pair: Pair) -> None:
    left, right = unblocked(pair)
    right.put([b"called off"])
    right.close()
    time.sleep(0.05)
    for _ in range(10):
        left.put([b"progress"])
    assert left.flush()
    assert left.pending == 0
    with pytest.raises(PeerLostError):
        list(iter(left.take, None))


@pytest.mark.parametrize("loops", [False, True], ids=["blocking", "loop"])
@pytest.mark.parametrize(
    "head",
    [
        struct.pack("!IQQ", 1, 1 << 40, 1 << 40),
        struct.pack("!IQQ", 1, (1 << 64) - 1, (1 << 64) - 1),
        struct.pack("!IQQ", MOST_BUFFERS + 1, 8, 8),
        struct.pack("!IQQ", 0, 0, 0),
        struct.pack("!IQQ", 1, 5, 6) + b"123456",
        struct.pack("!IQQQ", 2, 100_000, 50_000, 50_001),
    ],
    ids=["huge", "hugest", "too many", "none", "sums", "large sums"],
)
def test_a_frame_beyond_the_cap_closes_the_channel_before_memory_is_there(
    plain: tuple[Channel, socket.socket], head: bytes, monkeypatch: pytest.MonkeyPatch, *, loops: bool
) -> None:
    end, peer = plain
    asked: list[int] = []

    def counting(size: int) -> bytearray:
        asked.append(size)
        return bytearray(size)

    monkeypatch.setattr(module, "bytearray", counting, raising=False)
    peer.sendall(head)
    time.sleep(0.05)
    if loops:
        end.unblock()
    receive: Callable[[], object] = end.take if loops else end.recv_bytes
    with pytest.raises(FrameError, match="sent a frame"):
        receive()
    assert end.fileno() == -1
    assert max(asked, default=0) <= 8 * 2 + 4


def test_the_limit_is_an_argument_and_holds_for_sending_too() -> None:
    left, right = connected()
    small, large = Channel(left, limit=100), Channel(right)
    small.unblock()
    large.unblock()
    with pytest.raises(FrameError, match="101 bytes in 2 buffers"):
        small.put([b"x" * 100, b"y"])
    small.put([b"x" * 100])
    assert exchange(small, large, 1) == [[b"x" * 100]]
    large.put([b"x" * 101])
    time.sleep(0.05)
    with pytest.raises(FrameError, match="at most 100 bytes"):
        small.take()
    large.close()


def test_a_large_buffer_is_read_straight_into_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = connected()
    sender, receiver = Channel(left), Channel(right)
    sender.unblock()
    receiver.unblock()
    through_the_inbox = 0
    target = Channel._target

    def counted(self: Channel) -> memoryview:
        nonlocal through_the_inbox
        place = target(self)
        through_the_inbox += place.obj is self._inbox
        return place

    monkeypatch.setattr(Channel, "_target", counted)
    sender.put([b"head", bytes(20_000_000)])
    exchange(sender, receiver, 1)
    assert through_the_inbox <= 4
    sender.close()
    receiver.close()


def test_take_returns_though_the_peer_never_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN", 100_000)
    left, right = connected()
    sender, receiver = Channel(left), Channel(right)
    sender.unblock()
    receiver.unblock()
    for _ in range(100):
        sender.put([bytes(10_000)])
    assert 10 <= len(receiver.take()) <= 17
    sender.close()
    receiver.close()


def test_a_killed_peer_is_noticed_at_once() -> None:
    code = "import socket,sys,time; s=socket.create_connection(('127.0.0.1',int(sys.argv[1]))); time.sleep(60)"
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = subprocess.Popen([sys.executable, "-c", code, str(server.getsockname()[1])])
        sock, _ = server.accept()
    end = Channel(sock)
    end.unblock()
    assert end.take() == []
    os.kill(peer.pid, signal.SIGKILL)
    with selectors.DefaultSelector() as selector:
        selector.register(end, selectors.EVENT_READ)
        assert selector.select(5)
    with pytest.raises(PeerLostError):
        end.take()
    peer.wait()
    end.close()


def test_abort_wakes_the_thread_that_waits(pair: Pair) -> None:
    left, _ = pair
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            left.recv_bytes()
        except (PeerLostError, OSError) as error:
            errors.append(error)

    thread = Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    left.abort()
    thread.join(5)
    assert not thread.is_alive()
    assert len(errors) == 1
    assert not isinstance(errors[0], TimeoutError)


def test_small_frames_are_not_held_back(plain: tuple[Channel, socket.socket]) -> None:
    end, _ = plain
    sock = end._socket
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert not isinstance(sock, ssl.SSLSocket)


def test_a_peer_that_does_not_read_is_not_taken_for_dead(plain: tuple[Channel, socket.socket]) -> None:
    """With TCP_USER_TIMEOUT, a full window of a living peer was the end of the connection after 30 s."""
    end, _ = plain
    assert not isinstance(end._socket, ssl.SSLSocket)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert end._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
    if hasattr(socket, "TCP_KEEPIDLE"):
        assert end._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == module.SILENCE // 3

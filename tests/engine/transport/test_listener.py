import gc
import pickle
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import answer_challenge, deliver_challenge
from queue import Queue
from typing import Any, cast

import pytest

from flumina.engine.transport import listener as transport
from flumina.engine.transport.channel import Channel
from flumina.engine.transport.listener import AT_ONCE, Address, Listener, Secret, connect
from flumina.errors import HandshakeError


class Door:
    """A listener, who came through, and how often anything was unpickled."""

    def __init__(self, secret: Secret, within: float = 5.0) -> None:
        self.secret = secret
        self.peers: Queue[tuple[object, Channel]] = Queue()
        self.listener = Listener(
            "127.0.0.1", secret, lambda hello, channel: self.peers.put((hello, channel)), within=within
        )
        self.address: Address = self.listener.address
        self.unpickled = 0

    def stranger(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=300)

    def admits_a_friend(self) -> None:
        """A real peer gets through, in far less time than a stranger has."""
        mine = connect(self.address, self.secret, ("friend", 1), within=300)
        hello, theirs = self.peers.get(timeout=300)
        assert hello == ("friend", 1)
        mine.send_bytes(b"ping")
        assert theirs.recv_bytes() == b"ping"
        mine.close()
        theirs.close()

    def close(self) -> None:
        self.listener.close()
        assert self.peers.empty()


@pytest.fixture(scope="module", params=["plain", "tls"])
def secret(request: pytest.FixtureRequest) -> Secret:
    return Secret.make(tls=request.param == "tls")


@pytest.fixture
def door(secret: Secret, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    door = Door(secret)
    load = pickle.loads

    def counted(data: bytes) -> object:
        door.unpickled += 1
        return load(data)

    monkeypatch.setattr(pickle, "loads", counted)
    yield door
    door.close()


def closes(sock: socket.socket) -> bool:
    """Whether the other end lets go of a connection, whatever it says before."""
    sock.settimeout(300)
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def test_a_peer_with_the_secret_gets_through(door: Door) -> None:
    door.admits_a_friend()
    assert door.unpickled == 1


def test_many_peers_at_once(door: Door) -> None:
    channels: list[Channel] = []
    threads = [
        threading.Thread(
            target=lambda number=number: channels.append(connect(door.address, door.secret, number, within=300))
        )
        for number in range(100)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    came = [door.peers.get(timeout=300) for _ in threads]
    assert {hello for hello, _ in came} == set(range(100))
    for channel in (*channels, *(channel for _, channel in came)):
        channel.close()


def test_the_silent_delay_nobody(door: Door) -> None:
    silent = [door.stranger() for _ in range(3 * AT_ONCE)]
    door.admits_a_friend()
    assert door.unpickled == 1
    assert sum(thread.name.startswith("greet") for thread in threading.enumerate()) <= AT_ONCE + 1
    assert closes(silent[0]), "the oldest one has to go"
    for sock in silent:
        sock.close()


def test_the_silent_are_shown_out(secret: Secret) -> None:
    door = Door(secret, within=0.2)
    with door.stranger() as silent:
        assert closes(silent)
    door.close()


def test_who_trickles_is_shown_out(secret: Secret) -> None:
    """The deadline is for the whole handshake: a byte now and then does not move it."""
    door = Door(secret, within=0.3)
    with door.stranger() as slow, pytest.raises(OSError, match=r"."):  # noqa: PT012 -- a pipe breaks when it does
        for byte in struct.pack("!IQQ", 1, 200, 200) + bytes(200):  # 11 s, if it were let
            slow.send(bytes([byte]))
            time.sleep(0.05)
    door.close()


def test_random_frames(door: Door) -> None:
    draw = random.Random(5)
    for number in range(1_000):
        frames = [draw.randbytes(draw.randrange(1, 60)) for _ in range(100)]
        if number % 2:
            frames = [struct.pack("!IQQ", 1, len(frame), len(frame)) + frame for frame in frames]
        with door.stranger() as sock, suppress(OSError):  # it hangs up, as it should
            sock.sendall(b"".join(frames))
    door.admits_a_friend()
    assert door.unpickled == 1


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"\x00",
        struct.pack("!IQQ", 1, 1 << 62, 1 << 62),
        struct.pack("!IQQ", 1 << 31, 16, 16),
        struct.pack("!IQQ", 1, 16, 16) + bytes(8),
        struct.pack("!IQQ", 1, 16, 16) + bytes(16),
        struct.pack("!IQQ", 1, 200, 200) + pickle.dumps("boo").ljust(200, b"."),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_strangers_who_speak_and_leave(door: Door, words: bytes) -> None:
    for _ in range(5):
        with door.stranger() as sock:
            sock.sendall(words)
    door.admits_a_friend()
    assert door.unpickled == 1


def test_half_a_challenge(door: Door) -> None:
    """Hear the challenge, answer half of it, and stay."""
    with door.stranger() as sock:
        if not door.secret.tls:
            assert b"#CHALLENGE#" in sock.recv(4096)
        sock.sendall(struct.pack("!IQQ", 1, 16, 16) + bytes(8))
        door.admits_a_friend()
    assert door.unpickled == 1


def test_another_secret_is_refused_at_once(door: Door) -> None:
    with pytest.raises(HandshakeError, match="no process of this run"):
        connect(door.address, Secret.make(tls=door.secret.tls), "stranger", within=300)
    assert door.unpickled == 0
    door.admits_a_friend()


def test_a_secret_is_needed_at_both_ends() -> None:
    """One who accepts and pretends to be content with any answer is found out by the other's challenge."""
    secret = Secret.make()

    def impostor(server: socket.socket) -> None:
        sock, _ = server.accept()
        channel = Channel(sock, within=300)
        channel.send_bytes(b"#CHALLENGE#" + bytes(20))
        channel.recv_bytes()
        channel.send_bytes(b"#WELCOME#")
        with suppress(Exception):  # told so
            answer_challenge(cast("Any", channel), b"a guess")
        channel.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=impostor, args=(server,))
        thread.start()
        with pytest.raises(HandshakeError):
            connect(server.getsockname(), secret, "hello", within=300)
        thread.join()


def test_plain_against_tls_and_the_other_way_round() -> None:
    plain, tls = Secret.make(), Secret.make(tls=True)
    both = Secret(plain.key, tls.certificate, tls.private_key)
    for server, client in ((both, plain), (plain, both)):
        door = Door(server, within=0.3)
        with pytest.raises(HandshakeError, match="TLS"):
            connect(door.address, client, "hello", within=1)
        door.admits_a_friend()
        door.close()


def test_the_right_key_under_another_certificate() -> None:
    ours, theirs = Secret.make(tls=True), Secret.make(tls=True)
    door = Door(ours)
    with pytest.raises(HandshakeError):
        connect(door.address, Secret(ours.key, theirs.certificate, theirs.private_key), "hello", within=300)
    door.close()


def test_with_tls_nothing_is_readable_on_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret.make(tls=True)
    door = Door(secret)
    with socket.create_server(("127.0.0.1", 0)) as tap:
        heard = bytearray()

        def pass_on() -> None:
            near, _ = tap.accept()
            with near, socket.create_connection(door.address) as far:
                near.settimeout(0.05)
                far.settimeout(0.05)
                while True:
                    for one, other in ((near, far), (far, near)):
                        try:
                            data = one.recv(65536)
                        except TimeoutError:
                            continue
                        if not data:
                            return
                        heard.extend(data)
                        other.sendall(data)

        thread = threading.Thread(target=pass_on)
        thread.start()
        channel = connect(tap.getsockname(), secret, "hello in the open", within=300)
        _, theirs = door.peers.get(timeout=300)
        channel.close()
        theirs.close()
        thread.join()
    assert len(heard) > 500
    assert b"hello in the open" not in heard
    assert b"CHALLENGE" not in heard
    door.close()


def test_nobody_there_is_an_error_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(HandshakeError, match=r"no connection to 127\.0\.0\.1:\d+ within 0\.2 s"):
        connect(address, Secret.make(), "hello", within=0.2)


def test_one_who_accepts_and_says_nothing_is_an_error_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(HandshakeError, match=r"within 0\.3 s"):
        connect(server.getsockname(), Secret.make(), "hello", within=0.3)


def test_a_listener_that_comes_late_is_waited_for() -> None:
    secret = Secret.make()
    with socket.create_server(("127.0.0.1", 0)) as first:
        address = first.getsockname()

        def refuse() -> None:
            sock, _ = first.accept()
            sock.close()
            sock, _ = first.accept()
            channel = Channel(sock, within=300)
            deliver_challenge(cast("Any", channel), secret.key)
            answer_challenge(cast("Any", channel), secret.key)
            channel.recv_bytes()
            channel.close()

        thread = threading.Thread(target=refuse)
        thread.start()
        connect(address, secret, "hello", within=300).close()
        thread.join()


def test_a_hello_that_is_too_long_gets_nothing_unpickled(door: Door) -> None:
    channel = connect(door.address, door.secret, bytes(transport.HELLO + 1), within=300)
    assert closes(channel._socket)
    channel.close()
    assert door.unpickled == 0


def test_close_leaves_no_thread_and_no_socket(secret: Secret) -> None:
    before = set(threading.enumerate())
    door = Door(secret, within=1_000)  # nobody waits for the silent
    silent = [door.stranger() for _ in range(20)]
    door.admits_a_friend()
    door.close()
    assert set(threading.enumerate()) <= before
    for sock in silent:
        assert closes(sock)
        sock.close()
    with pytest.raises(OSError, match="refused"):
        door.stranger()
    gc.collect()  # an open socket would be warned of, and warnings are errors
    door.listener.close()

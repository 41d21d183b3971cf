"""Accept and open authenticated TCP connections between tasks and the driver.

The listener sends its challenge first, then the connecting side (``multiprocessing.connection``); only when both have
proved that they hold the secret does the connecting side send its hello, the first message that is unpickled.
"""

from __future__ import annotations

import pickle
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import answer_challenge, deliver_challenge
from threading import Lock, Thread, current_thread
from typing import Any, cast

from flumina.engine.transport.channel import LIMIT, Channel, Frame, dumps, loads
from flumina.engine.transport.secret import Secret
from flumina.errors import FrameError, HandshakeError, PeerLostError

__all__ = ["Address", "Channel", "Frame", "Listener", "Secret", "connect", "dumps", "loads"]

Address = tuple[str, int]
"""Host and port."""
OnPeer = Callable[[object, Channel], None]

HELLO = 1 << 16
"""Bytes of a hello at most."""
AT_ONCE = 64
"""Handshakes under way at most."""
HANDSHAKE = 5.0
"""Seconds for a whole handshake."""


class Listener:
    """Listener that passes on connections whose peer holds the secret.

    ``on_peer(hello, channel)`` is called in a thread of that connection, and owns the channel. A stranger gets a
    challenge and a few seconds; when too many are at it, the oldest one goes.
    """

    def __init__(
        self, host: str, secret: Secret, on_peer: OnPeer, *, within: float = HANDSHAKE, limit: int = LIMIT
    ) -> None:
        self._secret, self._on_peer, self._within, self._limit = secret, on_peer, within, limit
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family, backlog=256)
        self.address: Address = self._socket.getsockname()[:2]
        self._lock = Lock()
        self._greeted: dict[Thread, Channel] = {}
        """Handshakes under way, the oldest one first."""
        self._handing_on: set[Thread] = set()
        self._closed = False
        self._thread = Thread(target=self._accept, name=f"listen {self.address[1]}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and end every handshake; channels that were passed on stay open."""
        with self._lock:
            self._closed = True
            under_way = list(self._greeted.values())
            threads = [self._thread, *self._greeted, *self._handing_on]
        with suppress(OSError):  # wakes accept(), where the system lets it
            self._socket.shutdown(socket.SHUT_RDWR)
        for channel in under_way:
            channel.abort()
        for thread in threads:
            if thread is not current_thread():
                thread.join()
        self._socket.close()

    def _accept(self) -> None:
        self._socket.settimeout(0.5)  # for systems where nothing wakes accept()
        while not self._closed:
            try:
                sock, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:  # closed, or no descriptors left: then some will be free again soon
                time.sleep(0.01)
                continue
            try:
                channel = Channel(self._secret.wrap(sock, server=True), within=self._within, limit=self._limit)
            except OSError:  # gone already
                sock.close()
                continue
            self._greet(channel)

    def _greet(self, channel: Channel) -> None:
        """Start a handshake, at the expense of the oldest one if there are too many."""
        thread = Thread(target=self._shake_hands, args=(channel,), name=f"greet {channel.name}", daemon=True)
        oldest = None
        with self._lock:
            if self._closed:
                channel.close()
                return
            if len(self._greeted) >= AT_ONCE:
                oldest = next(iter(self._greeted))
                self._greeted.pop(oldest).abort()
            self._greeted[thread] = channel
            thread.start()
        if oldest is not None:
            oldest.join()

    def _shake_hands(self, channel: Channel) -> None:
        try:
            channel.shake_hands(self._secret)
            deliver_challenge(cast("Any", channel), self._secret.key)
            answer_challenge(cast("Any", channel), self._secret.key)
            hello = pickle.loads(channel.recv_bytes(HELLO))  # noqa: S301 -- the peer holds the secret
        except Exception:  # noqa: BLE001 -- whatever a stranger makes of it ends here
            hello = None
        with self._lock:
            wanted = self._greeted.pop(current_thread(), None) is not None and not self._closed and hello is not None
            if wanted:
                self._handing_on.add(current_thread())
        if not wanted:
            channel.close()
            return
        try:
            self._on_peer(hello, channel)
        finally:
            with self._lock:
                self._handing_on.discard(current_thread())


def connect(
    address: Address,
    secret: Secret,
    hello: object,
    *,
    within: float,
    limit: int = LIMIT,
    between: Callable[[], None] | None = None,
) -> Channel:
    """Return a channel to a listener with the same secret; tried again until it answers or the time is over.

    With ``between``, which is called after each try and may raise, the time is for reaching the listener: one that is
    reached and slow to answer is a process that has other things to do.
    """
    deadline = time.monotonic() + within
    pause = 0.01
    while True:
        reached = False
        try:
            left = deadline - time.monotonic()
            left = left if between is None else min(left, HANDSHAKE)
            sock = _dial(address, left)
            reached = True
            return _introduce(sock, secret, hello, left, limit)
        except (AuthenticationError, AssertionError, FrameError, ssl.SSLError) as refusal:
            if not isinstance(refusal, ssl.SSLEOFError | ssl.SSLZeroReturnError):
                raise HandshakeError(
                    "HANDSHAKE",
                    f"{_shown(address)} is no process of this run: {refusal}",
                    hint="it belongs to another run, or only one of the two uses TLS",
                ) from refusal
            trouble: Exception = refusal
        except (OSError, PeerLostError) as failure:
            trouble = failure
        if between is not None:
            between()
            deadline = time.monotonic() + within if reached else deadline
        if time.monotonic() + pause >= deadline:
            raise HandshakeError(
                "HANDSHAKE",
                f"no connection to {_shown(address)} within {within:g} s: {trouble}",
                hint="is the process alive, can this machine reach that one, and do both use TLS or neither?",
            ) from trouble
        time.sleep(pause)
        pause = min(2 * pause, 0.5)


def _dial(address: Address, within: float) -> socket.socket:
    sock = socket.create_connection(address, timeout=max(within, 0.001))
    if sock.getsockname() == sock.getpeername():  # a port without a listener can be connected to itself
        sock.close()
        raise ConnectionRefusedError("no process listens at this address")
    return sock


def _introduce(sock: socket.socket, secret: Secret, hello: object, within: float, limit: int) -> Channel:
    try:
        sock = secret.wrap(sock, server=False)
        channel = Channel(sock, within=within, limit=limit)
        channel.shake_hands(secret)
        answer_challenge(cast("Any", channel), secret.key)
        deliver_challenge(cast("Any", channel), secret.key)
        channel.send_bytes(pickle.dumps(hello))
    except BaseException:
        sock.close()
        raise
    return channel


def _shown(address: Address) -> str:
    return f"{address[0]}:{address[1]}"

"""Send and receive frames over one connection, plain or TLS.

A frame is a list of byte buffers: a small pickle, and what it refers to out of band. On the wire::

    count: 4 bytes | total: 8 bytes | length of each buffer: count times 8 bytes | the buffers

A channel blocks, up to a deadline, until ``unblock``; from then on no call blocks, and a loop polls it for frames.
"""

from __future__ import annotations

import pickle
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice

from flumina.engine.transport.secret import Secret
from flumina.errors import FrameError, PeerLostError

Buffer = bytes | bytearray | memoryview
Frame = list[bytearray]

LIMIT = 1 << 30
"""Default of the largest number of bytes in a frame."""
MOST_BUFFERS = 1 << 20
INBOX = 1 << 16
"""Bytes that are read at once; a frame that fits is a slice of them, a larger one gets buffers of its own."""
SMALL = 1 << 14
"""Buffers below this are copied rather than sent on their own."""
TURN = 1 << 22
"""Bytes after which ``take`` returns though there may be more, so that no peer keeps a loop to itself."""
RECORD = 1 << 16
"""Bytes that are given to TLS at once."""
SILENCE = 30
"""Seconds after which TCP's keepalive takes a machine for lost that acknowledges no probe."""

_HEAD = struct.Struct("!IQ")
_ONE = struct.Struct("!IQQ")


def dumps(message: object) -> list[Buffer]:
    """A message as a frame; large arrays are referred to, not copied, and must not change until they are sent."""
    large: list[pickle.PickleBuffer] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < SMALL:
            return True
        large.append(buffer)
        return False

    head = pickle.dumps(message, protocol=5, buffer_callback=in_band)
    return [head, *(buffer.raw() for buffer in large)]


def loads(frame: Sequence[Buffer]) -> object:
    """The message in a frame from an authenticated peer; its arrays lie in the frame's own buffers."""
    return pickle.loads(frame[0], buffers=frame[1:])  # noqa: S301 -- both ends hold the secret


class Channel:
    """One end of a connection; it owns the socket, and one thread at a time uses it.

    ``name`` is what errors call the other end; ``lost`` says that it is known to be gone.
    """

    def __init__(self, sock: socket.socket, *, within: float | None = None, limit: int = LIMIT) -> None:
        self.limit = limit
        self.lost = False
        self.pending = 0
        """Bytes that were put and not sent yet."""
        self._socket = sock
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._deadline = None if within is None else time.monotonic() + within
        self._queue: deque[memoryview] = deque()
        self._inbox = bytearray(INBOX)
        self._view = memoryview(self._inbox)
        self._start = self._end = 0
        self._count = self._total = 0
        self._lengths: tuple[int, ...] | None = None
        self._parts: Frame = []
        self._part: bytearray | None = None
        self._filled = 0
        self.name = _set_up(sock)

    def fileno(self) -> int:
        """For selectors; -1 once closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket; frames that are still queued are not sent."""
        self._queue.clear()
        self.pending = 0
        self._socket.close()

    def abort(self) -> None:
        """End the connection from another thread: the one that waits for it meets an error."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # that of TLS would pull the rug from under it

    def shake_hands(self, secret: Secret) -> None:
        """The handshake of TLS, if there is one to do, within the deadline."""
        self._pace()
        secret.shake_hands(self._socket)

    # With a deadline: what multiprocessing.connection needs for its challenges.

    def send_bytes(self, buffer: Buffer) -> None:
        """Send a frame of one buffer, and wait until it is sent."""
        view = memoryview(_ONE.pack(1, len(buffer), len(buffer)) + bytes(buffer))
        while view:
            self._pace()
            view = view[self._socket.send(view) :]

    def recv_bytes(self, maxlength: int | None = None) -> bytes:
        """Wait for a frame of one buffer; not a byte after it is read."""
        count, total, length = _ONE.unpack(self._exactly(_ONE.size))
        if count != 1 or total != length or length > (self.limit if maxlength is None else maxlength):
            raise self._broken(f"a frame of {count} buffers and {total} bytes")
        return bytes(self._exactly(length))

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            self._pace()
            got = self._socket.recv_into(view)
            if not got:
                raise self._gone()
            view = view[got:]
        return data

    def _pace(self) -> None:
        """The deadline is for everything, however slowly the peer trickles."""
        left = None if self._deadline is None else self._deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError(f"{self.name} took too long")
        self._socket.settimeout(left)

    # Without waiting: for a loop over many channels.

    def unblock(self) -> None:
        """From here on nothing blocks and there is no deadline."""
        self._socket.settimeout(0)

    def put(self, buffers: Sequence[Buffer]) -> None:
        """Queue a frame and send what can be sent now; large buffers must not change until ``pending`` is 0.

        A lost peer is not raised here but by ``take``, after all frames that the peer has sent.
        """
        sizes = [buffer.nbytes if isinstance(buffer, memoryview) else len(buffer) for buffer in buffers]
        total = sum(sizes)
        if total > self.limit or len(sizes) > MOST_BUFFERS:
            raise FrameError(
                "FRAME",
                f"a message of {total} bytes in {len(sizes)} buffers is too large to send to {self.name}",
                hint=f"at most {self.limit} bytes and {MOST_BUFFERS} buffers fit: keep less state, or in fewer arrays",
            )
        if self.lost:
            return
        count = len(sizes)
        head = _ONE.pack(1, total, total) if count == 1 else struct.pack(f"!IQ{count}Q", count, total, *sizes)
        chunks: Iterable[Buffer]
        if total < SMALL:
            whole = b"".join((head, *buffers))
            if not self._queue and not self._tls:  # most frames go this way, at once
                with suppress(OSError):  # flush() will meet it again
                    whole = whole[self._socket.send(whole) :]
                if not whole:
                    return
            chunks = (whole,)
        else:
            chunks = _chunks(head, buffers, sizes)
        for chunk in chunks:
            self._queue.append(memoryview(chunk))
            self.pending += len(chunk)
        self.flush()

    def flush(self) -> bool:
        """Send as much as the socket takes now; return whether the queue is empty."""
        queue = self._queue
        try:
            while queue:
                if self._tls:  # what was refused has to be offered again as it was
                    sent = self._socket.send(queue[0][:RECORD])
                elif len(queue) == 1:
                    sent = self._socket.send(queue[0])
                else:
                    sent = self._socket.sendmsg(list(islice(queue, 64)))
                self.pending -= sent
                while sent:
                    head = queue[0]
                    if sent < len(head):
                        queue[0] = head[sent:]
                        break
                    sent -= len(head)
                    queue.popleft()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            self.lost = True
            queue.clear()
            self.pending = 0
        return True

    def take(self) -> list[Frame]:
        """Return all complete frames; raise PeerLostError when none is left and none can come."""
        frames: list[Frame] = []
        budget = TURN
        while budget > 0 or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
            target = self._target()
            try:
                got = self._socket.recv_into(target)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                got = 0
            if not got:
                self.lost = True
                if frames:
                    break  # the next call says so
                raise self._gone()
            budget -= got
            if target.obj is self._inbox:
                self._end += got
            else:
                self._filled += got
            self._parse(frames)
            if got < target.nbytes and not self._tls:
                break  # the socket had no more
        return frames

    def _target(self) -> memoryview:
        """Where to read to: straight into a large buffer that is being filled, or into the inbox."""
        part = self._part
        if part is None and not self._end:
            return self._view
        if part is not None and len(part) - self._filled >= INBOX:
            return memoryview(part)[self._filled :]
        if self._start and self._end > INBOX // 2:
            self._end -= self._start
            self._inbox[: self._end] = self._inbox[self._start : self._start + self._end]
            self._start = 0
        return self._view[self._end :]

    def _parse(self, frames: list[Frame]) -> None:
        """Cut frames out of the inbox, until it has none that is complete."""
        inbox, end = self._inbox, self._end
        while True:
            if self._part is not None:
                if not self._fill(frames):
                    break
                continue
            start = self._start
            if end - start < _HEAD.size:
                break
            count, total = _HEAD.unpack_from(inbox, start)
            if not count or count > MOST_BUFFERS or total > self.limit:
                raise self._broken(f"a frame of {count} buffers and {total} bytes")
            body = start + _HEAD.size + 8 * count
            stop = body + total
            if stop - start > INBOX:
                self._start = start + _HEAD.size
                self._count, self._total = count, total
                self._part, self._filled = bytearray(8 * count), 0
                continue
            if stop > end:
                break
            frame = []
            for length in self._table(count, total, inbox, start + _HEAD.size):
                frame.append(inbox[body : body + length])
                body += length
            frames.append(frame)
            self._start = stop
        if self._start == self._end:
            self._start = self._end = 0

    def _fill(self, frames: list[Frame]) -> bool:
        """Go on with a frame that has buffers of its own; whether the one at hand is full."""
        part = self._part
        assert part is not None
        moved = min(len(part) - self._filled, self._end - self._start)
        part[self._filled : self._filled + moved] = self._view[self._start : self._start + moved]
        self._start += moved
        self._filled += moved
        if self._filled < len(part):
            return False
        if self._lengths is None:
            self._lengths = self._table(self._count, self._total, part, 0)
        else:
            self._parts.append(part)
        if len(self._parts) < len(self._lengths):
            self._part, self._filled = bytearray(self._lengths[len(self._parts)]), 0
        else:
            frames.append(self._parts)
            self._parts, self._part, self._lengths = [], None, None
        return True

    def _table(self, count: int, total: int, data: bytearray, start: int) -> tuple[int, ...]:
        lengths: tuple[int, ...] = struct.unpack_from(f"!{count}Q", data, start)
        if sum(lengths) != total:
            raise self._broken("a frame whose lengths do not add up")
        return lengths

    def _gone(self) -> PeerLostError:
        return PeerLostError("PEER_LOST", f"{self.name} went away")

    def _broken(self, what: str) -> FrameError:
        """Mark the channel as broken, as the start of the next frame is unknown."""
        self.lost = True
        self.close()
        return FrameError("FRAME", f"{self.name} sent {what}; at most {self.limit} bytes are taken")


def _chunks(head: bytes, buffers: Sequence[Buffer], sizes: Sequence[int]) -> Iterable[Buffer]:
    """The same bytes, large buffers as they are and what lies between them joined; never an empty chunk."""
    between: list[Buffer] = [head]
    for buffer, size in zip(buffers, sizes, strict=True):
        if size < SMALL:
            between += [buffer] if size else []
            continue
        if between:
            yield b"".join(between)
            between = []
        yield memoryview(buffer).cast("B")
    if between:
        yield b"".join(between)


def _set_up(sock: socket.socket) -> str:
    """Send small frames at once, have the kernel probe idle connections; return the address of the other end.

    There is no TCP_USER_TIMEOUT on purpose: it also ends the connection to a living process that does not read for as
    long as its user's ``update`` takes, once the window is full.
    """
    with suppress(OSError):  # the peer may be gone already, or this is no TCP
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", SILENCE // 3),
            ("TCP_KEEPINTVL", SILENCE // 6),
            ("TCP_KEEPCNT", 4),
        ):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        host, port = sock.getpeername()[:2]
        return f"{host}:{port}"
    return "the peer"

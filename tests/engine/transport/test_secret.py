import pickle
import socket
import ssl
import sys
from threading import Thread

import pytest

from flumina.engine.transport.secret import Secret
from flumina.errors import UsageError


def traveled(secret: Secret) -> Secret:
    again = pickle.loads(pickle.dumps(secret))  # noqa: S301 -- our own
    assert isinstance(again, Secret)
    return again


def test_every_run_has_its_own_and_none_shows_it() -> None:
    one, other = Secret.make(), Secret.make()
    assert one.key != other.key
    assert len(one.key) == 32
    assert not one.tls
    assert repr(one) == "Secret(plain)"
    assert str(one.key) not in str(one)


def test_it_travels_pickled() -> None:
    secret = Secret.make(tls=True)
    left, right = socket.socketpair()
    with left, right, secret.wrap(left, server=True):  # makes the contexts, which can't travel
        again = traveled(secret)
    assert again == secret
    assert again.tls
    assert repr(again) == "Secret(tls)"


def test_without_the_package_tls_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(UsageError, match=r"pip install flumina\[tls\]") as caught:
        Secret.make(tls=True)
    assert caught.value.condition == "NO_TLS"
    assert not Secret.make().tls


def shake(server: Secret, client: Secret) -> tuple[bytes | None, list[BaseException]]:
    """What the server reads from the client after the handshake, if anything, and what went wrong at either end."""
    left, right = socket.socketpair()
    errors: list[BaseException] = []

    def answer() -> None:
        with client.wrap(right, server=False) as sock:
            sock.settimeout(300)
            try:
                client.shake_hands(sock)
                sock.sendall(b"hello")
                sock.recv(1)
            except OSError as error:
                errors.append(error)

    thread = Thread(target=answer)
    thread.start()
    heard = None
    with server.wrap(left, server=True) as sock:
        sock.settimeout(300)
        try:
            server.shake_hands(sock)
            heard = sock.recv(5)
        except OSError as error:
            errors.append(error)
    thread.join()
    return heard, errors


def test_both_ends_present_the_certificate_of_the_run() -> None:
    secret = Secret.make(tls=True)
    assert shake(secret, traveled(secret)) == (b"hello", [])


def test_the_certificate_of_another_run_is_refused_by_either_end() -> None:
    heard, errors = shake(Secret.make(tls=True), Secret.make(tls=True))
    assert heard is None
    assert any(isinstance(error, ssl.SSLCertVerificationError) for error in errors)


def test_a_client_without_a_certificate_is_refused() -> None:
    secret = Secret.make(tls=True)
    assert secret.certificate is not None

    class Anonymous(Secret):
        def _context(self, protocol: int) -> ssl.SSLContext:
            context = ssl.SSLContext(protocol)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context

    heard, errors = shake(secret, Anonymous(secret.key, secret.certificate, secret.private_key))
    assert heard is None
    assert errors

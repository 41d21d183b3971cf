"""Hold the per-run authentication key and the optional TLS certificate."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from flumina.errors import UsageError

_YEARS = timedelta(days=3650)
"""Validity of a certificate: it is useless after its run, so the only harm would be to expire too early."""


@dataclass(frozen=True, repr=False)
class Secret:
    """A key that proves membership of a run and, with TLS, the one certificate that all its processes present.

    A process that holds it is fully trusted: it is sent only where the program itself is sent.
    """

    key: bytes
    certificate: bytes | None = None
    private_key: bytes | None = None

    @classmethod
    def make(cls, *, tls: bool = False) -> Secret:
        """Make a new secret for one run, with a self-signed certificate for TLS."""
        return cls(secrets.token_bytes(32), *(_certificate() if tls else ()))

    def __repr__(self) -> str:
        return f"Secret({'tls' if self.tls else 'plain'})"

    def __reduce__(self) -> tuple[object, ...]:
        """Leave out the contexts, which cannot be pickled."""
        return Secret, (self.key, self.certificate, self.private_key)

    @property
    def tls(self) -> bool:
        """Tell whether connections are encrypted."""
        return self.certificate is not None

    def wrap(self, sock: socket.socket, *, server: bool) -> socket.socket:
        """The socket to talk through: with TLS another one, which has to shake hands yet."""
        if not self.tls:
            return sock
        side = self._server if server else self._client
        return side.wrap_socket(sock, server_side=server, do_handshake_on_connect=False)

    def shake_hands(self, sock: socket.socket) -> None:
        """Agree on keys, within the timeout of the socket, with a peer that presents exactly our certificate."""
        if not isinstance(sock, ssl.SSLSocket):
            return
        assert self.certificate is not None
        sock.do_handshake()
        ours = ssl.PEM_cert_to_DER_cert(self.certificate.decode())
        if not hmac.compare_digest(sock.getpeercert(binary_form=True) or b"", ours):
            raise ssl.SSLCertVerificationError("the peer has a certificate of another run")

    @cached_property
    def _server(self) -> ssl.SSLContext:
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # an unread ticket would turn a client's close() into a reset
        return context

    @cached_property
    def _client(self) -> ssl.SSLContext:
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: int) -> ssl.SSLContext:
        assert self.certificate is not None
        assert self.private_key is not None
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate names a run, not a machine
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.certificate.decode())
        # The library reads a key from a file only: one in a folder of our own (mode 0700), for as long as that takes.
        with tempfile.TemporaryDirectory(prefix="flumina-") as folder:
            file = Path(folder, "pem")
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                out.write(self.private_key + self.certificate)
            context.load_cert_chain(file)
        return context


def _certificate() -> tuple[bytes, bytes]:
    """A certificate signed by itself and its key, both as PEM."""
    try:
        from cryptography import x509  # noqa: PLC0415 -- optional
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as missing:
        raise UsageError(
            "NO_TLS",
            "TLS between tasks needs the package 'cryptography', which is not installed here",
            hint="pip install flumina[tls]",
        ) from missing
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "flumina run")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks of a cluster differ
        .not_valid_after(now + _YEARS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private

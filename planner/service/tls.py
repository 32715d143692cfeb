"""TLS of the server, with certificate files that may be replaced while it runs.

New connections get what the files hold; those that exist keep theirs until the server asks them
to reconnect (``max_connection_age_s``). Files that cannot be used (half written, a key of another
certificate, expired) change nothing but for a warning.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc

from planner.errors import FileFormatError, InputError
from planner.service.reloading import ReloadingFiles
from planner.service.settings import ServiceSettings

__all__ = ["server_credentials", "tls_credentials"]

_log = logging.getLogger(__name__)

_SOON_S = 7 * 86_400
# OpenSSL's X509_V_ERR_*.
_VERIFY_PROBLEMS = {9: "is not valid yet", 10: "has expired", 26: "is not for servers"}


def server_credentials(settings: ServiceSettings) -> grpc.ServerCredentials | None:
    """Credentials as the operator set them; None: no TLS.

    Raises
    ------
    planner.errors.InputError
        A file that is missing, unreadable, expired, or does not go with another.
    """
    if settings.tls_certificate_file is None or settings.tls_key_file is None:
        return None
    return tls_credentials(
        settings.tls_certificate_file,
        settings.tls_key_file,
        settings.tls_client_ca_file,
        settings.tls_reload_s,
    )


def tls_credentials(
    certificate_file: Path,
    key_file: Path,
    client_ca_file: Path | None = None,
    reload_s: float = 10.0,
) -> grpc.ServerCredentials:
    """Credentials that read their files again at most every ``reload_s`` seconds.

    Parameters
    ----------
    client_ca_file
        Clients must show a certificate of one of these authorities; None: none is asked for.

    Raises
    ------
    planner.errors.InputError
        As `server_credentials`.
    """
    paths = [certificate_file, key_file] + ([client_ca_file] if client_ca_file else [])
    files = ReloadingFiles(paths, lambda contents: _configuration(paths, contents), reload_s)
    served = files.current()

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        # From gRPC's own threads, before each handshake; None: as before.
        nonlocal served
        newest = files.current()
        if newest is served:
            return None
        served = newest
        return newest

    return grpc.dynamic_ssl_server_credentials(
        served,
        fetch,  # type: ignore[arg-type]  # None is right, and missing from the stubs
        require_client_authentication=client_ca_file is not None,
    )


def _configuration(
    paths: Sequence[Path], contents: Sequence[bytes]
) -> grpc.ServerCertificateConfiguration:
    """What gRPC serves, once it is known to work."""
    left_s = _check_pair(paths[0], contents[0], paths[1], contents[1]) - time.time()
    if left_s < _SOON_S:
        _log.warning("%s expires in %.1f hours", paths[0], left_s / 3_600)
    authorities = contents[2] if len(contents) > 2 else None
    if authorities is not None:
        _check_authorities(paths[2], authorities)
    return grpc.ssl_server_certificate_configuration(
        [(contents[1], contents[0])], root_certificates=authorities
    )


def _trusting(path: Path, content: bytes) -> ssl.SSLContext:
    """A client's context that trusts just these certificates."""
    broken = FileFormatError(
        "is no usable certificate", file=str(path), expected="whole PEM blocks (CERTIFICATE)"
    )
    begun, ended = (content.count(b"-----%s CERTIFICATE-----" % w) for w in (b"BEGIN", b"END"))
    if not begun or begun != ended:
        raise broken
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (UnicodeDecodeError, ssl.SSLError):
        raise broken from None
    return context


def _check_pair(certificate_file: Path, certificate: bytes, key_file: Path, key: bytes) -> float:
    """Whether a client would accept the pair; when it expires, in seconds of the epoch."""
    client = _trusting(certificate_file, certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with ExitStack() as stack:
        chain_name, key_name = (
            stack.enter_context(_as_file(content)) for content in (certificate, key)
        )
        try:
            server.load_cert_chain(chain_name, key_name, password=_no_password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                problem = f"does not belong to the certificate in {certificate_file}"
                raise InputError(problem, file=str(key_file)) from None
            raise FileFormatError(
                "is no usable private key", file=str(key_file), expected="PEM without a password"
            ) from None
    try:
        return _handshake(server, client)
    except ssl.SSLCertVerificationError as error:
        problem = _VERIFY_PROBLEMS.get(error.verify_code, f"is refused: {error.verify_message}")
        raise InputError(problem, file=str(certificate_file)) from None
    except ssl.SSLError as error:
        raise InputError(
            f"cannot be used for TLS: {error.reason}", file=str(certificate_file)
        ) from None


def _no_password() -> str:
    # OpenSSL would ask the terminal.
    return ""


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> float:
    """One in memory: only that checks everything with the standard library alone."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [ours, theirs]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    shown = ours.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"])))


def _check_authorities(path: Path, content: bytes) -> None:
    context = _trusting(path, content)
    found = context.get_ca_certs()
    if not found:
        raise InputError("holds no certificate of an authority", file=str(path))
    if all(ssl.cert_time_to_seconds(str(one["notAfter"])) < time.time() for one in found):
        raise InputError("has expired", file=str(path))


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A name under which OpenSSL can open these very bytes; on Linux, in memory alone."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate")
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name

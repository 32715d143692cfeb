"""Where a server is, and how it is called: credentials, keepalive, retries, waiting."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import grpc

from planner.client.errors import RemoteError, ServerBusyError
from planner.errors import InputError

__all__ = ["Connection", "connection", "positive_seconds", "retry_delay_s"]

_KEEPALIVE_S, _KEEPALIVE_TIMEOUT_S = 60, 20
"""Servers close connections that are pinged more often than they allow."""
_LEAST_DELAY_S, _JITTER = 0.05, 0.25


@dataclass(frozen=True)
class Connection:
    """What a channel is made from."""

    target: str
    credentials: grpc.ChannelCredentials | None = field(repr=False)
    """None: plain text."""
    options: tuple[tuple[str, object], ...]
    metadata: tuple[tuple[str, str], ...] = field(repr=False)
    """Sent with every call."""
    ca_file: str | None = None
    """What the server's certificate is checked against; None: what gRPC trusts."""


def connection(
    address: str,
    *,
    token: str | None = None,
    ca_file: str | Path | None = None,
    certificate_file: str | Path | None = None,
    key_file: str | Path | None = None,
    max_message_bytes: int | None = None,
) -> Connection:
    """A connection to a server.

    Parameters
    ----------
    address
        ``host:port``, ``unix:path`` or any name that gRPC resolves (``dns:///planner:50051``).
        ``https://`` in front asks for TLS with the authorities that gRPC trusts.
    token
        Bearer token; it is sent over TLS or to this machine alone.
    ca_file
        Authorities that may have signed the server's certificate, in PEM; asks for TLS.
    certificate_file, key_file
        Who we are, in PEM; asks for TLS.
    max_message_bytes
        Largest message either way; None: no limit on this side.

    Raises
    ------
    InputError
        A file that cannot be read, a certificate without a key, a token without TLS.
    """
    target, secure = _target(address)
    if (certificate_file is None) != (key_file is None):
        raise InputError("a client certificate and its key go together", fix="give both")
    files = [
        None if path is None else _read(path) for path in (ca_file, key_file, certificate_file)
    ]
    credentials = None
    if secure or any(content is not None for content in files):
        credentials = grpc.ssl_channel_credentials(*files)
    metadata: tuple[tuple[str, str], ...] = ()
    if token is not None:
        token = token.strip()
        if not token.isascii() or not token.isprintable() or not token:
            raise InputError("the token is empty or holds characters that cannot be sent")
        if credentials is None and not _is_local(target):
            raise InputError(
                f"a token is not sent to {address} without TLS",
                fix="give the authority's certificate, or https:// in front of the address",
            )
        metadata = (("authorization", f"Bearer {token}"),)
    size = -1 if max_message_bytes is None else max_message_bytes
    options: tuple[tuple[str, object], ...] = (
        ("grpc.service_config", service_config()),
        ("grpc.enable_retries", 1),
        ("grpc.keepalive_time_ms", _KEEPALIVE_S * 1000),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_S * 1000),
        ("grpc.max_send_message_length", size),
        ("grpc.max_receive_message_length", size),
    )
    authorities = None if ca_file is None else str(ca_file)
    return Connection(target, credentials, options, metadata, authorities)


def service_config() -> str:
    """The gRPC service config that comes with the planner: retries, waiting, load balancing."""
    return (resources.files("planner") / "client_service_config.json").read_text("utf-8")


def retry_delay_s(error: RemoteError, left_s: float) -> float | None:
    """Seconds to wait before the same call again; None where it is not to be made.

    Service configs retry ``UNAVAILABLE`` alone. A server that is full says when to ask again;
    all its callers wait a little longer than that, each another little.

    Parameters
    ----------
    left_s
        What is left of the caller's timeout.
    """
    if not isinstance(error, ServerBusyError) or error.retry_after_s is None:
        return None
    least = max(error.retry_after_s, _LEAST_DELAY_S)
    if least >= left_s:
        return None
    delay = least * (1 + _JITTER * random.random())
    return delay if delay < left_s else least


def positive_seconds(value: float, option: str) -> float:
    """A timeout.

    Raises
    ------
    InputError
        It is not above 0, or not finite.
    """
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(f"is no {option}", value=value, expected="seconds > 0")
    return value


def _target(address: str) -> tuple[str, bool]:
    """Target of a channel, and whether the address asks for TLS.

    Examples
    --------
    >>> _target("https://planner.example:50051"), _target("localhost:7")
    (('planner.example:50051', True), ('localhost:7', False))
    """
    text, secure = address.strip(), False
    for scheme in ("https://", "http://", "grpcs://", "grpc://"):
        if text.startswith(scheme):
            text, secure = text.removeprefix(scheme).rstrip("/"), scheme in ("https://", "grpcs://")
    if not text or any(letter.isspace() or not letter.isprintable() for letter in text):
        raise InputError("is no address of a server", value=address, expected="host:port")
    if text.startswith(("unix:", "dns:", "ipv4:", "ipv6:", "xds:", "passthrough:")):
        return text, secure
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise InputError("is no address of a server", value=address, expected="host:port")
    return text, secure


def _is_local(target: str) -> bool:
    if target.startswith("unix:"):
        return True
    host = target.rpartition("/")[2].rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")


def _read(path: str | Path) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from None
    if b"-----BEGIN" not in content:
        raise InputError("holds no PEM", file=str(path), expected='"-----BEGIN ..." lines')
    return content

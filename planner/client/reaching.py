"""Why a server cannot be reached, in one line.

gRPC tells the last thing that failed, and a name may have several addresses: where ``::1`` refuses
and ``127.0.0.1`` shows a certificate that is not trusted, it tells either. So each address is asked
on its own, and of what they say the most telling is said.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

if TYPE_CHECKING:
    from planner.client.channel import Connection

__all__ = ["connection_problems", "unreachable"]

_PROBE_S = 1.0
_MOST_ADDRESSES = 4
_UNTRUSTED = ("issuer certificate", "self signed", "self-signed", "unable to verify the first")
_PREFIXES = (
    re.compile(r"^[A-Z_]+: (?=\S)"),
    re.compile(r"^(?:ipv[46]|unix):\S+: (?=\S)"),
    re.compile(r"^(?:Failed to connect to remote host|connect failed|connect): "),
    re.compile(r"^addr: \S+ error: "),
)


def connection_problems(connection: Connection) -> list[str]:
    """What calls that do not wait say of the connection: to the target, and to each address of it.

    Empty where they say nothing: a server that just came up, or one that does not answer.
    """
    running = []
    for target, name in [(connection.target, None), *_addresses(connection.target)]:
        options = connection.options
        if name is not None:
            options = (*options, ("grpc.ssl_target_name_override", name))
        if connection.credentials is None:
            channel = grpc.insecure_channel(target, options)
        else:
            channel = grpc.secure_channel(target, connection.credentials, options)
        call = health_pb2_grpc.HealthStub(channel).Check.future(
            health_pb2.HealthCheckRequest(), timeout=_PROBE_S, wait_for_ready=False
        )
        running.append((channel, call))
    found = []
    for channel, call in running:
        with channel, suppress(Exception):
            error = call.exception()
            if error is not None and error.code() is grpc.StatusCode.UNAVAILABLE:
                found.append(str(error.details()))
    return found


def unreachable(address: str, details: str | Sequence[str], ca_file: str | None = None) -> str:
    """One line about a server that cannot be reached.

    Parameters
    ----------
    details
        What the transport says; of several texts the most telling is used.
    ca_file
        The authorities that the server's certificate was checked against.

    Examples
    --------
    >>> refused = "last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: refused"
    >>> unreachable("here:1", refused)
    'the server at here:1 cannot be reached: refused'
    >>> untrusted = "CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate: OK"
    >>> unreachable("here:1", [refused, untrusted], "ca.pem").partition(": ")[2]
    "the server's certificate is not signed by ca.pem"
    """
    texts = [details] if isinstance(details, str) else details
    ranked = [_problem(part, ca_file) for text in texts for part in _parts(text)]
    words = min(ranked, key=lambda found: found[0])[1] if ranked else ""
    return f"the server at {address} cannot be reached" + (f": {words}" if words else "")


def _parts(text: str) -> Iterable[str]:
    """A text of the transport, and the errors inside it."""
    return [part for part in re.split(r"; last error: |last error: ", text) if part][-1:]


def _problem(text: str, ca_file: str | None) -> tuple[int, str]:
    """How much a problem tells (less is more), and what it is in words."""
    refused = re.search(r"CERTIFICATE_VERIFY_FAILED(?:: (.+?))?(?:: OK)?$", text)
    if refused is not None:
        why = refused[1] or "cannot be verified"
        if not any(words in why for words in _UNTRUSTED):
            return 0, f"the server's certificate is refused: {why}"
        if ca_file is not None:
            return 0, f"the server's certificate is not signed by {ca_file}"
        return 0, (
            "the server's certificate is signed by no authority that is trusted here; "
            "give its own (ca_file, --server-ca)"
        )
    if "Hostname Verification Check failed" in text:
        return 0, "the server's certificate is for another name than that of the address"
    if "WRONG_VERSION_NUMBER" in text:
        return 1, "the server does not speak TLS, which https:// and certificates ask for"
    if "Tls handshake failed" in text:
        reason = re.search(r"OPENSSL_internal:(\w+)", text)
        why = reason[1].lower().replace("_", " ") if reason else "no reason is given"
        return 2, f"the TLS handshake failed: {why}"
    unknown = re.search(r"address lookup failed for (\S+): ([^\]]+)", text)
    if unknown is not None:
        return 5, f"{unknown[1]} is not found: {unknown[2]}"
    found = text
    for prefix in _PREFIXES:
        found = prefix.sub("", found)
    if found.startswith("Socket closed"):
        return 3, "it closed the connection; does it want TLS, or a client certificate?"
    return (5 if "refused" in found else 4), found


def _addresses(target: str) -> list[tuple[str, str | None]]:
    """The addresses of a target with several, and the name that a certificate is to have."""
    scheme, colon, rest = target.partition(":")
    if scheme in ("ipv4", "ipv6") and colon:
        several = rest.split(",")
        found: list[tuple[str, str | None]] = [(f"{scheme}:{one}", None) for one in several]
    elif scheme in ("unix", "xds", "passthrough"):
        return []
    else:
        host, _, port = target.rpartition("/")[2].removeprefix("dns:").rpartition(":")
        try:
            known = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except (OSError, ValueError, UnicodeError):
            return []
        places = dict.fromkeys((family, str(place[0])) for family, _, _, _, place in known)
        found = [
            (f"ipv6:[{ip}]:{port}" if family == socket.AF_INET6 else f"ipv4:{ip}:{port}", host)
            for family, ip in places
        ]
    return found[:_MOST_ADDRESSES] if len(found) > 1 else []

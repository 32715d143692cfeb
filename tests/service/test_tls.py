"""TLS with real connections: who is let in, and files that change while the server runs."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from planner.errors import InputError
from planner.service.identity import Identities, new_token
from planner.service.interceptors import CallInterceptor
from planner.service.metrics import ServiceMetrics
from planner.service.settings import ServiceSettings
from planner.service.tls import server_credentials, tls_credentials

METHOD = "/planner.v1.PlannerService/SolvePlan"
PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)

AUTHORITY = trustme.CA()
STRANGER = trustme.CA()
SERVER = AUTHORITY.issue_cert("localhost", "127.0.0.1")
OTHER = AUTHORITY.issue_cert("localhost", "127.0.0.1")
CLIENT = AUTHORITY.issue_cert("dash.example.org", common_name="dashboard")
EXPIRED = AUTHORITY.issue_cert("localhost", not_after=PAST)


def chain(issued: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in issued.cert_chain_pems)


def key(issued: trustme.LeafCert) -> bytes:
    return issued.private_key_pem.bytes()


class Files:
    """The files of a server, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.authority = folder / "ca.crt"
        self.authority.write_bytes(AUTHORITY.cert_pem.bytes())
        self.write(SERVER)

    def write(self, issued: trustme.LeafCert) -> None:
        self.certificate.write_bytes(chain(issued))
        self.key.write_bytes(key(issued))

    def credentials(self, mutual: bool = False, reload_s: float = 1e-9) -> Any:
        authority = self.authority if mutual else None
        return tls_credentials(self.certificate, self.key, authority, reload_s)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def name_of_caller(request: bytes, context: Any) -> bytes:
    from planner.service.identity import current_caller

    return current_caller.get().name.encode()


def served(
    credentials: Any, test: Callable[[int], Awaitable[None]], identities: Identities | None = None
) -> None:
    async def main() -> None:
        interceptor = CallInterceptor(identities or Identities(), ServiceMetrics())
        server = grpc.aio.server(interceptors=[interceptor])
        handler = grpc.unary_unary_rpc_method_handler(name_of_caller)
        service, _, method = METHOD.removeprefix("/").rpartition("/")
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {method: handler})]
        )
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        try:
            await test(port)
        finally:
            await server.stop(None)

    asyncio.run(main())


async def call(
    port: int,
    client: trustme.LeafCert | None = None,
    trusted: trustme.CA = AUTHORITY,
    metadata: tuple[tuple[str, str], ...] = (),
) -> str:
    """Name that the server knows this client by, or the status it was refused with."""
    credentials = grpc.ssl_channel_credentials(
        trusted.cert_pem.bytes(),
        None if client is None else key(client),
        None if client is None else chain(client),
    )
    # A connection of its own, whatever other channels there are.
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials, options) as channel:
        try:
            answer = await channel.unary_unary(METHOD)(b"", timeout=10, metadata=metadata)
            return bytes(answer).decode()
        except grpc.aio.AioRpcError as error:
            return error.code().name


async def shown(port: int) -> bytes:
    """The certificate that a new connection is shown."""
    context = ssl.create_default_context(cadata=AUTHORITY.cert_pem.bytes().decode())
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("localhost", port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return bytes(der)


def leaf(issued: trustme.LeafCert) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())


def test_tls(files: Files) -> None:
    async def test(port: int) -> None:
        assert await call(port) == "anonymous@127.0.0.1"
        assert await call(port, trusted=STRANGER) == "UNAVAILABLE"
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        async with channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(METHOD)(b"", timeout=10)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    served(files.credentials(), test)


def test_mutual_tls_lets_in_only_certificates_of_the_authority(files: Files) -> None:
    async def test(port: int) -> None:
        assert await call(port, CLIENT) == "dashboard"
        assert await call(port) == "UNAVAILABLE"
        assert await call(port, STRANGER.issue_cert("dash.example.org")) == "UNAVAILABLE"
        assert await call(port, EXPIRED) == "UNAVAILABLE"
        assert await call(port, CLIENT) == "dashboard"

    served(files.credentials(mutual=True), test, Identities(certificates=True))


def test_names_in_a_client_certificate_give_roles(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "identities.yaml"
    path.write_text(
        "identities:\n"
        "  - {name: by-san, role: plan, certificate: dash.example.org}\n"
        "  - {name: low, role: read, certificate: low.example.org}\n"
    )

    async def test(port: int) -> None:
        assert await call(port, CLIENT) == "by-san"
        assert await call(port, AUTHORITY.issue_cert("low.example.org")) == "PERMISSION_DENIED"
        assert await call(port, AUTHORITY.issue_cert("new.example.org")) == "UNAUTHENTICATED"

    served(files.credentials(mutual=True), test, Identities(path, certificates=True))


def test_tokens_over_tls(files: Files, tmp_path: Path) -> None:
    token, sha256 = new_token()
    path = tmp_path / "identities.yaml"
    path.write_text(f"identities: [{{name: ci, role: plan, token_sha256: {sha256}}}]")

    async def test(port: int) -> None:
        assert await call(port, metadata=(("authorization", f"Bearer {token}"),)) == "ci"
        assert await call(port) == "UNAUTHENTICATED"
        # Not asked for, so not looked at.
        assert await call(port, CLIENT) == "UNAUTHENTICATED"

    served(files.credentials(), test, Identities(path))


def test_new_connections_get_a_new_certificate(files: Files) -> None:
    async def test(port: int) -> None:
        assert await shown(port) == leaf(SERVER)
        files.write(OTHER)
        assert await shown(port) == leaf(OTHER)
        assert await call(port) == "anonymous@127.0.0.1"

    served(files.credentials(), test)


def test_new_connections_are_checked_by_a_new_authority(files: Files) -> None:
    async def test(port: int) -> None:
        stranger = STRANGER.issue_cert("x", common_name="stranger")
        assert await call(port, stranger) == "UNAVAILABLE"
        files.authority.write_bytes(AUTHORITY.cert_pem.bytes() + STRANGER.cert_pem.bytes())
        assert await call(port, stranger) == "stranger"
        files.authority.write_bytes(STRANGER.cert_pem.bytes())
        assert await call(port, CLIENT) == "UNAVAILABLE"

    served(files.credentials(mutual=True), test, Identities(certificates=True))


def test_files_that_cannot_be_used_change_nothing(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(port: int) -> None:
        steps: list[tuple[str, Callable[[], Any]]] = [
            ("no usable certificate", lambda: files.certificate.write_bytes(chain(OTHER)[:500])),
            ("does not belong", lambda: files.certificate.write_bytes(chain(OTHER))),
            ("no usable private key", lambda: files.key.write_bytes(key(OTHER)[:60])),
            ("cannot be read", files.key.unlink),
            ("has expired", lambda: files.write(EXPIRED)),
        ]
        for said, change in steps:
            caplog.clear()
            change()
            assert await shown(port) == leaf(SERVER)
            assert await shown(port) == leaf(SERVER)
            warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
            assert len(warnings) == 1
            assert said in warnings[0].getMessage()
        files.write(OTHER)
        assert await shown(port) == leaf(OTHER)

    with caplog.at_level(logging.WARNING, logger="planner"):
        served(files.credentials(), test)


def test_files_are_read_no_more_often_than_set(files: Files) -> None:
    async def test(port: int) -> None:
        files.write(OTHER)
        assert await shown(port) == leaf(SERVER)

    served(files.credentials(reload_s=3_600), test)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.certificate.unlink(), r"tls\.crt: cannot be read: No such file"),
        (lambda f: f.key.unlink(), r"tls\.key: cannot be read"),
        (lambda f: f.certificate.write_bytes(b""), r"tls\.crt: is no usable certificate"),
        (lambda f: f.certificate.write_bytes(b"\xff" * 99), r"tls\.crt: is no usable certificate"),
        (lambda f: f.certificate.write_bytes(key(SERVER)), r"tls\.crt: is no usable certificate"),
        (lambda f: f.key.write_bytes(chain(SERVER)), r"tls\.key: is no usable private key"),
        (lambda f: f.key.write_bytes(key(OTHER)), r"tls\.key: does not belong to .*tls\.crt"),
        (lambda f: f.write(EXPIRED), r"tls\.crt: has expired"),
        (lambda f: f.authority.write_bytes(b"x"), r"ca\.crt: is no usable certificate"),
        (lambda f: f.authority.write_bytes(chain(SERVER)[:1]), r"ca\.crt: is no usable"),
        (
            lambda f: f.authority.write_bytes(SERVER.cert_chain_pems[0].bytes()),
            r"ca\.crt: holds no certificate of an authority",
        ),
    ],
)
def test_files_that_cannot_be_used_at_the_start(
    files: Files, change: Callable[[Files], Any], said: str
) -> None:
    change(files)
    with pytest.raises(InputError, match=said):
        files.credentials(mutual=True)


def test_a_key_with_a_password_does_not_ask_for_it(files: Files) -> None:
    from cryptography.hazmat.primitives import serialization

    plain = serialization.load_pem_private_key(key(SERVER), None)
    locked = plain.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    files.key.write_bytes(locked)
    with pytest.raises(InputError, match="without a password"):
        files.credentials()


def test_a_certificate_that_expires_soon_is_warned_of(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=5)
    files.write(AUTHORITY.issue_cert("localhost", not_after=soon))
    with caplog.at_level(logging.WARNING, logger="planner"):
        files.credentials()
    assert "expires in 5.0 hours" in caplog.text


def test_settings(files: Files) -> None:
    assert server_credentials(ServiceSettings()) is None
    settings = ServiceSettings(
        tls_certificate_file=files.certificate,
        tls_key_file=files.key,
        tls_client_ca_file=files.authority,
    )
    assert server_credentials(settings) is not None

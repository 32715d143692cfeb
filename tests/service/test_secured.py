"""A server that asks who calls: certificates and tokens, right, wrong, missing and expired."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from rpcs import csv_model, reason_of
from server_process import ServerProcess, running_server

from planner.service.identity import new_token
from planner.v1 import planner_service_pb2 as pb
from planner.v1 import planner_service_pb2_grpc as stubs

Code = grpc.StatusCode


class Secured:
    """A server with mutual TLS and an identities file, and credentials of all kinds."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.tokens = {role: new_token() for role in ("read", "plan", "admin", "old")}
        served = self.authority.issue_cert("localhost", "127.0.0.1")
        paths = {name: folder / f"{name}.pem" for name in ("certificate", "key", "ca")}
        served.private_key_pem.write_to_path(paths["key"])
        paths["certificate"].write_bytes(b"".join(c.bytes() for c in served.cert_chain_pems))
        self.authority.cert_pem.write_to_path(paths["ca"])
        self.identities = folder / "identities.yaml"
        lines = ["identities:"]
        for role, (_, sha256) in self.tokens.items():
            lines += [
                f"  - name: {role}er",
                f"    role: {'plan' if role == 'old' else role}",
                f"    token_sha256: {sha256}",
            ]
            if role == "old":
                lines.append("    expires: 2020-01-01T00:00:00Z")
        lines += ["  - name: launcher", "    role: plan", "    certificate: launcher.example"]
        self.identities.write_text("\n".join(lines) + "\n")
        self.flags = (
            "--slots", "1", "--quick-slots", "1", "--spare-workers", "0",
            "--tls-certificate-file", str(paths["certificate"]),
            "--tls-key-file", str(paths["key"]),
            "--identities-file", str(self.identities),
        )  # fmt: skip
        self.mutual = ("--tls-client-ca-file", str(paths["ca"]))

    def channel(self, server: ServerProcess, client: Any = None) -> grpc.Channel:
        """A TLS channel, with a client certificate where one is given."""
        credentials = grpc.ssl_channel_credentials(
            self.authority.cert_pem.bytes(),
            client.private_key_pem.bytes() if client else None,
            b"".join(c.bytes() for c in client.cert_chain_pems) if client else None,
        )
        name = (("grpc.ssl_target_name_override", "localhost"),)
        return grpc.secure_channel(server.address, credentials, options=name)


def outcome(channel: grpc.Channel, token: str | None = None) -> tuple[Code, str]:
    """What comes of asking for a cut."""
    request = pb.PartitionStagesRequest(model=csv_model(), stage_count=4)
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    try:
        stubs.PlannerServiceStub(channel).PartitionStages(request, timeout=20, metadata=metadata)
    except grpc.RpcError as error:
        return error.code(), reason_of(error)
    return Code.OK, ""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("secured"))


@pytest.fixture(scope="module")
def with_tokens(secured: Secured) -> Iterator[ServerProcess]:
    with running_server(*secured.flags) as server:
        yield server


def test_tokens(secured: Secured, with_tokens: ServerProcess) -> None:
    channel = secured.channel(with_tokens)
    assert outcome(channel, secured.tokens["plan"][0]) == (Code.OK, "")
    assert outcome(channel, secured.tokens["admin"][0]) == (Code.OK, "")
    assert outcome(channel) == (Code.UNAUTHENTICATED, "MISSING_CREDENTIALS")
    assert outcome(channel, "plt_guess") == (Code.UNAUTHENTICATED, "BAD_TOKEN")
    expired = (Code.UNAUTHENTICATED, "CREDENTIALS_EXPIRED")
    assert outcome(channel, secured.tokens["old"][0]) == expired
    assert outcome(channel, secured.tokens["read"][0]) == (Code.PERMISSION_DENIED, "ROLE_TOO_LOW")


def test_plaintext_does_not_get_in(secured: Secured, with_tokens: ServerProcess) -> None:
    code, _ = outcome(with_tokens.channel(), secured.tokens["plan"][0])
    assert code is Code.UNAVAILABLE


def test_tokens_are_in_no_log(secured: Secured, with_tokens: ServerProcess) -> None:
    channel = secured.channel(with_tokens)
    outcome(channel, secured.tokens["plan"][0])
    outcome(channel, "plt_secret_guess")
    said = f"{with_tokens.log} {with_tokens.other_lines}"
    assert "planer" in said
    assert secured.tokens["plan"][0] not in said
    assert "secret_guess" not in said


def test_certificates(secured: Secured) -> None:
    with running_server(*secured.flags, *secured.mutual) as server:
        known = secured.authority.issue_cert("x", common_name="launcher.example")
        stranger = secured.authority.issue_cert("y", common_name="nobody.example")
        foreign = trustme.CA().issue_cert("z", common_name="launcher.example")
        expired = secured.authority.issue_cert(
            "w",
            common_name="launcher.example",
            not_before=datetime.now(UTC) - timedelta(days=9),
            not_after=datetime.now(UTC) - timedelta(days=1),
        )
        assert outcome(secured.channel(server, known)) == (Code.OK, "")
        code, reason = outcome(secured.channel(server, stranger))
        assert (code, reason) == (Code.UNAUTHENTICATED, "UNKNOWN_CERTIFICATE")
        for client in (None, foreign, expired):
            assert outcome(secured.channel(server, client))[0] is Code.UNAVAILABLE

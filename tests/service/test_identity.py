"""Who calls: tokens, certificates, the file that names them, and what roles may do."""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.longrunning import operations_pb2

from planner.errors import InputError
from planner.service.errors import ServiceError
from planner.service.identity import (
    LEAST_ROLES,
    Caller,
    Identities,
    Role,
    authorise,
    is_local,
    new_token,
)
from planner.service.settings import ServiceSettings
from planner.v1 import planner_service_pb2

NEAR, FAR = "ipv4:127.0.0.1:4000", "ipv4:10.1.2.3:4000"
TLS = {"transport_security_type": [b"ssl"]}
# Always the same, since they are part of the names of tests.
TOKEN = "plt_" + "a1B2-" * 9
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


def bearer(token: str = TOKEN) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def certificate(name: str, *sans: str) -> dict[str, list[bytes]]:
    return TLS | {
        "x509_common_name": [name.encode()],
        "x509_subject_alternative_name": [san.encode() for san in sans],
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "identities.yaml"
    path.write_text(
        f"""
identities:
  - {{name: scheduler, role: plan, token_sha256: {DIGEST.upper()}, weight: 4, rate_per_s: 50}}
  - {{name: dashboard, role: read, certificate: dash.example.org, burst: 7}}
  - {{name: old, role: admin, token_sha256: ["{"0" * 64}", "{new_token()[1]}"]}}
  - {{name: gone, role: admin, certificate: gone, expires: 2020-01-01T00:00:00Z}}
"""
    )
    return path


def refused(identities: Identities, *call: Any) -> str:
    with pytest.raises(ServiceError) as caught:
        identities.caller_of(*call)
    assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
    assert TOKEN not in caught.value.message
    return caught.value.reason


def test_a_token_names_its_caller(file: Path) -> None:
    identities = Identities(file, rate_per_s=1.0, burst=10)
    expected = Caller("scheduler", Role.PLAN, 4.0, 50.0, 10)
    assert identities.caller_of(bearer(), NEAR, {}) == expected
    assert identities.caller_of(bearer(), FAR, TLS) == expected
    lower = (("authorization", f"bearer  {TOKEN} "),)
    assert identities.caller_of(lower, NEAR, {}) == expected


@pytest.mark.parametrize(
    "metadata",
    [
        bearer("plt_wrong"),
        bearer(""),
        bearer(TOKEN + "x"),
        bearer(DIGEST),
        bearer("x" * 100_000),
        bearer() + bearer(),
        (("authorization", TOKEN),),
        (("authorization", f"Basic {TOKEN}"),),
        (("authorization", b"\xff\xfe"),),
    ],
)
def test_bad_tokens(file: Path, metadata: Any) -> None:
    assert refused(Identities(file), metadata, NEAR, {}) == "BAD_TOKEN"


def test_no_token(file: Path) -> None:
    assert refused(Identities(file), (), NEAR, {}) == "MISSING_CREDENTIALS"
    assert refused(Identities(file), (), FAR, TLS) == "MISSING_CREDENTIALS"


def test_tokens_need_tls_or_loopback(file: Path) -> None:
    assert refused(Identities(file), bearer(), FAR, {}) == "TOKEN_OVER_PLAINTEXT"
    assert Identities(file, insecure=True).caller_of(bearer(), FAR, {}).name == "scheduler"


def test_certificates_name_their_caller_by_common_name_or_san(file: Path) -> None:
    identities = Identities(file, certificates=True, burst=100)
    for shown in (certificate("dash.example.org"), certificate("x", "y", "dash.example.org")):
        assert identities.caller_of((), FAR, shown) == Caller("dashboard", Role.READ, burst=7)
    stranger = certificate("stranger.example.org")
    assert refused(identities, (), FAR, stranger) == "UNKNOWN_CERTIFICATE"
    assert refused(identities, (), FAR, certificate("gone")) == "CREDENTIALS_EXPIRED"
    # A token says more than the certificate of the machine that sends it.
    assert identities.caller_of(bearer(), FAR, stranger).name == "scheduler"
    assert refused(identities, bearer("no"), FAR, certificate("dash.example.org")) == "BAD_TOKEN"


def test_certificates_that_were_not_verified_say_nothing(file: Path) -> None:
    shown = certificate("dash.example.org")
    assert refused(Identities(file), (), FAR, shown) == "MISSING_CREDENTIALS"


def test_mutual_tls_without_a_file() -> None:
    identities = Identities(certificates=True)
    assert identities.caller_of((), FAR, certificate("a", "b")) == Caller("a", Role.PLAN)
    assert identities.caller_of((), FAR, certificate("", "b")) == Caller("b", Role.PLAN)
    assert refused(identities, (), FAR, TLS) == "MISSING_CREDENTIALS"


def test_anonymous_callers_are_on_this_machine() -> None:
    anybody = Identities()
    near = anybody.caller_of((), NEAR, {})
    assert (near.name, near.role) == ("anonymous@127.0.0.1", Role.ADMIN)
    assert anybody.caller_of((), "unix:", {}).name == "anonymous@unix"
    assert refused(anybody, (), FAR, {}) == "MISSING_CREDENTIALS"
    assert Identities(insecure=True).caller_of((), FAR, {}).name == "anonymous@10.1.2.3"


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        ("ipv4:127.8.9.1:1", True),
        ("ipv6:%5B::1%5D:1", True),
        ("ipv6:[::1]:1", True),
        ("ipv6:%5B::ffff:127.0.0.1%5D:1", True),
        ("unix:/tmp/x", True),
        ("unix-abstract:x", True),
        ("ipv6:%5B::ffff:10.0.0.1%5D:1", False),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", False),
        ("ipv4:128.0.0.1:1", False),
        ("", False),
        ("ipv4:", False),
    ],
)
def test_where_a_peer_is(peer: str, local: bool) -> None:
    assert is_local(peer) is local


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{", "is no YAML"),
        ("", "dictionary"),
        ("identities: []", "at least 1"),
        ("identities: [{name: a, role: plan}]", "give one of token_sha256 and certificate"),
        (f"identities: [{{name: a, role: boss, token_sha256: {DIGEST}}}]", r"\[0\].role.*boss"),
        (f"identities: [{{role: plan, token_sha256: {DIGEST}}}]", r"\[0\].name"),
        (f"identities: [{{name: a b, role: plan, token_sha256: {DIGEST}}}]", r"\[0\].name"),
        (f"identities: [{{name: a, role: plan, token_sha256: {DIGEST}, x: 1}}]", r"\[0\].x"),
        (f"identities: [{{name: a, role: plan, token_sha256: {DIGEST}, weight: 0}}]", "weight"),
        (
            f"identities: [{{name: anonymous@x, role: plan, token_sha256: {DIGEST}}}]",
            "server's own",
        ),
        (
            "identities: [{name: a, role: plan, certificate: c, expires: 2030-01-01}]",
            r"\[0\].expires",
        ),
        (
            f"identities: [{{name: a, role: plan, token_sha256: {DIGEST}}}, "
            "{name: a, role: plan, certificate: c}]",
            r"identities\[1\].*twice",
        ),
        (
            f"identities: [{{name: a, role: plan, token_sha256: {DIGEST}}}, "
            f"{{name: b, role: plan, token_sha256: {DIGEST}}}]",
            r"identities\[1\].*same token",
        ),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "identities.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=where) as caught:
        Identities(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"identities: [{{name: a, role: plan, token_sha256: {TOKEN}}}]",
        f"identities: [{{name: a, role: plan, token: {TOKEN}}}]",
        f"{{{{{TOKEN}",
    ],
)
def test_a_token_in_the_file_by_mistake_is_not_repeated(tmp_path: Path, text: str) -> None:
    path = tmp_path / "identities.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        Identities(path)
    assert TOKEN not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml: cannot be read"):
        Identities(tmp_path / "nowhere.yaml")


def test_the_file_is_read_again(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    identities = Identities(file, reload_s=1e-9)
    assert identities.caller_of(bearer(), NEAR, {}).role is Role.PLAN
    good = file.read_text()
    with caplog.at_level(logging.WARNING):
        file.write_text(good[:40])  # half written
        assert identities.caller_of(bearer(), NEAR, {}).role is Role.PLAN
        assert identities.caller_of(bearer(), NEAR, {}).role is Role.PLAN
        file.unlink()
        assert identities.caller_of(bearer(), NEAR, {}).role is Role.PLAN
    assert len(caplog.records) == 2
    file.write_text(good.replace("scheduler, role: plan", "scheduler, role: admin"))
    assert identities.caller_of(bearer(), NEAR, {}).role is Role.ADMIN
    file.write_text(good.replace(DIGEST.upper(), "a" * 64))
    assert refused(identities, bearer(), NEAR, {}) == "BAD_TOKEN"


def test_it_is_not_read_more_often_than_set(file: Path) -> None:
    identities = Identities(file, reload_s=3_600)
    file.unlink()
    assert identities.caller_of(bearer(), NEAR, {}).name == "scheduler"


def test_settings_name_all_of_it(file: Path) -> None:
    settings = ServiceSettings(identities_file=file, caller_rate_per_s=3, caller_burst=9)
    caller = Identities.from_settings(settings).caller_of(bearer(), NEAR, {})
    assert (caller.rate_per_s, caller.burst) == (50, 9)


def test_every_method_has_a_least_role() -> None:
    services = [
        planner_service_pb2.DESCRIPTOR.services_by_name["PlannerService"],
        operations_pb2.DESCRIPTOR.services_by_name["Operations"],
    ]
    for service in services:
        for method in service.methods:
            least = LEAST_ROLES[f"/{service.full_name}/{method.name}"]
            looks = re.match("Get|List|Wait", method.name) is not None
            assert least is (Role.READ if looks else Role.PLAN)


@pytest.mark.parametrize(
    ("role", "method", "ok"),
    [
        (Role.READ, "/planner.v1.PlannerService/ListPlans", True),
        (Role.READ, "/planner.v1.PlannerService/SolvePlan", False),
        (Role.PLAN, "/planner.v1.PlannerService/SolvePlan", True),
        (Role.PLAN, "/google.longrunning.Operations/CancelOperation", True),
        (Role.READ, "/google.longrunning.Operations/CancelOperation", False),
        (Role.PLAN, "/somebody.Else/New", False),
        (Role.ADMIN, "/somebody.Else/New", True),
    ],
)
def test_roles(role: Role, method: str, ok: bool) -> None:
    caller = Caller("me", role)
    if ok:
        authorise(caller, method)
        return
    with pytest.raises(ServiceError) as caught:
        authorise(caller, method)
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
    assert caught.value.reason == "ROLE_TOO_LOW"


def test_what_others_began_is_for_admins() -> None:
    assert Caller("me", Role.READ).may_touch("me")
    assert not Caller("me", Role.PLAN).may_touch("you")
    assert Caller("me", Role.ADMIN).may_touch("you")


def test_tokens_are_long_and_new() -> None:
    tokens = {new_token()[0] for _ in range(50)}
    assert len(tokens) == 50
    assert all(len(token) >= 43 for token in tokens)

"""What the client says of servers that cannot be reached and of input that nobody can use."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from fake_planner_service import FakeService, fails, fake_service

import planner
from planner import errors
from planner.client import (
    AccessDeniedError,
    AsyncPlannerClient,
    PlannerClient,
    RemoteInputError,
    RemoteNotFoundError,
    ServerBusyError,
    ServerUnavailableError,
)
from planner.client.reaching import _addresses, unreachable

QUESTION: dict[str, Any] = {"global_batch_size": 64}


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[tuple[FakeService, str]]:
    """A server with TLS, and a file of authorities that did not sign its certificate."""
    file = tmp_path / "wrong.pem"
    trustme.CA().cert_pem.write_to_path(file)
    issued = trustme.CA().issue_cert("127.0.0.1", "localhost")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    credentials = grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])
    with fake_service(credentials=credentials) as service:
        yield service, str(file)


def refusal(address: str, **options: Any) -> str:
    """What a client says of a server that cannot be reached."""
    client = PlannerClient(address, connect_timeout_s=0.5, **options)
    with client, pytest.raises(ServerUnavailableError) as caught:
        client.catalog()
    assert caught.value.exit_status == 5
    start = f"the server at {address} cannot be reached: "
    assert str(caught.value).startswith(start)
    return str(caught.value).removeprefix(start)


# --- servers that are not there -------------------------------------------------------------------


@pytest.mark.parametrize("target", ["{0}", "ipv4:{0},127.0.0.1:1", "ipv4:127.0.0.1:1,{0}"])
def test_a_certificate_that_is_not_trusted(strangers: tuple[FakeService, str], target: str) -> None:
    """Whichever address of several is asked last, the one that answers is told about."""
    fake, file = strangers
    said = f"the server's certificate is not signed by {file}"
    assert refusal(target.format(fake.address), ca_file=file) == said


def test_a_certificate_that_is_not_trusted_by_the_async_client(
    strangers: tuple[FakeService, str],
) -> None:
    fake, file = strangers

    async def ask() -> None:
        target = f"ipv4:{fake.address},127.0.0.1:1"
        async with AsyncPlannerClient(target, ca_file=file, connect_timeout_s=0.5) as client:
            await client.catalog()

    with pytest.raises(ServerUnavailableError, match=r"certificate is not signed by .*wrong.pem$"):
        asyncio.run(ask())


def test_all_addresses_of_a_name_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(host: str, port: int, **options: Any) -> Any:
        six, four = socket.AF_INET6, socket.AF_INET
        assert (host, port) == ("planner.example", 7)
        return [(six, 1, 6, "", ("::1", 7, 0, 0)), (four, 1, 6, "", ("127.0.0.1", 7))]

    monkeypatch.setattr(socket, "getaddrinfo", known)
    both = [("ipv6:[::1]:7", "planner.example"), ("ipv4:127.0.0.1:7", "planner.example")]
    for target in ("planner.example:7", "dns:planner.example:7", "dns:///planner.example:7"):
        assert _addresses(target) == both
    assert _addresses("unix:/tmp/planner.sock") == []


def test_tls_where_there_is_none(fake: FakeService) -> None:
    said = "the server does not speak TLS, which https:// and certificates ask for"
    assert refusal(f"https://{fake.address}") == said


def test_a_socket_that_is_not_there() -> None:
    assert refusal("unix:/tmp/no-such-planner.sock") == "No such file or directory"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CERTIFICATE_VERIFY_FAILED: self signed certificate: OK", "is not signed by ca.pem"),
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "certificate has expired"),
        ("Hostname Verification Check failed.", "is for another name"),
        ("Tls handshake failed: OPENSSL_internal:NO_SHARED_CIPHER: x: OK", "no shared cipher"),
        ("errors resolving x:1: [field:f error:address lookup failed for x:1: none]", "x:1 is not"),
    ],
)
def test_words_of_the_transport_are_ours(text: str, words: str) -> None:
    said = unreachable("here:1", [text, "last error: UNKNOWN: Connection refused"], "ca.pem")
    assert words in said
    assert "OK" not in said
    assert "refused: C" not in said


def test_grpc_is_silent_in_a_script(fake: FakeService) -> None:
    script = (
        "from planner.client import PlannerClient\n"
        f"client = PlannerClient('https://{fake.address}', connect_timeout_s=0.5)\n"
        "try: client.catalog()\n"
        "except Exception as error: print(error)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "GRPC_VERBOSITY"}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60
    )
    assert run.stderr == ""
    assert "does not speak TLS" in run.stdout


@pytest.mark.parametrize(
    "address", ["", "localhost", "127.0.0.1", "[::1]", "https://planner.example", "planner:", ":1"]
)
def test_an_address_has_a_port(address: str) -> None:
    with pytest.raises(errors.InputError, match="is no address of a server; expected host:port"):
        PlannerClient(address)


@pytest.mark.parametrize(
    ("code", "reason", "kind", "status"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", ServerBusyError, 5),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", ServerBusyError, 6),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "WORKER_MEMORY_LIMIT", ServerBusyError, 6),
        (grpc.StatusCode.UNAUTHENTICATED, "BAD_TOKEN", AccessDeniedError, 6),
        (grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_LOW", AccessDeniedError, 6),
    ],
)
def test_who_refuses_has_a_status(
    fake: FakeService,
    client: PlannerClient,
    code: grpc.StatusCode,
    reason: str,
    kind: type[planner.errors.PlannerError],
    status: int,
) -> None:
    fake.script = [fails(code, "no", reason=reason)]
    with pytest.raises(kind) as caught:
        client.solve_plan("llama3-8b", "dgx-h100:1", **QUESTION)
    assert caught.value.exit_status == status


# --- input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"global_batch": 64}, "global_batch: no such option of this call; did you mean global_b"),
        ({"timeout_s": -1}, '"-1" is no timeout_s; expected seconds > 0'),
        ({"timeout_s": float("nan")}, "is no timeout_s"),
    ],
)
def test_options_that_cannot_be(
    fake: FakeService, client: PlannerClient, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(errors.InputError) as caught:
        client.solve_plan("llama3-8b", "dgx-h100:1", **{**QUESTION, **options})
    assert str(caught.value).startswith(words) or words in str(caught.value)
    with pytest.raises(errors.InputError):
        client.create_plan("llama3-8b", "dgx-h100:1", **{**QUESTION, **options})
    assert not fake.calls


def test_timeouts_of_a_client(fake: FakeService, client: PlannerClient) -> None:
    for option in ("timeout_s", "connect_timeout_s"):
        given: dict[str, Any] = {option: -1}
        with pytest.raises(errors.InputError, match=f"is no {option}; expected seconds > 0"):
            PlannerClient(fake.address, **given)
    with pytest.raises(errors.InputError, match="is no timeout_s"):
        client.health(timeout_s=0)


@pytest.mark.parametrize("name", ["absent.csv", "absent.json", "absent.yaml"])
def test_a_file_that_is_missing_is_missing_here(
    fake: FakeService, client: PlannerClient, name: str
) -> None:
    with pytest.raises(errors.FileFormatError, match=f"{name}: no such file"):
        client.solve_plan(name, "dgx-h100:1", **QUESTION)
    if name.endswith(".csv"):  # no file of a cluster
        return
    with pytest.raises(errors.ClusterError, match=f"{name}: no such file"):
        client.solve_plan("llama3-8b", name, **QUESTION)
    assert not fake.calls


def test_what_is_said_is_said_once(fake: FakeService, client: PlannerClient) -> None:
    with pytest.raises(errors.NotInCatalogError) as unknown:
        planner.load_model("lama3-8b")
    text = str(unknown.value)
    field = "question.model.catalog_name"
    fake.script = [
        fails(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"{field}: {text}",
            reason="NOT_IN_CATALOG",
            violations=((field, text[:200] + "..."),),
        ),
        fails(
            grpc.StatusCode.INVALID_ARGUMENT,
            'question.training.global_batch_size: global_batch_size: "0" is out of range',
            reason="INVALID_ARGUMENT",
        ),
    ]
    with pytest.raises(RemoteInputError) as caught:
        client.solve_plan("lama3-8b", "dgx-h100:1", **QUESTION)
    assert str(caught.value) == f"{field}: {text}".rstrip(".")
    with pytest.raises(RemoteInputError) as caught:
        client.solve_plan("llama3-8b", "dgx-h100:1", **QUESTION)
    assert str(caught.value) == 'question.training.global_batch_size: "0" is out of range'


@pytest.mark.parametrize("name", ["zb-x", "everything", "auto"])
def test_what_is_no_schedule_is_no_plan_either(
    fake: FakeService, client: PlannerClient, name: str
) -> None:
    with pytest.raises(errors.ScheduleError) as here:
        planner.simulate(name, stages=2, microbatches=2)
    with pytest.raises(errors.ScheduleError) as there:
        client.simulate_schedule(name, stages=2, microbatches=2)
    assert str(there.value) == str(here.value)
    assert not fake.calls


def test_an_id_is_a_plan(fake: FakeService, client: PlannerClient) -> None:
    fake.script = [fails(grpc.StatusCode.NOT_FOUND, "gone", reason="PLAN_NOT_FOUND")]
    with pytest.raises(RemoteNotFoundError, match="gone"):
        client.simulate_schedule("0123456789abcdef0123456789abcdef")
    assert fake.calls[0][1].plan.plan_id == "0123456789abcdef0123456789abcdef"


def test_sizes_are_said_in_gpus(fake: FakeService, client: PlannerClient) -> None:
    given: dict[str, Any] = {**QUESTION, "allocations": [8, 72]}
    with pytest.raises(errors.InputError) as here:
        planner.scaling_curve("llama3-8b", "gb200-nvl72:4", **given)
    with pytest.raises(errors.InputError) as there:
        client.scaling_curve("llama3-8b", "gb200-nvl72:4", **given)
    assert str(here.value) == str(there.value)
    assert str(there.value) == (
        '"72" GPUs are more than gb200-nvl72:4 has; expected at most 16 (4 nodes of 4)'
    )
    with pytest.raises(errors.InputError, match="are no allocations"):
        client.scaling_curve("llama3-8b", "gb200-nvl72:4", **{**given, "allocations": 8})
    assert not fake.calls

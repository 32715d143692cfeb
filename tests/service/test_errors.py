"""Failures: the table, what reaches a client, and what survives a process border."""

from __future__ import annotations

import asyncio
import pickle
import re
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from planner.errors import InputError, ProfileError
from planner.messages.fields import RequestError
from planner.service import errors
from planner.service.errors import CODES, DOMAIN, Failure, ServiceError, to_status
from planner.service.store.errors import StoreError, StoreFullError, StoreUnavailableError

C = grpc.StatusCode

EXAMPLES: list[tuple[ServiceError, grpc.StatusCode, str]] = [
    (errors.invalid("question.model", "is empty"), C.INVALID_ARGUMENT, "INVALID_ARGUMENT"),
    (errors.invalid("page_token", "is odd", "BAD_PAGE"), C.INVALID_ARGUMENT, "BAD_PAGE"),
    (
        errors.limit_exceeded("max_layers", 20_000, 20_001, "question.model"),
        C.INVALID_ARGUMENT,
        "LIMIT_EXCEEDED",
    ),
    (errors.request_id_reused("7"), C.INVALID_ARGUMENT, "REQUEST_ID_REUSED"),
    (errors.model_not_found("abc"), C.NOT_FOUND, "MODEL_NOT_FOUND"),
    (errors.not_found("plan", "p1"), C.NOT_FOUND, "PLAN_NOT_FOUND"),
    (errors.not_found("operation", "o1"), C.NOT_FOUND, "OPERATION_NOT_FOUND"),
    (errors.not_found("spoon", "s"), C.NOT_FOUND, "NOT_FOUND"),
    (
        errors.revision_changed("model_revision", "a", "b"),
        C.FAILED_PRECONDITION,
        "MODEL_REVISION_CHANGED",
    ),
    (
        errors.revision_changed("calibration_revision", "a", "b"),
        C.FAILED_PRECONDITION,
        "CALIBRATION_REVISION_CHANGED",
    ),
    (
        errors.revision_changed("planner_version", "1", "2"),
        C.FAILED_PRECONDITION,
        "PLANNER_VERSION_CHANGED",
    ),
    (errors.queue_full(2.5, 1_000), C.RESOURCE_EXHAUSTED, "QUEUE_FULL"),
    (errors.quota_exceeded("ci", 0.25), C.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED"),
    (errors.deadline_unreachable(12.34), C.RESOURCE_EXHAUSTED, "DEADLINE_UNREACHABLE"),
    (errors.draining(), C.UNAVAILABLE, "DRAINING"),
    (errors.worker_crashed("signal 6"), C.INTERNAL, "WORKER_CRASHED"),
    (errors.worker_hung(), C.INTERNAL, "WORKER_HUNG"),
    (errors.worker_memory(1 << 31), C.RESOURCE_EXHAUSTED, "WORKER_MEMORY_LIMIT"),
    (errors.cancelled(), C.CANCELLED, "CANCELLED"),
    (errors.deadline_passed(), C.DEADLINE_EXCEEDED, "DEADLINE_PASSED"),
    (errors.unauthenticated("BAD_TOKEN", "no"), C.UNAUTHENTICATED, "BAD_TOKEN"),
    (
        errors.permission_denied("ROLE_TOO_LOW", "ci has role read", caller="ci", role="read"),
        C.PERMISSION_DENIED,
        "ROLE_TOO_LOW",
    ),
    (errors.internal(), C.INTERNAL, "INTERNAL"),
    (errors.from_exception(StoreUnavailableError("x")), C.UNAVAILABLE, "STORE_UNAVAILABLE"),
    (errors.from_exception(StoreFullError("x")), C.RESOURCE_EXHAUSTED, "STORE_FULL"),
    (errors.from_exception(StoreError("x")), C.INTERNAL, "STORE_FAILED"),
    (errors.from_exception(MemoryError()), C.RESOURCE_EXHAUSTED, "WORKER_MEMORY_LIMIT"),
    (errors.from_exception(ZeroDivisionError("x")), C.INTERNAL, "INTERNAL"),
    (
        errors.from_exception(ProfileError("is odd", file="a.csv", line=3, column="x", value="-1")),
        C.INVALID_ARGUMENT,
        "BAD_PROFILE",
    ),
]


@pytest.mark.parametrize(("error", "code", "reason"), EXAMPLES, ids=[e[2] for e in EXAMPLES])
def test_code_reason_and_every_value_of_the_message(
    error: ServiceError, code: grpc.StatusCode, reason: str
) -> None:
    assert (error.code, error.reason) == (code, reason)
    assert CODES.get(reason, C.INVALID_ARGUMENT) is code
    # AIP-193: each number that the message has is in the metadata as well.
    said = " ".join(error.failure.metadata.values())
    for number in re.findall(r"\d[\d.]*\d|\d", error.message):
        assert number in said
    for key in error.failure.metadata:
        assert re.fullmatch(r"[a-z][a-zA-Z0-9]{0,63}", key)


@pytest.mark.parametrize("error", [e[0] for e in EXAMPLES], ids=[e[2] for e in EXAMPLES])
def test_it_survives_pickle_and_bytes(error: ServiceError) -> None:
    assert pickle.loads(pickle.dumps(error)).failure == error.failure
    assert ServiceError.from_bytes(error.to_bytes()).failure == error.failure


def test_reasons_are_as_aip_193_wants_them() -> None:
    for reason in CODES:
        assert re.fullmatch(r"[A-Z][A-Z0-9_]+[A-Z0-9]", reason)
        assert len(reason) <= 63
    with pytest.raises(ValueError, match="upper snake"):
        Failure(C.INTERNAL, "not a reason", "x")
    with pytest.raises(ValueError, match="not OK"):
        Failure(C.OK, "FINE", "x")


def test_only_what_helps_to_retry_has_a_retryable_code() -> None:
    assert {r for r, code in CODES.items() if code is C.UNAVAILABLE} == {
        "DRAINING",
        "STORE_UNAVAILABLE",
    }


def test_unexpected_and_database_errors_say_nothing_of_themselves() -> None:
    for error in (RuntimeError("secret"), StoreError("secret at db:5432")):
        status = to_status(errors.from_exception(error))
        assert b"secret" not in status.SerializeToString()


def test_a_request_error_points_into_the_request() -> None:
    inner = RequestError("training.global_batch_size", "line 3: is negative", "BAD_LAYOUT")
    error = errors.from_input(inner, "jobs[3].question")
    assert error.field == "jobs[3].question.training.global_batch_size"
    assert error.reason == "BAD_LAYOUT"
    assert error.failure.violations == ((error.field, "line 3: is negative"),)
    assert errors.invalid("model", "x").inside("question").field == "question.model"


def test_places_of_an_input_error_are_metadata() -> None:
    given = InputError("is odd", file="m.csv", line=7, column="c", value="-3", fix="drop it")
    metadata = errors.from_input(given, "model").failure.metadata
    assert metadata == {
        "problem": "is odd",
        "file": "m.csv",
        "line": "7",
        "column": "c",
        "value": "-3",
        "fix": "drop it",
        "field": "model",
    }


@pytest.mark.parametrize("letter", ["x", "ü", "語", "%", "\ud800"])
def test_a_huge_error_reaches_the_client(letter: str) -> None:
    """More than 8 KiB of trailing metadata would be RESOURCE_EXHAUSTED at the client."""
    many = tuple((f"layers[{i}].forward_ms", letter * 500) for i in range(500))
    values = {"value": letter * 5_000, "name": "n"}
    error = ServiceError(Failure(C.INVALID_ARGUMENT, "BAD", letter * 5_000, many, None, values))
    whole = to_status(error)
    # As gRPC sends it: the status in base64, and the message percent-encoded; room for others.
    assert len(whole.SerializeToString()) * 4 / 3 + len(quote(whole.message)) < 7_800
    status = _ended_with(error)
    assert status.code == C.INVALID_ARGUMENT.value[0]
    info, bad_request = _details(status)
    assert len(bad_request.field_violations) >= 1
    left_out = int(info.metadata["violationsLeftOut"])
    assert left_out + len(bad_request.field_violations) == 500


def test_a_client_gets_all_details_and_earlier_trailing_metadata() -> None:
    error = errors.queue_full(1.5, 10)
    status = _ended_with(error, before=(("x-request-id", "r1"),))
    info, _ = _details(status)
    assert (info.reason, info.domain) == ("QUEUE_FULL", DOMAIN)
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in status.details)
    assert (retry.retry_delay.seconds, retry.retry_delay.nanos) == (1, 500_000_000)


def _details(status: Any) -> tuple[Any, Any]:
    info, bad_request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad_request)
    return info, bad_request


def _ended_with(error: ServiceError, before: tuple[tuple[str, str], ...] = ()) -> Any:
    """Abort a call of a real server, and what its client saw."""

    async def handler(request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata(before)
        await errors.abort(context, error)
        raise AssertionError("abort returned")

    async def main() -> Any:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    "t.T", {"Do": grpc.unary_unary_rpc_method_handler(handler)}
                )
            ]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                call = channel.unary_unary("/t.T/Do")(b"", timeout=10)
                with pytest.raises(grpc.aio.AioRpcError):
                    await call
                trailing = tuple(await call.trailing_metadata())
                assert all(pair in trailing for pair in before)
                return await rpc_status.aio.from_call(call)
        finally:
            await server.stop(None)

    return asyncio.run(main())

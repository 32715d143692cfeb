"""How each failure leaves the server: one table of reasons, and the statuses made from it.

Every error status carries a ``google.rpc.ErrorInfo`` (reason, domain, and in its metadata every
value that the message names, as AIP-193 asks), a ``google.rpc.BadRequest`` where a field of the
request is to blame, and a ``google.rpc.RetryInfo`` where trying again later helps. Clients retry
``UNAVAILABLE`` by themselves (AIP-194), so that a full queue is ``RESOURCE_EXHAUSTED``: the same
call at once would only lengthen it.

`ServiceError` is what handlers raise and what worker processes send back: it pickles, and
`ServiceError.to_bytes` is its ``google.rpc.Status``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import grpc

from planner.errors import InputError
from planner.messages.fields import RequestError
from planner.service.failures import DOMAIN, Failure, ServiceError, abort, to_status
from planner.service.store.errors import StoreError
from planner.v1 import common_pb2

__all__ = [
    "CODES",
    "DOMAIN",
    "Failure",
    "ServiceError",
    "abort",
    "cancelled",
    "check_pins",
    "deadline_passed",
    "deadline_unreachable",
    "draining",
    "from_exception",
    "from_input",
    "internal",
    "invalid",
    "limit_exceeded",
    "model_not_found",
    "not_found",
    "permission_denied",
    "queue_full",
    "quota_exceeded",
    "request_id_reused",
    "revision_changed",
    "to_status",
    "unauthenticated",
    "unknown_method",
    "worker_crashed",
    "worker_hung",
    "worker_memory",
]

_Code = grpc.StatusCode

CODES: Final[Mapping[str, grpc.StatusCode]] = {
    # The request itself is wrong: sending it again cannot help. Reasons of
    # `planner.errors.InputError` are not listed: all of them are INVALID_ARGUMENT.
    "INVALID_ARGUMENT": _Code.INVALID_ARGUMENT,
    "MALFORMED_REQUEST": _Code.INVALID_ARGUMENT,
    # A cap of the server that no state of it will lift. RESOURCE_EXHAUSTED would ask for a retry.
    "LIMIT_EXCEEDED": _Code.INVALID_ARGUMENT,
    # AIP-155 wants the first answer for the same request and is silent on another one under the
    # same id: that is a mistake in the request. ALREADY_EXISTS would read as success to a client
    # that retries a creation.
    "REQUEST_ID_REUSED": _Code.INVALID_ARGUMENT,
    # What it names is not here.
    "MODEL_NOT_FOUND": _Code.NOT_FOUND,
    "PLAN_NOT_FOUND": _Code.NOT_FOUND,
    "OPERATION_NOT_FOUND": _Code.NOT_FOUND,
    "NOT_FOUND": _Code.NOT_FOUND,
    "UNKNOWN_METHOD": _Code.UNIMPLEMENTED,
    # The caller pinned what the server no longer has.
    "MODEL_REVISION_CHANGED": _Code.FAILED_PRECONDITION,
    "CALIBRATION_REVISION_CHANGED": _Code.FAILED_PRECONDITION,
    "PLANNER_VERSION_CHANGED": _Code.FAILED_PRECONDITION,
    # Too much at the moment: nothing was begun, later may work.
    "QUEUE_FULL": _Code.RESOURCE_EXHAUSTED,
    "QUOTA_EXCEEDED": _Code.RESOURCE_EXHAUSTED,
    "DEADLINE_UNREACHABLE": _Code.RESOURCE_EXHAUSTED,
    "STORE_FULL": _Code.RESOURCE_EXHAUSTED,
    # The question needs more memory than a worker may take.
    "WORKER_MEMORY_LIMIT": _Code.RESOURCE_EXHAUSTED,
    # Another replica, or this one later.
    "DRAINING": _Code.UNAVAILABLE,
    "STORE_UNAVAILABLE": _Code.UNAVAILABLE,
    # Who calls.
    "MISSING_CREDENTIALS": _Code.UNAUTHENTICATED,
    "BAD_TOKEN": _Code.UNAUTHENTICATED,
    "CREDENTIALS_EXPIRED": _Code.UNAUTHENTICATED,
    "TOKEN_OVER_PLAINTEXT": _Code.UNAUTHENTICATED,
    "UNKNOWN_CERTIFICATE": _Code.UNAUTHENTICATED,
    "ROLE_TOO_LOW": _Code.PERMISSION_DENIED,
    "NOT_OWNER": _Code.PERMISSION_DENIED,
    # It ended on the way.
    "CANCELLED": _Code.CANCELLED,
    "DEADLINE_PASSED": _Code.DEADLINE_EXCEEDED,
    # We failed.
    "WORKER_CRASHED": _Code.INTERNAL,
    "WORKER_HUNG": _Code.INTERNAL,
    "STORE_FAILED": _Code.INTERNAL,
    "INTERNAL": _Code.INTERNAL,
}


# What went wrong, each by its name


def _error(
    reason: str,
    message: str,
    *,
    violations: Iterable[tuple[str, str]] = (),
    retry_after_s: float | None = None,
    **metadata: object,
) -> ServiceError:
    said = {key: str(value) for key, value in metadata.items() if value is not None}
    return ServiceError(
        Failure(CODES[reason], reason, message, tuple(violations), retry_after_s, said)
    )


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def invalid(field: str, description: str, reason: str = "INVALID_ARGUMENT") -> ServiceError:
    """A field of the request that cannot be used."""
    message = f"{field}: {description}" if field else description
    return ServiceError(
        Failure(
            CODES.get(reason, grpc.StatusCode.INVALID_ARGUMENT),
            reason,
            message,
            ((field, description),) if field else (),
            metadata={"field": field, "description": description},
        )
    )


def from_input(error: InputError, field: str = "") -> ServiceError:
    """The library's refusal of an input; ``field`` is where in the request it came from.

    Examples
    --------
    >>> from_input(InputError("is negative", line=3, value="-1"), "model").failure.metadata["line"]
    '3'
    """
    if isinstance(error, RequestError):
        path = f"{field}.{error.field}" if field and error.field else field or error.field
        found = invalid(path, error.why, error.cause_reason or "INVALID_ARGUMENT").failure
        if error.cause is None:
            return ServiceError(found)
        return ServiceError(replace(found, metadata={**found.metadata, **_parts(error.cause)}))
    metadata = _parts(error)
    if field:
        metadata["field"] = field
    return ServiceError(
        Failure(
            grpc.StatusCode.INVALID_ARGUMENT,
            error.reason,
            f"{field}: {error}" if field else str(error),
            ((field, str(error)),) if field else (),
            metadata=metadata,
        )
    )


def _parts(error: InputError) -> dict[str, str]:
    """What the library's error is made of: a client makes the same one again."""
    places = ("problem", "file", "line", "column", "key", "value", "expected", "fix")
    said = {place: getattr(error, place) for place in places}
    return {place: str(value) for place, value in said.items() if value is not None}


def from_exception(error: Exception) -> ServiceError:
    """Any exception as what the client may see of it; an unexpected one says nothing."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, InputError):
        return from_input(error)
    if isinstance(error, StoreError):
        # Its text may name the database; the client is told what it can do about it.
        return {
            "STORE_UNAVAILABLE": _error(
                "STORE_UNAVAILABLE", "the store of plans and operations cannot be reached now"
            ),
            "STORE_FULL": _error("STORE_FULL", "the store of plans and operations is full"),
        }.get(error.reason, _error("STORE_FAILED", "the store of plans and operations failed"))
    if isinstance(error, MemoryError):
        return worker_memory()
    return internal()


def internal() -> ServiceError:
    """A fault of ours; what it was is in the server's log alone."""
    return _error("INTERNAL", "internal error; the server's log has it under this request id")


def limit_exceeded(setting: str, limit: float, value: float, field: str = "") -> ServiceError:
    """A request that asks for more than the setting of this name allows."""
    description = f"{value} is more than this server's {setting} of {limit}"
    return _error(
        "LIMIT_EXCEEDED",
        f"{field}: {description}" if field else description,
        violations=[(field, description)] if field else (),
        setting=setting,
        limit=limit,
        value=value,
        field=field or None,
    )


def request_id_reused(request_id: str) -> ServiceError:
    """The same ``request_id`` came with another request."""
    return _error(
        "REQUEST_ID_REUSED",
        f"request_id {request_id} was used for another request; choose a new one",
        violations=[("request_id", "was used for another request")],
        requestId=request_id,
    )


def not_found(what: str, name: str) -> ServiceError:
    """A plan, operation, model or other thing that is not kept here (any more).

    Examples
    --------
    >>> not_found("plan", "7f3a").reason
    'PLAN_NOT_FOUND'
    """
    reason = f"{what.upper().replace(' ', '_')}_NOT_FOUND"
    return _error(
        reason if reason in CODES else "NOT_FOUND",
        f"there is no {what} {name} here; it may have expired",
        what=what,
        name=name,
    )


def unknown_method(method: str) -> ServiceError:
    """A method that this server does not have."""
    return _error("UNKNOWN_METHOD", f"this server has no method {method}", method=method)


def model_not_found(content_hash: str) -> ServiceError:
    """A model's hash that this server does not hold: send it with PutModel, or inline."""
    return _error(
        "MODEL_NOT_FOUND",
        f"no model is kept under {content_hash}; send it again with PutModel",
        contentHash=content_hash,
    )


def revision_changed(what: str, expected: str, actual: str) -> ServiceError:
    """A pin that does not hold: ``what`` is a field of ``ExpectedRevisions``.

    Examples
    --------
    >>> revision_changed("planner_version", "1.0", "1.1").reason
    'PLANNER_VERSION_CHANGED'
    """
    return _error(
        f"{what.upper()}_CHANGED",
        f"expected {what} {expected}, this server answers with {actual}",
        violations=[(f"expected.{what}", f"is {actual} here")],
        what=what,
        expected=expected,
        actual=actual,
    )


def check_pins(expected: common_pb2.ExpectedRevisions, actual: Mapping[str, str]) -> None:
    """Hold a caller's pins against some revisions by name; an empty pin holds.

    Raises
    ------
    ServiceError
        The first pin that does not hold (:func:`revision_changed`).
    """
    for name, value in actual.items():
        wanted = getattr(expected, name)
        if wanted and wanted != value:
            raise revision_changed(name, wanted, value)


def queue_full(retry_after_s: float, length: int | None = None) -> ServiceError:
    """No room to wait in."""
    return _error(
        "QUEUE_FULL",
        "too many requests are waiting for a slot; try again later",
        retry_after_s=retry_after_s,
        queueLength=length,
    )


def quota_exceeded(caller: str, retry_after_s: float) -> ServiceError:
    """This caller asks more often, or has more waiting, than it may."""
    return _error(
        "QUOTA_EXCEEDED",
        f"{caller} sends more requests than its quota allows; try again later",
        retry_after_s=retry_after_s,
        caller=caller,
    )


def deadline_unreachable(estimated_wait_s: float) -> ServiceError:
    """The call's deadline would pass while it waits, so that it was not begun."""
    return _error(
        "DEADLINE_UNREACHABLE",
        f"the wait for a slot is about {estimated_wait_s:.3g} s, longer than the deadline leaves",
        retry_after_s=estimated_wait_s,
        estimatedWaitSeconds=f"{estimated_wait_s:.3g}",
    )


def draining(retry_after_s: float | None = None) -> ServiceError:
    """The server is being shut down and begins nothing new."""
    return _error(
        "DRAINING",
        "this server is being shut down; another replica may answer",
        retry_after_s=retry_after_s,
    )


def worker_crashed(detail: str | None = None) -> ServiceError:
    """The process that worked on it died, twice."""
    return _error(
        "WORKER_CRASHED",
        "the process that worked on this request died" + (f" ({detail})" if detail else ""),
        detail=detail,
    )


def worker_hung() -> ServiceError:
    """The process that worked on it did not answer when told to stop, and was killed."""
    return _error(
        "WORKER_HUNG", "the process that worked on this request did not stop in time, was killed"
    )


def worker_memory(limit_bytes: int | None = None) -> ServiceError:
    """The question needs more memory than one worker may take."""
    limit = f" of {limit_bytes} bytes (worker_memory_bytes)" if limit_bytes is not None else ""
    return _error(
        "WORKER_MEMORY_LIMIT",
        f"this request needs more than the memory limit of a worker{limit}",
        limitBytes=limit_bytes,
        setting="worker_memory_bytes" if limit_bytes is not None else None,
    )


def cancelled() -> ServiceError:
    """Somebody cancelled it."""
    return _error("CANCELLED", "cancelled")


def deadline_passed() -> ServiceError:
    """The deadline came before anything could be said."""
    return _error("DEADLINE_PASSED", "the deadline passed before there was an answer")


def unauthenticated(reason: str, message: str) -> ServiceError:
    """It is not known who calls (a reason of the table with that code)."""
    return _error(reason, message)


def permission_denied(reason: str, message: str, **metadata: str) -> ServiceError:
    """It is known who calls, and they may not."""
    said = {_camel(key): value for key, value in metadata.items()}
    return ServiceError(Failure(CODES[reason], reason, message, metadata=said))

"""A failure as an exception that pickles, and as the ``google.rpc.Status`` that a client gets."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn
from urllib.parse import quote

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

__all__ = ["DOMAIN", "Failure", "ServiceError", "abort", "to_status"]

DOMAIN: Final = "planner.v1"

_CODE_OF_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
_REASON = re.compile(r"[A-Z][A-Z0-9_]{0,61}[A-Z0-9]")

# A client refuses, by chance, more than 8 KiB of trailing metadata, and the message goes there
# twice: in the status, and alone with three characters for each byte that is not plain ASCII.
_MESSAGE_LENGTH = 800
_MESSAGE_BYTES_ON_THE_WIRE = 2_400
_DETAIL_LENGTH = 300
_STATUS_BYTES = 3_500
_UNQUOTED = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What gRPC sends as it is in a message; the rest is percent-encoded."""


def _sendable(text: object, length: int) -> str:
    """A string that protobuf can carry: no lone surrogates, and not too long."""
    clean = str(text).encode("utf-8", "replace").decode()
    return clean if len(clean) <= length else clean[: length - 3] + "..."


def _sendable_message(text: str) -> str:
    """The message of a status, not too long as it is sent alone."""
    message = _sendable(text, _MESSAGE_LENGTH)
    while len(quote(message, safe=_UNQUOTED)) > _MESSAGE_BYTES_ON_THE_WIRE:
        message = _sendable(message, len(message) - 1 - len(message) // 20)
    return message


@dataclass(frozen=True, slots=True)
class Failure:
    """What is said of one failure.

    ``violations`` are pairs of a field's path in the request and what is wrong with it;
    ``metadata`` has keys in lower camel case.
    """

    code: grpc.StatusCode
    reason: str
    message: str
    violations: tuple[tuple[str, str], ...] = ()
    retry_after_s: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _REASON.fullmatch(self.reason):
            raise ValueError(f"{self.reason!r} is no reason in upper snake case")
        if self.code is grpc.StatusCode.OK:
            raise ValueError("a failure is not OK")


class ServiceError(Exception):
    """A failure on its way to the client; its message is safe to show."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)

    def __reduce__(self) -> tuple[object, ...]:
        return (ServiceError, (self.failure,))

    @property
    def code(self) -> grpc.StatusCode:
        """Status code."""
        return self.failure.code

    @property
    def reason(self) -> str:
        """Stable reason, as ErrorInfo has it."""
        return self.failure.reason

    @property
    def message(self) -> str:
        """What went wrong and what would work."""
        return self.failure.message

    @property
    def field(self) -> str:
        """Path of the first field to blame, or empty."""
        return self.failure.violations[0][0] if self.failure.violations else ""

    def inside(self, outer: str) -> ServiceError:
        """The same error seen from the message that holds the fields to blame."""
        moved = tuple(
            (f"{outer}.{path}" if path else outer, why) for path, why in self.failure.violations
        )
        return ServiceError(replace(self.failure, violations=moved))

    def to_bytes(self) -> bytes:
        """The serialized ``google.rpc.Status``."""
        data: bytes = to_status(self).SerializeToString()
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> ServiceError:
        """What `to_bytes` wrote.

        Examples
        --------
        >>> busy = ServiceError(Failure(grpc.StatusCode.UNAVAILABLE, "BUSY", "busy"))
        >>> ServiceError.from_bytes(busy.to_bytes()).reason
        'BUSY'
        """
        return cls.from_status(status_pb2.Status.FromString(data))

    @classmethod
    def from_status(cls, status: status_pb2.Status) -> ServiceError:
        """The error that a ``google.rpc.Status`` describes."""
        info = error_details_pb2.ErrorInfo()
        bad_request = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        retry_after_s = None
        for detail in status.details:
            detail.Unpack(info)
            detail.Unpack(bad_request)
            if detail.Unpack(retry):
                retry_after_s = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
        return cls(
            Failure(
                code=_CODE_OF_NUMBER.get(status.code, grpc.StatusCode.UNKNOWN),
                reason=info.reason or "INTERNAL",
                message=status.message,
                violations=tuple((v.field, v.description) for v in bad_request.field_violations),
                retry_after_s=retry_after_s,
                metadata=dict(info.metadata),
            )
        )


def _packed(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def to_status(error: ServiceError) -> status_pb2.Status:
    """The status that a client gets; what does not fit into its metadata is left out."""
    failure = error.failure
    info = error_details_pb2.ErrorInfo(
        reason=failure.reason,
        domain=DOMAIN,
        metadata={key: _sendable(v, _DETAIL_LENGTH) for key, v in failure.metadata.items()},
    )
    status = status_pb2.Status(
        code=failure.code.value[0], message=_sendable_message(failure.message)
    )
    tail = []
    if failure.retry_after_s is not None:
        whole = math.floor(failure.retry_after_s)
        delay = duration_pb2.Duration(
            seconds=whole, nanos=round((failure.retry_after_s - whole) * 1e9)
        )
        tail.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    bad_request = error_details_pb2.BadRequest()
    room = _STATUS_BYTES - len(status.message.encode()) - info.ByteSize()
    for done, (path, why) in enumerate(failure.violations):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_sendable(path, _DETAIL_LENGTH), description=_sendable(why, _DETAIL_LENGTH)
        )
        room -= violation.ByteSize() + 4
        if done and room < 0:
            info.metadata["violationsLeftOut"] = str(len(failure.violations) - done)
            break
        bad_request.field_violations.append(violation)
    if failure.violations:
        tail.insert(0, _packed(bad_request))
    status.details.extend([_packed(info), *tail])
    return status


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: ServiceError) -> NoReturn:
    """End a call with this error, keeping the trailing metadata that were set before."""
    status = rpc_status.to_status(to_status(error))
    before = tuple(context.trailing_metadata() or ())
    await context.abort(status.code, status.details, (*before, *status.trailing_metadata))
    raise AssertionError("abort returned")  # it never does; for the type checker

"""What a call to a server can fail with.

The tree::

    RemoteError                      a PlannerError; exit status 1: the server failed
    ├── RemoteInputError             INVALID_ARGUMENT; an InputError as well, exit status 2
    │   └── MessageTooLargeError     a request or an answer is larger than somebody takes
    ├── RemoteNotFoundError          NOT_FOUND: a plan, model or operation that is not kept; 2
    ├── RevisionChangedError         FAILED_PRECONDITION: what the caller pinned has changed; 2
    ├── ServerBusyError              RESOURCE_EXHAUSTED: a full queue, 5; a quota, a memory cap, 6
    ├── ServerUnavailableError       UNAVAILABLE: not reached, or shutting down; exit status 5
    ├── RemoteDeadlineError          DEADLINE_EXCEEDED; exit status 4
    ├── RemoteCancelledError         CANCELLED; exit status 130
    └── AccessDeniedError            UNAUTHENTICATED, PERMISSION_DENIED; exit status 6

Every one has the stable ``reason`` of the server and what it said in detail.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import grpc
from google.rpc import error_details_pb2, status_pb2

from planner import errors
from planner.client.reaching import unreachable
from planner.errors import InputError, PlannerError
from planner.units import format_bytes

__all__ = [
    "AccessDeniedError",
    "MessageTooLargeError",
    "RemoteCancelledError",
    "RemoteDeadlineError",
    "RemoteError",
    "RemoteFailure",
    "RemoteInputError",
    "RemoteNotFoundError",
    "RevisionChangedError",
    "ServerBusyError",
    "ServerUnavailableError",
    "error_of_call",
    "error_of_status",
]

MODEL_NOT_FOUND = "MODEL_NOT_FOUND"
"""Reason of a server that does not keep a model which is named by its content."""

_STATUS_KEY = "grpc-status-details-bin"
_SIZES = re.compile(r"\((\d+) vs\. (\d+)\)")
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_LIBRARY = {
    kind.reason: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, InputError)
}
"""The library's error behind a reason."""
_REFUSED = ("QUOTA_EXCEEDED", "WORKER_MEMORY_LIMIT")
"""Reasons of a server that has room, and none for this caller or question."""
_DOUBLED = re.compile(r"(?<![\w.])((?:[\w\[\]]+\.)+(\w+): )\2: ")
_PLACES = ("file", "column", "key", "value", "expected", "fix")


@dataclass(frozen=True)
class RemoteFailure:
    """What a server said of a failure."""

    code: grpc.StatusCode
    reason: str
    """As ``google.rpc.ErrorInfo`` has it; else the name of the code."""
    message: str
    violations: tuple[tuple[str, str], ...] = ()
    """Fields of the request, and what is wrong with each."""
    retry_after_s: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


class RemoteError(PlannerError):
    """A call that failed; see the module for its kinds."""

    def __init__(self, failure: RemoteFailure) -> None:
        self.failure = failure
        self.reason = failure.reason  # type: ignore[misc]
        super().__init__(failure.message)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.failure,))

    @property
    def code(self) -> grpc.StatusCode:
        """Status code of the call."""
        return self.failure.code

    @property
    def metadata(self) -> Mapping[str, str]:
        """Values that the message names."""
        return self.failure.metadata

    @property
    def violations(self) -> tuple[tuple[str, str], ...]:
        """Fields of the request to blame, each with what is wrong with it."""
        return self.failure.violations

    @property
    def retry_after_s(self) -> float | None:
        """When the server says that asking again may help; None: it does not."""
        return self.failure.retry_after_s


class RemoteInputError(RemoteError, InputError):
    """The server refuses the input."""

    exit_status: ClassVar[int] = 2

    def __init__(self, failure: RemoteFailure) -> None:
        InputError.__init__(self, failure.message)
        RemoteError.__init__(self, failure)

    def library_error(self) -> InputError:
        """The same as the library's own error, without the path into the request.

        Its message is the one that the same call in process would raise.
        """
        kind = _LIBRARY.get(self.reason, InputError)
        said = self.metadata
        if "problem" in said:
            places: dict[str, Any] = {name: said[name] for name in _PLACES if name in said}
            if places.get("file") == "<stdin>":  # the server's word for what was sent
                del places["file"]
            if said.get("line", "").isdigit():
                places["line"] = int(said["line"])
            return kind(said["problem"], **places)
        if len(self.violations) == 1:
            field, why = self.violations[0]
            # A longer text is cut short in the details, and whole in the message.
            return kind(str(self).removeprefix(f"{field}: ") if why.endswith("...") else why)
        return kind(str(self))


class MessageTooLargeError(RemoteInputError):
    """A request or an answer that is larger than the server or this client takes."""


class RemoteNotFoundError(RemoteError):
    """What the request names is not kept by the server (any more)."""

    exit_status: ClassVar[int] = 2


class RevisionChangedError(RemoteError):
    """The server no longer answers with what the caller pinned."""

    exit_status: ClassVar[int] = 2


class ServerBusyError(RemoteError):
    """The server has no room for the request now, or the question needs more than it gives."""

    exit_status: ClassVar[int] = 5

    def __init__(self, failure: RemoteFailure) -> None:
        super().__init__(failure)
        if failure.reason in _REFUSED:
            self.exit_status = 6  # type: ignore[misc]


class ServerUnavailableError(RemoteError):
    """The server cannot be reached, or is being shut down."""

    exit_status: ClassVar[int] = 5


class RemoteDeadlineError(RemoteError):
    """The time for the call was over before there was an answer."""

    exit_status: ClassVar[int] = 4


class RemoteCancelledError(RemoteError):
    """The call or operation was cancelled."""

    exit_status: ClassVar[int] = 130


class AccessDeniedError(RemoteError):
    """The server does not know who calls, or they may not."""

    exit_status: ClassVar[int] = 6


_KINDS: dict[grpc.StatusCode, type[RemoteError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: RemoteInputError,
    grpc.StatusCode.NOT_FOUND: RemoteNotFoundError,
    grpc.StatusCode.FAILED_PRECONDITION: RevisionChangedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ServerBusyError,
    grpc.StatusCode.UNAVAILABLE: ServerUnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: RemoteDeadlineError,
    grpc.StatusCode.CANCELLED: RemoteCancelledError,
    grpc.StatusCode.UNAUTHENTICATED: AccessDeniedError,
    grpc.StatusCode.PERMISSION_DENIED: AccessDeniedError,
}


def error_of_call(call: Any, address: str, timeout_s: float) -> RemoteError:
    """The error of a call that ended with a status (``grpc.RpcError`` of either API).

    Parameters
    ----------
    address, timeout_s
        Where the call went and how long it was given, for the message.
    """
    for key, value in call.trailing_metadata() or ():
        if key == _STATUS_KEY:
            return error_of_status(status_pb2.Status.FromString(value))
    code, details = call.code() or grpc.StatusCode.UNKNOWN, call.details() or ""
    too_large = _too_large(details)
    if too_large is not None:
        return too_large
    return plain_error(code, _without_details(code, details, address, timeout_s))


def plain_error(code: grpc.StatusCode, message: str) -> RemoteError:
    """An error whose server said nothing in detail."""
    return _KINDS.get(code, RemoteError)(RemoteFailure(code, code.name, message))


def no_service(service: str, address: str) -> RemoteError:
    """The error of who asks for the health of a service that is not there."""
    text = f"there is no service {service} on the server at {address}"
    return plain_error(grpc.StatusCode.NOT_FOUND, text)


def error_of_status(status: status_pb2.Status) -> RemoteError:
    """The error that a ``google.rpc.Status`` describes."""
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    reason, metadata = code.name, {}
    violations: tuple[tuple[str, str], ...] = ()
    retry_after_s = None
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(info):
            reason, metadata = info.reason or reason, dict(info.metadata)
        elif detail.Unpack(bad):
            violations = tuple((v.field, v.description) for v in bad.field_violations)
        elif detail.Unpack(retry):
            retry_after_s = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    failure = RemoteFailure(
        code, reason, _readable(status.message, violations), violations, retry_after_s, metadata
    )
    return _KINDS.get(code, RemoteError)(failure)


def error_of_job(code: int, reason: str, message: str, field: str) -> RemoteError:
    """The error of one job of a batch."""
    known = _CODES.get(code, grpc.StatusCode.UNKNOWN)
    text = _DOUBLED.sub(r"\1", " ".join(message.split()))
    said = ((field, text.removeprefix(f"{field}: ")),) if field else ()
    return _KINDS.get(known, RemoteError)(RemoteFailure(known, reason or known.name, text, said))


def _readable(message: str, violations: tuple[tuple[str, str], ...]) -> str:
    """One line; fields that the message does not name are added to it."""
    text = _DOUBLED.sub(r"\1", " ".join(message.split()).rstrip("."))
    more = [_DOUBLED.sub(r"\1", f"{path}: {why}") if path else why for path, why in violations]
    unsaid = [line for line in more[:5] if not _is_said(line, text)]
    return "; ".join([text, *unsaid]) if text else "; ".join(more)


def _is_said(line: str, text: str) -> bool:
    """Whether a message has what is wrong with a field, which may be cut short."""
    begin = line.removesuffix("...")
    return begin in text or begin.split(": ")[-1] in text


def _too_large(details: str) -> MessageTooLargeError | None:
    sizes = _SIZES.search(details)
    if sizes is None or "larger than max" not in details:
        return None
    size, limit = (int(text) for text in sizes.groups())
    shown = f"{format_bytes(size)}, of at most {format_bytes(limit)}"
    if details.startswith("CLIENT: Received"):
        text = f"the answer has {shown} that this client takes; give a larger max_message_bytes"
    elif "Sent message" in details:
        text = f"the request has {shown} that this client sends; give a larger max_message_bytes"
    else:
        text = (
            f"the request has {shown} that the server takes (its setting max_message_bytes); "
            "send large models once with put_model, or raise the setting"
        )
    said = {"setting": "max_message_bytes", "limit": str(limit), "value": str(size)}
    return MessageTooLargeError(
        RemoteFailure(grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE", text, metadata=said)
    )


def _without_details(code: grpc.StatusCode, details: str, address: str, timeout_s: float) -> str:
    """A message for what the transport says, which names neither server nor deadline."""
    text = " ".join(details.split()).rstrip(".")
    if code is grpc.StatusCode.UNAVAILABLE:
        return unreachable(address, text)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer from the server at {address} within {timeout_s:.3g} s"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"the server at {address} does not know this call: it is another version or service"
    if code is grpc.StatusCode.CANCELLED:
        return "the call was cancelled"
    return f"the server at {address} failed: {text or code.name}"

"""Log lines of the server: one JSON object or one text line each, on standard error, no secrets."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

__all__ = ["JsonFormatter", "TextFormatter", "configure_logging", "current_request_id", "mask"]

current_request_id: ContextVar[str | None] = ContextVar("current_request_id", default=None)
"""Id of the call that this code runs for; log lines carry it."""

_SECRETS = (
    # Authorization: Bearer abc...
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}"), r"\1\2***"),
    # Tokens that planner.service.identity makes.
    (re.compile(r"\bplt_[\w-]{8,}"), "plt_***"),
    # scheme://user:password@host
    (re.compile(r"(://[^\s:/@]*:)[^\s/]+@"), r"\1***@"),
    # password=..., "token": "..."
    (
        re.compile(
            r"(?i)\b(\w*(?:password|passwd|secret|api_?key|token))"
            r"""(["']?\s*[=:]\s*["']?)[^\s"',;&)}\]]+"""
        ),
        r"\1\2***",
    ),
)

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def mask(text: str) -> str:
    """The text without bearer tokens, passwords in URLs and values that are named as secret.

    Examples
    --------
    >>> mask("postgresql+psycopg://plans:hunter2@db/plans")
    'postgresql+psycopg://plans:***@db/plans'
    >>> mask("authorization: Bearer abcdefghijkl")
    'authorization: Bearer ***'
    """
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def _plain(value: object) -> Any:
    """What JSON can hold, with secrets masked in every string."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {mask(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    return mask(str(value))


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    found = {key: _plain(v) for key, v in vars(record).items() if key not in _STANDARD}
    request_id = current_request_id.get()
    return found if request_id is None else {"request_id": request_id, **found}


class _Formatter(logging.Formatter):
    def _exception(self, record: logging.LogRecord) -> str | None:
        parts = []
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return mask("\n".join(parts)) if parts else None


class JsonFormatter(_Formatter):
    """One JSON object a line: time (UTC), level, logger, message, request_id, extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Put a record into one line."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask(record.getMessage()),
        }
        line |= {key: value for key, value in _extra(record).items() if key not in line}
        exception = self._exception(record)
        if exception is not None:
            line["exception"] = exception
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


class TextFormatter(_Formatter):
    """One line for people; only a traceback takes more."""

    def format(self, record: logging.LogRecord) -> str:
        """Put a record into one line."""
        # Line breaks in what callers sent must not look like further log lines.
        said = [mask(record.getMessage())]
        said += [f"{key}={value}" for key, value in _extra(record).items()]
        text = " ".join(said).replace("\r", "\\r").replace("\n", "\\n")
        line = f"{_time(record)} {record.levelname.lower():7} {record.name}: {text}"
        exception = self._exception(record)
        return line if exception is None else f"{line}\n{exception}"


class _ServiceHandler(logging.StreamHandler[TextIO]):
    """Marks the handler that `configure_logging` may replace."""


def configure_logging(
    level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["json", "text"] = "json",
    stream: TextIO | None = None,
) -> logging.Handler:
    """Send all log lines of this process to standard error (or ``stream``) in this format.

    Calling it again replaces what the last call set up.
    """
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _ServiceHandler)]:
        root.removeHandler(handler)
    handler = _ServiceHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root.addHandler(handler)
    root.setLevel(level.upper())
    return handler

"""Log lines: valid JSON, one line each, with the request's id and without secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest

from planner.service.logs import configure_logging, current_request_id, mask

SECRET = "s3cr3t-s3cr3t-s3cr3t"


@pytest.fixture(autouse=True)
def _root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_json_line_has_what_a_collector_needs() -> None:
    out = io.StringIO()
    configure_logging("info", "json", out)
    token = current_request_id.set("abc-1")
    try:
        logging.getLogger("planner.x").warning("took %d s", 3, extra={"lane": "quick", "n": [1]})
    finally:
        current_request_id.reset(token)
    line = json.loads(out.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "planner.x",
        "message": "took 3 s",
        "request_id": "abc-1",
        "lane": "quick",
        "n": [1],
    }


def test_time_is_utc() -> None:
    out = io.StringIO()
    configure_logging(stream=out)
    logging.getLogger("planner").info("now")
    moment = datetime.fromisoformat(json.loads(out.getvalue())["time"])
    assert abs(moment.timestamp() - datetime.now().timestamp()) < 60


def test_levels_and_calling_again_replace() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging("debug", "json", first)
    configure_logging("warning", "text", second)
    logging.getLogger("planner").info("quiet")
    logging.getLogger("planner").warning("loud")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1
    assert "warning planner: loud" in second.getvalue()


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_line_breaks_cannot_forge_a_line(log_format: str) -> None:
    out = io.StringIO()
    configure_logging("info", log_format, out)  # type: ignore[arg-type]
    logging.getLogger("planner").info("model %s", "x\n2030-01-01 error forged", extra={"k": "a\nb"})
    assert len(out.getvalue().splitlines()) == 1


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_exceptions_are_there_and_masked(log_format: str) -> None:
    out = io.StringIO()
    configure_logging("info", log_format, out)  # type: ignore[arg-type]
    try:
        raise RuntimeError(f"cannot reach postgresql://me:{SECRET}@db")
    except RuntimeError:
        logging.getLogger("planner").exception("failed")
    assert "RuntimeError" in out.getvalue()
    assert "Traceback" in out.getvalue()
    assert SECRET not in out.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        f"authorization: Bearer {SECRET}",
        f"metadata (('authorization', 'bearer {SECRET}'),)",
        f"sqlite://u:{SECRET}@host/x",
        f"postgresql://me:p@{SECRET}@db/x",
        f"host=db password={SECRET} user=me",
        f'{{"token": "{SECRET}"}}',
        f"store=postgresql://db/plans?sslpassword={SECRET}&x=1",
        f"got plt_{SECRET}",
    ],
)
def test_secrets_are_masked(text: str) -> None:
    assert SECRET not in mask(text)
    assert "***" in mask(text)


@pytest.mark.parametrize(
    "text", ["http://host:8080/path", "12 tokens per second", "unix:/run/p.sock", "a:b@c"]
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


def test_extras_are_masked_and_always_json() -> None:
    out = io.StringIO()
    configure_logging(stream=out)
    extra = {"url": f"x://u:{SECRET}@h", "gap": float("nan"), "o": object(), "d": {"k": SECRET}}
    logging.getLogger("planner").info("odd", extra=extra | {"d": {"k": f"Bearer {SECRET}"}})
    assert SECRET not in out.getvalue()
    line = json.loads(out.getvalue(), parse_constant=lambda name: pytest.fail(name))
    assert line["gap"] == "nan"


def test_an_extra_cannot_replace_the_message() -> None:
    out = io.StringIO()
    configure_logging(stream=out)
    logging.getLogger("planner").info("real", extra={"level": "forged", "logger": "forged"})
    line = json.loads(out.getvalue())
    assert (line["level"], line["logger"]) == ("info", "planner")

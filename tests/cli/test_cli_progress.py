"""Progress: on a terminal's stderr alone, after a while, and wiped when done."""

from __future__ import annotations

import io
import sys
import time

import pytest

from planner.cli.progress import Progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_silent_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("searching", delay_s=0.0) as progress:
        progress("more")
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_silent_before_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("searching"):
        pass
    assert stream.getvalue() == ""


def test_shown_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("searching layouts", delay_s=0.0):
        end = time.monotonic() + 5
        while not stream.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    lines = stream.getvalue().split("\r")
    assert lines[1] == "searching layouts (0 s)"
    assert lines[-1] == ""
    assert lines[-2].strip() == ""

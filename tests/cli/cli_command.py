"""The command line called in process, as a shell would call it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main

HEADER = "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes"


def rows(count: int = 6) -> list[str]:
    """Rows of a profile whose layer i takes i+1 ms forward and twice that backward."""
    return [f"l{i},{i + 1},{2 * i + 2},1000,2000,100" for i in range(count)]


def profile_text(lines: Iterable[str] | None = None, header: str = HEADER) -> str:
    """A profile CSV."""
    return "\n".join([header, *(rows() if lines is None else lines)]) + "\n"


@dataclass(frozen=True)
class Outcome:
    """What a run left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


class Command:
    """``planner`` with a folder to work in."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
    ) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.folder = folder

    def __call__(self, *arguments: str, stdin: str | None = None) -> Outcome:
        """Run a command line; its exit status, standard output and standard error."""
        if stdin is not None:
            self._monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        captured = self._capsys.readouterr()
        code = left.value.code
        assert isinstance(code, int)
        return Outcome(code, captured.out, captured.err)

    def write(self, name: str, text: str | bytes) -> str:
        """A file in the folder; its path."""
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def refuses(self, *arguments: str, stdin: str | None = None) -> str:
        """Assert one clear line, exit status 2 and nothing written; the line."""
        before = set(self.folder.rglob("*"))
        outcome = self(*arguments, stdin=stdin)
        assert outcome.status == 2, outcome
        assert outcome.out == ""
        lines = outcome.err.splitlines()
        assert len(lines) == 1, outcome.err
        assert lines[0].startswith("error: ")
        assert "Traceback" not in outcome.err
        assert set(self.folder.rglob("*")) == before, "something was written"
        return lines[0]

"""The command as a fixture."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_command import Command


@pytest.fixture
def planner(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Command:
    """Call ``planner`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return Command(capsys, monkeypatch, tmp_path)

"""What the README shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cli_command import Command

README = Path(__file__).resolve().parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def _write_files(folder: Path) -> None:
    marked = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert marked
    for name, content in marked:
        (folder / name).write_text(content)


def test_commands_work(planner: Command) -> None:
    _write_files(planner.folder)
    run = 0
    for block in _blocks("sh"):
        for line in block.splitlines():
            for part in line.split("&&"):
                words = shlex.split(part)
                if words[0] == "planner":
                    outcome = planner(*words[1:])
                    assert (outcome.status, outcome.err) == (0, ""), part
                    run += 1
    assert run >= 15


def test_shown_output_is_what_is_printed(planner: Command) -> None:
    _write_files(planner.folder)
    shown = re.findall(
        r"<!-- output: (.*?) -->\n```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL
    )
    assert len(shown) == 3
    for command, expected in shown:
        printed = planner(*shlex.split(command)).out.splitlines()
        place = 0
        for line in expected.splitlines():
            # "..." stands for lines left out.
            if line.strip() and line.strip() != "...":
                assert line in printed[place:], f"{command}: {line}"
                place = printed.index(line, place) + 1


def test_python_blocks_run(planner: Command, capsys: pytest.CaptureFixture[str]) -> None:
    _write_files(planner.folder)
    blocks = _blocks("python")
    assert blocks
    for block in blocks:
        exec(compile(block, str(README), "exec"), {})
    printed = capsys.readouterr().out
    assert "INVALID_INPUT" in printed or "BAD_LAYOUT" in printed
    assert "9 stages are more than the 6 layers" in printed


def test_nothing_private_is_named() -> None:
    for word in ("/work", "/opt", "../shared", "/tmp"):
        assert word not in TEXT

"""The command as a process: signals, workers, streams."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_command import profile_text

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
SLOW = ["plan", "llama3-405b", "--cluster", "dgx-h100:64", "--global-batch", "2048"]
SLOW += ["--seq-len", "8192", "--pareto", "--workers", "2"]
QUICK = ["plan", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", "8"]
QUICK += ["--seq-len", "4096", "--dp", "1", "--pp", "1", "--tp", "8"]

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="no pool on one core")


def _shell(line: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A line of bash in which ``planner`` is the command."""
    define = f'planner() {{ "{sys.executable}" -m planner "$@"; }}; '
    return subprocess.run(
        ["bash", "-c", define + line],
        env=ENVIRONMENT,
        cwd=folder,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=50,
    )


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


@contextmanager
def _slow_run() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A search at work with both of its workers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "planner", *SLOW],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    workers: list[int] = []
    try:
        assert _within(20, lambda: len(_children(process.pid)) >= 2)
        workers = _children(process.pid)
        # Long enough for the workers to have been set up.
        time.sleep(0.7)
        assert process.poll() is None, "the search was not slow enough for this test"
        yield process, workers
    finally:
        for pid in (process.pid, *workers):
            if _alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


@linux
@cores
def test_workers_die_with_a_killed_main_process() -> None:
    with _slow_run() as (process, workers):
        process.kill()
        process.wait(5)
        assert _within(5, lambda: not any(map(_alive, workers)))


@linux
@cores
@pytest.mark.parametrize(
    ("number", "status", "said"), [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "interrupted\n")]
)
def test_a_signal_ends_everything_quietly(number: signal.Signals, status: int, said: str) -> None:
    with _slow_run() as (process, workers):
        for pid in (process.pid, *workers) if number is signal.SIGINT else (process.pid,):
            os.kill(pid, number)  # a terminal sends its interrupt to all of them
        out, err = process.communicate(timeout=10)
        assert (process.returncode, out, err) == (status, "", said)
        assert not any(map(_alive, workers))


@linux
@cores
def test_a_killed_worker_is_said_in_one_line() -> None:
    with _slow_run() as (process, workers):
        os.kill(workers[0], signal.SIGKILL)
        out, err = process.communicate(timeout=10)
        assert process.returncode == 1
        assert (out, err) == ("", "error: a worker process was killed (out of memory?)\n")
        assert not any(map(_alive, workers))


@linux
@pytest.mark.parametrize("words", ["--help", "schema plan", "catalog", "--version"])
def test_a_full_disk_behind_standard_output(words: str) -> None:
    done = _shell(f"planner {words} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == ("error: standard output cannot be written: No space left on device\n")


@pytest.mark.parametrize("words", ["--help", "schema plan"])
def test_a_reader_that_leaves_is_no_error(words: str) -> None:
    # Reading nothing at all makes sure that the pipe is closed before anything is written.
    done = _shell(f"planner {words} | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_closed_streams() -> None:
    assert _shell("planner catalog >&-").returncode == 0
    assert _shell("planner schema plan 0<&- >&- 2>&-").returncode == 0
    done = _shell("planner schema nothing 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
    done = _shell("planner partition - --stages 2 0<&-")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_closed_standard_output_does_not_end_up_in_the_output_file(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(profile_text())
    done = _shell("planner partition in.csv --stages 2 -o plan.json >&- 2>&-", tmp_path)
    assert done.returncode == 0
    assert json.loads((tmp_path / "plan.json").read_text())["status"] == "optimal"


@linux
def test_file_names_that_are_no_text(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv"))).write_text(profile_text())
    line = "planner partition $'caf\\xe9.csv' --stages 2 --format json"
    done = _shell(f"{line} -o plan.json", tmp_path)
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "plan.json").read_text())
    assert written == json.loads(done.stdout)
    assert written["inputs"]["model"] == "caf\\udce9.csv"

"""A worker that says it is ready compiles nothing more."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("numba")

SCRIPT = """
import gc
from numba.core.dispatcher import Dispatcher
import planner
from planner.service.answering import Answering

def compiled():
    return {
        f"{found.py_func.__module__}.{found.py_func.__name__}": len(found.overloads)
        for found in gc.get_objects()
        if isinstance(found, Dispatcher) and found.py_func.__module__.startswith("planner")
    }

Answering().warm_up()
warm = compiled()
assert len(warm) > 10, warm
planner.plan("llama3-405b", "dgx-h100:2048", global_batch_size=2048, sequence_length=8192)
planner.plan("gpt3-175b", "dgx-a100-80gb:128", global_batch_size=1536, sequence_length=2048)
planner.scaling_curve(
    "llama3-405b", "dgx-h100:2048", allocations=[512, 1024, 4096, 8192, 16384],
    global_batch_size=2048, sequence_length=8192,
)
planner.partition("gpt3-175b", 8, 32, cluster="dgx-a100-80gb:1", bandwidth_bytes_per_s=25e9)
later = compiled()
print({name: count for name, count in later.items() if count != warm.get(name)})
"""


def test_nothing_is_compiled_after_the_start() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{}"

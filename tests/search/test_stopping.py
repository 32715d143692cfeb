"""Searches look at the flag often, counted in calls of functions between two looks."""

from __future__ import annotations

import sys
from functools import partial

import pytest
from stop_latency import CASES, uneven_chain

import planner
from planner.deadlines import NEVER, Deadline, OutOfTimeError, in_force, late, poll, within
from planner.plans import Status
from planner.specs import Schedule

SMALL = {
    "plan": CASES["plan"],
    "auto": partial(
        planner.plan, "llama3-8b", "dgx-h100:8", global_batch_size=256, schedule="auto",
        work_limit=300,
    ),
    "pareto": partial(
        planner.plan, "llama3-8b", "dgx-h100:8", global_batch_size=128, pareto=True, rejected=True
    ),
    "cheapest": partial(
        planner.plan, "llama3-8b", "dgx-h100:8", global_batch_size=512,
        objective="tokens-per-dollar",
    ),
    "misfit": partial(
        planner.plan, "llama3-405b", "dgx-h100:4", global_batch_size=256, sequence_length=32768
    ),
    "zb-auto": partial(
        planner.partition, uneven_chain(60), 8, 48, objective="step-time", schedule="zb-auto",
        bandwidth_bytes_per_s=25e9,
    ),
    "cut": CASES["cut 400"],
    "cut, auto": partial(
        planner.partition, uneven_chain(60), 8, 32, objective="step-time", schedule="auto",
        work_limit=300, bandwidth_bytes_per_s=25e9,
    ),
    "cut, layers": partial(
        planner.partition, uneven_chain(200), 16, 32, memory_bytes=2**31, objective="step-time",
        recompute=("none", "full", "layers"), bandwidth_bytes_per_s=1e9,
    ),
}  # fmt: skip

MOST_CALLS = 80_000
"""Between two looks; a call of Python's or of numpy's takes a microsecond or less in the mean."""


class CountingFlag:
    """A flag that is raised at one look, and counts the calls before, between and after looks."""

    def __init__(self, raised_at: int | None = None) -> None:
        self.looks = self.calls = self.most = 0
        self.raised_at = raised_at

    def __call__(self) -> bool:
        self.most = max(self.most, self.calls)
        self.calls = 0
        self.looks += 1
        return self.raised_at is not None and self.looks > self.raised_at

    def count(self, _frame: object, event: str, _argument: object) -> None:
        self.calls += event in ("call", "c_call")

    def asks(self, ask: partial) -> planner.plans.Plan:
        sys.setprofile(self.count)
        try:
            return ask(stop=self)
        finally:
            sys.setprofile(None)
            self.most = max(self.most, self.calls)


@pytest.mark.parametrize("name", SMALL)
def test_no_long_way_between_two_looks(name):
    SMALL[name](time_limit_s=60.0)  # what is loaded once is loaded
    flag = CountingFlag()
    whole = flag.asks(SMALL[name])
    assert whole.status is not Status.UNKNOWN
    assert flag.looks > 10
    assert flag.most < MOST_CALLS
    for part in (0.1, 0.5, 0.9):
        stopped = CountingFlag(int(part * flag.looks))
        plan = stopped.asks(SMALL[name])
        assert stopped.most < MOST_CALLS
        # The stop reaches the caller at once, not at the end of every loop on the way.
        assert stopped.looks - stopped.raised_at < 60
        if plan.termination is not None:
            assert plan.termination.reason == "stopped"


def test_a_schedule_that_was_left_out_is_not_ruled_out():
    ask = partial(planner.partition, uneven_chain(24), 4, 8, objective="step-time")
    one = ask(schedule="gpipe")
    assert one.status is Status.OPTIMAL
    looks = CountingFlag()
    ask(schedule="gpipe", stop=looks)
    best = ask(schedule="gpipe,1f1b,zb-h1,interleaved")
    for extra in range(12):
        flag = CountingFlag(looks.looks + extra)
        plan = ask(schedule="gpipe,1f1b,zb-h1,interleaved", stop=flag)
        if plan.layout is None or plan.layout.schedule is not Schedule.GPIPE:
            continue
        assert plan.termination.reason == "stopped"
        assert plan.bound_ms <= best.step_time_ms
        if best.step_time_ms < one.step_time_ms:
            assert plan.status is Status.FEASIBLE


def test_the_deadline_in_force_is_the_innermost():
    assert in_force() is NEVER
    with within(Deadline(at=0.0)):
        assert late() == "time_limit"
        with pytest.raises(OutOfTimeError):
            poll()
        with within(Deadline(stopped=lambda: True)):
            assert late() == "stopped"
        with within(NEVER):
            poll()
        assert late() == "time_limit"
    poll()

"""Whenever time runs out, what was found and told by then is the answer."""

from __future__ import annotations

import pytest

import planner


class PassesAt:
    """A stop that comes true the ``at``-th time somebody looks."""

    def __init__(self, at: int) -> None:
        self.at, self.looks = at, 0

    def __call__(self) -> bool:
        self.looks += 1
        return self.looks >= self.at


def searched(**options):
    return planner.plan(
        "llama3-8b", "dgx-h100:2", global_batch_size=64, sequence_length=4096, **options
    )


def deep(**options):
    return planner.plan(
        "llama3-70b", "dgx-h100:8", global_batch_size=64, sequence_length=4096, **options
    )


def cut(**options):
    return planner.partition(
        "gpt3-175b", 8, 16, objective="step-time", cluster="dgx-a100-80gb:1", work_limit=300,
        **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ask", "options"),
    [
        (searched, {"schedules": "auto", "work_limit": 100}),
        (deep, {}),
        (cut, {"schedule": "1f1b"}),
        (cut, {"schedule": "interleaved"}),
        (cut, {"schedule": "zb-v"}),
        (cut, {"schedule": "zb-auto"}),
        (cut, {"schedule": "auto"}),
    ],
)
def test_a_plan_that_was_told_is_never_lost(ask, options):
    at, looked, told_before_the_end = 1, 0, 0
    while True:
        told = []
        stop = PassesAt(at)
        plan = ask(stop=stop, on_incumbent=lambda now, told=told: told.append(now), **options)
        looked += 1
        values = [now.value_ms for now in told if now.value_ms is not None]
        if values:
            assert plan.step_time_ms is not None, at
            assert plan.step_time_ms <= min(values) * (1 + 1e-9), at
            assert plan.status.value in ("optimal", "feasible"), at
        bounds = [now.bound_ms for now in told if now.bound_ms is not None]
        if bounds and plan.bound_ms is not None and plan.step_time_ms is not None:
            assert plan.bound_ms <= plan.step_time_ms * (1 + 1e-9), at
        if stop.looks < at:
            break
        told_before_the_end += bool(values)
        at = int(at * 1.5) + 1
    assert looked > 5
    assert told_before_the_end

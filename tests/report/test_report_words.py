"""Numbers and words of tables: one unit a column, no absurd percentages, no wrapped rows."""

from __future__ import annotations

import re

import pytest
from rich.console import Console, RenderableType

from planner import api
from planner.plans import Infeasible, Layout, Plan, Stage, Status, StepTerms, Suggestion, Verdict
from planner.report.stages import stage_table
from planner.report.tables import plan_view
from planner.search.answer import why_slower
from planner.specs import Objective


def shown(view: RenderableType, width: int) -> list[str]:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(view)
    return [line.rstrip() for line in captured.get().splitlines()]


def _held(memory: int, budget: int) -> Plan:
    stage = Stage(
        rank=0, layers=("a",), forward_ms=1, backward_ms=2, memory_bytes=memory,
        budget_bytes=budget, verdict=Verdict.OUT_OF_MEMORY,
    )  # fmt: skip
    return Plan(model="m", stages=(stage,))


def test_a_budget_of_nothing_gives_no_absurd_percentage() -> None:
    assert ">999 % out of memory" in "\n".join(shown(stage_table(_held(951_000_000, 1), 100), 100))
    assert "999 % out of memory" in "\n".join(shown(stage_table(_held(9994, 1000), 100), 100))


def test_suggestions_read_as_what_to_do() -> None:
    plan = Plan(
        status=Status.INFEASIBLE,
        model="m",
        infeasible=Infeasible(
            constraint="memory",
            message="out of memory",
            suggestions=(
                Suggestion(change="search dp", arguments={"--dp": "(omit)", "--pp": "4"}),
                Suggestion(change="shard", arguments={"--sharded-optimizer": ""}),
            ),
        ),
    )
    text = "\n".join(shown(plan_view(plan, 100), 100))
    assert "[omit --dp, --pp 4]" in text
    assert "[--sharded-optimizer]" in text
    assert "(omit)" not in text


@pytest.mark.parametrize("width", [80, 132])
def test_rejected_layouts_have_one_unit_a_column_and_no_wrapped_row(width: int) -> None:
    plan = api.plan(
        "llama3-70b", "dgx-a100-80gb:4", global_batch_size=32, sequence_length=4096, rejected=True
    )
    lines = shown(plan_view(plan, width), width)
    start = next(i for i, line in enumerate(lines) if line.startswith("Rejected layouts"))
    end = lines.index("", start)
    head, *rows = lines[start + 1 : end]
    table = [row for row in rows if not row.startswith("  (") and not row.startswith("      ")]
    assert len(plan.rejected) == int(re.search(r"\((\d+)\)", lines[start])[1])
    # One line for each, each with its columns under the header, none at column 0.
    assert len([row for row in rows if re.match(r" +\d+ +\d+ +\d+ +\d+ +\d+ ", row)]) == len(
        plan.rejected
    )
    assert all(line.startswith(" ") for line in (head, *table))
    assert max(map(len, rows)) <= width
    assert "lacks (GiB)" in head
    short = [row for row in plan.rejected if row.short_bytes]
    assert short
    assert re.search(rf" {short[0].short_bytes / 2**30:.1f}$", table[0])
    assert "bytes" not in "\n".join(rows)


def test_the_step_line_has_one_unit_and_adds_up() -> None:
    terms = StepTerms(
        makespan_ms=2039.26, exposed_reduction_ms=0.4, optimizer_ms=28.7, fixed_ms=5.0
    )
    plan = Plan(
        model="m", layout=Layout(), step_time_ms=2073.36, step_terms=terms,
        stages=(Stage(rank=0, layers=("a",)),),
    )  # fmt: skip
    line = next(line for line in shown(plan_view(plan, 132), 132) if "step time" in line)
    numbers = [(float(n), unit) for n, unit in re.findall(r"([\d.]+) (ms|s|us)\b", line)]
    assert len(numbers) == 5
    assert len({unit for _, unit in numbers}) == 1
    total, *parts = (number for number, _ in numbers)
    assert total == pytest.approx(sum(parts), abs=0.11)


def _of(objective: Objective, step_ms: float, gpus: int, bottleneck_ms: float = 1.0) -> Plan:
    stage = Stage(rank=0, layers=("a",), forward_ms=step_ms)
    terms = StepTerms(makespan_ms=step_ms, exposed_reduction_ms=0.0, optimizer_ms=0.0, fixed_ms=0.0)
    return Plan(
        objective=objective, model="m", stages=(stage,), num_gpus=gpus, step_time_ms=step_ms,
        step_terms=terms, bottleneck_ms=bottleneck_ms,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "other", "expected"),
    [
        (Objective.STEP_TIME, (103.0, 8, 1.0), "+3 % step time: compute +3 %"),
        (Objective.STEP_TIME, (270.0, 8, 1.0), "2.7 times the step time: compute +170 %"),
        (Objective.STEP_TIME, (100.0, 4, 1.0), "the same step time on 4 GPUs"),
        (Objective.TOKENS_PER_DOLLAR, (51.5, 16, 1.0), "+3 % cost a token: compute +3 %"),
        (Objective.TOKENS_PER_DOLLAR, (50.0, 16, 1.0), "the same cost a token; loses"),
        (Objective.TOKENS_PER_DOLLAR, (100.0, 24, 1.0), "3.0 times the cost a token"),
        (Objective.FEWEST_GPUS, (50.0, 16, 1.0), "16 GPUs instead of 8, -50 % step time"),
        (Objective.FEWEST_GPUS, (103.0, 8, 1.0), "+3 % step time"),
        (Objective.BOTTLENECK, (103.0, 8, 1.5), "+50 % bottleneck, +3 % step time: compute"),
        (Objective.BOTTLENECK, (100.0, 8, 3.0), "3.0 times the bottleneck, the same step time"),
    ],
)
def test_runners_up_lead_with_the_loss_in_the_objective(
    objective: Objective, other: tuple[float, int, float], expected: str
) -> None:
    plan = _of(objective, 100.0, 8)
    step_ms, gpus, bottleneck_ms = other
    assert why_slower(plan, _of(objective, step_ms, gpus, bottleneck_ms)).startswith(expected)


def test_the_headline_of_a_step_time_plan_keeps_its_bound() -> None:
    plan = Plan(
        status=Status.OPTIMAL, model="m", bound_ms=5.0, gap=0.0, step_time_ms=5.0,
        stages=(Stage(rank=0, layers=("a",)),),
    )  # fmt: skip
    assert shown(plan_view(plan, 100), 100)[0] == (
        "m: optimal, proven over all cuts (bound 5.00 ms, gap 0 %)"
    )
    cheap = plan.model_copy(
        update={
            "objective": Objective.TOKENS_PER_DOLLAR, "tokens_per_dollar": 900.0, "gap": 0.1,
            "status": Status.FEASIBLE,
        }
    )  # fmt: skip
    assert "feasible (at most 1,000 tokens/$, gap 10 %)" in shown(plan_view(cheap, 100), 100)[0]

"""What a person reads: widths, aligned numbers, merged rows, whole words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from factories import chain_model
from rich.console import Console, RenderableType

from planner import api
from planner.plans import Explanation, Layout, Plan, Stage, Status, Verdict, Violation
from planner.report.stages import layers_text, stage_table
from planner.report.tables import explanation_view, plan_view, violations_view
from planner.report.text import bytes_column, ms_column, wrap
from planner.specs import Recompute

WIDTHS = (80, 100, 132, 200)


def shown(view: RenderableType, width: int) -> list[str]:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(view)
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.fixture(scope="module")
def gpt3() -> Plan:
    return api.plan("gpt3-175b", "dgx-a100-80gb:128", global_batch_size=1536, sequence_length=2048)


@pytest.fixture(scope="module")
def deep() -> Plan:
    """64 stages, all but a few of them alike."""
    return api.plan(
        "llama3-405b", "dgx-a100-80gb:64", global_batch_size=512, sequence_length=4096, pp=64,
        tp=8, work_limit=50,
    )  # fmt: skip


@pytest.fixture(scope="module")
def mixed() -> Plan:
    """A different number of recomputed layers on most stages."""
    return api.partition(
        "gpt3-175b", 12, 24, cluster="dgx-a100-80gb:16", memory_bytes=262 * 2**30,
        recompute=(Recompute.NONE, Recompute.SELECTIVE, Recompute.LAYERS),
    )  # fmt: skip


@pytest.fixture(scope="module")
def unfit() -> Plan:
    return api.partition("gpt3-175b", 12, 24, cluster="dgx-a100-80gb:16", memory_bytes=220 * 2**30)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["gpt3", "deep", "mixed", "unfit"])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(
    name: str, width: int, request: pytest.FixtureRequest
) -> None:
    plan: Plan = request.getfixturevalue(name)
    lines = shown(plan_view(plan, width), width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "…" not in text
    # A line never starts with the unit of a number that ended the line before.
    assert not re.search(r"\d\n\s*(ms|s|us|GiB|MiB|KiB|%|GPUs)\b", text)
    for stage in (plan.stages[0], plan.stages[-1]):
        gib = stage.memory_bytes / 2**30
        assert f"{gib:.1f} " in text or f"{gib:.2f} " in text


def test_headline_figures_and_runners_up(gpt3: Plan) -> None:
    text = "\n".join(shown(plan_view(gpt3, 132), 132))
    assert text.startswith("gpt3-175b on dgx-a100-80gb:128, 1024 GPUs: optimal, proven over")
    assert "schedule 1f1b" in text
    assert "MFU" in text
    assert gpt3.runners_up
    for candidate in gpt3.runners_up:
        assert candidate.why in text
    layout = gpt3.layout
    assert f"dp {layout.dp} x pp {layout.pp} x tp {layout.tp}" in text


def test_columns_of_the_stage_table_line_up(gpt3: Plan) -> None:
    lines = shown(stage_table(gpt3, 132), 132)
    rows = [line for line in lines if re.match(r"\s+\d+  ", line)]
    assert len(rows) == gpt3.layout.pp
    # Decimal points stand under each other (the layers column is left of character 33).
    columns = {tuple(match.start() for match in re.finditer(r"\.\d", row[33:])) for row in rows}
    assert len(columns) == 1


def test_a_deep_pipeline_is_a_short_table(deep: Plan) -> None:
    lines = shown(stage_table(deep, 100), 100)
    assert len(lines) < 24
    text = "\n".join(lines)
    assert re.search(r"\d+-\d+  .*each\)", text)
    # Every rank is in exactly one row.
    ranks: list[int] = []
    for line in lines:
        match = re.match(r"\s+(\d+)(?:-(\d+))?  +\S", line)
        if match:
            ranks += range(int(match[1]), int(match[2] or match[1]) + 1)
    assert ranks == list(range(64))


def test_shallow_pipelines_keep_a_row_a_rank(mixed: Plan) -> None:
    text = "\n".join(shown(stage_table(mixed, 132), 132))
    assert "first 8" in text
    assert "none" in text
    assert "tight" in text
    assert "each)" not in text


def _plan_of(stages: Sequence[Stage]) -> Plan:
    return Plan(model="m", layout=Layout(pp=len(stages)), stages=tuple(stages))


def test_many_unequal_ranks_show_the_ends_the_slowest_and_the_fullest() -> None:
    stages = [
        Stage(
            rank=rank,
            layers=(f"l{rank}",),
            forward_ms=10 + rank % 7 + (5 if rank == 60 else 0),
            memory_bytes=(9 if rank == 50 else 1) * 2**30,
            budget_bytes=8 * 2**30,
            verdict=Verdict.OUT_OF_MEMORY if rank == 50 else Verdict.FITS,
        )
        for rank in range(128)
    ]
    text = "\n".join(shown(stage_table(_plan_of(stages), 100), 100))
    assert "not shown (see JSON)" in text
    for rank in (0, 50, 60, 127):
        assert re.search(rf"^ +{rank}  l{rank} ", text, re.MULTILINE)
    assert re.search(r"l50 .*112 % out of memory", text)
    assert len(text.splitlines()) < 36


def test_budgets_that_differ_are_printed_for_each_rank() -> None:
    stages = [
        Stage(rank=rank, layers=(f"l{rank}",), memory_bytes=2**30, budget_bytes=(rank + 2) * 2**30)
        for rank in range(2)
    ]
    text = "\n".join(shown(stage_table(_plan_of(stages), 100), 100))
    assert "50 % of 2.00 GiB fits" in text
    assert "33 % of 3.00 GiB fits" in text


def test_no_budget_no_verdict() -> None:
    plan = api.partition(chain_model([1, 2, 3]), 2)
    text = "\n".join(shown(stage_table(plan, 80), 80))
    assert "memory" in text
    assert "budget" not in text
    assert "fits" not in text


def test_infeasible_shows_reason_changes_and_the_closest_layout(unfit: Plan) -> None:
    text = "\n".join(shown(plan_view(unfit, 200), 200))
    assert unfit.status is Status.INFEASIBLE
    assert unfit.infeasible is not None
    assert unfit.infeasible.message in text
    for suggestion in unfit.infeasible.suggestions:
        (flag, value), *_ = suggestion.arguments.items()
        assert f"[{flag} {value}]" in text
    assert "closest layout" in text
    assert "out of memory" in text


def test_layer_names() -> None:
    assert layers_text(["embedding"]) == "embedding"
    names = [f"encoder.{i}.attention.query_key_value_projection" for i in range(3, 9)]
    for longest in (24, 28, 40):
        text = layers_text(names, longest)
        assert "3-8" in text
        assert text.endswith("(6)")
        assert len(text) <= longest
    # Names that differ in two numbers are no run.
    assert layers_text(["a1.b1", "a1.b2", "a2.b3"]) == "a1.b1 .. a2.b3 (3)"
    assert len(layers_text(["x" * 300, "y" * 300, "z" * 300], 40)) <= 44


def test_columns_have_one_unit_and_one_precision() -> None:
    assert ms_column([0.0003, 0.02]) == ("us", ["0.30", "20.00"])
    assert ms_column([0.0]) == ("ms", ["0.00"])
    assert ms_column([]) == ("ms", [])
    assert ms_column([2232.0, 6.4]) == ("ms", ["2232", "6"])
    assert bytes_column([0, 1000]) == ("KiB", ["0.00", "0.98"])
    assert bytes_column([5 * 2**40]) == ("TiB", ["5.00"])


def test_wrapping_keeps_numbers_with_their_units() -> None:
    text = "step time 19.07 s = makespan 18.26 s + optimizer 327.4 ms on rank 3 of 128 GPUs at 5 %"
    for width in range(20, 90):
        lines = wrap(text, width)
        assert " ".join(lines) == text
        for line in lines[:-1]:
            assert not re.search(r"\d$", line) or line.endswith("3")
        for line in lines[1:]:
            assert not re.match(r"(s|ms|GPUs|%)\b", line)


def test_violations_and_explanations(gpt3: Plan) -> None:
    violation = Violation(code="BOUND", message="the bound exceeds the value")
    text = "\n".join(shown(violations_view([violation], gpt3, 80), 80))
    assert text.startswith("1 violation\n")
    assert "BOUND: the bound exceeds the value" in text
    held = "\n".join(shown(violations_view([], gpt3, 80, bound="not recomputed"), 80))
    assert "verified" in held
    assert "optimal" in held
    assert "not recomputed" in held
    explanation = Explanation(headline="h", breakdown_ms={"compute": 3.0, "bubble": 1.0})
    lines = shown(explanation_view(explanation, 80), 80)
    assert any(re.search(r"compute +3\.00 +75\.0 %", line) for line in lines)
    assert any(re.search(r"step time +4\.00 +100\.0 %", line) for line in lines)


def test_unknown_says_so() -> None:
    plan = Plan(status=Status.UNKNOWN, model="m")
    assert "nothing is proven" in "\n".join(shown(plan_view(plan, 80), 80))

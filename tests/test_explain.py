"""Why a plan is what it is, and what would make an impossible question possible."""

from __future__ import annotations

import random

import pytest

import planner
from planner.plans import Plan, Status
from tests.factories import chain_model, small_cluster, times_model, tiny_llama

MIB = 2**20


# --- what limits a plan --------------------------------------------------------------------------


EXPLAINED = [
    {"global_batch_size": 32},
    {"global_batch_size": 32, "pp": 4},
    {"global_batch_size": 32, "pp": 2, "tp": 2, "sends": "blocking"},
    {"global_batch_size": 32, "pp": 4, "recompute": ("full",)},
    {"global_batch_size": 64, "dp": 8, "overlap_gradient_reduction": False},
    {"global_batch_size": 16, "pp": 8, "schedules": ("gpipe",)},
]


@pytest.mark.parametrize("options", EXPLAINED, ids=str)
def test_the_breakdown_adds_up_to_the_step_time(options):
    model = tiny_llama()
    plan = planner.plan(model, small_cluster(2, 4), sequence_length=1024, **options)
    found = planner.explain(plan, model=model)
    assert sum(found.breakdown_ms.values()) == pytest.approx(plan.step_time_ms, rel=1e-12)
    assert found.breakdown_ms["compute"] > 0
    assert found.breakdown_ms["gradient reduction"] >= 0
    assert all(
        value >= 0 for part, value in found.breakdown_ms.items() if part != "pipeline bubble"
    )
    assert found.headline
    assert any("slowest stage" in finding for finding in found.findings)


def test_the_breakdown_of_a_partition():
    model = times_model([4.0, 1.0, 1.0, 1.0])
    plan = planner.partition(model, 3, 5, objective="step-time", latency_ms=0.5)
    found = planner.explain(plan, model=model)
    assert sum(found.breakdown_ms.values()) == pytest.approx(plan.step_time_ms, rel=1e-12)
    assert found.breakdown_ms["compute"] == 5 * 4
    assert "rank 0 is the slowest stage" in found.findings[0]


def test_forced_recompute_is_named():
    model = chain_model(
        [1.0] * 4, type="block", activation_bytes=1000, checkpoint_bytes=100, parameter_bytes=20
    )
    plan = planner.partition(model, 4, 4, memory_bytes=3400)
    recomputing = [s.rank for s in plan.stages if s.recompute.value != "none"]
    assert recomputing == [0]
    found = planner.explain(plan, model=model)
    assert any(f.startswith("memory forces recompute on rank 0") for f in found.findings)


def test_a_false_plan_is_explained_by_what_is_true():
    model = times_model([4.0, 1.0, 1.0, 1.0])
    plan = planner.partition(model, 2, 5)
    boast = plan.model_copy(update={"step_time_ms": 1.0})
    found = planner.explain(boast, model=model)
    assert "step_time_ms" in found.findings[0]
    assert sum(found.breakdown_ms.values()) == pytest.approx(plan.step_time_ms, rel=1e-12)


def test_a_plan_that_cannot_run_is_not_broken_down():
    model = times_model([4.0, 1.0, 1.0, 1.0])
    plan = planner.partition(model, 2, 5)
    broken = plan.model_copy(update={"stages": plan.stages[:1]})
    found = planner.explain(broken, model=model)
    assert "cannot run" in found.headline
    assert found.breakdown_ms == {}
    assert found.findings


# --- a partition that does not fit ---------------------------------------------------------------


def follow_partition(model, options: dict, suggestion) -> Plan:
    changed = dict(options)
    for flag, value in suggestion.arguments.items():
        if flag == "--memory":
            changed["memory_bytes"] = int(value.removesuffix("B"))
        elif flag == "--recompute":
            changed["recompute"] = tuple(value.split(","))
        elif flag == "--schedule":
            changed["schedule"] = value
        else:
            changed[{"--stages": "stages", "--microbatches": "microbatches"}[flag]] = int(value)
    return planner.partition(model, **changed)


def random_question(seed: int):
    rng = random.Random(seed)
    count = rng.randint(3, 9)
    model = chain_model(
        [rng.randint(1, 9) for _ in range(count)],
        type=rng.choice(["layer", "block"]),
        parameter_bytes=[2 * rng.randint(0, 40) for _ in range(count)],
        activation_bytes=[rng.randint(10, 300) for _ in range(count)],
        output_bytes=[rng.randint(0, 60) for _ in range(count)],
        checkpoint_bytes=rng.choice([None, 5]),
    )
    options = {
        "stages": rng.randint(1, min(4, count)),
        "microbatches": rng.choice([1, 2, 4, 8]),
        "schedule": rng.choice(["1f1b", "gpipe"]),
        "recompute": rng.choice([("none",), ("none", "selective"), ("none", "full"), ("full",)]),
        "optimizer": rng.choice(["adam", "none"]),
        "objective": rng.choice(["bottleneck", "step-time"]),
        "memory_bytes": rng.randint(1, 1500),
    }
    return model, options


def test_missing_bytes_are_exact_and_suggestions_work():
    infeasible = 0
    flags = set()
    for seed in range(110):
        model, options = random_question(seed)
        plan = planner.partition(model, **options)
        if plan.status is not Status.INFEASIBLE:
            continue
        infeasible += 1
        why = plan.infeasible
        assert why.constraint == "memory"
        assert why.short_bytes > 0
        memory = options["memory_bytes"]
        enough = planner.partition(model, **{**options, "memory_bytes": memory + why.short_bytes})
        assert enough.status is not Status.INFEASIBLE, seed
        less = {**options, "memory_bytes": memory + why.short_bytes - 1}
        if less["memory_bytes"]:
            assert planner.partition(model, **less).status is Status.INFEASIBLE, seed
        # The rank that is named lacks exactly that, and no rank lacks more.
        lacks = [stage.memory_bytes - stage.budget_bytes for stage in plan.stages]
        assert max(lacks) == lacks[why.rank] == why.short_bytes
        assert plan.stages[why.rank].verdict.value == "out_of_memory"
        unit = "B" if why.short_bytes < 1024 else "bytes)"
        assert f"{why.short_bytes} {unit} on rank {why.rank}" in why.message
        assert why.suggestions
        for suggestion in why.suggestions:
            assert suggestion.verified
            flags.update(suggestion.arguments)
            followed = follow_partition(model, options, suggestion)
            assert followed.status is not Status.INFEASIBLE, (seed, suggestion)
            assert followed.bottleneck_ms is not None
            if options["objective"] == "bottleneck":
                assert followed.bottleneck_ms == suggestion.bottleneck_ms
            else:
                assert followed.step_time_ms <= suggestion.step_time_ms
    assert infeasible > 30
    assert flags == {"--memory", "--recompute", "--schedule", "--stages", "--microbatches"}


def test_an_infeasible_partition_explains_itself():
    model, options = times_model([1.0, 1.0], activation_bytes=100), {"memory_bytes": 10}
    plan = planner.partition(model, 2, 2, **options)
    found = planner.explain(plan, model=model)
    assert found.infeasible == plan.infeasible
    assert found.headline == plan.infeasible.message


# --- a plan that does not fit --------------------------------------------------------------------


def follow_plan(model, cluster, options: dict, suggestion) -> Plan:
    changed = dict(options)
    for flag, value in suggestion.arguments.items():
        if flag == "--nodes":
            cluster = cluster.model_copy(update={"nodes": int(value)})
        elif flag == "--recompute":
            changed["recompute"] = tuple(value.split(","))
        elif flag == "--seq-len":
            changed["sequence_length"] = int(value)
        elif value == "(omit)":
            del changed[flag.removeprefix("--").replace("-", "_")]
        else:
            changed[flag.removeprefix("--").replace("-", "_")] = True
    return planner.plan(model, cluster, **changed)


MISFITS = {
    "idle GPUs allowed": ({"allow_fewer": True}, 200),
    "small GPUs": ({}, 250),
    "no recompute": ({"recompute": ("none",), "microbatch_size": 4}, 600),
    "unsharded": ({"sharded_optimizer": False, "dp": 4}, 700),
    "pinned to one stage": ({"pp": 1, "tp": 1}, 800),
    "large micro-batches": ({"microbatch_size": 16, "pp": 2}, 700),
    "gpipe": ({"schedules": ("gpipe",), "pp": 4, "recompute": ("none",)}, 400),
    "no sequence parallel": (
        {"sequence_parallel": False, "tp": 4, "recompute": ("none",), "microbatch_size": 16}, 900
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISFITS)
def test_missing_bytes_of_a_plan_are_exact_and_suggestions_work(name):
    options, mib = MISFITS[name]
    options = {"global_batch_size": 32, "sequence_length": 1024, **options}
    model = tiny_llama()

    def on(memory_bytes: int) -> Plan:
        return planner.plan(model, small_cluster(2, 4, memory_bytes=memory_bytes), **options)

    plan = on(mib * MIB)
    assert plan.status is Status.INFEASIBLE
    why = plan.infeasible
    assert why.constraint == "memory"
    assert on(mib * MIB + why.short_bytes).status is not Status.INFEASIBLE
    assert on(mib * MIB + why.short_bytes - 1).status is Status.INFEASIBLE
    lacks = [stage.memory_bytes - stage.budget_bytes for stage in plan.stages]
    assert max(lacks) == lacks[why.rank] == why.short_bytes
    assert why.suggestions
    for suggestion in why.suggestions:
        followed = follow_plan(
            model, small_cluster(2, 4, memory_bytes=mib * MIB), options, suggestion
        )
        assert followed.status is not Status.INFEASIBLE, suggestion
        assert followed.step_time_ms <= suggestion.step_time_ms


def test_a_large_model_on_one_node():
    plan = planner.plan("gpt3-175b", "dgx-a100-80gb:1", global_batch_size=8, sequence_length=2048)
    assert plan.status is Status.INFEASIBLE
    nodes = next(s for s in plan.infeasible.suggestions if "--nodes" in s.arguments)
    bigger = f"dgx-a100-80gb:{nodes.arguments['--nodes']}"
    followed = planner.plan("gpt3-175b", bigger, global_batch_size=8, sequence_length=2048)
    assert followed.status is not Status.INFEASIBLE
    assert followed.step_time_ms <= nodes.step_time_ms


def test_suggested_nodes_are_the_fewest():
    answer = planner.plan(
        "llama3-70b", "dgx-a100-80gb:2", global_batch_size=64, sequence_length=8192
    )
    changes = {
        flag: value for s in answer.infeasible.suggestions for flag, value in s.arguments.items()
    }
    nodes = int(changes["--nodes"])
    assert nodes == 3
    for count, fits in ((nodes, True), (nodes - 1, False)):
        again = planner.plan(
            "llama3-70b", f"dgx-a100-80gb:{count}", global_batch_size=64, sequence_length=8192
        )
        assert (again.infeasible is None) is fits

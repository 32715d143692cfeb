"""Promises of the library: the same answer whatever the unit, worker or order, and in time."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

import planner
from planner.plans import Plan, Status
from planner.specs import Layer, LayerCost, Model
from tests.factories import chain_model, small_cluster, times_model, tiny_llama

# --- scale ---------------------------------------------------------------------------------------


LOADS = (2.5, 1.0, 3.25, 0.5, 4.0, 1.75, 2.0, 6.5, 1.25, 3.0)
BYTES = (100, 700, 50, 900, 300, 20, 650, 480, 10, 0)


def scaled(scale: float) -> Model:
    return chain_model(
        [load * scale for load in LOADS],
        [2 * load * scale for load in LOADS],
        output_bytes=BYTES,
        activation_bytes=[500 * b for b in BYTES],
        parameter_bytes=10_000,
    )


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "bottleneck"},
        {"objective": "step-time"},
        {"objective": "step-time", "schedule": "gpipe"},
        {"objective": "step-time", "sends": "blocking"},
        {"objective": "step-time", "memory_bytes": 3_000_000},
    ],
    ids=str,
)
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scaling_all_times_changes_nothing_but_the_scale(options, scale):
    def solve(factor: float) -> Plan:
        # A transfer takes bytes / bandwidth: the bandwidth scales with the times.
        return planner.partition(
            scaled(factor), 4, 12, bandwidth_bytes_per_s=2e5 / factor,
            latency_ms=0.25 * factor, **options,
        )  # fmt: skip

    one, other = solve(1.0), solve(scale)
    assert one.status is other.status
    assert one.certificate.cuts == other.certificate.cuts
    assert one.certificate.recompute == other.certificate.recompute
    for name in ("bottleneck_ms", "step_time_ms", "bound_ms"):
        assert getattr(other, name) == pytest.approx(getattr(one, name) * scale, rel=1e-9)
    assert other.gap == pytest.approx(one.gap, abs=1e-9)
    assert [s.memory for s in one.stages] == [s.memory for s in other.stages]


def test_scaling_a_measured_plan():
    """A profile in a cluster: layouts, cuts and status stay when all times scale."""

    def profile(scale: float) -> Model:
        return Model(
            name="measured",
            layers=tuple(
                Layer(
                    name=f"l{i}",
                    type="block",
                    inputs=(f"l{i - 1}",) if i else (),
                    costs=(
                        LayerCost(
                            forward_ms=load * scale,
                            backward_ms=2 * load * scale,
                            parameter_bytes=4096,
                            activation_bytes=2048,
                        ),
                    ),
                )
                for i, load in enumerate(LOADS)
            ),
            sequence_length=128,
        )

    def solve(scale: float) -> Plan:
        base = small_cluster(1, 4)
        calibration = base.gpu.calibration.model_copy(
            update={"step_overhead_ms": 0.0, "collective_latency_ms": 0.0, "layer_floor_ms": 0.0}
        )
        cluster = base.model_copy(
            update={
                "gpu": base.gpu.model_copy(update={"calibration": calibration}),
                "links": tuple(link.model_copy(update={"latency_s": 0.0}) for link in base.links),
            }
        )
        return planner.plan(
            profile(scale), cluster, global_batch_size=16, sequence_length=128, tp=1,
            microbatch_size=1, optimizer="none",
        )  # fmt: skip

    one, large, small = solve(1.0), solve(1e6), solve(1e-6)
    assert one.layout == large.layout == small.layout
    assert one.certificate.cuts == large.certificate.cuts == small.certificate.cuts
    assert one.status is large.status is small.status is Status.OPTIMAL
    assert large.step_time_ms == pytest.approx(one.step_time_ms * 1e6, rel=1e-9)
    assert small.step_time_ms == pytest.approx(one.step_time_ms * 1e-6, rel=1e-9)


# --- the same bytes ------------------------------------------------------------------------------


class ReversedExecutor(Executor):
    """Runs what was submitted last first, and only when a result is asked for."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future, object, tuple, dict]] = []
        self.ran = 0

    def submit(self, function, /, *args, **kwargs):
        executor = self

        class Lazy(Future):
            def result(self, timeout=None):
                executor.drain()
                return super().result(timeout)

        future = Lazy()
        self.waiting.append((future, function, args, kwargs))
        return future

    def drain(self) -> None:
        while self.waiting:
            future, function, args, kwargs = self.waiting.pop()
            future.set_result(function(*args, **kwargs))
            self.ran += 1


class SlowFirstExecutor(Executor):
    """Threads whose first tasks finish last."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(4)
        self.count = 0

    def submit(self, function, /, *args, **kwargs):
        self.count += 1
        delay = 0.004 / (1 + self.count % 4)

        def late():
            time.sleep(delay)
            return function(*args, **kwargs)

        return self.pool.submit(late)


QUESTIONS = {
    "tiny": (tiny_llama, lambda: small_cluster(2, 4), {"global_batch_size": 32}),
    "tight": (
        tiny_llama, lambda: small_cluster(2, 4, memory_bytes=3 * 2**30),
        {"global_batch_size": 32, "rejected": True},
    ),
    "fewer": (
        tiny_llama, lambda: small_cluster(2, 4, price=2.0),
        {"global_batch_size": 24, "objective": "tokens-per-dollar"},
    ),
    "pareto": (
        tiny_llama, lambda: small_cluster(1, 4), {"global_batch_size": 16, "pareto": True},
    ),
    "profile": (
        lambda: chain_model(list(LOADS), type="block", output_bytes=list(BYTES)),
        lambda: small_cluster(2, 2), {"global_batch_size": 16},
    ),
    "llama3-8b": (
        lambda: planner.load_model("llama3-8b"), lambda: planner.load_cluster("dgx-h100:2"),
        {"global_batch_size": 64},
    ),
}  # fmt: skip


def answer(name: str, **how: object) -> str:
    model, cluster, arguments = QUESTIONS[name]
    return planner.plan(model(), cluster(), sequence_length=1024, **arguments, **how).to_json()


@pytest.mark.parametrize("name", QUESTIONS)
def test_byte_identical_whatever_the_executor(name):
    alone = answer(name)
    assert answer(name) == alone
    backwards = ReversedExecutor()
    assert answer(name, executor=backwards) == alone
    slow = SlowFirstExecutor()
    assert answer(name, executor=slow) == alone
    slow.pool.shutdown()
    assert backwards.ran == slow.count


def test_byte_identical_with_one_and_two_workers():
    for name in ("tiny", "llama3-8b"):
        assert answer(name, workers=2) == answer(name, workers=1)


def test_the_executors_are_used():
    backwards = ReversedExecutor()
    answer("pareto", executor=backwards)
    assert backwards.ran > 4


def test_partitions_repeat_themselves():
    model = times_model(list(LOADS))
    for objective in ("bottleneck", "step-time"):
        texts = {
            planner.partition(model, 4, 8, objective=objective, latency_ms=0.3).to_json()
            for _ in range(3)
        }
        assert len(texts) == 1


def test_the_answer_does_not_depend_on_the_hash_seed():
    program = (
        "import planner;"
        "print(planner.plan('gpt2-xl', 'dgx-a100-80gb:1', global_batch_size=32,"
        " sequence_length=1024, rejected=True).to_json())"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(path for path in sys.path if path)},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1
    assert Plan.model_validate_json(texts.pop()).status is Status.OPTIMAL


# --- what is imported ----------------------------------------------------------------------------


def modules_after(program: str) -> set[str]:
    code = f"{program}\nimport sys; print('\\n'.join(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )  # fmt: skip
    return set(done.stdout.splitlines())


HEAVY = {"numba", "ortools", "pandas", "grpc", "torch", "networkx", "typer", "rich", "scipy"}


def test_import_is_light():
    loaded = modules_after("import planner")
    assert not HEAVY & loaded
    assert not {"numpy", "pydantic"} & loaded


def test_planning_a_chain_loads_no_compiler_and_no_solver():
    loaded = modules_after(
        "import planner\n"
        "planner.plan('llama3-8b', 'dgx-h100:1', global_batch_size=32, sequence_length=2048)"
    )
    assert not (HEAVY - {"rich", "typer"}) & loaded


# --- deadlines -----------------------------------------------------------------------------------


def hard_chain(layers: int) -> Model:
    return chain_model(
        [1.0 + (i * 7919 % 101) / 10 for i in range(layers)],
        [1.0 + (i * 104_729 % 211) / 10 for i in range(layers)],
        output_bytes=[i * 7907 % 5000 for i in range(layers)],
        activation_bytes=[i * 31 % 97 + 1 for i in range(layers)],
    )


@pytest.mark.parametrize("limit", [1e-9, 0.01, 0.1])
def test_partitions_answer_by_the_deadline(limit):
    plan = planner.partition(
        hard_chain(300), 24, 48, objective="step-time", bandwidth_bytes_per_s=1e6,
        latency_ms=0.5, time_limit_s=limit,
    )  # fmt: skip
    judge_in_time(plan, limit)


@pytest.mark.parametrize("limit", [1e-9, 0.01, 0.2])
def test_plans_answer_by_the_deadline(limit):
    plan = planner.plan(
        "llama3-405b", "dgx-h100:512", global_batch_size=2048, sequence_length=8192,
        time_limit_s=limit,
    )  # fmt: skip
    judge_in_time(plan, limit)


STOPPED = [
    lambda stop: planner.plan(
        "gpt3-175b", "dgx-a100-80gb:32", global_batch_size=512, sequence_length=2048, stop=stop
    ),
    lambda stop: planner.plan(
        "llama3-8b", "dgx-h100:4", global_batch_size=64, schedules="auto", pareto=True, stop=stop
    ),
    lambda stop: planner.plan("llama3-405b", "dgx-h100:4", global_batch_size=64, stop=stop),
    lambda stop: planner.partition(
        hard_chain(60), 8, 16, objective="step-time", bandwidth_bytes_per_s=1e6, stop=stop
    ),
    lambda stop: planner.partition(
        hard_chain(60), 8, 16, schedule="1f1b,zb-h1,interleaved", memory_bytes=500, stop=stop
    ),
]


@pytest.mark.parametrize("ask", STOPPED)
def test_a_question_that_is_stopped_answers_with_what_there_is(ask):
    """Stopped after so many looks at the flag; the whole question takes hundreds."""
    whole = ask(None)
    for looks in (0, 1, 2, 3, 5, 8, 13, 30, 100, 400):
        left = iter(range(looks))
        plan = ask(lambda own=left: next(own, None) is None)
        if plan.status is Status.UNKNOWN:
            assert plan.termination.reason == "stopped"
        elif plan.status is Status.INFEASIBLE:
            assert whole.status is Status.INFEASIBLE
        else:
            assert plan.step_time_ms >= whole.bound_ms * (1 - 1e-12)
            assert plan.bound_ms <= whole.step_time_ms * (1 + 1e-12)
            reasons = ("stopped", "proven", "weak_bound", "work_limit")
            assert plan.termination.reason in reasons


def judge_in_time(plan: Plan, limit: float) -> None:
    if plan.status is Status.UNKNOWN:
        assert plan.stages == ()
        assert plan.termination.reason == "time_limit"
        assert plan.termination.limit == limit
        return
    # The best so far with its gap; never "infeasible" because time ran out.
    assert plan.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert 0 <= plan.gap < 1
    if plan.status is Status.OPTIMAL:
        assert plan.gap == 0
    else:
        assert plan.gap > 0
        assert plan.termination.reason in ("time_limit", "work_limit")


def test_nothing_fits_is_not_claimed_when_time_runs_out():
    model, cluster = tiny_llama(), small_cluster(1, 2, memory_bytes=2**27)
    arguments = {"global_batch_size": 8, "sequence_length": 512}
    assert planner.plan(model, cluster, **arguments).status is Status.INFEASIBLE
    rushed = planner.plan(model, cluster, time_limit_s=1e-9, **arguments)
    assert rushed.status is Status.UNKNOWN

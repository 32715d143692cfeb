"""Figures and a load run of the service, on loopback and bounded in time.

``python tests/benchmarks/service_load.py figures`` measures a quiet server: cached answers, fresh
cuts, searches, scaling curves. ``... load`` sends a mix from many callers while workers are
killed, and judges every answer. ``--seconds`` and ``--callers`` bound both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "service")]

from rpcs import reason_of  # noqa: E402
from server_process import ServerProcess, running_server  # noqa: E402

import planner  # noqa: E402
from planner.messages.plans import plan_of  # noqa: E402
from planner.v1 import curve_pb2, inputs_pb2, plan_pb2  # noqa: E402
from planner.v1 import planner_service_pb2 as pb  # noqa: E402
from planner.v1 import planner_service_pb2_grpc as stubs  # noqa: E402

ADMISSION = {"QUEUE_FULL", "DEADLINE_UNREACHABLE", "QUOTA_EXCEEDED"}
JOB_MODELS = ("llama3-8b", "llama3-70b", "llama3-405b", "gpt3-175b")
SIZES = [64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384]


# --- questions -----------------------------------------------------------------------------------


def chain(seed: int, layers: int = 130) -> inputs_pb2.ModelSource:
    """A profile of random layers."""
    chance = random.Random(seed)
    rows = [
        f"l{i},{chance.uniform(1, 3):.4f},{chance.uniform(2, 6):.4f},{chance.randrange(10**8)},"
        f"{chance.randrange(10**8)},{chance.randrange(10**7)}"
        for i in range(layers)
    ]
    header = "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes"
    text = inputs_pb2.ModelText(
        format=inputs_pb2.MODEL_FORMAT_PROFILE_CSV,
        text="\n".join([header, *rows]) + "\n",
        name="chain",
    )
    return inputs_pb2.ModelSource(text=text)


def partition(seed: int) -> pb.PartitionStagesRequest:
    """A cut of a fresh chain into eight stages."""
    return pb.PartitionStagesRequest(
        model=chain(seed),
        stage_count=8,
        microbatch_count=32,
        bandwidth_bytes_per_s=25e9,
        memory_bytes=80 << 30,
    )


def search(model: str, cluster: str, batch: int, length: int) -> pb.SolvePlanRequest:
    """The best layout of a catalog model."""
    return pb.SolvePlanRequest(
        question=pb.PlanQuestion(
            model=inputs_pb2.ModelSource(catalog_name=model),
            cluster=inputs_pb2.ClusterSource(catalog_name=cluster),
            training=inputs_pb2.Training(global_batch_size=batch, sequence_length=length),
        )
    )


def curve(model: str, batch: int, length: int, sizes: list[int]) -> pb.CurveQuestion:
    """A curve over whole nodes of eight GPUs."""
    return pb.CurveQuestion(
        model=inputs_pb2.ModelSource(catalog_name=model),
        clusters={"h100": inputs_pb2.ClusterSource(catalog_name="dgx-h100:2048")},
        training=inputs_pb2.Training(global_batch_size=batch, sequence_length=length),
        allocations=[curve_pb2.Allocation(nodes=size // 8) for size in sizes],
    )


def jobs(count: int) -> list[pb.CurveJob]:
    """Jobs of a scheduler's round: few models, and no two of the same batch and length."""
    mix = [
        (model, batch, length)
        for model in JOB_MODELS
        for batch in range(512, 4097, 64)
        for length in (2048, 4096, 8192)
    ]
    chosen = random.Random(7).sample(mix, count)
    return [
        pb.CurveJob(job_id=f"job-{number}", question=curve(*job, SIZES))
        for number, job in enumerate(chosen)
    ]


# --- figures of a quiet server -------------------------------------------------------------------


async def figures(server: ServerProcess, seconds: float) -> None:
    """Print what a quiet server does."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = stubs.PlannerServiceStub(channel)
        warm = search("llama3-8b", "dgx-h100:2", 64, 4096)
        await stub.SolvePlan(warm, timeout=60)
        await rate("cached answers", lambda _: stub.SolvePlan(warm, timeout=10), 32, seconds)
        await rate(
            "fresh cuts of 130 layers",
            lambda n: stub.PartitionStages(partition(n), timeout=10), 4, seconds,
        )  # fmt: skip
        for name, count in (("the plan alone", 0), ("with three runners-up", 3)):

            def fresh(n: int, count: int = count) -> pb.SolvePlanRequest:
                asked = search("llama3-405b", "dgx-h100:2048", 2048 + 16 * n, 8192)
                asked.question.runner_up_count = count
                return asked

            await each(
                f"fresh 405B search, 16,384 GPUs, {name}",
                lambda n, fresh=fresh: stub.SolvePlan(fresh(n), timeout=60),
                20,
            )

        async def one_curve(n: int) -> None:
            question = curve("llama3-405b", 2048 + 16 * n, 8192, SIZES)
            async for _ in stub.ComputeScalingCurve(
                pb.ComputeScalingCurveRequest(question=question), timeout=60
            ):
                pass

        await each("cold curve of 12 sizes", one_curve, 20)
        request = pb.BatchComputeScalingCurvesRequest(jobs=jobs(500))
        for name in ("500 jobs x 12 sizes, cold", "500 jobs x 12 sizes, cached"):
            began = time.perf_counter()
            statuses: Counter[str] = Counter()
            async for answer in stub.BatchComputeScalingCurves(request, timeout=120):
                statuses[pb.JobStatus.Name(answer.status)] += 1
            print(f"{name}: {time.perf_counter() - began:.2f} s, {dict(statuses)}", flush=True)
            for job in request.jobs[: len(request.jobs) // 20]:
                job.question.training.global_batch_size += 4096  # a second round, 95 % cached


async def after_a_cancel(server: ServerProcess) -> None:
    """How long the slot of a cancelled search is taken, whether its worker listens or hangs."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = stubs.PlannerServiceStub(channel)
        await stub.SolvePlan(search("llama3-8b", "dgx-h100:2", 64, 4096), timeout=60)
        for name, stopped in (("a search", False), ("a hung worker", True)):
            taken = []
            for number in range(10):
                small = search("llama3-8b", "dgx-h100:2", 128 + 16 * number + stopped, 4096)
                long = search("llama3-405b", "dgx-h100:2048", 4096 + 64 * number, 8192)
                long.question.training.all_synchronous_schedules = True
                call = stub.SolvePlan(long, timeout=60)
                await asyncio.sleep(0.4)
                workers = server.workers() if stopped else []
                for pid in workers:
                    os.kill(pid, signal.SIGSTOP)
                call.cancel()
                next_one = stub.SolvePlan(small, timeout=60)
                if stopped:
                    await asyncio.sleep(0.16)
                for pid in workers:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                await next_one
                how = dict(await next_one.trailing_metadata())
                taken.append(float(how["planner-queue-ms"]) / 1e3)
            print(f"slot free after cancelling {name}: {spread(taken)}", flush=True)


async def rate(
    name: str, ask: Callable[[int], Awaitable[Any]], callers: int, seconds: float
) -> None:
    """Answers a second with some callers at once."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    numbers = iter(range(10**9))

    async def caller() -> None:
        while time.perf_counter() < end:
            began = time.perf_counter()
            await ask(next(numbers))
            taken.append(time.perf_counter() - began)

    await asyncio.gather(*(caller() for _ in range(callers)))
    print(f"{name}: {len(taken) / seconds:.0f} a second, {spread(taken)}", flush=True)


async def each(name: str, ask: Callable[[int], Awaitable[Any]], count: int) -> None:
    """Time of one at a time."""
    taken = []
    for number in range(count):
        began = time.perf_counter()
        await ask(number)
        taken.append(time.perf_counter() - began)
    print(f"{name}: {spread(taken)}", flush=True)


def spread(taken: list[float]) -> str:
    """Median and 99th percentile."""
    ordered = sorted(taken)
    last = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"p50 {1e3 * statistics.median(ordered):.1f} ms, p99 {1e3 * last:.1f} ms"


# --- a load run ----------------------------------------------------------------------------------


@dataclass
class Load:
    """What a load run saw."""

    taken: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    late: int = 0
    plans: dict[str, tuple[plan_pb2.Plan, Any]] = field(default_factory=dict)
    operations: list[str] = field(default_factory=list)


async def load(server: ServerProcess, seconds: float, callers: int, kill_every_s: float) -> Load:
    """Callers send a mix of questions until the time is up."""
    seen = Load()
    end = time.monotonic() + seconds
    channels = [
        grpc.aio.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(8)
    ]

    async def caller(number: int) -> None:
        chance = random.Random(number)
        stub = stubs.PlannerServiceStub(channels[number % len(channels)])
        while time.monotonic() < end:
            await ask(stub, chance, seen)
            await asyncio.sleep(chance.expovariate(1.0))

    async def killer() -> None:
        while time.monotonic() + 1 < end:
            await asyncio.sleep(kill_every_s)
            workers = server.workers()
            if workers:
                os.kill(random.choice(workers), signal.SIGKILL)

    killing = asyncio.create_task(killer())
    await asyncio.gather(*(caller(i) for i in range(callers)))
    killing.cancel()
    for channel in channels:
        await channel.close()
    return seen


async def ask(stub: Any, chance: random.Random, seen: Load) -> None:
    """One question of the mix."""
    kind = chance.choices(("cut", "search", "curve", "operation"), (60, 25, 10, 5))[0]
    timeout = chance.choice((5.0, 10.0, 20.0))
    began = time.monotonic()
    try:
        if kind == "cut":
            request: Any = partition(chance.randrange(400))
            answer = await stub.PartitionStages(request, timeout=timeout)
            if answer.plan_id:  # none where time ran out in the queue
                seen.plans[answer.plan_id] = (answer.plan, request.model)
        elif kind == "search":
            model = chance.choice(("llama3-8b", "llama3-70b", "gpt3-175b"))
            nodes = chance.choice((8, 16, 64, 128))
            request = search(model, f"dgx-h100:{nodes}", 64 * chance.randrange(4, 40), 4096)
            answer = await stub.SolvePlan(request, timeout=timeout)
            if answer.plan_id:
                seen.plans[answer.plan_id] = (answer.plan, None)
        elif kind == "curve":
            question = curve("llama3-70b", 64 * chance.randrange(8, 40), 4096, SIZES[:6])
            request = pb.ComputeScalingCurveRequest(question=question)
            async for _ in stub.ComputeScalingCurve(request, timeout=timeout):
                pass
        else:
            batch = 64 * chance.randrange(4, 40)
            request = pb.CreatePlanRequest(
                question=search("llama3-8b", "dgx-h100:8", batch, 4096).question
            )
            operation = await stub.CreatePlan(request, timeout=timeout)
            seen.operations.append(operation.name)
    except grpc.aio.AioRpcError as error:
        reason = reason_of(error)
        if reason in ADMISSION:
            seen.refused[f"{kind} {reason}"] += 1
            await asyncio.sleep(0.5)
        else:
            seen.errors[f"{kind} {error.code().name} {reason} {error.details()}"] += 1
    else:
        taken = time.monotonic() - began
        seen.taken[kind].append(taken)
        seen.late += taken > timeout - 0.05


def judge(seen: Load) -> int:
    """How many of the plans are not what they say, by the judge that knows no solver."""
    from planner.messages.inputs import model_of

    wrong = 0
    for message, source in seen.plans.values():
        plan = plan_of(message)
        model = None if source is None else model_of(source)[0]
        verification = planner.evaluate(plan, model=model)
        if not verification.ok:
            wrong += 1
            print("WRONG", plan.layout.short(), verification.violations[:2])
    return wrong


def resident_mib(pids: list[int]) -> float:
    """Resident memory of some processes together."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def run_load(given: argparse.Namespace) -> int:
    """The load run, its figures and its judgement."""
    from google.longrunning import operations_pb2, operations_pb2_grpc

    with running_server() as server:
        before = resident_mib([server.pid])
        seen = asyncio.run(load(server, given.seconds, given.callers, given.kill_every))
        after = resident_mib([server.pid])
        print(f"front: {before:.0f} MiB at first, {after:.0f} MiB at the end")
        print(f"workers: {resident_mib(server.workers()):.0f} MiB in all")
        operations = operations_pb2_grpc.OperationsStub(server.channel())
        lost = 0
        for name in seen.operations:
            wait = operations_pb2.WaitOperationRequest(name=name)
            found = operations.WaitOperation(wait, timeout=60)
            lost += not (found.done and found.response.value)
    for kind, taken in sorted(seen.taken.items()):
        print(f"{kind}: {len(taken)} answers, {spread(taken)}")
    print(f"refused by admission: {dict(seen.refused)}")
    print(f"errors: {dict(seen.errors)}")
    print(f"later than 50 ms before the deadline: {seen.late}")
    print(f"operations: {len(seen.operations)} acknowledged, {lost} lost")
    wrong = judge(seen)
    print(f"judged: {len(seen.plans)} plans, {wrong} wrong")
    return 1 if wrong or lost or seen.errors else 0


def speed_of_this_machine() -> float:
    """Seconds of ten million turns of a loop in Python: what other figures are to be read by."""
    began = time.perf_counter()
    total = 0
    for number in range(10_000_000):
        total += number
    return time.perf_counter() - began


def main() -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("figures", "load"))
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--callers", type=int, default=200)
    parser.add_argument("--kill-every", type=float, default=20.0)
    given = parser.parse_args()
    print(f"10 million turns of a loop in Python: {speed_of_this_machine():.2f} s", flush=True)
    if given.what == "figures":
        with running_server() as server:
            asyncio.run(figures(server, given.seconds or 5.0))
        with running_server("--slots", "1") as server:
            asyncio.run(after_a_cancel(server))
        return 0
    given.seconds = given.seconds or 180.0
    return run_load(given)


if __name__ == "__main__":
    raise SystemExit(main())

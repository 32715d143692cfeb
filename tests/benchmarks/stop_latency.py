"""How soon large questions end once they are stopped. Run: python tests/benchmarks/stop_latency.py

Prints, for every question, the longest time from the flag to the answer over several instants of
stopping, and how long answers take that have 0.2 s.
"""

from __future__ import annotations

import threading
import time
from functools import partial

import planner
from planner.plans import Plan
from planner.specs import Layer, LayerCost, Model

INSTANTS_S = (0.02, 0.05, 0.1, 0.15, 0.25, 0.4, 0.7, 1.0, 1.5, 2.5, 4.0)
LIMIT_S = 0.2


def uneven_chain(layers: int) -> Model:
    """Layers that differ in time, size and what a cut behind them sends."""
    return Model(
        name=f"uneven-{layers}",
        layers=tuple(
            Layer(
                name=f"layer{i}",
                type="block",
                costs=(
                    LayerCost(
                        forward_ms=0.8 + (i * 7919 % 1601) / 1000,
                        backward_ms=1.6 + (i * 104_729 % 3203) / 1000,
                        parameter_bytes=(10 + i * 31 % 90) * 2**20,
                        activation_bytes=(5 + i * 17 % 55) * 2**20,
                        output_bytes=(1 + i * 7907 % 29) * 2**20,
                    ),
                ),
            )
            for i in range(layers)
        ),
    )


_LARGE = partial(
    planner.plan, "llama3-405b", "dgx-h100:2048", global_batch_size=2048, sequence_length=8192
)
_GPT = partial(planner.plan, "gpt3-175b", global_batch_size=1536, sequence_length=2048)
_SLOW = {"memory_bytes": 24 * 2**30, "bandwidth_bytes_per_s": 1e9, "latency_ms": 0.5}

CASES = {
    "plan": _LARGE,
    "plan, auto": partial(_LARGE, schedule="auto"),
    "plan, some GPUs idle": partial(_LARGE, allow_fewer=True, rejected=True),
    "plan, Pareto set": partial(
        planner.plan, "llama3-405b", "dgx-h100:64", global_batch_size=2048, pareto=True,
        sequence_length=8192, rejected=True,
    ),
    "plan, cheapest": partial(
        planner.plan, "llama3-405b", "dgx-h100:256", global_batch_size=2048,
        sequence_length=8192, objective="tokens-per-dollar",
    ),
    "plan, misfit": partial(
        planner.plan, "llama3-405b", "dgx-h100:4", global_batch_size=2048, sequence_length=65536
    ),
    "plan, interleaved": partial(_GPT, "dgx-a100-80gb:128", schedule="interleaved"),
    "plan, zb-auto": partial(_GPT, "dgx-a100-80gb:16", schedule="zb-auto"),
    "cut 400": partial(
        planner.partition, uneven_chain(400), 16, 64, objective="step-time", **_SLOW
    ),
    "cut 400, auto": partial(
        planner.partition, uneven_chain(400), 16, 64, objective="step-time", schedule="auto"
    ),
    "cut 1000": partial(
        planner.partition, uneven_chain(1000), 64, 128, objective="step-time",
        recompute=("none", "full", "selective", "layers"), **_SLOW,
    ),
    "cut 1000, misfit": partial(
        planner.partition, uneven_chain(1000), 64, 256, memory_bytes=2**31, schedule="auto"
    ),
    "cut 130, zb-auto": partial(
        planner.partition, uneven_chain(130), 16, 64, objective="step-time", schedule="zb-auto",
        bandwidth_bytes_per_s=25e9,
    ),
}  # fmt: skip


def stopped_after(ask: partial[Plan], delay_s: float) -> tuple[float | None, Plan]:
    """Seconds from the flag to the answer (None where the answer came first), and the answer."""
    flag = threading.Event()
    instant: list[float] = []

    def raise_flag() -> None:
        instant.append(time.perf_counter())
        flag.set()

    timer = threading.Timer(delay_s, raise_flag)
    timer.start()
    plan = ask(stop=flag.is_set)
    end = time.perf_counter()
    timer.cancel()
    return (end - instant[0] if instant else None), plan


def main() -> None:
    """Measure every case and print a line each."""
    print(f"{'question':22} {'longest, from flag to answer':>30} {f'with {LIMIT_S} s':>12}")
    for name, ask in CASES.items():
        ask(time_limit_s=1.0)  # code and compiled loops are loaded
        latencies = []
        for delay_s in INSTANTS_S:
            latency_s, _ = stopped_after(ask, delay_s)
            if latency_s is None:
                break
            latencies.append((latency_s, delay_s))
        worst = max(latencies, default=(0.0, 0.0))
        begin = time.perf_counter()
        ask(time_limit_s=LIMIT_S)
        limited_s = time.perf_counter() - begin
        told = f"{1e3 * worst[0]:.0f} ms (stopped after {worst[1]} s)"
        print(f"{name:22} {told:>30} {1e3 * limited_s:9.0f} ms", flush=True)


if __name__ == "__main__":
    main()

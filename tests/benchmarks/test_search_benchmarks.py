"""The whole search, warm, cold and against exhaustive. Run with --benchmark-only."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from planner.cost.question import plan_pricer
from planner.formats.catalog import load_cluster, load_model
from planner.search.run import search_layouts
from planner.search.space import enumerate_layouts
from planner.specs import Training

CASES = {
    "405B on 16,384": ("llama3-405b", "dgx-h100:2048", 2048, 8192),
    "175B on 1,024": ("gpt3-175b", "dgx-a100-80gb:128", 1536, 2048),
    "1T on 3,072": ("gpt-1t", "dgx-a100-80gb:384", 3072, 2048),
}


def question(case):
    model, cluster, batch, length = CASES[case]
    training = Training(global_batch_size=batch, sequence_length=length)
    return load_model(model), load_cluster(cluster), training


def search(model, cluster, training, **options):
    pricer = plan_pricer(model, cluster, training)
    space = enumerate_layouts(model, cluster, training, len(pricer.chain.blocks))
    return search_layouts(pricer, space, **options)


@pytest.mark.parametrize("case", CASES)
def test_warm_search(benchmark, case):
    parts = question(case)
    search(*parts)
    result = benchmark.pedantic(search, args=parts, rounds=5)
    assert result.proven
    layouts = len(result.space)
    print(
        f"\n{case}: {layouts} layouts, {result.bottleneck_solves} balanced exactly, "
        f"{result.cut_solves} solved ({100 * result.cut_solves / layouts:.1f} %), "
        f"{result.simulations} simulations, {result.nodes} nodes, {result.probes} probes"
    )
    assert result.cut_solves < 0.1 * layouts


@pytest.mark.parametrize("case", CASES)
def test_exhaustive_search_finds_the_same(benchmark, case):
    parts = question(case)
    quick = search(*parts)
    begun = time.perf_counter()
    whole = benchmark.pedantic(search, args=parts, kwargs={"exhaustive": True}, rounds=1)
    print(f"\n{case}: exhaustive {time.perf_counter() - begun:.2f} s, {whole.cut_solves} solved")
    assert whole.ranking[0].step == quick.ranking[0].step
    assert whole.ranking[0].layout == quick.ranking[0].layout


@pytest.mark.parametrize("case", CASES)
def test_cold_command(benchmark, case):
    model, cluster, batch, length = CASES[case]
    command = [sys.executable, "-m", "planner", "plan", model, "--cluster", cluster]
    command += ["--global-batch", str(batch), "--seq-len", str(length)]

    def run():
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    benchmark.pedantic(run, rounds=5, warmup_rounds=1)

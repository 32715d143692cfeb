"""The Pareto set holds what forced recompute buys, and nothing that is beaten."""

from __future__ import annotations

from factories import small_cluster, tiny_llama

import planner


def triples(candidates):
    return [(c.step_time_ms, c.peak_memory_bytes, c.num_gpus) for c in candidates]


def test_no_single_question_finds_what_the_pareto_set_misses():
    model, cluster = tiny_llama(), small_cluster(1, 4)
    question = {"global_batch_size": 8, "sequence_length": 1024}
    front = triples(planner.plan(model, cluster, pareto=True, **question).pareto)
    assert len(front) > 2
    for mode in ("none", "selective", "full"):
        for pp in (1, 2, 4):
            for tp in (1, 2, 4):
                if 4 % (pp * tp):
                    continue
                one = planner.plan(model, cluster, pp=pp, tp=tp, recompute=(mode,), **question)
                step, peak, gpus = one.step_time_ms, one.peak_memory_bytes, one.num_gpus
                assert any(s <= step and p <= peak and g <= gpus for s, p, g in front)


def test_nothing_in_the_set_is_dominated():
    model, cluster = tiny_llama(), small_cluster(1, 4)
    plan = planner.plan(
        model, cluster, global_batch_size=8, sequence_length=1024, pareto=True, allow_fewer=True
    )
    front = triples(plan.pareto)
    assert front == sorted(front, key=lambda t: t[0])
    for a in front:
        assert not any(b != a and all(x <= y for x, y in zip(b, a, strict=True)) for b in front)

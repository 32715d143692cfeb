"""The layouts that no other beats in step time, peak memory and GPUs at once."""

from __future__ import annotations

from collections.abc import Iterable

from planner.search.run import LayoutResult

__all__ = ["pareto_front"]


def pareto_front(results: Iterable[LayoutResult]) -> list[LayoutResult]:
    """Non-dominated results, fastest first.

    A result is dominated when another is no worse in step time, peak bytes and GPUs, and
    better in one. Equal triples keep the first in canonical order.
    """
    ordered = sorted(results, key=lambda r: (r.step, r.peak_bytes, r.layout.num_gpus, r.index))
    front: list[LayoutResult] = []
    for candidate in ordered:
        dominated = any(
            kept.peak_bytes <= candidate.peak_bytes
            and kept.layout.num_gpus <= candidate.layout.num_gpus
            for kept in front
        )
        if not dominated:
            front.append(candidate)
    return front

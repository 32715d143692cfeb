"""Which tensor degrees a model can be split by, and why the others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from planner.cost.profile_rows import KNOWN_TYPES
from planner.specs import BlockShape, Layer, Model

__all__ = ["legal_tensor_degrees", "tensor_parallel_conflict"]


def tensor_parallel_conflict(model: Model, tp: int) -> str | None:
    """Why a tensor degree cannot split the model; None where it can.

    The degree must divide heads, hidden, feed-forward and expert sizes; key-value heads are
    divided, or replicated where the degree is a multiple of them. Of profiled layers, unknown
    types need measured rows at this degree; known types need them too unless the degree is a
    power of two, the only degrees that their unknown sizes may be trusted to divide by.

    Examples
    --------
    >>> block = BlockShape(hidden=6656, heads=52, kv_heads=52, head_dim=128, ffn_hidden=17920,
    ...                    gated=True)
    >>> model = Model(name="llama-30b", layers=(Layer(name="block", shape=block),))
    >>> tensor_parallel_conflict(model, 4)
    >>> tensor_parallel_conflict(model, 8)
    'tp=8 does not divide the 52 attention heads of block'
    """
    if tp == 1 and model.is_analytic:
        return None
    seen: set[int] = set()
    for layer in model.layers:
        if layer.shape is not None:
            # Equal layers usually share one shape object.
            if id(layer.shape) in seen:
                continue
            seen.add(id(layer.shape))
            conflict = _shape_conflict(layer, tp)
        else:
            conflict = _profile_conflict(layer, tp)
        if conflict is not None:
            return conflict
    return None


def _sizes(layer: Layer) -> Iterator[tuple[int, str]]:
    """Sizes of a shaped layer that the tensor degree must divide, with their names."""
    shape = layer.shape
    assert shape is not None
    yield shape.hidden, "hidden size"
    if not isinstance(shape, BlockShape):
        return
    yield shape.heads, "attention heads"
    if shape.moe is None:
        yield shape.ffn_hidden, "feed-forward size"
    else:
        yield shape.moe.expert_ffn_hidden, "expert feed-forward size"
        if shape.moe.shared_ffn_hidden:
            yield shape.moe.shared_ffn_hidden, "shared-expert feed-forward size"


def _shape_conflict(layer: Layer, tp: int) -> str | None:
    for size, what in sorted(_sizes(layer), key=lambda item: item[1] != "attention heads"):
        if size % tp:
            shown = f"{size} attention heads" if what == "attention heads" else f"{what} {size}"
            return f"tp={tp} does not divide the {shown} of {layer.name}"
    shape = layer.shape
    if isinstance(shape, BlockShape) and shape.mla is None:
        kv = shape.kv_heads
        if kv % tp and tp % kv:
            return (
                f"tp={tp} neither divides the {kv} key-value heads of {layer.name} nor is a "
                "multiple of them"
            )
    return None


def _profile_conflict(layer: Layer, tp: int) -> str | None:
    measured = sorted({row.tp for row in layer.costs})
    if tp in measured:
        return None
    shown = ", ".join(str(degree) for degree in measured)
    if layer.type not in KNOWN_TYPES:
        return (
            f"layer {layer.name} was profiled at tp {shown}, and how a layer of type "
            f'"{layer.type}" splits at tp={tp} is not known'
        )
    if tp & (tp - 1):
        return (
            f"layer {layer.name} was profiled at tp {shown}; other degrees are priced by formula "
            f"for powers of two alone, and tp={tp} is none"
        )
    return None


def legal_tensor_degrees(model: Model, limit: int) -> list[int]:
    """Tensor degrees up to ``limit`` that can split every layer, ascending.

    Examples
    --------
    >>> block = BlockShape(hidden=6656, heads=52, kv_heads=52, head_dim=128, ffn_hidden=17920,
    ...                    gated=True)
    >>> legal_tensor_degrees(Model(name="x", layers=(Layer(name="b", shape=block),)), 16)
    [1, 2, 4]
    """
    common = 0
    unknown: set[int] | None = None
    profiled = False
    seen: set[int] = set()
    measured: set[int] = set()
    for layer in model.layers:
        if layer.shape is not None:
            if id(layer.shape) not in seen:
                seen.add(id(layer.shape))
                for size, _ in _sizes(layer):
                    common = gcd(common, size)
            continue
        profiled = True
        degrees = {row.tp for row in layer.costs}
        measured |= degrees
        if layer.type not in KNOWN_TYPES:
            unknown = degrees if unknown is None else unknown & degrees
    if unknown is not None:
        candidates = sorted(unknown)
    elif profiled:
        powers = {1 << bits for bits in range(limit.bit_length())}
        candidates = sorted(measured | powers)
    else:
        candidates = [tp for tp in range(1, min(limit, common) + 1) if common % tp == 0]
    return [tp for tp in candidates if tp <= limit and tensor_parallel_conflict(model, tp) is None]

"""Small models and clusters that are easy to reason about."""

from __future__ import annotations

from collections.abc import Sequence

from planner.specs import (
    Calibration,
    Cluster,
    Device,
    Layer,
    LayerCost,
    Link,
    Model,
    Precision,
    Tier,
)


def chain_model(
    forward_ms: Sequence[float],
    backward_ms: Sequence[float] | None = None,
    *,
    parameter_bytes: int | Sequence[int] = 0,
    activation_bytes: int | Sequence[int] = 0,
    output_bytes: int | Sequence[int] = 0,
    checkpoint_bytes: int | None = None,
    pins: dict[int, int] | None = None,
    colocate: dict[int, int] | None = None,
    type: str = "layer",
    name: str = "chain",
) -> Model:
    """A chain of measured layers ``l0 .. l(N-1)``; backward defaults to twice the forward."""
    backward = backward_ms if backward_ms is not None else [2 * value for value in forward_ms]

    def at(values: int | Sequence[int], index: int) -> int:
        return values if isinstance(values, int) else values[index]

    layers = []
    for i, (forward, back) in enumerate(zip(forward_ms, backward, strict=True)):
        layers.append(
            Layer(
                name=f"l{i}",
                type=type,
                inputs=(f"l{i - 1}",) if i else (),
                pin_stage=(pins or {}).get(i),
                colocate_with=f"l{colocate[i]}" if colocate and i in colocate else None,
                costs=(
                    LayerCost(
                        forward_ms=forward,
                        backward_ms=back,
                        parameter_bytes=at(parameter_bytes, i),
                        activation_bytes=at(activation_bytes, i),
                        output_bytes=at(output_bytes, i),
                        checkpoint_bytes=checkpoint_bytes,
                    ),
                ),
            )
        )
    return Model(name=name, layers=tuple(layers), precision=Precision.BF16, sequence_length=128)


def times_model(times_ms: Sequence[float], **options: object) -> Model:
    """A chain whose t = F + B is ``times_ms`` (a third forward), as plain lists of loads."""
    return chain_model([t / 4 for t in times_ms], [3 * t / 4 for t in times_ms], **options)  # type: ignore[arg-type]


def small_cluster(
    nodes: int = 2,
    gpus_per_node: int = 4,
    *,
    memory_bytes: int = 80 * 2**30,
    bandwidth: float = 25e9,
    price: float | None = None,
) -> Cluster:
    """A plain two-tier cluster with round figures."""
    gpu = Device(
        name="round-gpu",
        memory_bytes=memory_bytes,
        peak_flops={Precision.BF16: 100e12, Precision.FP32: 50e12},
        memory_bandwidth_bytes_per_s=1e12,
        calibration=Calibration(layer_floor_ms=0.01, step_overhead_ms=1.0),
    )
    return Cluster(
        name="small",
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        nvlink_domain=gpus_per_node,
        gpu=gpu,
        links=(
            Link(tier=Tier.DOMAIN, bandwidth_bytes_per_s=200e9, latency_s=2e-6),
            Link(tier=Tier.CLUSTER, bandwidth_bytes_per_s=bandwidth, latency_s=5e-6),
        ),
        price_per_gpu_hour=price,
    )


TINY_CONFIG = """{
  "model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 6,
  "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 32000,
  "max_position_embeddings": 1024, "tie_word_embeddings": false
}"""


def tiny_llama() -> Model:
    """Six llama blocks: 8 chain layers, tp up to 4 by its key-value heads or 8 replicated."""
    from planner.formats.huggingface import read_config

    return read_config(TINY_CONFIG, name="tiny-llama", file="config.json")

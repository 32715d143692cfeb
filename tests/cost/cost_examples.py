"""Devices, clusters and shapes that the cost tests share."""

from __future__ import annotations

from typing import Any

from planner.cost.layers import LayerPrice, price_layer
from planner.specs import (
    BlockShape,
    Calibration,
    Cluster,
    Device,
    EmbeddingShape,
    HeadShape,
    Layer,
    LayerCost,
    Link,
    MlaShape,
    MoeShape,
    Precision,
    Tier,
    Training,
)


def device(**calibration: Any) -> Device:
    # NVIDIA A100 80GB SXM data sheet: 312 TFLOP/s bf16, 19.5 fp32, 2,039 GB/s.
    return Device(
        name="a100",
        memory_bytes=80 * 2**30,
        peak_flops={Precision.BF16: 312e12, Precision.FP32: 19.5e12},
        memory_bandwidth_bytes_per_s=2.039e12,
        calibration=Calibration(**calibration),
    )


def cluster(nodes: int = 4, **calibration: Any) -> Cluster:
    return Cluster(
        name="dgx",
        nodes=nodes,
        gpus_per_node=8,
        nvlink_domain=8,
        gpu=device(**calibration),
        links=(
            Link(tier=Tier.DOMAIN, bandwidth_bytes_per_s=300e9, latency_s=3e-6),
            Link(tier=Tier.CLUSTER, bandwidth_bytes_per_s=25e9, latency_s=5e-6),
        ),
    )


def training(**changes: Any) -> Training:
    return Training(**{"global_batch_size": 64, "sequence_length": 2048} | changes)


def gpt(hidden: int = 12288, heads: int = 96, **changes: Any) -> BlockShape:
    return BlockShape(
        **{
            "hidden": hidden,
            "heads": heads,
            "kv_heads": heads,
            "head_dim": hidden // heads,
            "ffn_hidden": 4 * hidden,
            "gated": False,
            "linear_bias": True,
            "qkv_bias": True,
            "norm_bias": True,
            "dropout": True,
        }
        | changes
    )


def llama(**changes: Any) -> BlockShape:
    # Llama 3 8B.
    return BlockShape(
        **{
            "hidden": 4096,
            "heads": 32,
            "kv_heads": 8,
            "head_dim": 128,
            "ffn_hidden": 14336,
            "gated": True,
        }
        | changes
    )


def mixtral() -> BlockShape:
    return llama(moe=MoeShape(experts=8, experts_per_token=2, expert_ffn_hidden=14336))


def deepseek_v3(**changes: Any) -> BlockShape:
    return BlockShape(
        **{
            "hidden": 7168,
            "heads": 128,
            "kv_heads": 128,
            "head_dim": 192,
            "ffn_hidden": 18432,
            "gated": True,
            "mla": MlaShape(
                q_lora_rank=1536,
                kv_lora_rank=512,
                qk_nope_head_dim=128,
                qk_rope_head_dim=64,
                v_head_dim=128,
            ),
            "moe": MoeShape(
                experts=256,
                experts_per_token=8,
                expert_ffn_hidden=2048,
                shared_experts=1,
                shared_ffn_hidden=2048,
            ),
        }
        | changes
    )


SHAPES = {
    "gpt": gpt(),
    "llama": llama(),
    "mixtral": mixtral(),
    "deepseek": deepseek_v3(),
    "deepseek-mtp": deepseek_v3(mtp=True),
    "embedding": EmbeddingShape(vocab=128256, hidden=4096),
    "head": HeadShape(vocab=128256, hidden=4096),
}


def price(
    shape: BlockShape | EmbeddingShape | HeadShape,
    tp: int = 1,
    microbatch_size: int = 1,
    *,
    on: Cluster | None = None,
    trainable: bool = True,
    **changes: Any,
) -> LayerPrice:
    return price_layer(
        Layer(name="layer", shape=shape, trainable=trainable),
        cluster=on or cluster(),
        training=training(**changes),
        tp=tp,
        microbatch_size=microbatch_size,
    )


def profiled(*rows: LayerCost, **fields: Any) -> Layer:
    return Layer(**{"name": "layer", "costs": rows} | fields)

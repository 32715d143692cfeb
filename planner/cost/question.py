"""A question as a pricer: from a plan's or a partition's set-up to prices.

Solving, judging and explaining all start here, so that they price the same thing.
"""

from __future__ import annotations

import math

from planner.cost.kept_prices import kept_prices
from planner.cost.layout_table import stages_of_layout
from planner.cost.legality import tensor_parallel_conflict
from planner.cost.pricing import Pricer
from planner.cost.tables import FixedLink
from planner.errors import InputError, LayoutError, ProfileError
from planner.graph import Chain, contract, linearise
from planner.plans import Layout
from planner.schedule_rules import check_shape, searched_chunks
from planner.specs import (
    Calibration,
    Cluster,
    Device,
    Link,
    Model,
    PartitionSetup,
    Precision,
    Tier,
    Training,
)

__all__ = ["partition_question", "plan_pricer"]

NO_LIMIT_BYTES = 2**60
"""The budget of a partition without ``--memory``; far above any stage, far below 2**63."""


def plan_pricer(
    model: Model,
    cluster: Cluster,
    training: Training,
    chain: Chain | None = None,
    *,
    model_digest: str | None = None,
) -> Pricer:
    """Prices for ``plan``.

    Parameters
    ----------
    chain
        What the model's graph contracts to, where that is known.
    model_digest
        Content hash of the model, where that is known.

    Raises
    ------
    LayoutError
        The GPU has no peak rate for the asked precision and the model has no measured times.
    """
    needs_rate = any(layer.shape is not None for layer in model.layers) or any(
        row.forward_ms is None for layer in model.layers for row in layer.costs
    )
    if needs_rate and cluster.gpu.peak(training.precision) is None:
        known = ", ".join(precision.value for precision in cluster.gpu.peak_flops)
        raise LayoutError(
            f"{cluster.gpu.name} has no {training.precision.value} rate",
            fix=f"use --precision with one of {known}",
        )
    if chain is not None:
        return Pricer(model, chain, cluster, training)
    kept = kept_prices(model, cluster, training, model_digest)
    return Pricer(model, kept.chain, cluster, training, kept=kept)


def partition_question(
    model: Model, setup: PartitionSetup, cluster: Cluster | None = None
) -> tuple[Pricer, Layout]:
    """Prices and layout for ``partition``: dp = 1, no tail, the memory limit as budget.

    Raises
    ------
    LayoutError
        More stages than blocks to cut.
    ProfileError
        The profile holds several devices and none was named.
    InputError
        The model has FLOPs instead of times and no cluster says how fast they run.
    """
    chunks = setup.vpp or searched_chunks(setup.schedule)
    layout = Layout(
        pp=setup.num_stages,
        tp=setup.tp,
        vpp=chunks,
        num_microbatches=setup.num_microbatches,
        schedule=setup.schedule,
    )
    check_shape(setup.schedule, layout.pp, layout.num_microbatches, chunks)
    pieces = stages_of_layout(layout)
    chain = contract(model)
    if setup.cut_inside_blocks or pieces > len(chain.blocks):
        chain = linearise(model)
    if pieces > len(chain.blocks):
        each = f" of {chunks} chunks each" if chunks > 1 else ""
        raise LayoutError(
            f"{setup.num_stages} stages{each} are more than the {len(chain.blocks)} layers of "
            f"{model.name}",
            expected=f"at least one layer on every {'chunk' if chunks > 1 else 'stage'}",
            fix=f"use at most {len(chain.blocks) // chunks} stages",
        )
    rows = [row for layer in model.layers for row in layer.costs]
    if cluster is None:
        if model.is_analytic or any(row.forward_ms is None for row in rows):
            raise InputError(
                f"{model.name} gives FLOPs or shapes, not times",
                fix="name the GPU that runs it with --cluster, as --cluster dgx-a100-80gb:1",
            )
        cluster = _profile_cluster(model, setup)
    budget = setup.memory_bytes or NO_LIMIT_BYTES
    cluster = cluster.model_copy(
        update={
            "gpu": cluster.gpu.model_copy(update={"memory_bytes": budget}),
            "reserved_bytes": 0,
        }
    )
    microbatch_size = setup.microbatch_size or min((row.microbatch_size for row in rows), default=1)
    lengths = [row.sequence_length for row in rows if row.sequence_length is not None]
    sequence = setup.sequence_length or model.sequence_length or min(lengths, default=1)
    if setup.num_microbatches * microbatch_size > 10**6:
        raise LayoutError(
            f"{setup.num_microbatches} micro-batches of {microbatch_size} samples are too many",
            expected="at most a million samples a step",
        )
    conflict = tensor_parallel_conflict(model, setup.tp) if model.is_analytic else None
    if conflict:
        raise LayoutError(f"tp={setup.tp}: {conflict}")
    training = Training(
        global_batch_size=setup.num_microbatches * microbatch_size,
        sequence_length=sequence,
        precision=setup.precision or model.precision,
        optimizer=setup.optimizer,
        sharded_optimizer=False,
        sequence_parallel=setup.sequence_parallel,
        schedules=(setup.schedule,),
        recompute=setup.recompute,
        sends=setup.sends,
    )
    layout = layout.model_copy(update={"microbatch_size": microbatch_size})
    pricer = Pricer(
        model,
        chain,
        cluster,
        training,
        fixed_link=FixedLink(setup.bandwidth_bytes_per_s, setup.latency_ms),
        tail=False,
        repeats=setup.num_microbatches + 2 * pieces,
        reference=(setup.tp, microbatch_size),
    )
    return pricer, layout


def _profile_cluster(model: Model, setup: PartitionSetup) -> Cluster:
    """A stand-in for the machine a profile was taken on; only its name and memory matter.

    Nothing says how fast its links are, so collectives that a profile excludes are free.
    """
    devices = sorted(
        {row.device for layer in model.layers for row in layer.costs if row.device is not None}
    )
    if setup.device is not None:
        if not devices:
            raise ProfileError(
                f"{model.name} names no devices", value=setup.device, fix="omit --device"
            )
        name = setup.device
    elif len(devices) > 1:
        raise ProfileError(
            f"{model.name} was profiled on several devices ({', '.join(devices)})",
            fix="choose one with --device",
        )
    else:
        name = devices[0] if devices else "profiled"
    gpu = Device(
        name=name,
        memory_bytes=NO_LIMIT_BYTES,
        peak_flops=dict.fromkeys(Precision, 1.0),
        memory_bandwidth_bytes_per_s=1.0,
        calibration=Calibration(collective_latency_ms=0.0),
    )
    return Cluster(
        name="profile",
        nodes=1,
        gpus_per_node=setup.num_stages * setup.tp,
        nvlink_domain=setup.num_stages * setup.tp,
        gpu=gpu,
        links=(Link.model_construct(tier=Tier.DOMAIN, bandwidth_bytes_per_s=math.inf),),
    )

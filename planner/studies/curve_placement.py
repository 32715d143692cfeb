"""Where the ranks of a point should go, in general and in the words of three schedulers.

One pod a node. Keys and rules:

- Kueue, topology-aware scheduling (annotations of the pod template): a required or preferred
  topology level for all pods, and, since 0.13, a required one for slices of
  ``podset-slice-size`` pods;
- Slurm with the topology/block plugin: ``--segment`` splits the nodes of a job into groups of
  equal size, each inside one block;
- Volcano 1.11, ``networkTopology`` of a job: ``hard`` keeps all of it inside one HyperNode of at
  most ``highestTierAllowed``, ``soft`` prefers it.
"""

from __future__ import annotations

from planner import placement
from planner.curves import Allocation, Placement, PlacementGroup
from planner.plans import Layout
from planner.specs import Cluster, Tier

__all__ = ["placement_of"]

_KUEUE = "kueue.x-k8s.io/podset-"
_HOST_LABEL = "kubernetes.io/hostname"
_RACK_LABEL = "cloud.provider.com/topology-rack"
_BLOCK_LABEL = "cloud.provider.com/topology-block"
"""Levels as Kueue's documentation names them; a cluster's own Topology object may differ."""


def placement_of(cluster: Cluster, allocation: Allocation, layout: Layout) -> Placement:
    """How to place a layout on an allocation.

    Parameters
    ----------
    cluster
        The allocation's own (:func:`~planner.studies.curve_allocations.allocation_cluster`).

    Notes
    -----
    Nodes that a layout with idle GPUs does not need are not asked for.
    """
    needed = -(-layout.num_gpus // allocation.gpus_per_node)
    allocation = allocation.model_copy(update={"nodes": needed})
    return Placement(
        groups=_groups(cluster, layout),
        nodes=allocation.nodes,
        gpus_per_node=allocation.gpus_per_node,
        gpus_used=layout.num_gpus,
        kueue=_kueue(cluster, allocation, layout),
        slurm=_slurm(cluster, allocation, layout),
        volcano=_volcano(cluster, allocation),
    )


def _groups(cluster: Cluster, layout: Layout) -> tuple[PlacementGroup, ...]:
    world = layout.num_gpus
    found = []
    if layout.tp > 1:
        level = placement.tensor_group(cluster, layout.tp).tier
        found.append(("tensor", layout.tp, level, True))
    if layout.pp > 1:
        tiers = placement.boundary_tiers(cluster, layout.dp, layout.tp, layout.pp)
        found.append(("pipeline", layout.pp, max(tiers, key=list(Tier).index), False))
    if layout.dp > 1:
        level = placement.data_group(cluster, layout.dp, layout.tp).tier
        found.append(("data", layout.dp, level, False))
    return tuple(
        PlacementGroup(kind=kind, size=size, count=world // size, level=level, required=required)
        for kind, size, level, required in found
    )


def _nodes_of_tensor_group(cluster: Cluster, layout: Layout) -> int:
    return -(-layout.tp // cluster.gpus_per_node)


def _nodes_of_domain(cluster: Cluster) -> int:
    return max(1, cluster.nvlink_domain // cluster.gpus_per_node)


def _kueue(cluster: Cluster, allocation: Allocation, layout: Layout) -> dict[str, str]:
    if allocation.nodes == 1:
        return {f"{_KUEUE}required-topology": _HOST_LABEL}
    in_rack = (
        allocation.nodes <= cluster.nodes_per_rack
        if cluster.nodes_per_rack is not None
        else allocation.nodes <= _nodes_of_domain(cluster)
    )
    found = {f"{_KUEUE}preferred-topology": _RACK_LABEL if in_rack else _BLOCK_LABEL}
    slice_nodes = _nodes_of_tensor_group(cluster, layout)
    if slice_nodes > 1:  # an nvlink domain of several nodes is a rack
        found[f"{_KUEUE}slice-required-topology"] = _RACK_LABEL
        found[f"{_KUEUE}slice-size"] = str(slice_nodes)
    return found


def _slurm(cluster: Cluster, allocation: Allocation, layout: Layout) -> tuple[str, ...]:
    found = [f"--nodes={allocation.nodes}", f"--gpus-per-node={allocation.gpus_per_node}"]
    most, group = _nodes_of_domain(cluster), _nodes_of_tensor_group(cluster, layout)
    if most > 1:
        fitting = [
            size
            for size in range(1, min(most, allocation.nodes) + 1)
            if allocation.nodes % size == 0 and size % group == 0
        ]
        if fitting:
            found.append(f"--segment={fitting[-1]}")
    if allocation.excluded_nodes:
        found.append(f"--exclude={','.join(allocation.excluded_nodes)}")
    return tuple(found)


def _volcano(cluster: Cluster, allocation: Allocation) -> dict[str, str]:
    if allocation.nodes <= _nodes_of_domain(cluster):
        return {"mode": "hard", "highestTierAllowed": "1"}
    return {"mode": "soft"}

"""What a scheduler may grant, as allocations, and the cluster that each of them is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.curves import Allocation, SizeRange
from planner.errors import InputError
from planner.formats.spelling import did_you_mean
from planner.questions import load_cluster
from planner.specs import Cluster

__all__ = [
    "MOST_SIZES",
    "allocation_cluster",
    "allocation_of_count",
    "allocations_of",
    "clusters_of",
]

MOST_SIZES = 10_000
"""Of one curve; more are a typing error."""


def clusters_of(
    cluster: Cluster | str | Mapping[str, Cluster | str],
) -> dict[str | None, Cluster]:
    """The clusters by GPU type; the key is None where there is one.

    Raises
    ------
    InputError
        An empty mapping, or a cluster that cannot be loaded.
    """
    if isinstance(cluster, str):
        return {None: load_cluster(cluster)}
    if isinstance(cluster, Cluster):
        return {None: cluster}
    if not cluster:
        raise InputError("no cluster was given", expected="a cluster for each GPU type")
    return {
        name: load_cluster(each) if isinstance(each, str) else each
        for name, each in cluster.items()
    }


def allocations_of(
    asked: Sequence[Allocation | int] | SizeRange, clusters: Mapping[str | None, Cluster]
) -> tuple[Allocation, ...]:
    """The allocations asked for, in their order, checked against the clusters.

    A number of GPUs means whole nodes first: up to a node's GPUs it is one node, beyond that it
    has to be a multiple of them.

    Raises
    ------
    InputError
        Nothing asked for, a type or size that is not there, or a number that fills no nodes.
    """
    if isinstance(asked, SizeRange):
        sizes = asked.sizes()
        if not sizes:
            raise InputError(
                "allocations are an empty range",
                value=f"{asked.min_gpus}..{asked.max_gpus}",
                expected="min_gpus <= max_gpus",
            )
        if len(sizes) > MOST_SIZES:
            raise _too_many(len(sizes))
        kind = _known_type(asked.gpu_type, clusters)
        if asked.step is None:
            sizes = tuple(dict.fromkeys(_whole(size, clusters[kind]) for size in sizes))
        return tuple(allocation_of_count(size, kind, clusters[kind]) for size in sizes)
    if isinstance(asked, str | bytes) or not isinstance(asked, Sequence):
        raise InputError(
            "allocations are no list",
            value=repr(asked),
            expected="GPU counts, Allocations or a SizeRange",
        )
    if not asked:
        raise InputError("no allocations were asked for", fix="name at least one size")
    if len(asked) > MOST_SIZES:
        raise _too_many(len(asked))
    return tuple(_one(item, clusters) for item in asked)


def _too_many(count: int) -> InputError:
    return InputError("are too many allocations", value=count, expected=f"at most {MOST_SIZES:,}")


def _whole(size: int, cluster: Cluster) -> int:
    """A doubled size, down to whole nodes: what lies between is not worth a name of its own."""
    per_node = cluster.gpus_per_node
    return size if size <= per_node else size // per_node * per_node


def _known_type(name: str | None, clusters: Mapping[str | None, Cluster]) -> str | None:
    if name in clusters:
        return name
    if len(clusters) == 1:
        only = next(iter(clusters))
        if name is None or only is None:
            if name is not None:
                raise InputError(
                    "names a GPU type, and one cluster without a type was given",
                    value=name,
                    fix="give the clusters as a mapping from type to cluster",
                )
            return only
    known = sorted(str(each) for each in clusters)
    if name is None:
        raise InputError("an allocation names no GPU type", expected=f"one of {', '.join(known)}")
    raise InputError(
        "is no GPU type that was given",
        value=name,
        expected=f"one of {', '.join(known)}",
        fix=did_you_mean(name, known),
    )


def _one(item: Allocation | int, clusters: Mapping[str | None, Cluster]) -> Allocation:
    if isinstance(item, Allocation):
        kind = _known_type(item.gpu_type, clusters)
        cluster = clusters[kind]
        if item.gpus_per_node > cluster.gpus_per_node:
            raise InputError(
                f"asks for more GPUs of a node than {cluster.name} has",
                value=item.gpus_per_node,
                expected=f"at most {cluster.gpus_per_node}",
            )
        left = cluster.nodes - len(set(item.excluded_nodes))
        if item.nodes > left:
            without = " that are not excluded" if item.excluded_nodes else ""
            raise InputError(
                f"asks for more nodes than {cluster.name} has{without}",
                value=item.nodes,
                expected=f"at most {max(left, 0)}",
            )
        used = item.gpus_per_node or cluster.gpus_per_node
        return item.model_copy(update={"gpu_type": kind, "gpus_per_node": used})
    if isinstance(item, bool) or not isinstance(item, int):
        raise InputError(
            "is no allocation", value=repr(item), expected="a number of GPUs or an Allocation"
        )
    kind = _known_type(None, clusters)
    return allocation_of_count(item, kind, clusters[kind])


def allocation_of_count(size: int, kind: str | None, cluster: Cluster) -> Allocation:
    """So many GPUs as whole nodes, or as a part of one.

    Raises
    ------
    InputError
        More than the cluster has, or no whole nodes.
    """
    per_node = cluster.gpus_per_node
    if size < 1:
        raise InputError("is no number of GPUs", value=size, expected="1 or more")
    if size > cluster.num_gpus:
        raise InputError(
            f"GPUs are more than {cluster.name} has",
            value=size,
            expected=f"at most {cluster.num_gpus} ({cluster.nodes} nodes of {per_node})",
        )
    if size <= per_node:
        return Allocation(gpu_type=kind, nodes=1, gpus_per_node=size)
    if size % per_node:
        below = size // per_node * per_node
        raise InputError(
            f"GPUs fill no whole nodes of {per_node}",
            value=size,
            expected=f"a multiple of {per_node}, as {below} or {below + per_node}",
            fix="or an Allocation that says how many GPUs of each node",
        )
    return Allocation(gpu_type=kind, nodes=size // per_node, gpus_per_node=per_node)


def allocation_cluster(cluster: Cluster, allocation: Allocation) -> Cluster:
    """The part of a cluster that an allocation is: its nodes, next to each other.

    Where an nvlink domain is a part of a node, or a whole one, it holds what is used of it; where
    it is several nodes (NVL72), what is used of each.

    Examples
    --------
    >>> from planner.formats.catalog import load_cluster
    >>> half = Allocation(nodes=2, gpus_per_node=4)
    >>> part = allocation_cluster(load_cluster("dgx-h100:64"), half)
    >>> part.num_gpus, part.nvlink_domain
    (8, 4)
    """
    used, whole = allocation.gpus_per_node, cluster.gpus_per_node
    domain = cluster.nvlink_domain
    if used != whole:
        # Ranks are numbered over what is used, so that node borders lie there too.
        domain = min(domain, used) if domain <= whole else domain // whole * used
    return cluster.model_copy(
        update={"nodes": allocation.nodes, "gpus_per_node": used, "nvlink_domain": domain}
    )

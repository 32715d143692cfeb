"""GPU and cluster documents to Device and Cluster; every quantity carries its unit.

The keys of a cluster file::

    name: two-boxes            # optional
    nodes: 2
    gpus_per_node: 8
    nvlink_domain: 8           # GPUs that reach each other at domain speed; default gpus_per_node
    nodes_per_rack: 4          # optional
    gpu: a100-80gb             # a catalog name, or a mapping as below
    reserved_memory: 4GiB      # kept free on every GPU
    links:                     # per GPU and direction
      domain: {bandwidth: 300GB/s, latency: 3us}
      cluster: {bandwidth: 25GB/s, latency: 5us, oversubscription: 1}
    price_per_gpu_hour: 2.5    # optional, any currency
    sources: {...}             # optional: key -> where the figure comes from

and of a GPU::

    name: my-gpu
    memory: 80GiB
    memory_bandwidth: 2039GB/s
    peak_flops: {bf16: 312TFLOPS, fp32: 19.5TFLOPS}
    calibration: {gemm_efficiency: 0.8, ...}   # optional, fields of Calibration
    sources: {...}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from planner.errors import ClusterError, NotInCatalogError, UnitError
from planner.formats.documents import refuse_unknown_keys
from planner.specs import Calibration, Cluster, Device, Link, Precision, Tier
from planner.units import format_bytes, parse_bandwidth, parse_bytes, parse_flops, parse_ms

__all__ = ["CLUSTER_KEYS", "DEVICE_KEYS", "parse_cluster", "parse_device"]

CLUSTER_KEYS = (
    "name", "description", "nodes", "gpus_per_node", "nvlink_domain", "nodes_per_rack", "gpu",
    "reserved_memory", "links", "price_per_gpu_hour", "sources",
)  # fmt: skip
DEVICE_KEYS = (
    "name", "description", "memory", "memory_bandwidth", "peak_flops", "calibration", "sources",
)  # fmt: skip
_LINK_KEYS = ("bandwidth", "latency", "oversubscription")
_SEVERAL_GROUPS = ("node_groups", "groups", "node_types")
_LINK_TIERS = (Tier.DOMAIN, Tier.NODE, Tier.RACK, Tier.CLUSTER)
MAX_GPUS = 10_000_000

_KEY_OF_FIELD = {
    "memory_bytes": "memory",
    "memory_bandwidth_bytes_per_s": "memory_bandwidth",
    "bandwidth_bytes_per_s": "bandwidth",
    "latency_s": "latency",
}
"""Keys of the file whose quantities fields hold under another name."""

_Value = TypeVar("_Value")
_Spec = TypeVar("_Spec", Calibration, Device, Link, Cluster)


def _missing(key: str, file: str, expected: str) -> ClusterError:
    return ClusterError("is missing", file=file, key=key, expected=expected)


def _mapping(value: Any, key: str, file: str, expected: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ClusterError("is not a mapping", file=file, key=key, value=value, expected=expected)
    for inner in value:
        if not isinstance(inner, str):
            raise ClusterError("is not a word", file=file, key=key, value=inner, expected="a key")
    return value


def _quantity(value: Any, key: str, file: str, parse: Callable[[str], _Value]) -> _Value:
    """A number with its unit; a bare number is refused by ``parse``."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ClusterError(
            "is not a quantity", file=file, key=key, value=value, expected="a number with its unit"
        )
    try:
        return parse(str(value))
    except UnitError as error:
        raise ClusterError(
            error.problem,
            file=file,
            key=key,
            value=error.value,
            expected=error.expected,
            fix=error.fix,
        ) from error


def _count(value: Any, key: str, file: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_GPUS:
        raise ClusterError(
            "is not a count",
            file=file,
            key=key,
            value=value,
            expected=f"a whole number from 1 to {MAX_GPUS}",
        )
    return value


def _number(value: Any, key: str, file: str, *, least: float) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not least <= value < float("inf"):
        raise ClusterError(
            "is not usable", file=file, key=key, value=value, expected=f"a number >= {least:g}"
        )
    return float(value)


def _in_range(kind: type[_Spec], under: str, file: str, given: Any, **fields: Any) -> _Spec:
    """A spec of fields that were read; what its ranges refuse is an error at the key it had.

    Parameters
    ----------
    under
        Key of the mapping that was read, with a dot.
    given
        That mapping.
    """
    try:
        return kind(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = [str(part) for part in first["loc"]]
        place[:1] = [_KEY_OF_FIELD.get(place[0], place[0])]
        value = given
        for part in place:
            value = value.get(part) if isinstance(value, dict) else None
        value = first["input"] if value is None else value
        words = first["msg"].removeprefix("Input should be ")
        raise ClusterError(
            "is out of range", file=file, key=under + ".".join(place), value=value, expected=words
        ) from None


def _text(value: Any, key: str, file: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ClusterError("is not text", file=file, key=key, value=value, expected="text")
    return value


def _sources(value: Any, key: str, file: str) -> dict[str, str]:
    if value is None:
        return {}
    found = _mapping(value, key, file, "key: where the figure comes from")
    return {name: _text(entry, f"{key}.{name}", file) for name, entry in found.items()}


def parse_device(
    document: Mapping[str, Any], *, file: str, name: str | None = None, under: str = ""
) -> Device:
    """One GPU type.

    Parameters
    ----------
    document
        The mapping of a GPU (``DEVICE_KEYS``).
    file
        For error messages.
    name
        Used when the document gives none.
    under
        Prefix of the keys in error messages (``gpu.`` inside a cluster file).

    Raises
    ------
    ClusterError
        An unknown or missing key, or a value that cannot be used.
    """
    refuse_unknown_keys(document, DEVICE_KEYS, file=file, kind=ClusterError, under=under)
    for key, example in (
        ("memory", "a size, as 80GiB"),
        ("memory_bandwidth", "a bandwidth, as 2039GB/s"),
        ("peak_flops", "FLOP/s by precision, as {bf16: 312TFLOPS}"),
    ):
        if document.get(key) is None:
            raise _missing(f"{under}{key}", file, example)
    peaks: dict[Precision, float] = {}
    table = _mapping(document["peak_flops"], f"{under}peak_flops", file, "FLOP/s by precision")
    known = [entry.value for entry in Precision]
    refuse_unknown_keys(table, known, file=file, kind=ClusterError, under=f"{under}peak_flops.")
    for precision, value in table.items():
        key = f"{under}peak_flops.{precision}"
        peaks[Precision(precision)] = _quantity(value, key, file, parse_flops)
    if not peaks:
        raise _missing(f"{under}peak_flops", file, "at least one precision, as bf16: 312TFLOPS")
    memory = _quantity(document["memory"], f"{under}memory", file, parse_bytes)
    if memory < 1:
        raise ClusterError(
            "is no memory at all", file=file, key=f"{under}memory", value=document["memory"],
            expected="a size > 0",
        )  # fmt: skip
    found_name = document.get("name", name)
    return _in_range(
        Device,
        under,
        file,
        document,
        name=_text(found_name, f"{under}name", file) if found_name is not None else "gpu",
        memory_bytes=memory,
        peak_flops=peaks,
        memory_bandwidth_bytes_per_s=_quantity(
            document["memory_bandwidth"], f"{under}memory_bandwidth", file, parse_bandwidth
        ),
        calibration=_calibration(document.get("calibration"), f"{under}calibration", file),
        sources=_sources(document.get("sources"), f"{under}sources", file),
    )


def _calibration(value: Any, key: str, file: str) -> Calibration:
    if value is None:
        return Calibration()
    found = _mapping(value, key, file, "fields of a calibration")
    fields = list(Calibration.model_fields)
    refuse_unknown_keys(found, fields, file=file, kind=ClusterError, under=f"{key}.")
    try:
        return Calibration(**found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([key, *map(str, first["loc"])])
        raise ClusterError(
            f"is not usable ({first['msg']})", file=file, key=place, value=first["input"]
        ) from error


def _links(value: Any, file: str) -> tuple[Link, ...]:
    table = _mapping(value, "links", file, "tiers, each with bandwidth and latency")
    known = [tier.value for tier in _LINK_TIERS]
    refuse_unknown_keys(table, known, file=file, kind=ClusterError, under="links.")
    links = []
    for tier in _LINK_TIERS:
        if tier.value not in table:
            continue
        key = f"links.{tier.value}"
        entry = _mapping(table[tier.value], key, file, "{bandwidth: 25GB/s, latency: 5us}")
        refuse_unknown_keys(entry, _LINK_KEYS, file=file, kind=ClusterError, under=f"{key}.")
        if entry.get("bandwidth") is None:
            raise _missing(f"{key}.bandwidth", file, "per GPU and direction, as 25GB/s")
        latency_ms = _quantity(entry.get("latency", "0"), f"{key}.latency", file, parse_ms)
        links.append(
            _in_range(
                Link,
                f"{key}.",
                file,
                entry,
                tier=tier,
                bandwidth_bytes_per_s=_quantity(
                    entry["bandwidth"], f"{key}.bandwidth", file, parse_bandwidth
                ),
                latency_s=latency_ms / 1000,
                oversubscription=_number(
                    entry.get("oversubscription", 1), f"{key}.oversubscription", file, least=1
                ),
            )
        )
    if not links:
        raise _missing("links", file, "at least one of domain, node, rack, cluster")
    return tuple(links)


def parse_cluster(
    document: Mapping[str, Any],
    *,
    file: str,
    find_device: Callable[[str], Device],
    name: str | None = None,
    nodes: int | None = None,
) -> Cluster:
    """One cluster.

    Parameters
    ----------
    document
        The mapping of a cluster (``CLUSTER_KEYS``).
    file
        For error messages.
    find_device
        Looks a GPU up by its catalog name.
    name
        Used when the document gives none.
    nodes
        Overrides the document's number of nodes.

    Raises
    ------
    ClusterError
        An unknown or missing key, a GPU that is not in the catalog, a value that cannot be used,
        or figures that contradict.
    """
    for key in _SEVERAL_GROUPS:
        if key in document:
            raise ClusterError(
                "describes several groups of nodes, which is not supported for now",
                file=file,
                key=key,
                expected="one kind of node: nodes, gpus_per_node, gpu, links",
            )
    refuse_unknown_keys(document, CLUSTER_KEYS, file=file, kind=ClusterError)
    for key, example in (
        ("gpus_per_node", "a whole number, as 8"),
        ("gpu", "a catalog name, as a100-80gb, or a mapping"),
        ("links", "tiers, as cluster: {bandwidth: 25GB/s, latency: 5us}"),
    ):
        if document.get(key) is None:
            raise _missing(key, file, example)
    if nodes is None:
        if document.get("nodes") is None:
            raise _missing("nodes", file, "a whole number >= 1")
        nodes = document["nodes"]
    nodes = _count(nodes, "nodes", file)
    gpus_per_node = _count(document["gpus_per_node"], "gpus_per_node", file)
    if nodes * gpus_per_node > MAX_GPUS:
        raise ClusterError(
            f"makes {nodes * gpus_per_node} GPUs", file=file, key="nodes", value=nodes,
            expected=f"at most {MAX_GPUS} GPUs",
        )  # fmt: skip
    domain = _count(document.get("nvlink_domain", gpus_per_node), "nvlink_domain", file)
    if domain % gpus_per_node and gpus_per_node % domain:
        raise ClusterError(
            f"neither divides gpus_per_node = {gpus_per_node} nor is a multiple of it",
            file=file,
            key="nvlink_domain",
            value=domain,
            expected="a part of a node, a node, or several whole nodes",
        )
    per_rack = document.get("nodes_per_rack")
    device = _device(document["gpu"], file, find_device)
    reserved = _quantity(
        document.get("reserved_memory", "0B"), "reserved_memory", file, parse_bytes
    )
    if reserved >= device.memory_bytes:
        raise ClusterError(
            "leaves nothing of the GPU's memory",
            file=file,
            key="reserved_memory",
            value=document["reserved_memory"],
            expected=f"less than {format_bytes(device.memory_bytes)}",
        )
    price = document.get("price_per_gpu_hour")
    found_name = document.get("name", name)
    cluster = _in_range(
        Cluster,
        "",
        file,
        document,
        name=_text(found_name, "name", file) if found_name is not None else "cluster",
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        nvlink_domain=domain,
        nodes_per_rack=None if per_rack is None else _count(per_rack, "nodes_per_rack", file),
        gpu=device,
        links=_links(document["links"], file),
        reserved_bytes=reserved,
        price_per_gpu_hour=(
            None if price is None else _number(price, "price_per_gpu_hour", file, least=0)
        ),
        sources=_sources(document.get("sources"), "sources", file),
    )
    _check_reach(cluster, file)
    return cluster


def _device(value: Any, file: str, find_device: Callable[[str], Device]) -> Device:
    if isinstance(value, str):
        try:
            return find_device(value)
        except NotInCatalogError as error:
            raise ClusterError(
                error.problem,
                file=file,
                key="gpu",
                value=value,
                expected=f"{error.expected}, or a mapping of its figures",
                fix=error.fix,
            ) from error
    found = _mapping(value, "gpu", file, "a catalog name, as a100-80gb, or a mapping")
    return parse_device(found, file=file, name="gpu", under="gpu.")


def _check_reach(cluster: Cluster, file: str) -> None:
    """Every pair of GPUs needs wires: the described tiers must cover the cluster."""
    rack_gpus = (cluster.nodes_per_rack or 0) * cluster.gpus_per_node
    if cluster.num_gpus <= cluster.nvlink_domain:
        needed = Tier.DOMAIN
    elif cluster.nodes == 1:
        needed = Tier.NODE
    elif cluster.num_gpus <= rack_gpus:
        needed = Tier.RACK
    else:
        needed = Tier.CLUSTER
    try:
        cluster.link(needed)
    except KeyError:
        raise _missing(
            f"links.{needed.value}",
            file,
            f"the wires between GPUs of {cluster.nodes} nodes: bandwidth and latency",
        ) from None

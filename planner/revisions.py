"""Short hashes of what an answer is made from, so that callers can pin it."""

from __future__ import annotations

import hashlib
from functools import cache

from planner.specs import Cluster

__all__ = ["calibration_revision", "catalog_revision"]

_DIGITS = 16


def calibration_revision(cluster: Cluster) -> str:
    """Hash of what a cluster's times are computed from: its GPU, links and calibration.

    How many nodes there are, their name and their price do not enter.

    Examples
    --------
    >>> from planner.formats.catalog import load_cluster
    >>> small, large = load_cluster("dgx-h100:2"), load_cluster("dgx-h100:64")
    >>> calibration_revision(small) == calibration_revision(large)
    True
    """
    text = cluster.model_dump_json(
        include={"gpu": True, "links": True, "nvlink_domain": True, "reserved_bytes": True},
    )
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


@cache
def catalog_revision() -> str:
    """Hash of all models, clusters and GPUs that come with the planner."""
    from planner.formats.catalog import catalog_folder

    digest = hashlib.sha256()
    root = catalog_folder()
    for path in sorted(root.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(root).as_posix().encode() + b"\0")
            digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:_DIGITS]

"""What ``--cluster`` accepts: a catalog name, ``name:nodes``, or a YAML or JSON file."""

from __future__ import annotations

from pathlib import Path

from planner.errors import ClusterError, FileFormatError, NotInCatalogError
from planner.formats.catalog import load_cluster, load_device
from planner.formats.cluster_schema import parse_cluster
from planner.formats.documents import MAX_DOCUMENT_BYTES, parse_json, parse_yaml
from planner.formats.text_files import read_text
from planner.specs import Cluster

__all__ = ["parse_cluster_text", "read_cluster"]

_SUFFIXES = (".yaml", ".yml", ".json")


def parse_cluster_text(text: str, *, file: str, name: str | None = None) -> Cluster:
    """The cluster of a YAML or JSON text (JSON when ``file`` ends in .json).

    Raises
    ------
    ClusterError
        Not YAML or JSON, unknown or missing keys, or values that cannot be used.

    Examples
    --------
    >>> text = '''
    ... nodes: 2
    ... gpus_per_node: 8
    ... gpu: a100-80gb
    ... links:
    ...   domain: {bandwidth: 300GB/s, latency: 3us}
    ...   cluster: {bandwidth: 25GB/s, latency: 5us}
    ... '''
    >>> parse_cluster_text(text, file="mine.yaml").num_gpus
    16
    """
    parse = parse_json if file.endswith(".json") else parse_yaml
    document = parse(text, file=file, kind=ClusterError)
    return parse_cluster(document, file=file, name=name, find_device=load_device)


def read_cluster(source: str) -> Cluster:
    """A cluster by catalog name, ``name:nodes`` or path.

    A source that ends in .yaml, .yml or .json or holds a path separator is a path; anything
    else is looked up in the catalog.

    Raises
    ------
    ClusterError
        The file cannot be read or used, or the number of nodes is no number.
    NotInCatalogError
        The name is neither in the catalog nor a file.

    Examples
    --------
    >>> read_cluster("dgx-h100:4").num_gpus
    32
    """
    if source.endswith(_SUFFIXES) or "/" in source or "\\" in source:
        path = Path(source)
        try:
            text = read_text(path, limit=MAX_DOCUMENT_BYTES)
        except FileFormatError as error:
            raise ClusterError(error.problem, file=source, expected=error.expected) from error
        return parse_cluster_text(text, file=source, name=path.stem)
    try:
        return load_cluster(source)
    except NotInCatalogError:
        if Path(source).is_file():
            raise ClusterError(
                "is a file without a known ending", file=source, expected="a .yaml or .json file"
            ) from None
        raise

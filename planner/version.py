"""The version, from the installed distribution; a checkout that is not installed says so."""

from __future__ import annotations

from functools import cache
from importlib import metadata

__all__ = ["planner_version"]


@cache
def planner_version() -> str:
    """Version of the distribution ``stageplan``."""
    try:
        return metadata.version("stageplan")
    except metadata.PackageNotFoundError:
        return "0+unknown"

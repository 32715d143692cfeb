"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Deterministic examples and no deadline: a slow shared machine must not fail a test.
settings.register_profile("planner", deadline=None, derandomize=True)
settings.load_profile("planner")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder of published profiles and measurements that is not part of the project."""
    given = os.environ.get("STAGEPLAN_SHARED")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("no folder of published profiles (set STAGEPLAN_SHARED to have these tests)")
    return folder

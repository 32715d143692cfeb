"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from fake_planner_service import FakeService

    from planner.client import PlannerClient

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


@pytest.fixture
def fake() -> Iterator[FakeService]:
    """A planner service in this process that answers what a test tells it to."""
    from fake_planner_service import fake_service

    with fake_service() as service:
        yield service


@pytest.fixture
def client(fake: FakeService) -> Iterator[PlannerClient]:
    """A client of that service."""
    from planner.client import PlannerClient

    with PlannerClient(fake.address, timeout_s=10.0) as found:
        yield found

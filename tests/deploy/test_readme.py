"""deploy/README.md names settings, metrics, reasons and Secrets that exist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from google.protobuf import json_format

from planner.service.errors import CODES
from planner.service.identity import Identities, new_token
from planner.service.metrics import ServiceMetrics
from planner.service.settings import ServiceSettings
from planner.v1 import planner_service_pb2

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
_IDENTITY_KEYS = {"rate_per_s"}


@pytest.fixture(scope="module")
def page() -> str:
    return (DEPLOY / "README.md").read_text()


def section(page: str, title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    assert found is not None, title
    return found[1]


def rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("|") and not re.match(r"^\|[-| ]+\|$", line):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_every_metric_is_explained(page: str) -> None:
    metrics = ServiceMetrics()
    families = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in metrics.registry.collect()
        if family.name.startswith("planner_")
    } - {"planner_build"}
    explained = set(re.findall(r"^\| `(planner_\w+)", section(page, "Observing"), re.M))
    assert explained == families


def test_the_page_names_settings_and_reasons_that_exist(page: str) -> None:
    symptoms = list(rows(section(page, "Symptoms")))[1:]
    assert len(symptoms) >= 12
    named = {
        w for row in symptoms for w in re.findall(r"`([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`", row[-1])
    }
    named = {word for word in named if not word.startswith("planner_")}
    assert named
    assert named <= {*ServiceSettings.model_fields, *_IDENTITY_KEYS}
    reasons = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", page))
    codes = {code.name for code in set(CODES.values())} | {"DEADLINE_EXCEEDED"}
    other = {
        "NOT_SERVING",
        "RESOURCE_EXHAUSTED",
        "JOB_STATUS_DEADLINE",
        "NUMBA_CACHE_DIR",
        "NUMBA_CPU_NAME",
    }
    assert {r for r in reasons if not r.startswith("PLANNER_")} <= {*CODES, *codes, *other}


def test_the_page_says_which_secrets_are_needed(page: str) -> None:
    patches = [file.read_text() for file in DEPLOY.glob("kustomize/**/deployment.yaml")]
    found = re.findall(r"secretName: (\S+)|secretKeyRef:\s+name: (\S+)", "".join(patches))
    secrets = {name for pair in found for name in pair if name}
    assert secrets == {"planner-tls", "planner-store", "planner-identities"}
    assert all(f"create secret generic {secret}" in page for secret in secrets)


def test_yaml_on_the_page_can_be_read(page: str) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.M | re.S)
    assert blocks
    for block in blocks:
        assert list(yaml.safe_load_all(block))


def test_identities_on_the_page_can_be_used(page: str, tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(identities:.*?)```", page, re.S)
    (tmp_path / "identities.yaml").write_text(block)
    Identities(tmp_path / "identities.yaml", certificates=True)
    assert len(new_token()) == 2


def test_the_request_on_the_page_is_a_curve(page: str) -> None:
    (text,) = re.findall(r"-d '(\{.*?\n\})' ", page, re.S)
    request = json_format.Parse(text, planner_service_pb2.ComputeScalingCurveRequest())
    (key,) = request.question.clusters
    assert {allocation.gpu_type for allocation in request.question.allocations} == {key}


@pytest.mark.parametrize("answers", [True, False])
def test_a_job_is_submitted_with_or_without_an_answer(
    page: str, answers: bool, tmp_path: Path
) -> None:
    """The wrapper for Slurm, with stand-ins for the planner's client and for sbatch."""
    (script,) = re.findall(r"```bash\n(#!/usr/bin/env bash\n# sbatch-planned.*?)```", page, re.S)
    client = "echo --nodes=2 --gpus-per-node=8" if answers else "exit 3"
    for name, text in {"python": client, "sbatch": 'printf "<%s>" "$@"', "wrapper": script}.items():
        file = tmp_path / name
        file.write_text(text if name == "wrapper" else f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
    done = subprocess.run(
        [tmp_path / "wrapper", "llama3-8b", "dgx-h100:4", "512", "8 16", "train.sh", "--time=60"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    placed = "<--nodes=2><--gpus-per-node=8>" if answers else ""
    assert done.stdout == f"{placed}<--time=60><train.sh>"


def test_settings_and_flags_are_written_as_the_server_reads_them(page: str) -> None:
    commands = re.findall(r"(?:planner serve|stageplan:\S+) +(--.*)", page)
    flags = {flag for command in commands for flag in re.findall(r"--([a-z-]+)", command)}
    assert {"config", "insecure", "slots"} <= flags
    names = {flag.replace("-", "_") for flag in flags} - {"config", "help"}
    assert names <= set(ServiceSettings.model_fields)


def test_the_unit_waits_for_the_drain(page: str) -> None:
    (unit,) = re.findall(r"```ini\n(.*?)```", page, re.S)
    settings = ServiceSettings()
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.M)
    assert int(stop_s) > settings.drain_s + settings.soft_stop_s + 2

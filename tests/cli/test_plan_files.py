"""Plan files that no reader should have to survive: one line, exit status 2; and forged claims."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_command import Command, profile_text

from planner.errors import PlanFileError
from planner.formats.plan_file import read_plan

BROKEN: dict[str, tuple[str, str]] = {
    "lists nested deeply": ("[" * 200_000, "nested too deeply"),
    "objects nested deeply": ('{"layout": ' * 200_000, "nested too deeply"),
    "deep inside a plan": (
        '{"layout": {}, "notes": ' + "[" * 100_000 + "]" * 100_000 + "}",
        "nested too deeply",
    ),
    "thousands of digits": ('{"layout": {"dp": ' + "9" * 5000 + "}}", "number that is too long"),
    "a key twice": ('{"layout": {}, "layout": {"dp": 2}}', "key layout: is given twice"),
    "an inner key twice": ('{"layout": {"dp": 1, "dp": 2}}', "key dp: is given twice"),
}


@pytest.mark.parametrize("command", ["evaluate", "explain"])
@pytest.mark.parametrize("name", BROKEN)
def test_broken_plan_files(planner: Command, command: str, name: str) -> None:
    text, expected = BROKEN[name]
    path = planner.write("bad.json", text)
    line = planner.refuses(command, path)
    assert expected in line
    assert "bad.json" in line
    assert expected in planner.refuses(command, "-", stdin=text)
    with pytest.raises(PlanFileError, match=r"bad\.json"):
        read_plan(path)


@pytest.fixture
def made(planner: Command) -> dict[str, Any]:
    source = planner.write("good.csv", profile_text())
    assert planner("partition", source, "--stages", "2", "-o", "plan.json").status == 0
    assert planner("evaluate", "plan.json").status == 0
    document: dict[str, Any] = json.loads((planner.folder / "plan.json").read_text())
    return document


@pytest.mark.parametrize(
    ("claim", "code"),
    [
        ({"bound_covers": "space"}, "BOUND_COVERS"),
        ({"mfu": 0.9}, "PRICE"),
        ({"cluster": "dgx-h100:2"}, "PRICE"),
        ({"objective": "fewest-gpus"}, "OBJECTIVE"),
    ],
)
def test_forged_claims(
    planner: Command, made: dict[str, Any], claim: dict[str, Any], code: str
) -> None:
    made["inputs"]["model"] = str(planner.folder / "good.csv")
    forged = planner.write("forged.json", json.dumps({**made, **claim}))
    outcome = planner("evaluate", forged, "--format", "json")
    assert outcome.status == 2
    assert code in {violation["code"] for violation in outcome.json["violations"]}


@pytest.mark.parametrize(
    "flags",
    [["--seq-len", "512"], ["--precision", "fp16"], ["--seq-len", "512", "--precision", "fp16"]],
)
def test_plans_of_another_length_or_precision_are_read_back(
    planner: Command, flags: list[str]
) -> None:
    model = ["gpt2-xl", "--cluster", "dgx-a100-80gb:1"]
    made = planner(
        "partition", *model, "--stages", "2", "--microbatches", "4", *flags, "-o", "cut.json"
    )
    assert made.status == 0
    assert planner("evaluate", "cut.json").status == 0
    assert planner("simulate", "cut.json").status == 0
    made = planner("plan", *model, "--global-batch", "16", "--pp", "2", *flags, "-o", "plan.json")
    assert made.status == 0
    assert planner("evaluate", "plan.json").status == 0
    assert planner("explain", "plan.json").status == 0

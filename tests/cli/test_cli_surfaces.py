"""Catalog files, sketches, objectives and flags as a new user meets them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_command import Command, profile_text

from planner.formats import catalog
from planner.formats.cluster_file import read_cluster

PROFILES = Path(catalog.__file__).resolve().parents[2] / "profiles"
SMALL = ("plan", "gpt2-xl", "--cluster", "dgx-a100-80gb:1", "--global-batch", "32")


# --- catalog -------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", [entry.name for entry in catalog.list_clusters()])
def test_a_printed_cluster_loads_back(planner: Command, entry: str) -> None:
    shown = planner("catalog", entry)
    assert (shown.status, shown.err) == (0, "")
    assert "sources:" in shown.out
    path = planner.write("c.yaml", shown.out)
    own, read = catalog.load_cluster(entry), read_cluster(path)
    assert read == own.model_copy(update={"name": "c"})
    assert read.gpu.sources == own.gpu.sources != {}


def test_a_printed_cluster_gives_the_same_plan(planner: Command) -> None:
    planner.write("c.yaml", planner("catalog", "dgx-a100-80gb:2").out)
    tail = ("--global-batch", "32", "--format", "json")
    ours = planner("plan", "gpt2-xl", "--cluster", "c.yaml", *tail).json
    named = planner("plan", "gpt2-xl", "--cluster", "dgx-a100-80gb:2", *tail).json
    assert ours["num_gpus"] == 16
    for key in ("layout", "step_time_ms", "bound_ms", "stages"):
        assert ours[key] == named[key]


@pytest.mark.parametrize(
    ("name", "folder"),
    [("gpt3-175b", "models"), ("dgx-h100", "clusters"), ("h100-80gb", "hardware")],
)
def test_the_file_is_printed_as_it_is_shipped(planner: Command, name: str, folder: str) -> None:
    shown = planner("catalog", name)
    assert shown.out == (PROFILES / folder / f"{name}.yaml").read_text(encoding="utf-8")
    assert "source" in shown.out
    assert len(shown.out.splitlines()) < 60


def test_catalog_names_that_are_none(planner: Command) -> None:
    assert "did you mean dgx-h100" in planner.refuses("catalog", "dgx-h10")
    assert "nodes" in planner.refuses("catalog", "dgx-h100:many")
    assert "catalog" in planner.refuses("catalog", "nothing:4")


# --- sketches ------------------------------------------------------------------------------------

ON = ("--model", "good.csv", "--cluster", "dgx-a100-80gb:1", "--seq-len", "128")
STAGES = [["l0", "l1", "l2"], ["l3", "l4"], ["l5"]]


def _sketch(planner: Command, layout: object, stages: object = STAGES) -> str:
    planner.write("good.csv", profile_text())
    return planner.write("sketch.json", json.dumps({"layout": layout, "stages": stages}))


def test_a_sketch_of_layer_lists_is_priced(planner: Command) -> None:
    path = _sketch(planner, {"dp": 2, "pp": 3, "num_microbatches": 8})
    outcome = planner("evaluate", path, *ON, "--format", "json")
    assert outcome.status == 0
    plan = outcome.json["plan"]
    assert [stage["layers"] for stage in plan["stages"]] == STAGES
    assert [stage["rank"] for stage in plan["stages"]] == [0, 1, 2]
    # Layer i takes i + 1 ms forward and twice that backward.
    assert [stage["forward_ms"] for stage in plan["stages"]] == [6.0, 9.0, 6.0]
    assert plan["global_batch_size"] == 16
    # Objects without ranks and a layout without pp mean the same.
    other = _sketch(
        planner, {"dp": 2, "num_microbatches": 8}, [{"layers": layers} for layers in STAGES]
    )
    assert planner("evaluate", other, *ON, "--format", "json").json["plan"] == plan


def test_micro_batches_follow_from_the_global_batch(planner: Command) -> None:
    path = _sketch(planner, {"dp": 2})
    outcome = planner("evaluate", path, *ON, "--global-batch", "24", "--format", "json")
    assert outcome.status == 0
    assert outcome.json["plan"]["layout"]["num_microbatches"] == 12
    assert planner("explain", path, *ON, "--global-batch", "24").status == 0
    line = planner.refuses("evaluate", path, *ON, "--global-batch", "25")
    for word in ("sketch.json", "25", "dp=2", "24, 26"):
        assert word in line
    line = planner.refuses("evaluate", path, *ON)
    assert "layout.num_microbatches, or --global-batch" in line
    # What the sketch does say is not replaced.
    path = _sketch(planner, {"dp": 2, "num_microbatches": 8})
    judged = planner("evaluate", path, *ON, "--global-batch", "24")
    assert judged.status == 2
    assert "BATCH" in judged.out


@pytest.mark.parametrize(
    ("layout", "stages", "expected"),
    [
        (3, STAGES, ["key layout", "a JSON object"]),
        ({"dp": "many"}, STAGES, ["layout.dp", '"many"', "a whole number"]),
        ({"dp": 1.5}, STAGES, ["layout.dp", '"1.5"', "a whole number"]),
        ({"dp": 0}, STAGES, ["layout.dp is 0", "expected 1 to"]),
        ({"dpp": 2}, STAGES, ["layout.dpp", "not known", "did you mean"]),
        ({"schedule": "fast"}, STAGES, ["layout.schedule", '"fast"', "1f1b"]),
        ({"dp": 2}, "l0", ["key stages", '"l0"', "a list"]),
        ({"dp": 2}, ["l0", "l1"], ["stages.0", '"l0"', "a list of layer names"]),
        ({"dp": 2}, [["l0", 3]], ["stages.0.layers.1", '"3"', "text"]),
        ({"dp": 2}, [{"rank": 0}], ["stages.0.layers", "is missing"]),
        ({"dp": 2}, [{"rank": 1, "layers": ["l0"]}], ["stages.0.rank", "out of order"]),
        ({"dp": 2}, [{"layer": ["l0"]}], ["stages.0.layer"]),
    ],
)
def test_bad_sketches_are_refused_in_plain_words(
    planner: Command, layout: object, stages: object, expected: list[str]
) -> None:
    path = _sketch(planner, layout, stages)
    line = planner.refuses("evaluate", path, *ON, "--global-batch", "24")
    for word in ("sketch.json", *expected):
        assert word in line
    for word in ("Input", "valid dictionary", "instance", "Extra", "Field required", "pydantic"):
        assert word not in line


# --- objectives and flags ------------------------------------------------------------------------


def test_what_was_assumed_is_said(planner: Command) -> None:
    assumed = planner(*SMALL)
    assert re.search(
        r"training +global batch 32, sequence length 1024 \(the model's context length: no "
        r"--seq-len was given\), bf16, optimizer adam",
        assumed.out,
    )
    given = planner(*SMALL, "--seq-len", "512", "--optimizer", "sgd")
    assert re.search(r"training +global batch 32, sequence length 512, bf16, optimizer", given.out)
    assert "optimizer sgd" in given.out
    plan = planner(*SMALL, "--format", "json").json
    assert (plan["global_batch_size"], plan["sequence_length"]) == (32, 1024)
    assert (plan["precision"], plan["optimizer"]) == ("bf16", "adam")
    assert plan["sequence_length_assumed"] is True


def test_cost_is_said_in_its_own_units(planner: Command) -> None:
    flags = ("--objective", "tokens-per-dollar")
    priced = planner(*SMALL, *flags, "--price-per-gpu-hour", "2.5")
    head, table = priced.out.split("\n", 1)
    assert re.search(r"\(at most [\d,]+ tokens/\$, gap 0 %\)", head)
    assert "bound" not in head.replace("bounded", "")
    assert re.search(r"GPUs +tokens/\$\n", table)
    assert "cost a token" in table
    assert "no price" not in table
    free = planner(*SMALL, *flags)
    assert re.search(r"\(at least [\d.]+ GPU-seconds a step, gap", " ".join(free.out.split()))
    assert re.search(r"GPUs +GPU-s a step\n", free.out)
    assert "no price was given" in free.out
    plan = planner(*SMALL, *flags, "--price-per-gpu-hour", "2.5", "--format", "json").json
    worst = 0.0
    for candidate in plan["runners_up"]:
        # A runner-up never gives more tokens for a dollar, and the phrase says how much less.
        loss = plan["tokens_per_dollar"] / candidate["tokens_per_dollar"] - 1
        assert loss >= worst
        worst = loss
        assert candidate["why"].startswith(f"{100 * loss:+.2g} % cost a token")


def test_fewest_gpus_says_what_is_fewest(planner: Command) -> None:
    asked = (
        "plan", "llama3-70b", "--cluster", "dgx-a100-80gb:4", "--global-batch", "32",
        "--seq-len", "4096",
    )  # fmt: skip
    outcome = planner(*asked, "--objective", "fewest-gpus")
    found = re.search(r"no layout fits fewer than (\d+) GPUs", outcome.out)
    assert found
    count = int(found[1])
    assert f"dgx-a100-80gb:4, {count} GPUs ({32 - count} idle)" in outcome.out
    half = ("--nodes", "1", "--allow-fewer")
    assert count == 16
    assert planner(*asked, *half).status == 3


def test_no_allow_fewer_is_obeyed_or_refused(planner: Command) -> None:
    flags = ("--objective", "tokens-per-dollar", "--format", "json")
    assert planner(*SMALL, *flags).json["num_gpus"] == 1
    assert planner(*SMALL, *flags, "--no-allow-fewer").json["num_gpus"] == 8
    line = planner.refuses(*SMALL, "--objective", "fewest-gpus", "--no-allow-fewer")
    for word in ("--no-allow-fewer", "contradicts", "fewest-gpus"):
        assert word in line


def test_help_lists_what_works(planner: Command) -> None:
    text = " ".join(planner("partition", "--help").out.replace("│", " ").split())
    assert "tokens-per-dollar" not in text
    assert "fewest" not in text
    assert "40,000" in text


def test_a_csv_of_another_precision_is_warned_about(planner: Command) -> None:
    path = planner.write("good.csv", profile_text())
    quiet = planner("profile", "convert", path)
    assert (quiet.status, quiet.err) == (0, "")
    loud = planner("profile", "convert", path, "--precision", "fp32")
    assert loud.status == 0
    assert loud.out == quiet.out
    assert loud.err == (
        "warning: a profile CSV does not carry the precision: read it with --precision fp32\n"
    )

"""Bad input: one clear line on stderr, exit status 2, nothing written, no traceback."""

from __future__ import annotations

import json
import time

import pytest
from cli_command import HEADER, Command, profile_text, rows

GRAPH_HEADER = HEADER.replace("name,", "name,inputs,")
PLAN = ("--cluster", "dgx-a100-80gb:1", "--seq-len", "1024")


def _changed(old: str, new: str) -> str:
    text = profile_text()
    assert old in text
    return text.replace(old, new)


BAD_PROFILES: dict[str, tuple[str | bytes, list[str]]] = {
    "missing column": (
        profile_text(["a,1,2,3,4"], HEADER.replace(",parameter_bytes", "")),
        ["p.csv:1", "parameter_bytes", "add the column"],
    ),
    "time without a unit": (
        profile_text(header=HEADER.replace("forward_ms", "time")),
        ["p.csv:1", "column time", "no unit", "_ms"],
    ),
    "memory without a unit": (
        profile_text(header=HEADER.replace("activation_bytes", "memory")),
        ["p.csv:1", "column memory", "no unit"],
    ),
    "negative": (_changed("l2,3,", "l2,-3,"), ["p.csv:4", "forward_ms", '"-3"', "negative"]),
    "not a number": (_changed("l2,3,", "l2,NaN,"), ["p.csv:4", "forward_ms", '"NaN"']),
    "infinite": (_changed("l2,3,", "l2,inf,"), ["p.csv:4", "forward_ms", '"inf"']),
    "a word": (_changed("l2,3,", "l2,fast,"), ["p.csv:4", "forward_ms", '"fast"']),
    "an empty cell": (_changed("l2,3,", "l2,,"), ["p.csv:4", "forward_ms", "empty"]),
    "too few cells": (_changed("l2,3,6,1000,2000,100", "l2,3,6"), ["p.csv:4"]),
    "duplicate names": (_changed("l2,", "l1,"), ["p.csv:4", '"l1"', "line 3"]),
    "unknown input": (
        profile_text(["a,,1,2,3,4,5", "b,aa,1,2,3,4,5"], GRAPH_HEADER),
        ["p.csv:3", "inputs", '"aa"', "did you mean a?"],
    ),
    "a cycle": (
        profile_text(["a,b,1,2,3,4,5", "b,a,1,2,3,4,5"], GRAPH_HEADER),
        ["p.csv:2", "cycle", "a -> b -> a"],
    ),
    "reads itself": (
        profile_text(["a,,1,2,3,4,5", "b,b,1,2,3,4,5"], GRAPH_HEADER),
        ["p.csv:3", '"b"', "itself"],
    ),
    "empty": ("", ["p.csv", "empty"]),
    "header only": (HEADER + "\n", ["p.csv", "no rows"]),
    "binary": (bytes(range(256)) * 10, ["p.csv", "NUL"]),
    "Latin-1": (
        profile_text().replace("l2", "l\xe9").encode("latin-1"),
        ["p.csv:4", "not UTF-8"],
    ),
    "UTF-16": (profile_text().encode("utf-16"), ["p.csv", "UTF-16"]),
    "pinned out of order": (
        profile_text(["a,1,2,3,4,5,1", "b,1,2,3,4,5,0"], HEADER + ",pin_stage"),
        ["p.csv", "pin_stage", "layer a", "stage 1"],
    ),
    "pinned beyond": (
        profile_text(["a,1,2,3,4,5,7", "b,1,2,3,4,5,"], HEADER + ",pin_stage"),
        ["p.csv", "pin_stage", "stage 7", "-2 .. 1"],
    ),
    "together and apart": (
        profile_text(["a,1,2,3,4,5,b,0", "b,1,2,3,4,5,,1"], HEADER + ",with,pin_stage"),
        ["p.csv", "layer b", "stage 1"],
    ),
    "together and too many stages": (
        profile_text(["a,1,2,3,4,5,b", "b,1,2,3,4,5,"], HEADER + ",with"),
        ["p.csv column with", "colocations", "use at most 1"],
    ),
}


@pytest.mark.parametrize("case", BAD_PROFILES)
def test_bad_profile(planner: Command, case: str) -> None:
    text, expected = BAD_PROFILES[case]
    path = planner.write("p.csv", text)
    arguments = ("--stages", "2", "--microbatches", "4", "-o", "plan.json")
    line = planner.refuses("partition", path, *arguments)
    for word in expected:
        assert word in line


@pytest.mark.parametrize("case", ["negative", "header only", "binary", "a cycle"])
def test_bad_profile_in_every_command_that_reads_one(planner: Command, case: str) -> None:
    path = planner.write("p.csv", BAD_PROFILES[case][0])
    for arguments in (
        ("plan", path, *PLAN, "--global-batch", "8", "-o", "plan.json"),
        ("profile", "check", path),
        ("profile", "convert", path, "-o", "out.csv"),
        ("profile", "from-config", path, "--cluster", "dgx-h100:1", "-o", "out.csv"),
    ):
        assert "p.csv" in planner.refuses(*arguments)


def test_a_million_rows_are_refused_by_size_at_once(planner: Command) -> None:
    path = planner.write("big.csv", HEADER + "\n" + "layer,1,2,1000,2000,100\n" * 10**6)
    start = time.perf_counter()
    line = planner.refuses("partition", path, "--stages", "2")
    assert time.perf_counter() - start < 2.0
    assert "1,000,000 rows" in line
    assert "at most" in line


BAD_CONFIGS: dict[str, tuple[str, list[str]]] = {
    "no model": ('{"learning_rate": 0.1}', ["config.json", "model_type"]),
    "unknown architecture": (
        '{"model_type": "weird", "architectures": ["WeirdForCausalLM"]}',
        ["config.json", '"weird"', "does not know"],
    ),
    "truncated": ('{"model_type": "ll', ["config.json:1", "not JSON"]),
    "a list": ("[1, 2]", ["config.json", "list"]),
    "a number missing": ('{"model_type": "llama", "hidden_size": 64}', ["config.json"]),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_bad_config(planner: Command, case: str) -> None:
    text, expected = BAD_CONFIGS[case]
    path = planner.write("config.json", text)
    for arguments in (
        ("plan", path, *PLAN, "--global-batch", "8"),
        ("partition", path, "--stages", "2", "--cluster", "dgx-h100:1"),
    ):
        line = planner.refuses(*arguments)
        for word in expected:
            assert word in line


def test_sources_that_are_no_model(planner: Command) -> None:
    planner.write("good.csv", profile_text())
    tail = ("--stages", "2")
    assert "no such file" in planner.refuses("partition", "x/y.csv", *tail)
    assert "did you mean good.csv?" in planner.refuses("partition", "god.csv", *tail)
    assert "folder" in planner.refuses("partition", str(planner.folder), *tail)
    assert "no model is given" in planner.refuses("partition", "", *tail)
    line = planner.refuses("partition", "gpt3-175", *tail)
    assert "did you mean gpt3-175b" in line
    assert "<stdin>" in planner.refuses("partition", "-", *tail, stdin="")
    assert "<stdin>:4" in planner.refuses(
        "partition", "-", *tail, stdin=_changed("l2,3,", "l2,-3,")
    )


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--flag"], ["--flag", "planner partition --help"]),
        (["--stage", "3"], ["--stage"]),
        (["--stages", "9"], ["9 stages", "6 layers", "at most 6"]),
        (["--stages", "0"], ["--stages", '"0"']),
        (["--stages", "two"], ["--stages", '"two"']),
        (["--stages=-1"], ["--stages", '"-1"']),
        (["--microbatches", "0"], ["--microbatches", '"0"']),
        (["--objective", "speed"], ["--objective", "speed", "step-time"]),
        (["--objective", "fewest-gpus"], ["fewest-gpus", "'bottleneck', 'step-time'"]),
        (["--schedule", "1f2b"], ["1f2b", "did you mean 1f1b"]),
        (["--schedule", "zb-v", "--vpp", "3"], ["ZB-V has 2 chunks a rank, not V=3"]),
        (["--schedule", "dualpipe", "--stages", "3"], ["even number of stages", "P=3"]),
        (["--recompute", "sometimes"], ["sometimes", "selective"]),
        (["--memory", "80"], ['"80"', "no unit", "80GiB"]),
        (["--memory", "80 gigs"], ["80 gigs", "unknown unit"]),
        (["--memory", "0GiB"], ["0GiB", "1B to 1024TiB"]),
        (["--memory", "-80GiB"], ["-80GiB", "negative"]),
        (["--bandwidth", "25"], ['"25"', "no unit", "25GB/s"]),
        (["--bandwidth", "25GB"], ['"25GB"', "25GB/s"]),
        (["--bandwidth", "0GB/s"], ["0GB/s", "zero"]),
        (["--latency", "5"], ['"5"', "no unit", "us"]),
        (["--latency", "-5us"], ["-5us", "negative"]),
        (["--memory", "1e30GiB"], ["1e30GiB"]),
        (["--bandwidth", "1e400GB/s"], ["1e400GB/s", "finite"]),
        (["--latency", "1e400s"], ["1e400s", "finite"]),
        (["--time-limit", "1e400s"], ["1e400s"]),
        (["--microbatches", "9" * 30], ["--microbatches", "9" * 30]),
        (["--microbatch-size", "9" * 30], ["--microbatch-size"]),
        (["--time-limit", "5"], ['"5"', "no unit"]),
        (["--time-limit", "0s"], ["0s", "> 0"]),
        (["--work-limit", "0"], ["--work-limit", '"0"']),
        (["--format", "xml"], ["--format", "xml", "json"]),
        (["--precision", "int3"], ["--precision", "int3", "bf16"]),
        (["--tp", "8"], ["good.csv", "tp", '"8"']),
        (["--cluster", "dgx-a100:1"], ["dgx-a100", "did you mean", "dgx-a100-80gb"]),
        (["-o", "missing/plan.json"], ["missing/plan.json", "does not exist"]),
        (["-o", "."], ["folder"]),
    ],
)
def test_bad_flags_of_partition(planner: Command, flags: list[str], expected: list[str]) -> None:
    path = planner.write("good.csv", profile_text())
    line = planner.refuses("partition", path, "--stages", "2", "-o", "plan.json", *flags)
    for word in expected:
        assert word in line


def test_usage(planner: Command) -> None:
    path = planner.write("good.csv", profile_text())
    assert "--stages" in planner.refuses("partition", path)
    assert "nonsense" in planner.refuses("nonsense")
    assert "--cluster" in planner.refuses("plan", "gpt2")
    assert "surplus" in planner.refuses("partition", path, "surplus", "--stages", "2")
    assert "--cluster" in planner.refuses("partition", "gpt2", "--stages", "2")
    assert "nonsense" in planner.refuses("schema", "nonsense")
    assert "did you mean gpt3-175b" in planner.refuses("catalog", "gpt3-175")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--tp", "8"], ["tp=8", "25 attention heads", "1, 5"]),
        (["--tp", "16"], ["tp=16", "nvlink domain", "--allow-cross-domain"]),
        (["--pp", "64"], ["pp=64", "50 blocks", "pp <= 50"]),
        (["--dp", "3"], ["dp=3", "8", "1, 2, 4, 8"]),
        (["--dp", "0"], ["--dp", '"0"']),
        (["--global-batch", "30", "--dp", "8"], ["30", "dp=8", "24, 32"]),
        (
            ["--global-batch", "30", "--dp", "4", "--microbatch-size", "4"],
            ["30", "dp=4 x microbatch_size=4", "16, 32"],
        ),
        (["--global-batch", "7", "--microbatch-size", "4"], ["7", "4, 8"]),
        (["--global-batch", "9" * 30], ["--global-batch", "1000000000"]),
        (["--global-batch", "0"], ["--global-batch", '"0"']),
        (["--precision", "fp8"], ["fp8", "bf16"]),
        (["--schedule", "dualpip"], ["dualpip", "did you mean dualpipe"]),
        (["--vpp", "2"], ["2 chunks on a rank", "--schedule interleaved"]),
        (["--price-per-gpu-hour", "0"], ["price", "> 0"]),
        (["--price-per-gpu-hour", "nan"], ["price", "> 0"]),
        (["--cluster", "dgx-a100-80gb:0"], ["dgx-a100-80gb:0", "nodes"]),
        (["--cluster", "dgx-a100-80gb:many"], ["dgx-a100-80gb:many", "nodes"]),
        (["--cluster", "absent.yaml"], ["absent.yaml"]),
        (["--nodes", "0"], ["--nodes", '"0"']),
        (["--workers", "0"], ["--workers", '"0"']),
        (["-o", "missing/plan.json"], ["missing/plan.json"]),
    ],
)
def test_bad_flags_of_plan(planner: Command, flags: list[str], expected: list[str]) -> None:
    line = planner.refuses(
        "plan", "gpt2-xl", *PLAN, "--global-batch", "32", "-o", "plan.json", *flags
    )
    for word in expected:
        assert word in line


@pytest.mark.parametrize("command", ["evaluate", "explain"])
def test_files_that_are_no_plan(planner: Command, command: str) -> None:
    planner.write("good.csv", profile_text())
    for name, text, expected in (
        ("object.json", '{"a": 1}', "is no plan"),
        ("list.json", "[1]", "is no plan"),
        ("truncated.json", '{"layout": {"dp"', "not JSON"),
        ("empty.json", "", "not JSON"),
        ("binary.json", bytes(range(256)), "NUL"),
        ("field.json", '{"layout": {"dp": "many"}}', "layout.dp"),
        ("unknown.json", '{"layout": {"dq": 2}}', "layout.dq"),
        ("bare.json", '{"layout": {"dp": 2}}', "--model"),
    ):
        path = planner.write(name, text)
        line = planner.refuses(command, path)
        assert expected in line
        assert name in line
    assert "no such file" in planner.refuses(command, "absent.json")
    assert "folder" in planner.refuses(command, str(planner.folder))
    assert "not JSON" in planner.refuses(command, "good.csv")
    assert "<stdin>" in planner.refuses(command, "-", stdin="")


@pytest.mark.parametrize("command", ["evaluate", "explain"])
def test_plans_whose_question_is_broken_or_gone(planner: Command, command: str) -> None:
    source = planner.write("good.csv", profile_text())
    assert planner("partition", source, "--stages", "2", "-o", "plan.json").status == 0
    plan = json.loads((planner.folder / "plan.json").read_text())

    def damaged(**inputs: str) -> str:
        return planner.write("t.json", json.dumps({**plan, "inputs": plan["inputs"] | inputs}))

    for setup in ("{", '{"num_stages": "x"}', "[]"):
        assert "t.json" in planner.refuses(command, damaged(setup=setup))
    assert "--model" in planner.refuses(command, damaged(model="elsewhere/good.csv"))
    assert "--model" in planner.refuses(command, damaged(model="-"))
    planner.write("good.csv", profile_text(rows(7)))
    assert "has changed" in planner.refuses(command, "plan.json")
    (planner.folder / "good.csv").unlink()
    assert "--model" in planner.refuses(command, "plan.json")


def test_what_is_accepted(planner: Command) -> None:
    for name, text in (
        ("bom.csv", "\ufeff" + profile_text()),
        ("crlf.csv", profile_text().replace("\n", "\r\n")),
    ):
        path = planner.write(name, text)
        outcome = planner("partition", path, "--stages", "2", "--format", "json")
        assert outcome.status == 0
        assert outcome.json["bottleneck_ms"] == 33.0
    path = planner.write("extra.csv", profile_text((r + ",x" for r in rows()), HEADER + ",colour"))
    outcome = planner("partition", path, "--stages", "2")
    assert outcome.status == 0
    assert "warning:" in outcome.err
    assert "colour" in outcome.err


def test_a_setting_that_is_none_names_the_nearest(planner: Command) -> None:
    """Of the settings of the server, not of what a plan has."""
    for text, words in (
        ("prot: 1", "prot: is not known here; did you mean port"),
        ("zzz: 1", "zzz"),
    ):
        line = planner.refuses("serve", "--config", planner.write("bad.yaml", text))
        assert f"setting {words}" in line
        assert "pareto" not in line

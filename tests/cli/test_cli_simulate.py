"""``planner simulate``: what it prints, writes and refuses."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_command import Command, profile_text

from planner.cli import output

SHAPE = ("--stages", "4", "--microbatches", "8")
ONE = ("--schedule", "1f1b", *SHAPE)
GPIPE = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"


# --- what is printed -----------------------------------------------------------------------------


def test_figures_rows_timeline_and_path(planner: Command) -> None:
    shown = planner("simulate", *ONE)
    assert (shown.status, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0] == "1F1B, P=4, M=8: makespan 33.00 ms"
    assert re.search(r"bubble +27\.3 % of the makespan, 37\.5 % of ideal", shown.out)
    assert re.search(
        r"span +33\.00 ms from first to last operation of a rank, at most; 27\.3 % idle", shown.out
    )
    assert "most on rank 0 (freed at B)" in shown.out
    # Busy time, idle share, in flight and activations of each rank.
    for rank, count in enumerate((4, 3, 2, 1)):
        assert re.search(rf"\n +{rank} +24\.00 +27\.3 % +{count} +{count}\n", shown.out)
    assert re.search(r"\nr0 F0", shown.out)
    assert "critical path (22 operations): 0F0 1F0 2F0 3F0 3B0" in shown.out
    # Said once, not by the timeline again.
    assert shown.out.count("of ideal") == 1


def test_json_has_what_programs_read(planner: Command) -> None:
    told = planner("simulate", *ONE, "--format", "json").json
    assert told["makespan_ms"] == told["span_ms"] == told["step_time_ms"] == 33.0
    assert told["ranks"][0][:5] == ["0F0", "0F1", "0F2", "0F3", "0B0"]
    for key in (
        "schedule", "stages", "microbatches", "chunks", "group_size", "bubble_fraction",
        "bubble_of_ideal", "span_bubble", "idle_ms", "in_flight", "release_rule",
        "in_flight_until_i", "in_flight_until_w", "weight_versions", "staleness",
        "peak_activation", "activation_limit", "critical_path", "fits", "over_limit",
    ):  # fmt: skip
        assert key in told
    timed = planner("simulate", *ONE, "--format", "json", "--operations").json
    assert timed["operations"][0] == {
        "rank": 0, "operation": "0F0", "start_ms": 0.0, "end_ms": 1.0, "held_activations": 1.0,
    }  # fmt: skip
    assert len(timed["operations"]) == 64


def test_times_of_every_kind(planner: Command) -> None:
    told = planner(
        "simulate", "--schedule", "zb-h1", *SHAPE, "--forward-ms", "1,1.5,1,2", "--backward-ms",
        "1.5,3,2,4", "--wgrad-ms", "1.5,1,1,2", "--comm-ms", "0.1,0.2,0.1", "--reduction-ms", "3",
        "--optimizer-ms", "0,0,0,1", "--sends", "blocking", "--freed-at-i", "0.5",
        "--activation-limit", "4", "--format", "json",
    ).json  # fmt: skip
    assert told["times_ms"]["wgrad"] == [1.5, 1.0, 1.0, 2.0]
    assert told["times_ms"]["comm_backward"] == [0.1, 0.2, 0.1]
    assert told["sends"] == "blocking"
    assert told["freed_at_i"] == 0.5
    assert told["step_time_ms"] > told["makespan_ms"] + 1.0
    shown = planner("simulate", *ONE, "--reduction-ms", "3", "--optimizer-ms", "2")
    assert re.search(r"step time +38\.00 ms with gradient reduction, optimizer", shown.out)


def test_asynchronous_schedules_say_their_versions(planner: Command) -> None:
    shown = planner("simulate", "--schedule", "pipedream", *SHAPE)
    assert re.search(r"weights +1 to 4 versions a rank; gradients up to 3 updates old", shown.out)
    assert "weight versions" in shown.out
    assert "never drains" in shown.out


def test_a_limit_that_is_exceeded_is_an_answer(planner: Command) -> None:
    shown = planner("simulate", *ONE, "--activation-limit", "3")
    assert (shown.status, shown.err) == (3, "")
    assert (
        "does not fit: rank 0 over the limit; rank 0 holds the activations of 4 micro-batches, "
        "of 3 allowed" in shown.out
    )
    told = planner("simulate", *ONE, "--activation-limit", "3,3,3,0.5", "--format", "json")
    assert told.status == 3
    assert (told.json["fits"], told.json["over_limit"]) == (False, [0, 3])
    assert planner("simulate", *ONE, "--activation-limit", "4").status == 0


def test_slots_and_width(planner: Command) -> None:
    by_slot = planner("simulate", *ONE, "--slots", "--width", "60").out
    assert "one cell a slot" in by_slot
    rows = [line for line in by_slot.splitlines() if re.match(r"r\d ", line)]
    assert rows
    assert max(map(len, rows)) <= 60
    assert "timeline of 80 ranks is not drawn here" in " ".join(
        planner("simulate", "--schedule", "gpipe", "--stages", "80", "--microbatches", "2")
        .out.split()
    )  # fmt: skip


def test_help_groups_the_options(planner: Command) -> None:
    text = " ".join(planner("simulate", "--help").out.replace("│", " ").split())
    for word in ("Times", "Pictures and files", "--compare", "--order", "--freed-at-i"):
        assert word in text


# --- comparison ----------------------------------------------------------------------------------


def test_comparison(planner: Command) -> None:
    names = ("--compare", "gpipe,1f1b,zb-h1")
    shown = planner("simulate", *names, *SHAPE, "--svg", "all.svg")
    assert (shown.status, shown.err) == (0, "")
    assert shown.out.startswith("3 schedules, P=4, M=8\n")
    # (M + P - 1) 3 = 33, and ZB-H1 (P-1)(F + I - W) = 3 over the work of 24.
    assert re.search(r"\n +gpipe +33\.00 +\+22\.2 % +27\.3 %", shown.out)
    assert re.search(r"\n +zb-h1 +27\.00 +0 % +11\.1 %", shown.out)
    for title in ("GPipe, P=4, M=8", "1F1B, P=4, M=8", "ZB-H1, P=4, M=8"):
        assert title in shown.out
        assert title in (planner.folder / "all.svg").read_text()
    told = planner("simulate", *names, *SHAPE, "--format", "json").json
    assert [entry["schedule"] for entry in told["comparison"]] == ["gpipe", "1f1b", "zb-h1"]
    assert [entry["makespan_ms"] for entry in told["comparison"]] == [33.0, 33.0, 27.0]
    alone = planner("simulate", *ONE, "--format", "json").json
    assert told["comparison"][1] == alone
    over = planner("simulate", *names, *SHAPE, "--activation-limit", "4")
    assert over.status == 3
    assert "gpipe: does not fit" in over.out


def test_comparison_of_chunks_says_how_times_are_shared(planner: Command) -> None:
    told = planner(
        "simulate", "--compare", "1f1b,interleaved", "--chunks", "2", *SHAPE, "--format", "json"
    ).json
    assert [entry["makespan_ms"] for entry in told["comparison"]] == [33.0, 28.5]
    assert "1/V" in told["notes"][0]


# --- files ---------------------------------------------------------------------------------------


def test_pictures_traces_and_orders_are_written(planner: Command) -> None:
    shown = planner(
        "simulate", "--schedule", "interleaved", "--chunks", "2", *SHAPE, "--comm-ms", "0.2",
        "--svg", "a.svg", "--trace", "a.json", "--csv", "a.csv", "-o", "answer.json",
    )  # fmt: skip
    assert (shown.status, shown.err) == (0, "")
    assert "interleaved 1F1B, P=4, M=8, V=2: makespan" in shown.out
    assert ElementTree.parse(planner.folder / "a.svg").getroot().tag.endswith("svg")
    assert json.loads((planner.folder / "a.json").read_text())["traceEvents"]
    answer = json.loads((planner.folder / "answer.json").read_text())
    rows = list(csv.reader(io.StringIO((planner.folder / "a.csv").read_bytes().decode())))
    assert rows == answer["ranks"]
    # Both are orders, and give the same answer again.
    for name in ("a.csv", "answer.json"):
        again = planner("simulate", "--order", name, "--comm-ms", "0.2", "--format", "json").json
        assert again["makespan_ms"] == answer["makespan_ms"]
        assert (again["ranks"], again["chunks"]) == (answer["ranks"], 2)


def test_one_file_may_be_standard_output(planner: Command) -> None:
    text = planner("simulate", *ONE, "--csv", "-").out
    assert text.splitlines()[3].startswith("3F0,3B0,3F1,3B1")
    assert planner("simulate", *ONE, "--svg", "-").out.lstrip().startswith("<")
    assert planner("simulate", *ONE, "-o", "-").json["makespan_ms"] == 33.0
    assert planner("simulate", "--order", "-", "-o", "-", stdin=text).json["makespan_ms"] == 33.0
    line = planner.refuses("simulate", *ONE, "--csv", "-", "--svg", "-")
    assert "two things" in line


@pytest.mark.parametrize("flag", ["--svg", "--trace", "--csv", "-o"])
def test_files_that_cannot_be_written(planner: Command, flag: str) -> None:
    line = planner.refuses("simulate", *ONE, flag, "missing/file")
    assert "missing/file: cannot be written: its folder does not exist" in line
    assert "is a folder" in planner.refuses("simulate", *ONE, flag, ".")
    planner.write("in.csv", GPIPE)
    line = planner.refuses("simulate", "--order", "in.csv", flag, "./in.csv")
    assert "is an input as well" in line
    other = "--csv" if flag != "--csv" else "--svg"
    assert "two things" in planner.refuses("simulate", *ONE, flag, "one", other, "./one")


def test_a_full_device_is_one_clear_line(planner: Command) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    line = planner.refuses("simulate", *ONE, "--csv", "/dev/full")
    assert "/dev/full: cannot be written: No space left" in line


def test_nothing_is_left_of_a_write_that_fails(
    planner: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(source: str, target: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(output.os, "replace", broken)
    assert "Input/output error" in planner.refuses("simulate", *ONE, "--svg", "a.svg")


# --- plans ---------------------------------------------------------------------------------------


def test_a_plan_is_drawn_with_its_memory(planner: Command) -> None:
    planner.write("good.csv", profile_text())
    made = planner(
        "partition", "good.csv", "--stages", "3", "--microbatches", "8", "--bandwidth", "1MB/s",
        "--memory", "1MiB", "-o", "plan.json", "--format", "json",
    ).json  # fmt: skip
    told = planner("simulate", "plan.json", "--format", "json")
    assert (told.status, told.err) == (0, "")
    assert told.json["makespan_ms"] == made["step_time_ms"]
    assert told.json["memory_bytes"] == [stage["memory_bytes"] for stage in made["stages"]]
    shown = planner("simulate", "plan.json", "--svg", "plan.svg")
    assert shown.out.startswith("good, 1F1B, P=3, M=8: makespan")
    assert "budget (MiB)" in shown.out
    assert ElementTree.parse(planner.folder / "plan.svg")
    text = (planner.folder / "plan.json").read_text()
    assert planner("simulate", "-", "--format", "json", stdin=text).json == told.json


def test_a_sketch_is_priced(planner: Command) -> None:
    planner.write("good.csv", profile_text())
    sketch = {"layout": {"pp": 2, "num_microbatches": 4, "schedule": "gpipe"},
              "stages": [["l0", "l1", "l2"], ["l3", "l4", "l5"]]}  # fmt: skip
    planner.write("sketch.json", json.dumps(sketch))
    asked = ("--model", "good.csv", "--cluster", "dgx-a100-80gb:1", "--seq-len", "128")
    told = planner("simulate", "sketch.json", *asked, "--format", "json").json
    assert told["times_ms"]["forward"] == [6.0, 15.0]
    assert told["schedule"] == "gpipe"
    assert "names no model" in planner.refuses("simulate", "sketch.json")


def test_plans_that_have_nothing_to_show(planner: Command) -> None:
    planner.write("good.csv", profile_text())
    made = planner(
        "partition", "good.csv", "--stages", "2", "--memory", "100B", "-o", "plan.json",
    )  # fmt: skip
    assert made.status == 3
    shown = planner("simulate", "plan.json")
    assert shown.status == 3
    assert "infeasible" in shown.out
    planner.write("bad.json", "{")
    assert "bad.json:1: is not JSON" in planner.refuses("simulate", "bad.json")
    assert "no such file" in planner.refuses("simulate", "nothing.json")
    planner.write("gone.json", json.dumps({"layout": {"pp": 2}, "inputs": {"model": "gone.csv"}}))
    assert "give it with --model" in planner.refuses("simulate", "gone.json")


# --- what is refused -----------------------------------------------------------------------------

REFUSED: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "nothing": ((), ["nothing to simulate", "--schedule NAME", "--order FILE"]),
    "a schedule as a plan": (("1f1b", *SHAPE), ["not a plan file", "use --schedule 1f1b"]),
    "a slip": (("--schedule", "zb-h3", *SHAPE), ['"zb-h3" is no schedule', "did you mean zb-h"]),
    "auto": (("--schedule", "auto", *SHAPE), ["a choice among schedules"]),
    "odd P": (
        ("--schedule", "dualpipe", "--stages", "3", "--microbatches", "8"),
        ["P=3", "--stages 2 or 4"],
    ),
    "M too small": (
        ("--schedule", "dualpipe-v", "--stages", "4", "--microbatches", "7"),
        ["M >= 2P = 8", "M=7"],
    ),
    "V": ((*ONE, "--chunks", "2"), ["one chunk a rank, not V=2"]),
    "a group that does not divide": (
        ("--schedule", "interleaved", "--stages", "4", "--microbatches", "9", "--chunks", "2",
         "--group-size", "8"),
        ["last group of 1", "G=8", "group size of 9"],
    ),
    "P=0": (("--schedule", "1f1b", "--stages", "0", "--microbatches", "8"), ["--stages", '"0"']),
    "M=0": (("--schedule", "1f1b", "--stages", "4", "--microbatches", "0"), ["--microbatches"]),
    "no M": (("--schedule", "1f1b", "--stages", "4"), ["--microbatches: is not given"]),
    "absurd P": (
        ("--schedule", "1f1b", "--stages", "99999", "--microbatches", "8"),
        ["--stages", "at most 4,096"],
    ),
    "absurd M": (
        ("--schedule", "1f1b", "--stages", "4", "--microbatches", "1000000"),
        ["--microbatches", "at most 100,000"],
    ),
    "absurd both": (
        ("--schedule", "1f1b", "--stages", "4096", "--microbatches", "4096"),
        ["33,554,432 operations", "at most 4,000,000"],
    ),
    "negative": ((*ONE, "--forward-ms", "1,1,-1,1"), ["--forward-ms entry 2", '"-1"', "negative"]),
    "negative for all": ((*ONE, "--comm-ms", "-1"), ["--comm-ms:", "negative"]),
    "no number": ((*ONE, "--backward-ms", "1,fast,1,1"), ["--backward-ms entry 1", '"fast"']),
    "an empty entry": ((*ONE, "--wgrad-ms", "1,,1,1"), ["--wgrad-ms entry 1", '""']),
    "nan": ((*ONE, "--forward-ms", "nan"), ["--forward-ms", "not finite"]),
    "a wrong length": ((*ONE, "--forward-ms", "1,2"), ["2 values", "1 or 4, one a stage"]),
    "edges": ((*ONE, "--comm-ms", "1,2"), ["--comm-ms", "2 values", "1 or 3, one an edge"]),
    "chunk times": (
        ("--schedule", "zb-v", *SHAPE, "--forward-ms", "1,2,3,4"),
        ["4 values", "1 or 8, one a chunk"],
    ),
    "W above B": ((*ONE, "--wgrad-ms", "2.5"), ["--wgrad-ms", "2.5", "backward of stage 0, 2 ms"]),
    "a pair list": ((*ONE, "--pair-ms", "1,2"), ["--pair-ms", "no number"]),
    "no limit": ((*ONE, "--activation-limit", "0"), ["--activation-limit", "> 0"]),
    "no share": ((*ONE, "--freed-at-i", "1.5"), ["--freed-at-i", '"1.5"', "0 to 1"]),
    "sends": ((*ONE, "--sends", "fast"), ["--sends", "fast"]),
    "two sources": ((*ONE, "--compare", "gpipe"), ["--compare: contradicts --schedule"]),
    "a model for no plan": ((*ONE, "--model", "gpt2"), ["--model", "none is given"]),
    "a trace of several": (
        ("--compare", "gpipe,1f1b", *SHAPE, "--trace", "a.json"), ["--trace", "--compare"],
    ),
    "compared twice": (("--compare", "gpipe,gpipe", *SHAPE), ["compared with itself"]),
    "an empty name": (("--compare", "gpipe,", *SHAPE), ['"" is no schedule']),
    "an order with a shape": (("--order", "good.csv", "--stages", "2"), ["--stages", "an order"]),
    "a plan with times": (("plan.json", "--forward-ms", "1"), ["--forward-ms", "by a plan"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(planner: Command, case: str) -> None:
    arguments, expected = REFUSED[case]
    line = planner.refuses("simulate", *arguments)
    for word in expected:
        assert word in line


BAD_ORDERS: dict[str, tuple[str | bytes, list[str]]] = {
    "missing": (GPIPE.replace(",1B1", ""), ["bad.csv", "lacks 1B1"]),
    "doubled": (GPIPE.replace("1B1", "1B1,1F0"), ["bad.csv:2 column 5", '"1F0" runs twice']),
    "circular": (
        "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
        ["bad.csv", "deadlocks", "rank 0 waits at 0B0 for 1B0", "rank 1 waits at 1F1 for 0F1"],
    ),
    "early": (GPIPE.replace("0F0,0F1,0B0", "0B0,0F0,0F1"), ["bad.csv:1 column 1", "before 0F0"]),
    "a bad cell": (GPIPE.replace("1F1", "1Q1"), ["bad.csv:2 column 2", '"1Q1"']),
    "empty": ("", ["bad.csv", "is empty"]),
    "binary": (bytes(range(256)), ["bad.csv:1", "NUL"]),
    "Latin-1": (b"0F0,\xff\n", ["bad.csv:1", "not UTF-8"]),
    "a profile": (profile_text(), ["bad.csv:1 column 1", '"name"', "no header"]),
    "a plan": ('{"layout": {"pp": 2}}', ["bad.csv", "without --order"]),
}


@pytest.mark.parametrize("case", BAD_ORDERS)
def test_orders_that_cannot_run(planner: Command, case: str) -> None:
    text, expected = BAD_ORDERS[case]
    path = planner.write("bad.csv", text)
    for word in expected:
        assert word in planner.refuses("simulate", "--order", path, "-o", "answer.json")


def test_an_unreadable_order(planner: Command) -> None:
    assert "no such file" in planner.refuses("simulate", "--order", "nothing.csv")
    assert "is a folder" in planner.refuses("simulate", "--order", str(planner.folder))
    assert "<stdin>: is empty" in planner.refuses("simulate", "--order", "-", stdin="")


# --- torch's files -------------------------------------------------------------------------------


def test_torchs_own_files(planner: Command, shared_dir: Path) -> None:
    folder = shared_dir / "data" / "schedules"
    lowered = folder / "torch_csv_DualPipeV_P4_M10_V2_compute_comms.csv"
    shown = planner("simulate", "--order", str(lowered), "--csv", "back.csv")
    assert shown.status == 0
    assert "communication and sharding actions were left out" in " ".join(shown.out.split())
    assert "order of torch_csv_DualPipeV" in shown.out
    plain = Path(str(lowered).replace("compute_comms", "compute_only")).read_text()
    assert (planner.folder / "back.csv").read_text() == plain

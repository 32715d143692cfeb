"""Answers, exit statuses, JSON and round trips of the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_command import HEADER, Command, Outcome, profile_text, rows

from planner.plans import Plan
from planner.version import planner_version

KEYS = [
    "status", "objective", "time_model", "bottleneck_ms", "step_time_ms", "bound_ms", "gap",
    "bound_covers", "layout", "stages", "bubble_fraction", "tokens_per_s", "mfu", "infeasible",
]  # fmt: skip
LAYOUT_KEYS = [
    "dp", "pp", "tp", "cp", "ep", "vpp", "microbatch_size", "num_microbatches", "schedule",
    "recompute",
]  # fmt: skip
STAGE_KEYS = [
    "rank", "layers", "chunks", "recompute", "forward_ms", "backward_ms", "input_gradient_ms",
    "weight_gradient_ms", "communication_ms", "in_flight", "memory_bytes", "memory", "verdict",
]  # fmt: skip
SMALL = ("plan", "gpt2-xl", "--cluster", "dgx-a100-80gb:1", "--global-batch", "32")


def _partition(planner: Command, *flags: str) -> Outcome:
    path = planner.write("good.csv", profile_text())
    return planner("partition", path, "--stages", "2", "--microbatches", "4", *flags)


# --- plans -------------------------------------------------------------------------------------


def test_the_main_job_as_a_table(planner: Command) -> None:
    outcome = planner(
        "plan", "gpt3-175b", "--cluster", "dgx-a100-80gb:128", "--global-batch", "1536",
        "--seq-len", "2048",
    )  # fmt: skip
    assert outcome.status == 0
    assert outcome.err == ""
    for word in (
        "gpt3-175b on dgx-a100-80gb:128, 1024 GPUs: optimal", "bound", "gap", "layout",
        "step time", "bottleneck", "MFU", "bubble", "rank", "layers", "of budget", "fits",
        "Runners-up", "pipeline",
    ):  # fmt: skip
        assert word in outcome.out


def test_json_has_the_keys_other_programs_rely_on(planner: Command) -> None:
    outcome = planner(*SMALL, "--format", "json")
    assert (outcome.status, outcome.err) == (0, "")
    plan = outcome.json
    assert [key for key in KEYS if key not in plan] == []
    assert [key for key in LAYOUT_KEYS if key not in plan["layout"]] == []
    for stage in plan["stages"]:
        assert [key for key in STAGE_KEYS if key not in stage] == []
        assert sum(stage["memory"].values()) == stage["memory_bytes"]
    assert plan["status"] == "optimal"
    assert plan["time_model"] == "simulated"
    assert Plan.model_validate(plan).to_json() == outcome.out


def test_json_goes_to_a_file_and_the_table_to_the_terminal(planner: Command) -> None:
    outcome = _partition(planner, "-o", "plan.json")
    written = (planner.folder / "plan.json").read_text()
    assert outcome.out.startswith("good: optimal")
    assert _partition(planner, "--format", "json").out == written
    assert _partition(planner, "-o", "-").out == written


def test_warnings_stay_out_of_the_json(planner: Command) -> None:
    path = planner.write("extra.csv", profile_text((f"{r},x" for r in rows()), HEADER + ",colour"))
    outcome = planner("partition", path, "--stages", "2", "--format", "json", "-o", "plan.json")
    assert outcome.json["status"] == "optimal"
    assert outcome.err.startswith("warning: ")
    judged = planner("evaluate", "plan.json", "--format", "json")
    assert judged.json["ok"]
    assert judged.err.startswith("warning: ")
    assert len(judged.err.splitlines()) == 1


def _validate(value: Any, schema: dict[str, Any], whole: dict[str, Any]) -> None:
    """Enough of JSON schema to check what pydantic writes."""
    if "$ref" in schema:
        _validate(value, whole["$defs"][schema["$ref"].rsplit("/", 1)[1]], whole)
    elif "anyOf" in schema:
        problems = []
        for option in schema["anyOf"]:
            try:
                _validate(value, option, whole)
                return
            except AssertionError as problem:
                problems.append(problem)
        raise AssertionError(problems)
    elif "enum" in schema:
        assert value in schema["enum"]
    else:
        kinds = {
            "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
            "boolean": bool, "null": type(None),
        }  # fmt: skip
        assert isinstance(value, kinds[schema["type"]]), (value, schema)
        if schema["type"] == "object":
            properties = schema.get("properties", {})
            assert [key for key in schema.get("required", []) if key not in value] == []
            for key, held in value.items():
                further = schema.get("additionalProperties")
                assert key in properties or further, key
                _validate(held, properties.get(key) or further, whole)
        elif schema["type"] == "array":
            if "prefixItems" in schema:
                assert len(value) == len(schema["prefixItems"])
            for held in value:
                _validate(held, schema.get("items", {"type": "null"}), whole)


def test_schema_describes_plans(planner: Command) -> None:
    schema = planner("schema", "plan").json
    assert set(KEYS) <= set(schema["properties"])
    for flags in ((), ("--memory", "1KiB"), ("--memory", "60KiB", "--objective", "step-time")):
        _validate(_partition(planner, *flags, "--format", "json").json, schema, schema)
    everything = planner(*SMALL, "--pareto", "--rejected", "--format", "json").json
    assert everything["pareto"]
    assert everything["rejected"]
    _validate(everything, schema, schema)
    with pytest.raises(AssertionError):
        _validate({**everything, "status": "excellent"}, schema, schema)
    for kind in ("model", "cluster", "training"):
        assert planner("schema", kind).json["type"] == "object"


def test_rejected_and_pareto_tables(planner: Command) -> None:
    outcome = planner(*SMALL, "--pareto", "--rejected")
    assert outcome.status == 0
    for word in ("Rejected layouts (", "Pareto set", "reason"):
        assert word in outcome.out


def test_pins_objectives_and_set_up_reach_the_plan(planner: Command) -> None:
    outcome = planner(
        *SMALL, "--seq-len", "512", "--pp", "4", "--microbatch-size", "2", "--schedule", "gpipe",
        "--recompute", "full", "--optimizer", "sgd", "--no-sharded-optimizer",
        "--no-sequence-parallel", "--no-overlap-gradient-reduction", "--sends", "blocking",
        "--objective", "bottleneck", "--format", "json",
    )  # fmt: skip
    plan = outcome.json
    layout = plan["layout"]
    assert (layout["pp"], layout["microbatch_size"], layout["schedule"]) == (4, 2, "gpipe")
    assert layout["dp"] * layout["pp"] * layout["tp"] == 8
    assert layout["recompute"] == "full"
    assert plan["objective"] == "bottleneck"
    training = json.loads(plan["inputs"]["training"])
    assert training["optimizer"] == "sgd"
    assert training["sequence_length"] == 512
    for field in ("sharded_optimizer", "sequence_parallel", "overlap_gradient_reduction"):
        assert training[field] is False
    assert training["sends"] == "blocking"


def test_nodes_and_price_replace_the_clusters(planner: Command) -> None:
    flags = ("--nodes", "2", "--price-per-gpu-hour", "2.5", "--format", "json")
    plan = planner(*SMALL, *flags).json
    assert plan["num_gpus"] == 16
    per_hour = plan["tokens_per_s"] * 3600
    assert plan["tokens_per_dollar"] == pytest.approx(per_hour / (16 * 2.5))


def test_partition_flags_reach_the_question(planner: Command) -> None:
    outcome = _partition(
        planner, "--schedule", "gpipe", "--bandwidth", "1MB/s", "--latency", "2ms", "--memory",
        "1MiB", "--optimizer", "none", "--objective", "step-time", "--format", "json",
    )  # fmt: skip
    plan = outcome.json
    setup = json.loads(plan["inputs"]["setup"])
    assert setup["bandwidth_bytes_per_s"] == 1e6
    assert setup["latency_ms"] == 2.0
    assert setup["memory_bytes"] == 2**20
    assert plan["objective"] == "step-time"
    assert plan["layout"]["schedule"] == "gpipe"
    # 100 bytes at 1 MB/s take 0.1 ms; forward and backward both pay the latency.
    assert plan["stages"][0]["communication_ms"] == pytest.approx(2 * 2.1)
    assert plan["stages"][0]["memory"]["optimizer"] == 0


# --- infeasible and unknown ----------------------------------------------------------------------

INFEASIBLE = {
    "partition, memory": (
        "partition", "good.csv", "--stages", "2", "--microbatches", "4", "--memory", "20KiB",
    ),
    "partition, gpipe": (
        "partition", "good.csv", "--stages", "3", "--microbatches", "16", "--schedule", "gpipe",
        "--memory", "48KiB", "--recompute", "none",
    ),
    "partition, recompute": (
        "partition", "gpt2-xl", "--cluster", "dgx-a100-80gb:1", "--stages", "4",
        "--microbatches", "16", "--memory", "10GiB", "--recompute", "none",
        "--microbatch-size", "8",
    ),
    "plan, nodes": (
        "plan", "llama3-70b", "--cluster", "dgx-a100-40gb:1", "--global-batch", "32",
        "--seq-len", "4096",
    ),
    "plan, pins": (
        "plan", "llama3-8b", "--cluster", "dgx-a100-40gb:1", "--global-batch", "32",
        "--seq-len", "4096", "--tp", "1", "--pp", "1", "--recompute", "none",
    ),
    "plan, unsharded": (
        "plan", "llama3-8b", "--cluster", "dgx-a100-40gb:1", "--global-batch", "32",
        "--seq-len", "8192", "--dp", "8", "--no-sharded-optimizer", "--recompute", "full",
    ),
}  # fmt: skip


def _followed(arguments: tuple[str, ...], changes: dict[str, str]) -> list[str]:
    """The command line with the flags of a suggestion added, replaced or left out."""
    words = list(arguments)
    for flag, value in changes.items():
        opposite = flag.replace("--", "--no-", 1)
        if opposite in words:
            words.remove(opposite)
        if flag in words:
            place = words.index(flag)
            del words[place : place + 2]
        if value == "":
            words.append(flag)
        elif value != "(omit)":
            words += [flag, value]
    return words


@pytest.mark.parametrize("case", INFEASIBLE)
def test_infeasible_says_why_and_each_suggestion_works(planner: Command, case: str) -> None:
    planner.write("good.csv", profile_text())
    arguments = INFEASIBLE[case]
    table = planner(*arguments)
    assert table.status == 3
    assert table.err == ""
    assert "infeasible" in table.out
    assert "lacks" in table.out
    assert "Each of these was tried and fits" in table.out
    outcome = planner(*arguments, "--format", "json", "-o", "plan.json")
    assert outcome.status == 3
    plan = outcome.json
    why = plan["infeasible"]
    assert plan["status"] == "infeasible"
    assert why["constraint"] == "memory"
    assert why["short_bytes"] > 0
    held = plan["stages"][why["rank"]]
    assert held["memory_bytes"] - held["budget_bytes"] == why["short_bytes"]
    assert held["verdict"] == "out_of_memory"
    assert why["suggestions"]
    for suggestion in why["suggestions"]:
        followed = planner(*_followed(arguments, suggestion["arguments"]))
        assert followed.status == 0, suggestion
    explained = planner("explain", "plan.json")
    assert "lacks" in explained.out


def test_memory_one_byte_short_and_just_enough(planner: Command) -> None:
    why = _partition(planner, "--memory", "1B", "--format", "json").json["infeasible"]
    enough = 1 + why["short_bytes"]
    assert _partition(planner, "--memory", f"{enough}B").status == 0
    assert _partition(planner, "--memory", f"{enough - 1}B").status == 3


def test_deadline_without_a_plan(planner: Command) -> None:
    outcome = planner(*SMALL, "--time-limit", "1us")
    assert outcome.status == 4
    assert "no plan was found before the time limit" in outcome.out
    plan = planner(*SMALL, "--time-limit", "1us", "--format", "json").json
    assert plan["status"] == "unknown"
    assert plan["termination"]["reason"] == "time_limit"


# --- round trips ---------------------------------------------------------------------------------


def test_a_written_plan_is_judged_and_explained(planner: Command) -> None:
    assert _partition(planner, "-o", "plan.json", "--bandwidth", "1MB/s").status == 0
    judged = planner("evaluate", "plan.json", "--format", "json")
    assert judged.status == 0
    assert judged.json["ok"]
    assert judged.json["violations"] == []
    assert judged.json["bound_recomputed"]
    table = planner("evaluate", "plan.json")
    assert "verified" in table.out
    assert "the bound was recomputed and holds" in table.out
    text = (planner.folder / "plan.json").read_text()
    assert planner("evaluate", "-", stdin=text).status == 0
    explained = planner("explain", "plan.json")
    assert explained.status == 0
    assert "slowest stage" in explained.out
    parts = planner("explain", "plan.json", "--format", "json").json["breakdown_ms"]
    assert sum(parts.values()) == pytest.approx(json.loads(text)["step_time_ms"])


def test_a_plan_over_layouts_is_judged(planner: Command) -> None:
    assert planner(*SMALL, "-o", "plan.json").status == 0
    table = planner("evaluate", "plan.json")
    assert table.status == 0
    assert "verified" in table.out
    # Nothing is claimed that was not recomputed.
    assert "the bound was recomputed and holds" not in table.out


def _tamper_bottleneck(plan: dict[str, Any]) -> None:
    plan["bottleneck_ms"] *= 0.9


def _tamper_memory(plan: dict[str, Any]) -> None:
    plan["stages"][0]["memory_bytes"] -= 1


def _tamper_time(plan: dict[str, Any]) -> None:
    plan["stages"][1]["forward_ms"] *= 1.01


def _drop_a_layer(plan: dict[str, Any]) -> None:
    plan["stages"][0]["layers"].pop()


def _repeat_a_layer(plan: dict[str, Any]) -> None:
    plan["stages"][0]["layers"].append(plan["stages"][1]["layers"][0])


def _swap_layers(plan: dict[str, Any]) -> None:
    first, second = plan["stages"]
    first["layers"][0], second["layers"][0] = second["layers"][0], first["layers"][0]


def _other_batch(plan: dict[str, Any]) -> None:
    plan["layout"]["num_microbatches"] += 1


def _better_cut_claimed_impossible(plan: dict[str, Any]) -> None:
    plan["certificate"]["bound_quanta"] += 1


@pytest.mark.parametrize(
    ("tamper", "code"),
    [
        (_tamper_bottleneck, "PRICE"),
        (_tamper_memory, "PRICE"),
        (_tamper_time, "PRICE"),
        (_drop_a_layer, "LAYER_MISSING"),
        (_repeat_a_layer, "LAYER_TWICE"),
        (_swap_layers, "NOT_CONTIGUOUS"),
        (_other_batch, "BATCH"),
        (_better_cut_claimed_impossible, "BOUND"),
    ],
)
def test_a_tampered_plan_is_found_out(planner: Command, tamper: Any, code: str) -> None:
    assert _partition(planner, "-o", "plan.json").status == 0
    plan = json.loads((planner.folder / "plan.json").read_text())
    tamper(plan)
    planner.write("t.json", json.dumps(plan))
    outcome = planner("evaluate", "t.json")
    assert outcome.status == 2
    assert "violation" in outcome.out
    assert f"{code}:" in outcome.out
    found = planner("evaluate", "t.json", "--format", "json").json
    assert code in [violation["code"] for violation in found["violations"]]


def test_a_sketch_is_priced(planner: Command) -> None:
    sketch = {
        "layout": {"dp": 4, "pp": 2, "num_microbatches": 8},
        "stages": [
            {"rank": 0, "layers": ["embedding", *(f"block.{i}" for i in range(24))]},
            {"rank": 1, "layers": [*(f"block.{i}" for i in range(24, 48)), "head"]},
        ],
    }
    path = planner.write("sketch.json", json.dumps(sketch))
    flags = ("--model", "gpt2-xl", "--cluster", "dgx-a100-80gb:1", "--seq-len", "1024")
    outcome = planner("evaluate", path, *flags, "--format", "json")
    assert outcome.status == 0
    assert outcome.json["plan"]["step_time_ms"] > 0
    assert [len(stage["layers"]) for stage in outcome.json["plan"]["stages"]] == [25, 25]


def test_profile_from_config_then_partition_gives_the_prices_of_the_model(
    planner: Command,
) -> None:
    for tp in ("1", "2"):
        made = planner(
            "profile", "from-config", "gpt2", "--cluster", "dgx-h100:1", "--tp", "1,2",
            "--microbatch-size", "1,2", "-o", "gpt2.csv",
        )  # fmt: skip
        assert (made.status, made.out) == (0, "")
        flags = (
            "--stages", "4", "--microbatches", "8", "--tp", tp, "--bandwidth", "25GB/s",
            "--format", "json",
        )  # fmt: skip
        written = planner("partition", "gpt2.csv", *flags).json
        priced = planner("partition", "gpt2", "--cluster", "dgx-h100:1", *flags).json
        assert written["bottleneck_ms"] == pytest.approx(priced["bottleneck_ms"], rel=1e-4)
        assert written["origins"] == priced["origins"] == {"formula": 1.0}
    checked = planner("profile", "check", "gpt2.csv", "--format", "json").json
    assert (checked["layers"], checked["rows"], checked["tp"]) == (14, 56, [1, 2])
    assert (checked["measured"], checked["origins"]) == (False, {"formula": 56})
    assert re.search(r"origins +formula 56 rows", planner("profile", "check", "gpt2.csv").out)


PIPEDREAM = """\
node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, \
activation_size=0.0, parameter_size=0.000
node2 -- Conv2d(3, 64) -- forward_compute_time=3.0, backward_compute_time=5.5, \
activation_size=4096.0, parameter_size=7168.000
node3 -- ReLU() -- forward_compute_time=1.25, backward_compute_time=1.5, \
activation_size=4096.0, parameter_size=0.000
node4 -- Linear(64, 10) -- forward_compute_time=2.0, backward_compute_time=4.0, \
activation_size=40.0, parameter_size=2600.000
node5 -- Softmax() -- forward_compute_time=4.0, backward_compute_time=4.25, \
activation_size=40.0, parameter_size=0.000
\tnode1 -- node2
\tnode2 -- node3
\tnode3 -- node4
\tnode4 -- node5
"""


def test_a_converted_pipedream_graph_gives_the_same_plan(planner: Command) -> None:
    graph = planner.write("graph.txt", PIPEDREAM)
    assert planner("profile", "convert", graph, "-o", "graph.csv").status == 0
    assert planner("profile", "convert", graph).out == (planner.folder / "graph.csv").read_text()
    flags = (
        "--stages", "2", "--microbatches", "4", "--bandwidth", "1MB/s", "--precision", "fp32",
        "--format", "json",
    )  # fmt: skip
    before = planner("partition", graph, *flags).json
    after = planner("partition", "graph.csv", *flags).json
    for key in ("bottleneck_ms", "step_time_ms", "bound_ms", "status"):
        assert before[key] == after[key]
    assert [s["layers"] for s in before["stages"]] == [s["layers"] for s in after["stages"]]
    assert [s["memory"] for s in before["stages"]] == [s["memory"] for s in after["stages"]]


def test_profiles_are_checked(planner: Command) -> None:
    planner.write("good.csv", profile_text())
    outcome = planner("profile", "check", "good.csv")
    assert outcome.status == 0
    assert "21.00 ms" in outcome.out
    assert re.search(r"measured +yes\norigins +measured 6 rows", outcome.out)
    # A model of shapes has no times to add up.
    shapes = planner("profile", "check", "gpt2", "--format", "json").json
    assert shapes["measured"] is False
    assert shapes["forward_ms"] is None
    assert planner("profile", "check", "-", stdin=profile_text()).status == 0
    assert "from-config" in planner.refuses("profile", "convert", "gpt2")
    flags = ("--cluster", "dgx-h100:1")
    assert "convert" in planner.refuses("profile", "from-config", "good.csv", *flags)
    assert "tp=5" in planner.refuses("profile", "from-config", "gpt2", *flags, "--tp", "5")
    assert "--tp" in planner.refuses("profile", "from-config", "gpt2", *flags, "--tp", "1;2")


def test_the_catalog(planner: Command) -> None:
    listed = planner("catalog")
    for name in ("gpt3-175b", "deepseek-v3", "dgx-a100-80gb", "h100-80gb"):
        assert name in listed.out
    sections = planner("catalog", "--format", "json").json
    assert set(sections) == {"models", "clusters", "devices"}
    for name in ("gpt2", "dgx-h100", "h100-80gb"):
        shown = planner("catalog", name)
        assert shown.status == 0
        assert shown.out.startswith("description: ")
        assert planner("catalog", name, "--format", "json").json["name"] == name


# --- the process ---------------------------------------------------------------------------------


def test_version_and_help(planner: Command) -> None:
    assert planner("--version").out == f"planner {planner_version()}\n"
    root = planner("--help")
    assert root.status == 0
    for verb in ("plan", "partition", "evaluate", "explain", "profile", "catalog", "schema"):
        assert verb in root.out
        assert planner(verb, "--help").status == 0


def _subprocess(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True, text=True, timeout=60, env=environment, check=False, **options,
    )  # fmt: skip


def test_planning_a_chain_imports_no_heavy_library() -> None:
    script = """
import sys
from planner.cli import main
try:
    main(sys.argv[1:])
except SystemExit as left:
    assert left.code == 0, left.code
heavy = {"numba", "ortools", "networkx", "pandas", "torch", "grpc", "scipy"}
print("loaded:", sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = _subprocess("-c", script, *SMALL)
    assert done.stderr == "loaded: []\n"
    assert "optimal" in done.stdout


def test_a_shell_sees_status_and_streams(tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text(profile_text())
    done = _subprocess("-m", "planner", "partition", "good.csv", "--stages", "2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    # No terminal: no colours, no lines beyond the width.
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 132
    bad = _subprocess("-m", "planner", "partition", "bad.csv", "--stages", "2", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.count("\n") == 1


def test_a_reader_that_leaves_early_and_a_terminal_without_unicode(tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text(profile_text().replace("l2", "l\xb2"))
    left = _subprocess(
        "-c",
        "import os, sys; from planner.cli import main; r, w = os.pipe(); os.close(r); "
        "os.dup2(w, 1); main(['catalog'])",
    )
    assert (left.returncode, left.stderr) == (0, "")
    words = ("-m", "planner", "partition", "good.csv", "--stages", "2")
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    table = _subprocess(*words, cwd=tmp_path, env=ascii_only)
    assert (table.returncode, table.stderr) == (0, "")
    assert "optimal" in table.stdout


def test_internal_errors_are_one_line_with_status_one(
    planner: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a\nb")

    monkeypatch.setattr("planner.api.partition", broken)
    outcome = _partition(planner)
    assert outcome.status == 1
    assert outcome.err.startswith("internal error: ZeroDivisionError: a b")
    assert outcome.err.count("\n") == 1


def test_interruption(planner: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.api.partition", interrupted)
    assert _partition(planner).status == 130

"""``planner --server``: the same bytes, files, warnings and exit statuses as without."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import trustme
from cli_command import Command, Outcome, profile_text, rows
from fake_planner_service import fails, fake_service
from server_process import ServerProcess, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server("--slots", "1") as found:
        yield found


class Twice:
    """A command here, and again with a server that computes."""

    def __init__(self, planner: Command, address: str) -> None:
        self.planner = planner
        self.address = address

    def __call__(self, *arguments: str, stdin: str | None = None) -> Outcome:
        """Assert that both runs leave the same behind; what that is."""
        before = self._files()
        here = self.planner(*arguments, stdin=stdin)
        made = self._files()
        for name in made.keys() - before.keys():
            (self.planner.folder / name).unlink()
        there = self.planner("--server", self.address, *arguments, stdin=stdin)
        assert there.err == here.err
        assert there.out == here.out
        assert there.status == here.status
        assert self._files() == made
        return there

    def _files(self) -> dict[str, bytes]:
        folder = self.planner.folder
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def twice(planner: Command, server: ServerProcess) -> Twice:
    return Twice(planner, server.address)


PLAN = ("plan", "llama3-8b", "--cluster", "dgx-h100:2", "--global-batch", "64")
SMALL_BATCH = ("--global-batch", "16", "--seq-len", "4096")
GRAPH = profile_text(
    [*(f"{row},{'' if i < 1 else f'l{i - 1}'}" for i, row in enumerate(rows()))],
    header="name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes,inputs",
)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (PLAN, 0),
        ((*PLAN, "--format", "json"), 0),
        ((*PLAN, "-o", "plan.json"), 0),
        ((*PLAN, "-o", "-", "--pareto", "--rejected", "--runners-up", "5"), 0),
        ((*PLAN, "--objective", "fewest-gpus", "--format", "json"), 0),
        ((*PLAN, "--objective", "tokens-per-dollar", "--price-per-gpu-hour", "2.5"), 0),
        ((*PLAN, "--no-allow-fewer", "--nodes", "1", "--seq-len", "2048"), 0),
        ((*PLAN, "--tp", "2", "--pp", "2", "--microbatch-size", "1", "--schedule", "auto"), 0),
        ((*PLAN, "--precision", "fp8", "--recompute", "full,none", "--optimizer", "sgd"), 0),
        ((*PLAN, "--sends", "blocking", "--no-sharded-optimizer", "--pp", "4"), 0),
        ((*PLAN, "--work-limit", "100", "--time-limit", "50s"), 0),
        (("plan", "llama3-405b", "--cluster", "dgx-h100:1", *SMALL_BATCH), 3),
        (("plan", "llama3-405b", "--cluster", "dgx-h100:1", *SMALL_BATCH, "--format", "json"), 3),
        ((*PLAN, "--tp", "3"), 2),
        ((*PLAN, "--schedule", "1f1c"), 2),
        ((*PLAN, "--objective", "fewest-gpus", "--no-allow-fewer"), 2),
        ((*PLAN, "--precision", "fp32", "--cluster", "nowhere:2"), 2),
        ((*PLAN, "--global-batch", "999999999"), 2),
        ((*PLAN, "--pp", "64"), 2),
        ((*PLAN, "--vpp", "2"), 2),
        ((*PLAN, "-o", "missing/plan.json"), 2),
        (("plan", "llama4", "--cluster", "dgx-h100:2", *SMALL_BATCH), 2),
    ],
)
def test_plans_are_the_same(twice: Twice, arguments: tuple[str, ...], status: int) -> None:
    assert twice(*arguments).status == status


@pytest.mark.parametrize(
    "flags",
    [
        ("--stages", "3"),
        ("--stages", "3", "--format", "json"),
        ("--stages", "2", "--microbatches", "8", "--objective", "step-time", "-o", "plan.json"),
        ("--stages", "2", "--microbatches", "4", "--schedule", "auto", "--format", "json"),
        ("--stages", "2", "--microbatches", "4", "--schedule", "interleaved", "--vpp", "2"),
        ("--stages", "3", "--bandwidth", "1GB/s", "--latency", "5us", "--memory", "1GiB"),
        ("--stages", "3", "--memory", "100B"),
        ("--stages", "3", "--memory", "100B", "--format", "json"),
        ("--stages", "7"),
        ("--stages", "3", "--bandwidth", "0GB/s"),
        ("--stages", "3", "--schedule", "1f1b,gpip"),
        ("--stages", "3", "--microbatches", "3", "--schedule", "zb-v"),
        ("--stages", "3", "--tp", "2"),
        ("--stages", "3", "--microbatch-size", "5"),
        ("--stages", "3", "--device", "abacus"),
        ("--stages", "3", "--recompute", "none", "--time-limit", "20s"),
    ],
)
@pytest.mark.parametrize("kind", ["chain", "graph"])
def test_partitions_of_files_are_the_same(twice: Twice, kind: str, flags: tuple[str, ...]) -> None:
    text = profile_text() if kind == "chain" else GRAPH
    twice("partition", twice.planner.write("net.csv", text), *flags)


def test_partitions_with_a_cluster_are_the_same(twice: Twice) -> None:
    twice("partition", "gpt3-175b", "--stages", "8", "--cluster", "dgx-a100-80gb:1")
    twice("partition", "gpt3-175b", "--stages", "8")  # has no times
    cluster = twice.planner.write("here.yaml", "nodes: 2\ngpus: 3\n")
    twice("partition", "gpt3-175b", "--stages", "8", "--cluster", cluster)


def test_pins_and_rows_are_blamed_in_the_callers_file(twice: Twice) -> None:
    header = "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes,pin_stage"
    pinned = [f"{row},{5 if i == 0 else ''}" for i, row in enumerate(rows())]
    path = twice.planner.write("pinned.csv", profile_text(pinned, header))
    outcome = twice("partition", path, "--stages", "2")
    assert outcome.status == 2
    assert outcome.err.startswith(f"error: {path} column pin_stage")
    bad = twice.planner.write("bad.csv", profile_text(["l0,-1,2,1,1,1"]))
    assert bad in twice("partition", bad, "--stages", "1").err


def test_models_from_standard_input_and_warnings_are_the_same(twice: Twice) -> None:
    odd = profile_text([f"{row},blue" for row in rows()], header=profile_text([]).strip() + ",hue")
    outcome = twice("partition", "-", "--stages", "2", "--format", "json", stdin=odd)
    assert "warning:" in outcome.err
    assert outcome.json["inputs"]["model"] == "-"


# --- plan files ----------------------------------------------------------------------------------


@pytest.fixture
def plan_file(twice: Twice) -> str:
    path = str(twice.planner.folder / "made.json")
    assert twice.planner(*PLAN, "--pp", "2", "-o", path).status == 0
    return path


@pytest.mark.parametrize("verb", ["evaluate", "explain"])
def test_judging_a_plan_is_the_same(twice: Twice, plan_file: str, verb: str) -> None:
    twice(verb, plan_file)
    twice(verb, plan_file, "--format", "json")
    twice(verb, plan_file, "--model", "llama3-70b")
    twice(verb, plan_file, "--cluster", "dgx-a100-80gb:2", "--seq-len", "2048")
    twice(verb, plan_file, "--global-batch", "63")
    twice(verb, "-", stdin=Path(plan_file).read_text())
    twice(verb, "absent.json")
    twice(verb, plan_file, "--model", "absent.csv")


@pytest.mark.parametrize("verb", ["evaluate", "explain"])
def test_judging_an_untrue_plan_is_the_same(twice: Twice, plan_file: str, verb: str) -> None:
    document = json.loads(Path(plan_file).read_text())
    document["step_time_ms"] *= 0.5
    outcome = twice(verb, twice.planner.write("untrue.json", json.dumps(document)))
    assert outcome.status == (2 if verb == "evaluate" else 0)
    document["stages"][0]["layers"].pop()
    twice(verb, twice.planner.write("untrue.json", json.dumps(document)), "--format", "json")
    document["inputs"]["model_digest"] = "0" * 16
    twice(verb, twice.planner.write("untrue.json", json.dumps(document)))
    document["inputs"]["training"] = "{}"
    twice(verb, twice.planner.write("untrue.json", json.dumps(document)))


@pytest.mark.parametrize("verb", ["evaluate", "explain"])
def test_judging_a_partition_of_a_file_is_the_same(twice: Twice, verb: str) -> None:
    model = twice.planner.write("net.csv", profile_text())
    plan = str(twice.planner.folder / "cut.json")
    twice.planner("partition", model, "--stages", "3", "--microbatches", "6", "-o", plan)
    twice(verb, plan)
    twice(verb, plan, "--format", "json")
    Path(model).write_text(profile_text(rows(5)))
    assert twice(verb, plan).status == 2
    Path(model).unlink()
    assert "which is not found from here" in twice(verb, plan).err


@pytest.mark.parametrize("verb", ["evaluate", "explain", "simulate"])
def test_sketches_are_the_same(twice: Twice, verb: str) -> None:
    sketch = {"layout": {"dp": 2, "pp": 2, "tp": 4}, "model": "llama3-8b"}
    path = twice.planner.write("sketch.json", json.dumps(sketch))
    twice(verb, path, "--cluster", "dgx-h100:2", "--global-batch", "64")
    twice(verb, path, "--cluster", "dgx-h100:2", "--global-batch", "63")
    twice(verb, path, "--cluster", "dgx-h100:2")
    twice(verb, path, "--global-batch", "64")
    twice(verb, twice.planner.write("odd.json", '{"layout": {"dp": "two"}}'))


@pytest.mark.parametrize("verb", ["evaluate", "explain", "simulate"])
@pytest.mark.parametrize("format", ["table", "json"])
def test_plans_that_do_not_fit_are_the_same(twice: Twice, verb: str, format: str) -> None:
    path = str(twice.planner.folder / "none.json")
    question = ("plan", "llama3-405b", "--cluster", "dgx-h100:1", *SMALL_BATCH)
    assert twice.planner(*question, "-o", path).status == 3
    twice(verb, path, "--format", format)


# --- simulations ---------------------------------------------------------------------------------

SHAPE = ("--stages", "4", "--microbatches", "8")
FILES = ("--svg", "a.svg", "--trace", "a.trace", "--csv", "a.csv", "-o", "a.json")


@pytest.mark.parametrize(
    "flags",
    [
        ("--schedule", "1f1b", *SHAPE),
        ("--schedule", "1f1b", *SHAPE, "--format", "json"),
        ("--schedule", "zb-h1", *SHAPE, "--format", "json", "--operations"),
        ("--schedule", "zb-auto", *SHAPE, "--aim", "makespan", "--comm-ms", "0.5", *FILES),
        ("--schedule", "interleaved", *SHAPE, "--chunks", "2", "--slots", *FILES, "--operations"),
        ("--schedule", "dualpipe", *SHAPE, "--pair-ms", "2.5", "--width", "90"),
        ("--schedule", "pipedream", *SHAPE),
        ("--schedule", "1f1b", *SHAPE, "--forward-ms", "1,2,1,1", "--backward-ms", "2.25"),
        ("--schedule", "1f1b", *SHAPE, "--activation-limit", "2"),
        ("--schedule", "1f1b", *SHAPE, "--sends", "blocking", "--comm-ms", "1,0,1"),
        ("--schedule", "1f1b", *SHAPE, "--freed-at-i", "0.5", "--optimizer-ms", "3"),
        ("--schedule", "1f1b", *SHAPE, "--svg", "-"),
        ("--schedule", "1f1b", *SHAPE, "--forward-ms", "1,-2,1,1"),
        ("--schedule", "1f1b", *SHAPE, "--forward-ms", "1,2"),
        ("--schedule", "1f1b", *SHAPE, "--wgrad-ms", "9"),
        ("--schedule", "1f1b", *SHAPE, "--freed-at-i", "2"),
        ("--schedule", "1f1b", *SHAPE, "--activation-limit", "0"),
        ("--schedule", "1f1b", *SHAPE, "--chunks", "3"),
        ("--schedule", "interleaved", *SHAPE, "--group-size", "3"),
        ("--schedule", "1f1c", *SHAPE),
        ("--schedule", "1f1b", "--stages", "4"),
        ("--compare", "1f1b,zb-h1,gpipe", *SHAPE, "--svg", "c.svg", "-o", "c.json"),
        ("--compare", "1f1b,interleaved", *SHAPE, "--format", "json", "--forward-ms", "1,2,1,1"),
        ("--compare", "1f1b,interleaved", *SHAPE, "--comm-ms", "1", "--activation-limit", "4"),
        ("--compare", "1f1b,1f1b", *SHAPE),
        ("--compare", "1f1b,interleaved", *SHAPE, "--forward-ms", "1,2"),
        ("--compare", "1f1b", *SHAPE, "--trace", "a.trace"),
        ("--schedule", "1f1b", "--stages", "100000", "--microbatches", "100000"),
    ],
)
def test_simulations_are_the_same(twice: Twice, flags: tuple[str, ...]) -> None:
    twice("simulate", *flags)


def test_orders_are_the_same(twice: Twice) -> None:
    path = str(twice.planner.folder / "order.csv")
    twice.planner("simulate", "--schedule", "1f1b", *SHAPE, "--csv", path)
    twice("simulate", "--order", path)
    twice("simulate", "--order", path, "--format", "json", "--comm-ms", "0.25", "-o", "a.json")
    twice("simulate", "--order", path, "--forward-ms", "1,2")
    twice("simulate", "--order", "-", stdin=Path(path).read_text())
    locked = twice.planner.write("locked.csv", "0B0,0F0\n1F0,1B0\n")
    assert twice("simulate", "--order", locked).status == 2
    odd = twice.planner.write("odd.csv", "0F0,what\n1F0,1B0\n")
    assert odd in twice("simulate", "--order", odd).err
    twice("simulate", "--order", "absent.csv")


def test_simulations_of_plans_are_the_same(twice: Twice, plan_file: str) -> None:
    twice("simulate", plan_file)
    twice("simulate", plan_file, *FILES, "--format", "json")
    twice("simulate", plan_file, "--activation-limit", "0.5")
    twice("simulate", plan_file, "--cluster", "dgx-a100-80gb:2")
    twice("simulate", plan_file, "--activation-limit", "-1")


# --- the rest ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("catalog",),
        ("catalog", "--format", "json"),
        ("catalog", "llama3-8b"),
        ("catalog", "llama3-8b", "--format", "json"),
        ("catalog", "dgx-h100:4"),
        ("catalog", "dgx-h100:4", "--format", "json"),
        ("catalog", "dgx-h100:many"),
        ("catalog", "dgx-h100:many", "--format", "json"),
        ("catalog", "dgx-h100", "--format", "json"),
        ("catalog", "lama3-8b"),
        ("schema", "plan"),
        ("schema", "nothing"),
        ("--version",),
    ],
)
def test_what_is_read_is_the_same(twice: Twice, arguments: tuple[str, ...]) -> None:
    twice(*arguments)


def test_profiles_are_read_here(planner: Command) -> None:
    path = planner.write("net.csv", profile_text())
    here = planner("profile", "check", path)
    assert planner("--server", "127.0.0.1:1", "profile", "check", path) == here


def test_the_environment_names_the_server(
    planner: Command, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = planner(*PLAN)
    monkeypatch.setenv("PLANNER_SERVER", server.address)
    assert planner(*PLAN) == here
    monkeypatch.setenv("PLANNER_SERVER", "127.0.0.1:1")
    outcome = planner("simulate", "--schedule", "1f1b", *SHAPE)
    assert outcome.status == 5
    assert outcome.err == "error: the server at 127.0.0.1:1 cannot be reached: Connection refused\n"


def test_a_server_that_cannot_be_called_is_one_line(planner: Command) -> None:
    assert "is no address" in planner.refuses("--server", "host:port", *PLAN)
    assert "cannot be read" in planner.refuses(
        "--server", "h:1", "--server-ca", "absent.pem", *PLAN
    )
    flags = ("--server", "h:1", "--server-token-file")
    assert "cannot be read" in planner.refuses(*flags, "absent", *PLAN)
    token = planner.write("token", "secret\n")
    refusal = planner.refuses(*flags, token, *PLAN)
    assert "without TLS" in refusal
    assert "secret" not in refusal


@pytest.mark.parametrize(
    "flag", ["--server-ca", "--server-token-file", "--server-certificate", "--server-key"]
)
def test_options_of_a_server_need_one(
    planner: Command, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    said = planner.refuses(flag, "file", "catalog")
    assert said.startswith(f'error: "{flag}" needs a server, and none is given; give --server')
    assert "PLANNER_SERVER" in said
    monkeypatch.setenv("PLANNER_SERVER_CA", "file")  # for the times when there is a server
    assert planner("catalog").status == 0


def test_an_address_has_a_port(planner: Command) -> None:
    for address in ("localhost", "https://localhost", "127.0.0.1"):
        assert "expected host:port" in planner.refuses("--server", address, "catalog")


def test_a_socket_that_is_not_there_cannot_be_reached(planner: Command) -> None:
    outcome = planner("--server", "unix:/tmp/no-such-planner.sock", "catalog")
    assert outcome.status == 5
    assert outcome.err == (
        "error: the server at unix:/tmp/no-such-planner.sock cannot be reached: "
        "No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("code", "reason", "status"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "BAD_TOKEN", 6),
        (grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_LOW", 6),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", 6),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", 5),
        (grpc.StatusCode.INTERNAL, "WORKER_CRASHED", 1),
    ],
)
def test_what_a_server_refuses_has_a_status(
    planner: Command, code: grpc.StatusCode, reason: str, status: int
) -> None:
    with fake_service() as fake:
        fake.script = [fails(code, "it is so", reason=reason)]
        outcome = planner("--server", fake.address, *PLAN)
    assert outcome == Outcome(status, "", "error: it is so\n")


# --- processes -----------------------------------------------------------------------------------

LONG = (
    "plan", "gpt3-175b", "--cluster", "dgx-a100-80gb:128", "--global-batch", "1536",
    "--schedule", "auto", "--recompute", "none,selective,full,layers", "--work-limit", "1000000",
)  # fmt: skip


def test_time_limits_are_the_same(twice: Twice) -> None:
    assert twice(*LONG, "--time-limit", "1ms").status == 4
    outcome = twice.planner("--server", twice.address, *LONG, "--time-limit", "2s")
    assert outcome.status in (0, 4)


def test_ctrl_c_ends_the_search_on_the_server(server: ServerProcess) -> None:
    command = [sys.executable, "-m", "planner", "--server", server.address, *LONG]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(2.5)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=10)
    assert (running.returncode, out, err) == (130, "", "interrupted\n")
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        if any(entry.get("code") == "CANCELLED" for entry in server.log):
            break
        time.sleep(0.05)
    else:
        raise AssertionError(server.log)


def test_terminals_get_the_same_colours(server: ServerProcess) -> None:
    flags = ("simulate", "--schedule", "zb-h1", *SHAPE, "--comm-ms", "0.5")
    here = _on_a_terminal(*flags)
    assert "\x1b[" in here
    assert _on_a_terminal("--server", server.address, *flags) == here


def test_no_log_of_grpc_is_on_stderr(tmp_path: Path) -> None:
    stranger = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    issued = trustme.CA().issue_cert("127.0.0.1")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    credentials = grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])
    with fake_service(credentials=credentials) as fake:
        flags = ["--server", fake.address, "--server-ca", str(stranger)]
        command = [sys.executable, "-m", "planner", *flags, "catalog"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (run.returncode, run.stdout) == (5, "")
    (line,) = run.stderr.splitlines()
    assert line.endswith(f"the server's certificate is not signed by {stranger}")


def test_progress_is_told_on_a_terminal(server: ServerProcess) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "planner", "--server", server.address, *LONG]
    run = subprocess.Popen(
        [*command, "--time-limit", "4s"], stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while b"best so far" not in shown:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    run.send_signal(signal.SIGINT)
    run.wait(10)
    os.close(ours)
    assert b"layouts, best so far" in shown


def _on_a_terminal(*arguments: str) -> str:
    """What a command prints where standard output is a terminal of 110 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "110"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "planner", *arguments]
    with subprocess.Popen(command, stdout=theirs, stdin=subprocess.DEVNULL, env=environment) as run:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            parts.append(part)
        assert run.wait() == 0
    os.close(ours)
    return b"".join(parts).decode()

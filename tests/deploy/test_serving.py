"""A real server with the manifests' own settings: its probes, and the example clients."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import grpc
import pytest
import trustme
import yaml
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from server_process import ServerProcess, running_server

from planner.service.identity import new_token

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
BASE = DEPLOY / "kustomize" / "base"
REPLICATED = DEPLOY / "kustomize" / "overlays" / "replicated"
PROBE = DEPLOY / "kustomize" / "components" / "tls" / "health_probe.py"
PLANNER = "planner.v1.PlannerService"


class Secured:
    """The server of the overlay `replicated`, on loopback, and a folder with its Secret's keys."""

    def __init__(self, server: ServerProcess, tls: Path) -> None:
        self.server, self.tls = server, tls

    @property
    def address(self) -> str:
        return str(self.server.address).replace("127.0.0.1", "localhost")

    def probes(self, *each: list[str]) -> list[tuple[int, str]]:
        """Exit status and standard error of the probe with each of these flags, all at once."""
        command = [sys.executable, str(PROBE), "--tls", str(self.tls)]
        command += ["--address", self.address]
        running = [
            subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True)
            for flags in each
        ]
        said = [process.communicate(timeout=30)[1] for process in running]
        return [(process.returncode, text) for process, text in zip(running, said, strict=True)]

    def flags(self) -> list[str]:
        names = {"--ca": "ca.crt", "--certificate": "tls.crt", "--key": "tls.key"}
        return [word for flag, name in names.items() for word in (flag, str(self.tls / name))]


def issue(tls: Path) -> None:
    """The keys of the Secret planner-tls."""
    authority = trustme.CA()
    issued = authority.issue_cert("planner", "localhost", common_name="planner")
    authority.cert_pem.write_to_path(str(tls / "ca.crt"))
    issued.private_key_pem.write_to_path(str(tls / "tls.key"))
    for pem in issued.cert_chain_pems:
        pem.write_to_path(str(tls / "tls.crt"), append=True)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    tls = tmp_path_factory.mktemp("tls")
    issue(tls)
    flags = ["--config", str(REPLICATED / "config.yaml"), "--host", "127.0.0.1"]
    flags += ["--slots", "1", "--spare-workers", "0", "--metrics-port", "0"]
    for setting, name in (("certificate", "tls.crt"), ("key", "tls.key"), ("client-ca", "ca.crt")):
        flags += [f"--tls-{setting}-file", str(tls / name)]
    with running_server(*flags) as server:
        yield Secured(server, tls)


def test_the_probe_shows_the_pods_own_certificate(secured: Secured) -> None:
    alive, ready, unknown, elsewhere = secured.probes(
        [],
        ["--service", PLANNER],
        ["--service", "planner.v1.Nothing"],
        ["--address", "localhost:1", "--timeout-s", "0.5"],
    )
    assert alive == (0, "")
    assert ready == (0, "")
    assert unknown[0] == 1
    assert unknown[1].startswith("NOT_FOUND")
    assert elsewhere[0] == 1
    assert elsewhere[1].startswith("UNAVAILABLE")


def test_a_probe_without_a_certificate_is_turned_away(secured: Secured) -> None:
    """Why the pods do not leave it to the kubelet, in plain text or with `mode: TLS`."""
    authority = grpc.ssl_channel_credentials((secured.tls / "ca.crt").read_bytes())
    request = health_pb2.HealthCheckRequest()
    for channel in (
        grpc.insecure_channel(secured.address),
        grpc.secure_channel(secured.address, authority),
    ):
        with channel, pytest.raises(grpc.RpcError) as caught:
            health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_generic_client_needs_no_proto_files(secured: Secured) -> None:
    """The page's request, made as grpcurl makes it: from what the server says of itself."""
    page = (DEPLOY / "README.md").read_text()
    ((text, path),) = re.findall(r"-d '(\{.*?\n\})' \S+ (\S+)", page, re.S)
    service, name = path.split("/")
    keys = [(secured.tls / file).read_bytes() for file in ("ca.crt", "tls.key", "tls.crt")]
    with grpc.secure_channel(secured.address, grpc.ssl_channel_credentials(*keys)) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert service in database.get_services()
        method = DescriptorPool(database).FindServiceByName(service).methods_by_name[name]
        assert method.server_streaming
        call = channel.unary_stream(
            f"/{path}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        request = json_format.Parse(text, GetMessageClass(method.input_type)())
        *points, last = call(request, timeout=10)
    assert len(points) == 2
    assert [point.num_gpus for point in last.answer.curve.points] == [8, 16]


# --- the examples ---------------------------------------------------------------------------------


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DEPLOY / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


CURVE = ["llama3-8b", "dgx-h100:4", "--global-batch", "64", "--seq-len", "4096"]


def test_a_curve(secured: Secured, capsys: pytest.CaptureFixture[str]) -> None:
    client = example("curve_client")
    given = [secured.address, *CURVE, *secured.flags(), "--sizes", "8", "16"]
    assert client.main([*given, "--print", "curve"]) == 0
    written = capsys.readouterr()
    speeds = {int(size): speed for size, speed in json.loads(written.out).items()}
    assert list(speeds) == [8, 16]
    assert speeds[8] < speeds[16]
    assert written.err.count("samples/s") == 2

    assert client.main(given) == 0
    table, _, placed = capsys.readouterr().out.partition("\n\n")
    assert [line.split()[0] for line in table.splitlines()] == ["GPUs", "8", "16"]
    assert [line.split()[0] for line in placed.splitlines()[1:]] == ["slurm", "kueue", "volcano"]

    assert client.main([*given, "--print", "slurm", "--size", "16"]) == 0
    slurm = capsys.readouterr().out.split()
    assert "--nodes=2" in slurm
    assert all(word.startswith("--") for word in slurm)

    assert client.main([*given, "--print", "kueue"]) == 0
    kueue = json.loads(capsys.readouterr().out)
    assert all(key.startswith("kueue.x-k8s.io/podset-") for key in kueue)

    assert client.main([*given, "--print", "volcano"]) == 0
    volcano = json.loads(capsys.readouterr().out)
    assert set(volcano) <= {"mode", "highestTierAllowed"}


def test_a_curve_that_cannot_be(secured: Secured, capsys: pytest.CaptureFixture[str]) -> None:
    client = example("curve_client")
    end = ["--sizes", "8", *secured.flags()]
    assert client.main([secured.address, "no-such-model", *CURVE[1:], *end]) == 2
    assert client.main([secured.address, "llama3-405b", *CURVE[1:], *end]) == 3
    assert "no-such-model" in capsys.readouterr().err


def test_a_round_of_a_scheduler(
    secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = example("scheduler_round")
    one = {"cluster": "dgx-h100:4", "global_batch_size": 64, "sizes": [8, 16]}
    jobs = [
        {"job_id": "small", "model": "llama3-8b", **one},
        {"job_id": "large", "model": "gpt2-xl", **one},
        {"job_id": "wrong", "model": "no-such-model", "running": 8, **one},
    ]
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(jobs))
    arguments = [secured.address, str(file), "--gpus", "32", "--deadline-s", "30"]
    assert scheduler.main([*arguments, *secured.flags()]) == 0
    written = capsys.readouterr()
    division = json.loads(written.out)
    assert division["wrong"] == 8  # it keeps what it has
    assert sum(division.values()) <= 32
    assert min(division.values()) >= 8
    assert "wrong: no curve, invalid" in written.err


def test_components_tls_and_identities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One pod with a file of tokens: its probe needs none, its callers do."""
    issue(tmp_path)
    token, digest = new_token()
    (tmp_path / "token").write_text(token)
    entry = {"name": "scheduler", "role": "plan", "token_sha256": digest}
    (tmp_path / "identities.yaml").write_text(yaml.safe_dump({"identities": [entry]}))
    patches = ("components/tls/deployment.yaml", "components/identities/deployment.yaml")
    variables: dict[str, str] = {}
    for patch in patches:
        read = yaml.safe_load((DEPLOY / "kustomize" / patch).read_text())
        (container,) = read["spec"]["template"]["spec"]["containers"]
        variables |= {each["name"]: each["value"] for each in container["env"]}
    for name, value in variables.items():
        if value.startswith("/"):
            variables[name] = str(tmp_path / Path(value).name)
    flags = ["--config", str(BASE / "config.yaml"), "--host", "127.0.0.1"]
    flags += ["--slots", "1", "--spare-workers", "0", "--metrics-port", "0"]
    client = example("curve_client")
    with running_server(*flags, environment=variables) as server:
        pod = Secured(server, tmp_path)
        assert pod.probes(["--service", PLANNER]) == [(0, "")]
        given = [pod.address, *CURVE, "--sizes", "8", "--ca", str(tmp_path / "ca.crt")]
        assert client.main([*given, "--token-file", str(tmp_path / "token")]) == 0
        assert client.main(given) == 6
    assert "token" in capsys.readouterr().err


def test_what_is_missing_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refusal(name: str, *arguments: str) -> str:
        assert example(name).main(list(arguments)) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line.removeprefix(f"{name}: ")

    absent, jobs = str(tmp_path / "absent"), tmp_path / "jobs.json"
    no_file = f"{absent}: cannot be read: No such file or directory"
    job = {"job_id": "a", "model": "gpt2", "cluster": "dgx-h100:1", "global_batch_size": 8}
    jobs.write_text(json.dumps([{**job, "sizes": [8]}]))
    curve = ["localhost:1", *CURVE, "--sizes", "8", "--token-file", absent]
    assert refusal("curve_client", *curve) == no_file
    end = ["--gpus", "8"]
    assert refusal("scheduler_round", "localhost:1", absent, *end) == no_file
    given = ("localhost:1", str(jobs), *end)
    assert refusal("scheduler_round", *given, "--token-file", absent) == no_file
    assert "expected host:port" in refusal("scheduler_round", "localhost", str(jobs), *end)
    for content, words in (
        (json.dumps([job]), f"{jobs}: job a has no sizes"),
        (json.dumps([{}]), f"{jobs}: job number 1 has no job_id, model, "),
        (json.dumps([{**job, "sizes": 8}]), f"{jobs}: job a: sizes is no list"),
        ("{}", f"{jobs}: is not a list of jobs"),
        ("[\n", f"{jobs}:2: is not JSON"),
    ):
        jobs.write_text(content)
        assert refusal("scheduler_round", *given).startswith(words)


def test_sizes_that_a_cluster_has_not_are_said_in_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["localhost:1", "llama3-8b", "gb200-nvl72:4", "--global-batch", "64", "--sizes", "72"]
    assert example("curve_client").main(given) == 2
    assert '"72" GPUs are more than gb200-nvl72:4 has' in capsys.readouterr().err


def test_gpus_are_divided_by_what_they_gain() -> None:
    scheduler = example("scheduler_round")
    steep = scheduler.Job("steep", samples_per_s={8: 10.0, 16: 19.0, 32: 36.0})
    flat = scheduler.Job("flat", samples_per_s={8: 10.0, 16: 11.0, 32: 12.0})
    unknown = scheduler.Job("unknown", running=8)
    jobs = {job.job_id: job for job in (steep, flat, unknown)}
    assert scheduler.divide(jobs, 48) == {"flat": 8, "steep": 32, "unknown": 8}
    assert scheduler.divide(jobs, 12) == {"flat": 0, "steep": 0, "unknown": 8}
    # A job that fits nothing but its largest size gets that or nothing.
    assert scheduler.divide({"x": scheduler.Job("x", samples_per_s={32: 1.0})}, 16) == {"x": 0}

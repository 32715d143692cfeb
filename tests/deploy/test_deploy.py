"""What deploy/ says about the service is so: checked without a cluster and without containers."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.longrunning import operations_pb2

from planner.client.channel import service_config
from planner.errors import InputError
from planner.service import server
from planner.service.answering import Answering
from planner.service.errors import CODES
from planner.service.identity import LEAST_ROLES
from planner.service.metrics import ServiceMetrics
from planner.service.pool import LaneName
from planner.service.settings import ServiceSettings, load_settings
from planner.v1 import planner_service_pb2

TOP = Path(__file__).resolve().parents[2]
DEPLOY = TOP / "deploy"
BASE = "base"
OVERLAYS = {name: DEPLOY / "kustomize" / "overlays" / name for name in ("single", "replicated")}
PLACES = {BASE: DEPLOY / "kustomize" / "base", **OVERLAYS}
# The one that deploy/README.md shows: `single` with all components.
OWN = "own"
COMPONENTS = DEPLOY / "kustomize" / "components"

# What a Secret holds is not in the repository; this stands for it.
STORE_URL = "postgresql+psycopg://planner:secret@database.example/planner"
IDLE_WORKER_BYTES = 110_000_000
FRONT_BYTES = 150_000_000
# What Kubernetes itself has no schema of.
OPERATORS = {"monitoring.coreos.com/v1"}
Document = dict[str, Any]


def missing(what: str) -> None:
    reason = f"{what} is not installed (the extra deploy-test)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def tool(name: str) -> str:
    found = shutil.which(
        name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if found is None:
        missing(name)
    assert found is not None
    return found


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Rendered:
    """All documents that an overlay makes."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.documents: list[Document] = list(yaml.safe_load_all(text))

    def all(self, kind: str) -> list[Document]:
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind: str, name: str = "planner") -> Document:
        (found,) = [d for d in self.all(kind) if d["metadata"]["name"] == name]
        return found

    @property
    def template(self) -> Document:
        found: Document = self.one("Deployment")["spec"]["template"]
        return found

    @property
    def pod(self) -> Document:
        found: Document = self.template["spec"]
        return found

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.template["metadata"]["labels"]
        return found

    @property
    def container(self) -> Document:
        found: Document
        (found,) = self.pod["containers"]
        return found

    @property
    def ports(self) -> dict[str, int]:
        return {port["name"]: port["containerPort"] for port in self.container["ports"]}

    @property
    def mounts(self) -> dict[str, Document]:
        """By mount path: the volume that is there."""
        volumes = {volume["name"]: volume for volume in self.pod["volumes"]}
        return {m["mountPath"]: volumes[m["name"]] for m in self.container["volumeMounts"]}

    def content(self, path: str) -> str:
        """Of a file that a ConfigMap puts into the container."""
        folder, _, file = path.rpartition("/")
        config_map = self.one("ConfigMap", self.mounts[folder]["configMap"]["name"])
        return str(config_map["data"][file])

    @property
    def variables(self) -> dict[str, str]:
        found = {}
        for variable in self.container.get("env", []):
            secret = "valueFrom" in variable and "secretKeyRef" in variable["valueFrom"]
            found[variable["name"]] = STORE_URL if secret else variable["value"]
        return found

    def settings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceSettings:
        """As the server in the container would load them."""
        (flag,) = self.container["args"]
        option, _, path = flag.partition("=")
        assert option == "--config"
        file = tmp_path / "config.yaml"
        file.write_text(self.content(path))
        for name in [name for name in os.environ if name.startswith("PLANNER_")]:
            monkeypatch.delenv(name)
        for name, value in {**image_variables(), **self.variables}.items():
            if name.startswith("PLANNER_"):
                assert name.removeprefix("PLANNER_").lower() in ServiceSettings.model_fields
                monkeypatch.setenv(name, value)
        return load_settings(file)


def image_variables() -> dict[str, str]:
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    words = [word for line in lines if line.startswith("ENV ") for word in line.split()[1:]]
    return dict(word.split("=", 1) for word in words)


@pytest.fixture(scope="session")
def rendered_texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    kubectl = tool("kubectl")
    own = tmp_path_factory.mktemp(OWN)
    (own / "kustomization.yaml").write_text(own_kustomization(own))
    places = {**PLACES, OWN: own}
    return {name: run(kubectl, "kustomize", str(place)) for name, place in places.items()}


def own_kustomization(folder: Path) -> str:
    """What deploy/README.md shows, with paths that lead from a folder to this repository."""
    page = (DEPLOY / "README.md").read_text()
    (text,) = re.findall(r"```yaml\n([^`]*kind: Kustomization\n[^`]*)```", page)
    return str(text).replace("stageplan/deploy/", f"{os.path.relpath(DEPLOY, folder.resolve())}/")


@pytest.fixture(params=[*PLACES, OWN])
def rendered(request: pytest.FixtureRequest, rendered_texts: dict[str, str]) -> Rendered:
    return Rendered(request.param, rendered_texts[request.param])


@pytest.fixture
def replicated(rendered_texts: dict[str, str]) -> Rendered:
    return Rendered("replicated", rendered_texts["replicated"])


@pytest.fixture
def single(rendered_texts: dict[str, str]) -> Rendered:
    return Rendered("single", rendered_texts["single"])


@pytest.fixture
def own(rendered_texts: dict[str, str]) -> Rendered:
    return Rendered(OWN, rendered_texts[OWN])


# --- the tools' own opinion -----------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.30.0", "1.37.0"])
def test_manifests_are_valid_for_kubernetes(
    version: str, rendered_texts: dict[str, str], tmp_path: Path
) -> None:
    if util.find_spec("kubernetes_validate") is None:
        missing("kubernetes-validate")
    files, count = [], 0
    for name, text in rendered_texts.items():
        documents = [
            document
            for document in Rendered(name, text).documents
            if document["apiVersion"] not in OPERATORS
        ]
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(yaml.safe_dump_all(documents))
        count += len(documents)
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "-k", version]
    said = run(*command, *map(str, files))
    assert "ERROR" not in said
    assert said.count("passed") == count


def test_the_dockerfile_has_no_findings() -> None:
    assert run(tool("hadolint"), str(DEPLOY / "Dockerfile")) == ""


# --- settings -------------------------------------------------------------------------------------


def test_settings_load(rendered: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = rendered.settings(tmp_path, monkeypatch)
    assert settings.host == "0.0.0.0"
    # The default counts the node's cores.
    written = yaml.safe_load(rendered.content("/etc/planner/config/config.yaml"))
    assert "slots" in written


def test_stores(
    single: Rendered, replicated: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = single.settings(tmp_path, monkeypatch).store.removeprefix("sqlite:///")
    volume = single.mounts[str(Path(kept).parent)]
    claim = volume["persistentVolumeClaim"]["claimName"]
    assert single.one("PersistentVolumeClaim", claim)["spec"]["accessModes"] == ["ReadWriteOnce"]
    # Two pods must not write to one SQLite file.
    assert single.one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert single.one("Deployment")["spec"]["replicas"] == 1
    assert replicated.settings(tmp_path, monkeypatch).store == STORE_URL


def test_overlays_differ_from_the_base_where_they_say(tmp_path: Path) -> None:
    read = {
        name: yaml.safe_load((place / "config.yaml").read_text()) for name, place in PLACES.items()
    }
    assert {k for k in read["single"] if read["single"][k] != read[BASE].get(k)} == {"store"}
    differing = {
        key
        for key in {*read["replicated"], *read[BASE]}
        if read["replicated"].get(key) != read[BASE].get(key)
    }
    assert differing == {
        "insecure",
        "store",
        "tls_client_ca_file",
    }


def secret_file(rendered: Rendered, file: Path | None) -> tuple[str, str]:
    """The Secret that a file comes from, and its name there."""
    assert file is not None
    secret = rendered.mounts[str(file.parent)]["secret"]
    # Read by the pod's group and by nobody else.
    assert secret["defaultMode"] == 0o440
    # A subPath would never be renewed.
    assert all("subPath" not in mount for mount in rendered.container["volumeMounts"])
    return secret["secretName"], file.name


def test_mutual_tls_comes_from_a_secret(
    replicated: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replicated.settings(tmp_path, monkeypatch)
    assert not settings.insecure
    files = (settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file)
    assert [secret_file(replicated, file) for file in files] == [
        ("planner-tls", name) for name in ("tls.crt", "tls.key", "ca.crt")
    ]


def test_components_ask_who_calls(
    own: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = own.settings(tmp_path, monkeypatch)
    assert not settings.insecure
    assert settings.store.startswith("sqlite:")
    assert secret_file(own, settings.identities_file) == ("planner-identities", "identities.yaml")
    assert secret_file(own, settings.tls_certificate_file) == ("planner-tls", "tls.crt")
    assert secret_file(own, settings.tls_key_file) == ("planner-tls", "tls.key")
    assert settings.tls_client_ca_file is None


def test_tokens_are_not_for_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The component `identities` without `tls` is a server that says so and does not start."""
    patch = yaml.safe_load((COMPONENTS / "identities" / "deployment.yaml").read_text())
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    with pytest.raises(InputError, match="there is no TLS"):
        load_settings(PLACES[BASE] / "config.yaml")


def test_an_own_registry_takes_the_place_of_the_one_shown(own: Rendered) -> None:
    assert str(own.container["image"]).startswith("registry.example.org/infra/stageplan:")
    assert {d["metadata"]["namespace"] for d in own.documents} == {"planner"}


def test_a_service_named_planner_would_be_taken_for_settings(
    rendered: Rendered, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rendered.one("Service")
    assert rendered.pod["enableServiceLinks"] is False
    monkeypatch.setenv("PLANNER_PORT", "tcp://10.0.0.1:50051")  # as Kubernetes would set it
    with pytest.raises(InputError, match="port"):
        load_settings()


# --- what must agree ------------------------------------------------------------------------------


def test_ports_agree(rendered: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = rendered.settings(tmp_path, monkeypatch)
    assert rendered.ports == {"grpc": settings.port, "metrics": settings.metrics_port}
    annotations = rendered.template["metadata"].get("annotations", {})
    if rendered.name == OWN:  # what reads both would count twice
        (endpoint,) = rendered.one("PodMonitor")["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in rendered.ports
        assert annotations == {}
    else:
        assert annotations["prometheus.io/port"] == str(settings.metrics_port)
    for service in rendered.all("Service"):
        for port in service["spec"]["ports"]:
            assert rendered.ports[port["targetPort"]] == port["port"]
    for probe in probes(rendered).values():
        if "grpc" in probe:
            assert probe["grpc"]["port"] == settings.port
    policy = rendered.one("NetworkPolicy")["spec"]
    let_in = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert let_in == set(rendered.ports)
    exposed = re.search(r"^EXPOSE (.*)$", (DEPLOY / "Dockerfile").read_text(), re.M)
    assert exposed is not None
    assert exposed[1].split() == [str(port) for port in rendered.ports.values()]


def test_the_grace_period_is_longer_than_the_drain(
    rendered: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = rendered.settings(tmp_path, monkeypatch)
    sleep = rendered.container["lifecycle"]["preStop"]["sleep"]["seconds"]
    needed = sleep + settings.drain_s + settings.soft_stop_s + 2
    assert rendered.pod["terminationGracePeriodSeconds"] > needed


def test_workers_fit_into_the_container(
    rendered: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker meets its own limit, which is an answer, before the container meets its."""
    settings = rendered.settings(tmp_path, monkeypatch)
    resources = rendered.container["resources"]
    workers = settings.slots + settings.quick_slots + settings.spare_workers
    most = workers * (settings.worker_memory_bytes + IDLE_WORKER_BYTES)
    most += settings.cache_bytes + FRONT_BYTES
    assert most <= size_bytes(resources["limits"]["memory"])
    idle = workers * IDLE_WORKER_BYTES + settings.cache_bytes + FRONT_BYTES
    assert idle <= size_bytes(resources["requests"]["memory"])
    assert int(resources["requests"]["cpu"]) >= settings.slots + settings.quick_slots


def size_bytes(text: str) -> int:
    return int(text.removesuffix("Gi")) << 30


def test_selectors_match_the_pods(rendered: Rendered) -> None:
    selectors = [rendered.one("Deployment")["spec"]["selector"]["matchLabels"]]
    selectors += [service["spec"]["selector"] for service in rendered.all("Service")]
    selectors += [p["spec"]["podSelector"]["matchLabels"] for p in rendered.all("NetworkPolicy")]
    for kind in ("PodDisruptionBudget", "PodMonitor"):
        selectors += [p["spec"]["selector"]["matchLabels"] for p in rendered.all(kind)]
    spread = rendered.pod["topologySpreadConstraints"]
    selectors += [constraint["labelSelector"]["matchLabels"] for constraint in spread]
    for selector in selectors:
        assert selector
        assert selector.items() <= rendered.labels.items()
    assert {c["topologyKey"] for c in spread} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }


def test_pods_may_do_nothing_but_serve(rendered: Rendered) -> None:
    assert rendered.pod["automountServiceAccountToken"] is False
    of_pod = rendered.pod["securityContext"]
    assert of_pod["runAsNonRoot"] is True
    assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert rendered.container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "Dockerfile").read_text(), re.M)
    assert user is not None
    assert [int(number) for number in user.groups()] == [of_pod["runAsUser"], of_pod["runAsGroup"]]
    assert set(rendered.one("NetworkPolicy")["spec"]["policyTypes"]) == {"Ingress", "Egress"}


def test_compiled_kernels_of_the_image_are_used(rendered: Rendered) -> None:
    baked = image_variables()["NUMBA_CACHE_DIR"]
    text = (DEPLOY / "Dockerfile").read_text()
    assert f"--chown=65532:65532 {baked} {baked}\n" in text
    # What was compiled for one processor must be found on another.
    assert text.count("NUMBA_CPU_NAME=generic") == 2
    assert text.count(f"NUMBA_CACHE_DIR={baked}") == 2
    (copying,) = rendered.pod["initContainers"]
    assert copying["image"] == rendered.container["image"]
    assert copying["securityContext"] == rendered.container["securityContext"]
    (mount,) = copying["volumeMounts"]
    assert copying["command"] == ["cp", "-r", f"{baked}/.", mount["mountPath"]]
    assert rendered.mounts[baked]["name"] == mount["name"]
    assert "emptyDir" in rendered.mounts[baked]
    assert "emptyDir" in rendered.mounts["/tmp"]
    # -P: of the installed package. The sources beside it are another folder to the cache.
    assert re.search(r'python -P -c \\\n +"[^"]*Answering\(\)\.warm_up\(\)"', text)
    assert inspect.isfunction(Answering.warm_up)


def probes(rendered: Rendered) -> dict[str, Document]:
    return {
        name: rendered.container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")
    }


def test_probes_name_real_services(rendered: Rendered) -> None:
    services = {}
    for name, probe in probes(rendered).items():
        if "grpc" in probe:
            assert "exec" not in probe
            services[name] = probe["grpc"].get("service", "")
            continue
        python, script, *flags = probe["exec"]["command"]
        assert python == "python"
        assert rendered.content(script) == (COMPONENTS / "tls" / "health_probe.py").read_text()
        services[name] = flags[0].partition("=")[2] if flags else ""
    assert services == {"startup": "", "readiness": server.PLANNER, "liveness": ""}
    assert (
        planner_service_pb2.DESCRIPTOR.services_by_name["PlannerService"].full_name
        == server.PLANNER
    )


def test_plain_pods_are_probed_by_the_kubelet_and_those_with_tls_by_themselves(
    rendered: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = rendered.settings(tmp_path, monkeypatch)
    kind = "grpc" if settings.tls_certificate_file is None else "exec"
    assert all(kind in probe for probe in probes(rendered).values())


def test_the_autoscaler_asks_for_a_metric_that_exists(replicated: Rendered) -> None:
    scaler = replicated.one("HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": replicated.one("Deployment")["metadata"]["name"],
    }
    # A number of replicas in the Deployment would undo the autoscaler's at each apply.
    assert "replicas" not in replicated.one("Deployment")["spec"]
    assert scaler["minReplicas"] == 3
    (metric,) = scaler["metrics"]
    asked = metric["pods"]["metric"]
    metrics = ServiceMetrics()
    for lane in LaneName:
        metrics.set_queue_length(lane, 7)
    assert metrics.value(asked["name"], **asked["selector"]["matchLabels"]) == 7
    assert replicated.one("PodDisruptionBudget")["spec"]["maxUnavailable"] < scaler["minReplicas"]


def test_one_name_resolves_to_all_pods(replicated: Rendered) -> None:
    assert replicated.one("Service", "planner-headless")["spec"]["clusterIP"] == "None"
    assert replicated.one("Service")["spec"]["type"] == "ClusterIP"
    assert {"round_robin": {}} in json.loads(service_config())["loadBalancingConfig"]


def test_the_image_is_of_this_version() -> None:
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    kustomization = yaml.safe_load((PLACES[BASE] / "kustomization.yaml").read_text())
    assert [image["newTag"] for image in kustomization["images"]] == [version]
    assert f"stageplan:{version} " in (DEPLOY / "Dockerfile").read_text()


def test_the_build_context_has_what_the_wheel_is_made_of() -> None:
    let_in = [
        line.removeprefix("!")
        for line in (TOP / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], "pyproject.toml"]
    needed += [project["project"]["readme"], *project["project"]["license-files"]]
    assert sorted(let_in) == sorted(needed)
    assert all((TOP / name).exists() for name in let_in)


def test_the_image_runs_the_server_itself() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["planner", "serve"]' in text  # no shell that would keep the signals
    extras = re.search(r"^ARG EXTRAS=(.*)$", text, re.M)
    assert extras is not None
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    assert {"fast", "store"} <= set(extras[1].split(",")) <= set(project["optional-dependencies"])
    stages = re.findall(r"^FROM (\S+)", text, re.M)
    assert len(stages) == 2
    assert len(set(stages)) == 1


# --- the clients' service config ------------------------------------------------------------------


def known_methods() -> dict[str, set[str]]:
    planner = planner_service_pb2.DESCRIPTOR.services_by_name["PlannerService"]
    operations = operations_pb2.DESCRIPTOR.services_by_name["Operations"]
    return {s.full_name: {method.name for method in s.methods} for s in (planner, operations)}


def test_the_service_config_retries_what_is_unavailable_and_nothing_else() -> None:
    config = json.loads(service_config())
    methods = known_methods()
    for entry in config["methodConfig"]:
        policy = entry["retryPolicy"]
        assert policy["retryableStatusCodes"] == ["UNAVAILABLE"]
        assert 2 <= policy["maxAttempts"] <= 5  # gRPC cuts more to 5
        assert policy["backoffMultiplier"] > 0
        assert all(
            re.fullmatch(r"\d+(\.\d+)?s", policy[k]) for k in ("initialBackoff", "maxBackoff")
        )
        for name in entry["name"]:
            assert name.get("method") is None or name["method"] in methods[name["service"]]
            assert name["service"] in methods
            # Everything that is asked again is a known method with a role.
            for method in [name["method"]] if "method" in name else methods[name["service"]]:
                assert f"/{name['service']}/{method}" in LEAST_ROLES
    assert CODES["DRAINING"].name == "UNAVAILABLE"
    assert CODES["QUEUE_FULL"].name != "UNAVAILABLE"

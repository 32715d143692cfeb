"""The protocol: its stubs are what its files say, its style is the standard, and it only grows."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import google.protobuf
import pytest

ROOT = Path(__file__).parents[1]
PROTOS = ROOT / "protos"

pytest.importorskip("grpc_tools", reason="grpcio-tools is of the dev extra")


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    if not PROTOS.is_dir():
        pytest.skip("the protocol's files lie in the checkout, not in the package")
    spec = importlib.util.spec_from_file_location("generate", PROTOS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_stubs_are_up_to_date(generate: ModuleType, tmp_path: Path) -> None:
    generate.generate(tmp_path)
    made = {path.name: path.read_text() for path in (tmp_path / "planner" / "v1").iterdir()}
    kept = {
        path.name: path.read_text()
        for path in (ROOT / "planner" / "v1").iterdir()
        if path.suffix in (".py", ".pyi") and path.name != "__init__.py"
    }
    assert kept == made


def test_the_stubs_load_with_the_protobuf_that_ortools_needs() -> None:
    text = (ROOT / "planner" / "v1" / "common_pb2.py").read_text()
    made = tuple(map(int, re.search(r"Protobuf Python Version: ([\d.]+)", text)[1].split(".")))  # type: ignore[index]
    runtime = tuple(map(int, google.protobuf.__version__.split(".")[:3]))
    assert made <= runtime < (6, 34)
    ortools = pytest.importorskip("ortools")
    assert tuple(map(int, ortools.__version__.split(".")[:2])) >= (9, 15)


@pytest.fixture(scope="module")
def image(generate: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("image") / "planner.binpb"
    generate.write_image(target)
    return Path(target)


def _buf(*arguments: str) -> subprocess.CompletedProcess[str]:
    buf = Path(sys.executable).with_name("buf")
    if not buf.exists():
        pytest.skip("buf-bin is of the dev extra")
    return subprocess.run(
        [buf, *arguments, "--config", str(PROTOS / "buf.yaml")], capture_output=True, text=True
    )


def test_style(image: Path) -> None:
    found = _buf("lint", str(image))
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize("released", sorted((PROTOS / "released").glob("*.binpb")), ids=str)
def test_nothing_released_is_broken(image: Path, released: Path) -> None:
    found = _buf("breaking", str(image), "--against", str(released))
    assert (found.returncode, found.stdout) == (0, "")


def test_a_break_would_be_seen(image: Path, tmp_path: Path) -> None:
    """The check itself: a field that is gone is found."""
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes())
    for file in files.file:
        if file.name == "planner/v1/plan.proto":
            layout = next(m for m in file.message_type if m.name == "Layout")
            del layout.field[0]
    broken = tmp_path / "broken.binpb"
    broken.write_bytes(files.SerializeToString())
    found = _buf("breaking", str(broken), "--against", str(image))
    assert found.returncode != 0
    assert "Layout" in found.stdout

"""Make planner/v1 from protos/planner/v1 (``python protos/generate.py [FOLDER]``).

``python protos/generate.py --release VERSION`` keeps the protocol as it is now under
``protos/released``: later ones may only add to it, which the tests check.

Needs grpcio-tools of the ``dev`` extra: newer ones write stubs that the protobuf runtime which
ortools needs cannot load.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import google.rpc
import grpc_tools

_PROTOS = Path(__file__).resolve().parent


def generate(target: Path) -> None:
    """Write the stubs below ``target`` (as ``planner/v1/*_pb2.py``)."""
    with _includes() as includes:
        kinds = ("python_out", "pyi_out", "grpc_python_out")
        _run([*includes, *(f"--{kind}={target}" for kind in kinds)])
    for stub in target.glob("planner/v1/*_pb2_grpc.py"):
        if stub.name != "planner_service_pb2_grpc.py":
            stub.unlink()  # holds nothing: its file has no service


def write_image(target: Path, *, comments: bool = True) -> None:
    """Write all descriptors into one file, as buf reads it."""
    with _includes() as includes:
        flags = ["--include_imports", f"--descriptor_set_out={target}"]
        _run([*includes, *flags, *(["--include_source_info"] if comments else [])])


def _run(flags: list[str]) -> None:
    files = sorted(str(path.relative_to(_PROTOS)) for path in _PROTOS.glob("planner/v1/*.proto"))
    # In a process of its own: the compiler's library and ortools bring their own copies of
    # protobuf, and a process that loads both is aborted.
    command = [sys.executable, "-m", "grpc_tools.protoc", *flags, *files]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(1)


@contextmanager
def _includes() -> Iterator[list[str]]:
    google_protos = Path(next(iter(google.rpc.__path__))).parents[1]
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        # The package ships this file under another name than the one it registers.
        canonical = Path(folder, "google", "longrunning", "operations.proto")
        canonical.parent.mkdir(parents=True)
        shutil.copy(google_protos / "google/longrunning/operations_proto.proto", canonical)
        yield [f"-I{path}" for path in (_PROTOS, folder, google_protos, well_known)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--release"]:
        write_image(_PROTOS / "released" / f"{sys.argv[2]}.binpb", comments=False)
    else:
        generate(Path(sys.argv[1]) if len(sys.argv) > 1 else _PROTOS.parent)

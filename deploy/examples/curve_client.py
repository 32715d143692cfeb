"""Ask a planner how fast a job would train on each size, and where one size should be placed.

    python curve_client.py localhost:50051 llama3-8b dgx-h100:4 --global-batch 512 --sizes 8 16 32
    sbatch $(python curve_client.py planner:50051 llama3-8b dgx-h100:4 --global-batch 512 \
        --sizes 8 16 32 --print slurm --size 16) train.sh

A table, and the placement in the words of three schedulers; with --print only one of them, or the
curve as JSON. Points are written to standard error as they are found. Exit status: 0 done, 2 bad
input, 3 the job does not fit, 4 no time, 5 no server or a full one, 6 it refuses the caller,
1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from planner.client import PlannerClient, ServerBusyError
from planner.errors import PlannerError

if TYPE_CHECKING:
    from planner.curves import CurvePoint, Placement, ScalingCurve


def main(arguments: list[str] | None = None) -> int:
    """Exit status."""
    given = parser().parse_args(arguments)
    try:
        token = None if given.token_file is None else given.token_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is no text"
        return complain(f"{given.token_file}: cannot be read: {why}", 2)
    try:
        with PlannerClient(
            given.server,
            token=token,
            ca_file=given.ca,
            certificate_file=given.certificate,
            key_file=given.key,
        ) as planner:
            answer = planner.scaling_curve(
                given.model,
                given.cluster,
                global_batch_size=given.global_batch,
                sequence_length=given.seq_len,
                allocations=given.sizes,
                timeout_s=given.timeout_s,
                on_point=show,
            )
    except ServerBusyError as error:
        again = "" if error.retry_after_s is None else f" (again in {error.retry_after_s:.1f} s)"
        return complain(f"{error}{again}", error.exit_status)
    except PlannerError as error:
        return complain(error, error.exit_status)
    for warning in answer.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return report(answer.curve, given.print, given.size)


def show(point: CurvePoint) -> None:
    """One point, as it is found."""
    if point.samples_per_s is None:
        text = f"{point.status}: {point.message}"
    else:
        layout = "" if point.layout is None else point.layout.short()
        gap = "" if point.gap is None else f", gap {point.gap:.1%}"
        text = f"{point.samples_per_s:10.2f} samples/s  {layout}{gap}"
    print(f"{point.num_gpus:6} GPUs  {text}", file=sys.stderr)


def report(curve: ScalingCurve, what: str, size: int | None) -> int:
    """Print what was asked for; exit status."""
    points = {point.num_gpus: point for point in curve.points if point.samples_per_s is not None}
    if what == "table":
        print_table(curve)
    if not points:
        return complain("no size holds the job", 3)
    if what == "curve":
        print(json.dumps({str(n): points[n].samples_per_s for n in sorted(points)}))
        return 0
    if size is None:  # the largest that is worth its GPUs
        size = max((n for n in curve.recommended_sizes if n in points), default=max(points))
    if size not in points:
        return complain(f"{size} GPUs do not hold the job, or were not asked about", 3)
    placement = points[size].placement
    if placement is None:
        return complain("the server names no placement", 1)
    said = words(placement)
    if what == "table":
        print(f"\nplacement of {size} GPUs")
        for scheduler, text in said.items():
            print(f"  {scheduler:8} {text}")
    else:
        print(said[what])
    return 0


def print_table(curve: ScalingCurve) -> None:
    """All sizes, also those that do not work, and why."""
    print(f"{'GPUs':>6} {'samples/s':>11} {'per GPU':>9} {'gap':>7}  layout")
    for point in curve.points:
        size = f"{point.num_gpus:6}"
        if point.samples_per_s is None or point.layout is None:
            print(f"{size} {'-':>11} {'-':>9} {'-':>7}  {point.status}: {point.message}")
            continue
        each = point.samples_per_s / point.num_gpus
        gap = "-" if point.gap is None else f"{point.gap:.1%}"
        best = "  recommended" if point.num_gpus in curve.recommended_sizes else ""
        print(
            f"{size} {point.samples_per_s:11.2f} {each:9.3f} {gap:>7}  {point.layout.short()}{best}"
        )


def words(placement: Placement) -> dict[str, str]:
    """By scheduler: arguments of sbatch, annotations, fields of networkTopology."""
    return {
        "slurm": shlex.join(placement.slurm),
        "kueue": json.dumps(placement.kueue),
        "volcano": json.dumps(placement.volcano),
    }


def complain(what: object, status: int) -> int:
    """Say what is wrong on standard error."""
    print(f"curve_client: {what}", file=sys.stderr)
    return status


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("server", help="host:port, or dns:///name:port for several replicas")
    found.add_argument("model", help="a name of the server's catalog, or a file")
    found.add_argument("cluster", help="name:nodes, or a file")
    found.add_argument("--global-batch", type=int, required=True)
    found.add_argument("--seq-len", type=int)
    found.add_argument("--sizes", type=int, nargs="+", required=True, help="GPUs")
    found.add_argument("--timeout-s", type=float, default=60.0)
    kinds = ["table", "curve", "slurm", "kueue", "volcano"]
    found.add_argument("--print", choices=kinds, default="table")
    found.add_argument("--size", type=int, help="GPUs; otherwise the largest one recommended")
    found.add_argument("--ca", type=Path)
    found.add_argument("--certificate", type=Path)
    found.add_argument("--key", type=Path)
    found.add_argument("--token-file", type=Path)
    return found


if __name__ == "__main__":
    sys.exit(main())

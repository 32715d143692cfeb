"""One round of a cluster scheduler: curves of all jobs in one call, then GPUs to the best use.

    python scheduler_round.py localhost:50051 jobs.json --gpus 64 --deadline-s 5

jobs.json is a list of {"job_id", "model", "cluster", "global_batch_size", "sizes": [GPUs, ...]}.
Prints {job_id: GPUs}. A job without a curve in time keeps the GPUs that "running" says.
Exit status: 0 done, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.client import CurveJob, JobAnswer, PlannerClient
from planner.errors import InputError, PlannerError

KEYS = {"job_id": str, "model": str, "cluster": str, "global_batch_size": int, "sizes": list}


@dataclass
class Job:
    """What the scheduler knows of a job."""

    job_id: str
    running: int = 0
    """GPUs it has now."""
    samples_per_s: dict[int, float] = field(default_factory=dict)
    """By GPUs; empty where no curve came."""


def main(arguments: list[str] | None = None) -> int:
    """Exit status."""
    given = parser().parse_args(arguments)
    try:
        wanted = read_jobs(given.jobs)
        token = None if given.token_file is None else read(given.token_file).strip()
        questions = [question(each) for each in wanted]
    except ValueError as error:
        return complain(error, 2)
    jobs = {each["job_id"]: Job(each["job_id"], each.get("running", 0)) for each in wanted}

    def take(answer: JobAnswer) -> None:
        if answer.answer is None:
            why = answer.status if answer.error is None else f"{answer.status}: {answer.error}"
            print(f"{answer.job_id}: no curve, {why}", file=sys.stderr)
            return
        jobs[answer.job_id].samples_per_s = {
            point.num_gpus: point.samples_per_s
            for point in answer.answer.curve.points
            if point.samples_per_s is not None
        }

    try:
        with PlannerClient(
            given.server,
            token=token,
            ca_file=given.ca,
            certificate_file=given.certificate,
            key_file=given.key,
        ) as planner:
            # One call: models are sent once, and the deadline is that of the whole round.
            planner.scaling_curves(questions, on_answer=take, timeout_s=given.deadline_s)
    except InputError as error:
        return complain(error, 2)
    except PlannerError as error:
        # Whatever has come until now is used; the others keep what they have.
        complain(error, 0)
    print(json.dumps(divide(jobs, given.gpus)))
    return 0


def read_jobs(file: Path) -> list[dict[str, Any]]:
    """The jobs of a file; ValueError where it cannot be read or one lacks a key."""
    try:
        jobs = json.loads(read(file))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}:{error.lineno}: is not JSON: {error.msg}") from None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise ValueError(f"{file}: is not a list of jobs")
    for index, job in enumerate(jobs):
        name = job.get("job_id", f"number {index + 1}")
        missing = [key for key in KEYS if key not in job]
        if missing:
            raise ValueError(f"{file}: job {name} has no {', '.join(missing)}")
        for key, kind in KEYS.items():
            if not isinstance(job[key], kind):
                raise ValueError(f"{file}: job {name}: {key} is no {kind.__name__}")
    return jobs


def read(file: Path) -> str:
    """The text of a file; ValueError where it has none."""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is no text"
        raise ValueError(f"{file}: cannot be read: {why}") from None


def complain(what: object, status: int) -> int:
    """Say what is wrong on standard error."""
    print(f"scheduler_round: {what}", file=sys.stderr)
    return status


def question(job: Mapping[str, Any]) -> CurveJob:
    """Of one job."""
    options = {"global_batch_size": job["global_batch_size"], "allocations": job["sizes"]}
    return CurveJob(job["job_id"], job["model"], job["cluster"], options)


def divide(jobs: Mapping[str, Job], num_gpus: int) -> dict[str, int]:
    """GPUs by job: always the step with the largest gain per GPU, as a share of the job's best.

    Whoever has no curve keeps what it has. Jobs are served in the order of their ids where gains
    are equal, so that the same curves give the same division.

    >>> a = Job("a", samples_per_s={8: 10.0, 16: 19.0})
    >>> b = Job("b", samples_per_s={8: 10.0, 16: 12.0})
    >>> divide({"a": a, "b": b}, 24)
    {'a': 16, 'b': 8}
    """
    found = {name: 0 if job.samples_per_s else job.running for name, job in sorted(jobs.items())}
    left = num_gpus - sum(found.values())
    while step := best_step([jobs[name] for name in found], found, left):
        name, size = step
        left -= size - found[name]
        found[name] = size
    return found


def best_step(jobs: Sequence[Job], found: Mapping[str, int], left: int) -> tuple[str, int] | None:
    """The job and its next size; None where nothing gains."""
    best, best_gain = None, 0.0
    for job in jobs:
        now = job.samples_per_s.get(found[job.job_id], 0.0)
        for size, speed in sorted(job.samples_per_s.items()):
            more = size - found[job.job_id]
            if 0 < more <= left:
                gain = (speed - now) / max(job.samples_per_s.values()) / more
                if gain > best_gain:
                    best, best_gain = (job.job_id, size), gain
    return best


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("server", help="host:port, or dns:///name:port for several replicas")
    found.add_argument("jobs", type=Path)
    found.add_argument("--gpus", type=int, required=True)
    found.add_argument("--deadline-s", type=float, default=5.0)
    found.add_argument("--ca", type=Path)
    found.add_argument("--certificate", type=Path)
    found.add_argument("--key", type=Path)
    found.add_argument("--token-file", type=Path)
    return found


if __name__ == "__main__":
    sys.exit(main())

"""Nightly: a hundred thousand requests that nobody should send (``python service_fuzz.py``)."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "service"))


def main() -> int:
    """Start a server, send the requests, print what came of them."""
    from fuzzing import fuzz
    from server_process import running_server

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    with running_server("--slots", "1", "--quick-slots", "1") as server:
        began = time.monotonic()
        report = asyncio.run(fuzz(server.address, given.count, given.seed, timeout_s=1.0))
        seconds = time.monotonic() - began
    errors = [line for line in server.log if line.get("level") == "error"]
    print(f"seed {given.seed}: {report.sent} requests in {seconds:.0f} s")
    for code, count in report.codes.most_common():
        print(f"  {count:7}  {code}")
    for line in [*report.bad[:20], *map(str, errors[:20]), *server.other_lines[:20]]:
        print(line)
    return 1 if report.bad or errors or server.other_lines else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Two thousand requests that nobody should send; the nightly script sends many more."""

from __future__ import annotations

import asyncio

from fuzzing import fuzz
from rpcs import RPCS
from server_process import running_server


def test_no_request_breaks_the_server() -> None:
    flags = ("--slots", "1", "--quick-slots", "1")
    with running_server(*flags) as server:
        report = asyncio.run(fuzz(server.address, 2000, seed=1, timeout_s=1.0))
        assert report.bad == []
        assert report.sent == 2000
        assert report.codes["OK"] > 100
        solve = next(rpc for rpc in RPCS if rpc.name == "SolvePlan")
        assert solve.call(server, solve.good()).plan.stages
        assert not [line for line in server.log if line["level"] == "error"]

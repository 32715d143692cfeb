"""Metrics: their names and labels, two servers in one process, the endpoint."""

from __future__ import annotations

import socket
import urllib.request

import pytest

from planner.errors import InputError
from planner.service.metrics import MetricsServer, ServiceMetrics
from planner.version import planner_version


def test_every_metric_is_exposed_under_its_name() -> None:
    metrics = ServiceMetrics()
    metrics.request_started()
    metrics.request_done("planner.v1.PlannerService/SolvePlan", "OK", 0.2)
    metrics.observe_queue("search", 0.01)
    metrics.observe_solve("SolvePlan", 1.5)
    metrics.set_slots("search", "busy", 2)
    metrics.set_queue_length("search", 7)
    metrics.worker_restarted("crash")
    metrics.terminated("optimal", "none", 0.0)
    metrics.terminated("feasible", "time", 0.03)
    metrics.cache("hit")
    metrics.set_cache_bytes(1_024)
    metrics.set_store_records("plans", 3)
    lines = metrics.text().splitlines()
    for line in (
        f'planner_build_info{{version="{planner_version()}"}} 1.0',
        'planner_requests_total{code="OK",method="planner.v1.PlannerService/SolvePlan"} 1.0',
        "planner_in_flight_calls 0.0",
        'planner_queue_seconds_count{lane="search"} 1.0',
        'planner_solve_seconds_sum{method="SolvePlan"} 1.5',
        'planner_slots{lane="search",state="busy"} 2.0',
        'planner_queue_length{lane="search"} 7.0',
        'planner_worker_restarts_total{cause="crash"} 1.0',
        'planner_worker_restarts_total{cause="hung"} 0.0',
        'planner_terminations_total{limit="time",reason="feasible"} 1.0',
        'planner_gap_bucket{le="0.0"} 1.0',
        "planner_gap_count 2.0",
        'planner_cache_total{result="hit"} 1.0',
        "planner_cache_bytes 1024.0",
        'planner_store_records{kind="plans"} 3.0',
    ):
        assert line in lines


def test_two_servers_in_one_process_count_apart() -> None:
    one, other = ServiceMetrics(), ServiceMetrics()
    one.cache("hit")
    assert one.value("planner_cache_total", result="hit") == 1
    assert other.value("planner_cache_total", result="hit") == 0


def test_a_restart_needs_a_known_cause() -> None:
    with pytest.raises(ValueError, match="boredom"):
        ServiceMetrics().worker_restarted("boredom")


def test_endpoint_serves_and_stops() -> None:
    metrics = ServiceMetrics()
    metrics.set_queue_length("quick", 4)
    server = MetricsServer(metrics, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.port}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert 'planner_queue_length{lane="quick"} 4.0' in answer.read().decode()
    server.stop()
    server.stop()
    with socket.socket() as free:  # the port is free again
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", server.port))


def test_endpoint_of_a_unix_socket_service_is_on_loopback() -> None:
    server = MetricsServer(ServiceMetrics(), "unix:/run/planner.sock", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as answer:
            assert answer.status == 200
    finally:
        server.stop()


def test_a_taken_port_is_a_setting_that_cannot_be_used() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="metrics_port"):
            MetricsServer(ServiceMetrics(), "127.0.0.1", taken.getsockname()[1])

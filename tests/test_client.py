"""The client: retries, deadlines and errors against a fake server; answers of a real one."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from fake_planner_service import FakeService, fails, fake_service, solved
from server_process import ServerProcess, running_server

import planner
from planner import errors
from planner.client import (
    AccessDeniedError,
    AsyncPlannerClient,
    KeptModel,
    MessageTooLargeError,
    PlanAnswer,
    PlannerClient,
    PlanProgress,
    RemoteCancelledError,
    RemoteDeadlineError,
    RemoteError,
    RemoteInputError,
    RemoteNotFoundError,
    Rendering,
    RevisionChangedError,
    Revisions,
    ServerBusyError,
    ServerUnavailableError,
)
from planner.messages.inputs import content_hash, model_source
from planner.plans import Plan, Status
from planner.specs import Model, Schedule

QUESTION: dict[str, Any] = {"global_batch_size": 64}
UNAVAILABLE = fails(grpc.StatusCode.UNAVAILABLE, "restarting", reason="DRAINING")


def busy(seconds: float) -> Any:
    """An answer of a server that is full for so long."""
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    return fails(code, "too many wait", reason="QUEUE_FULL", retry_after_s=seconds)


def ask(client: PlannerClient, **options: Any) -> PlanAnswer:
    """The question that most tests ask."""
    return client.solve_plan("llama3-8b", "dgx-h100:1", **{**QUESTION, **options})


# --- requests ------------------------------------------------------------------------------------


def test_a_request_says_what_was_asked(fake: FakeService, client: PlannerClient) -> None:
    ask(
        client,
        objective="bottleneck",
        tp=2,
        schedules="1f1b,auto",
        recompute="full",
        precision="fp8",
        optimizer="sgd",
        sharded_optimizer=False,
        time_limit_s=2.5,
        work_limit=7,
        runners_up=0,
        warm_start="an-id",
        expected=Revisions(planner_version="1"),
    )
    _, request = fake.calls[0]
    question = request.question
    assert question.model.catalog_name == "llama3-8b"
    assert question.cluster.catalog_name == "dgx-h100:1"
    assert question.HasField("runner_up_count")
    assert question.warm_start_plan.plan_id == "an-id"
    assert question.training.pins.tp == 2
    assert not question.training.pins.HasField("pp")
    assert question.training.HasField("sharded_optimizer")
    assert len(question.training.schedules) > 10
    assert question.training.global_batch_size == 64
    assert (request.limits.wall_time_s, request.limits.work_node_count) == (2.5, 7)
    assert request.expected.planner_version == "1"
    assert fake.remaining_s[0] is not None
    assert 30 < fake.remaining_s[0] <= 32.5  # the limit, and time to wait for a slot


def test_files_are_read_here(fake: FakeService, client: PlannerClient, tmp_path: Path) -> None:
    path = tmp_path / "net.csv"
    path.write_text(
        "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes,hue\n"
        "a,1,2,3,4,5,red\n"
    )
    answer = client.solve_plan(str(path), "dgx-h100:1", **QUESTION)
    sent = fake.calls[0][1].question.model.text
    assert Model.model_validate_json(sent.text).layers[0].name == "a"
    assert str(tmp_path) not in sent.text
    assert answer.plan.inputs["model"] == str(path)
    assert "hue" in answer.warnings[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objective": "speed"}, "is no objective"),
        ({"schedules": "1f1c"}, "did you mean 1f1b"),
        ({"optimizer": "lion"}, "is no optimizer"),
        ({"tp": "two"}, "tp"),
        ({"dp": 2**40}, "dp"),
        ({"time_limit_s": 0}, "is no time limit"),
        ({"work_limit": 0}, "work_limit"),
        ({"colour": "red"}, "colour: no such option"),
    ],
)
def test_what_cannot_be_sent_is_refused_here(
    fake: FakeService, client: PlannerClient, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(errors.InputError, match=words):
        ask(client, **options)
    assert not fake.calls


def test_a_token_goes_with_every_call(fake: FakeService) -> None:
    with PlannerClient(fake.address, token="secret\n") as client:
        ask(client)
    assert fake.metadata[0]["authorization"] == "Bearer secret"
    with pytest.raises(errors.InputError, match="without TLS"):
        PlannerClient("planner.example:50051", token="secret")
    with pytest.raises(errors.InputError, match="go together"):
        PlannerClient("planner.example:50051", key_file="key.pem")


def test_tls_and_certificates(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    issued, ours = authority.issue_cert("127.0.0.1"), authority.issue_cert("scheduler")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    stranger.cert_pem.write_to_path(tmp_path / "other.pem")
    ours.private_key_pem.write_to_path(tmp_path / "key.pem")
    ours.cert_chain_pems[0].write_to_path(tmp_path / "our.pem")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    pairs = [(issued.private_key_pem.bytes(), chain)]
    authorities = authority.cert_pem.bytes()
    credentials = grpc.ssl_server_credentials(pairs, authorities, require_client_auth=True)
    files: Any = {
        "ca_file": tmp_path / "ca.pem",
        "certificate_file": tmp_path / "our.pem",
        "key_file": tmp_path / "key.pem",
    }
    with fake_service(credentials=credentials) as fake:
        with PlannerClient(fake.address, **files, token="secret") as client:
            assert ask(client).plan_id == "made"
        assert fake.metadata[0]["authorization"] == "Bearer secret"
        wrong = {**files, "ca_file": tmp_path / "other.pem"}
        for given in (wrong, {"ca_file": tmp_path / "ca.pem"}, {}):
            client = PlannerClient(fake.address, **given, connect_timeout_s=0.5)
            with client, pytest.raises(ServerUnavailableError) as caught:
                ask(client)
            assert "\n" not in str(caught.value)
            if given is wrong:
                assert f"is not signed by {tmp_path / 'other.pem'}" in str(caught.value)
    (tmp_path / "odd.pem").write_text("no certificate")
    with pytest.raises(errors.InputError, match="holds no PEM"):
        PlannerClient("planner.example:50051", ca_file=tmp_path / "odd.pem")


# --- retries -------------------------------------------------------------------------------------


def test_what_is_retried_is_the_same_request(fake: FakeService, client: PlannerClient) -> None:
    fake.script = [UNAVAILABLE, busy(0.05), UNAVAILABLE]
    assert ask(client).plan_id == "made"
    assert len(fake.calls) == 4
    ids = {request.request_id for _, request in fake.calls}
    assert len(ids) == 1
    uuid.UUID(ids.pop())
    assert ask(client, request_id="mine")
    assert fake.calls[-1][1].request_id == "mine"


def test_a_busy_server_is_waited_for(fake: FakeService, client: PlannerClient) -> None:
    fake.script = [busy(0.3), busy(0.2)]
    began = time.monotonic()
    ask(client)
    assert 0.5 <= time.monotonic() - began < 2.0


def test_waiting_ends_with_the_callers_timeout(fake: FakeService, client: PlannerClient) -> None:
    fake.script = [busy(30.0)]
    began = time.monotonic()
    with pytest.raises(ServerBusyError, match="too many wait") as caught:
        ask(client, timeout_s=1.0)
    assert time.monotonic() - began < 0.9
    assert caught.value.retry_after_s == 30.0
    assert caught.value.reason == "QUEUE_FULL"


def test_nothing_else_is_retried(fake: FakeService, client: PlannerClient) -> None:
    fake.script = [fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "no memory", reason="WORKER_MEMORY")]
    with pytest.raises(ServerBusyError):
        ask(client)
    fake.script = [fails(grpc.StatusCode.INTERNAL, "died", reason="WORKER_CRASHED")]
    with pytest.raises(RemoteError, match="died"):
        ask(client)
    assert len(fake.calls) == 2


def test_a_stream_is_not_begun_again(fake: FakeService, client: PlannerClient) -> None:
    def broken(request: Any, context: Any) -> Any:
        from planner.v1 import planner_service_pb2 as pb

        yield pb.StreamPlanResponse(progress=pb.PlanProgress(value_ms=1.0))
        busy(0.0)(request, context)

    fake.script = [busy(0.05), broken]
    stream = client.stream_plan("llama3-8b", "dgx-h100:1", **QUESTION)
    assert next(stream) == PlanProgress(value_ms=1.0)
    with pytest.raises(ServerBusyError):
        next(stream)
    assert len(fake.calls) == 2


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, RemoteInputError, 2),
        (grpc.StatusCode.NOT_FOUND, RemoteNotFoundError, 2),
        (grpc.StatusCode.FAILED_PRECONDITION, RevisionChangedError, 2),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ServerBusyError, 5),
        (grpc.StatusCode.DEADLINE_EXCEEDED, RemoteDeadlineError, 4),
        (grpc.StatusCode.CANCELLED, RemoteCancelledError, 130),
        (grpc.StatusCode.UNAUTHENTICATED, AccessDeniedError, 6),
        (grpc.StatusCode.PERMISSION_DENIED, AccessDeniedError, 6),
        (grpc.StatusCode.INTERNAL, RemoteError, 1),
    ],
)
def test_every_status_has_an_error(
    fake: FakeService,
    client: PlannerClient,
    code: grpc.StatusCode,
    kind: type[RemoteError],
    status: int,
) -> None:
    fake.script = [fails(code, "it is so.", reason="A_REASON", metadata={"limit": "3"})]
    with pytest.raises(kind) as caught:
        ask(client)
    error = caught.value
    assert type(error) is kind
    assert (error.code, error.reason, str(error)) == (code, "A_REASON", "it is so")
    assert error.metadata == {"limit": "3"}
    assert error.exit_status == status
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert again.failure == error.failure


def test_fields_are_named(fake: FakeService, client: PlannerClient) -> None:
    said = (("question.training.pins.tp", "is 3"), ("limits.wall_time_s", "is negative"))
    fake.script = [fails(grpc.StatusCode.INVALID_ARGUMENT, "bad", reason="X", violations=said)]
    with pytest.raises(errors.InputError) as caught:
        ask(client)
    assert (
        str(caught.value) == "bad; question.training.pins.tp: is 3; limits.wall_time_s: is negative"
    )
    assert isinstance(caught.value, RemoteInputError)
    assert caught.value.violations == said


def test_the_librarys_error_is_made_again(fake: FakeService, client: PlannerClient) -> None:
    error = errors.PinError(
        "is pinned",
        file="a.csv",
        line=3,
        column="pin_stage",
        value="9",
        expected="0",
        fix="move it",
    )
    parts = {
        name: str(getattr(error, name))
        for name in ("problem", "file", "line", "column", "value", "expected", "fix")
    }
    fake.script = [
        fails(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"question.model: {error}",
            reason="BAD_PIN",
            violations=(("question.model", str(error)),),
            metadata=parts,
        )
    ]
    with pytest.raises(RemoteInputError) as caught:
        ask(client)
    again = caught.value.library_error()
    assert type(again) is errors.PinError
    assert str(again) == str(error)


def test_a_deadline_is_one_line(fake: FakeService, client: PlannerClient) -> None:
    def slow(request: Any, context: grpc.ServicerContext) -> Any:
        time.sleep(1.0)
        return solved()

    fake.script = [slow]
    with pytest.raises(RemoteDeadlineError, match=f"{fake.address} within 0.3 s"):
        ask(client, timeout_s=0.3)


def test_large_messages_name_both_limits() -> None:
    with fake_service(**{"grpc.max_receive_message_length": 200}) as fake:
        with PlannerClient(fake.address) as client:
            with pytest.raises(MessageTooLargeError, match="max_message_bytes") as caught:
                client.solve_plan(planner.load_model("llama3-8b"), "dgx-h100:1", **QUESTION)
            assert "of at most 200 B" in str(caught.value)
            assert caught.value.metadata["limit"] == "200"
            assert caught.value.exit_status == 2
        small = PlannerClient(fake.address, max_message_bytes=50)
        with small, pytest.raises(MessageTooLargeError, match="this client sends"):
            ask(small)
    with fake_service() as fake, PlannerClient(fake.address, max_message_bytes=150) as client:
        fake.script = [lambda request, context: solved(warnings=["w" * 500])]
        with pytest.raises(MessageTooLargeError, match="this client takes"):
            ask(client)


def test_a_server_that_is_not_there_is_one_line() -> None:
    with PlannerClient("127.0.0.1:1", connect_timeout_s=0.3) as client:
        began = time.monotonic()
        with pytest.raises(ServerUnavailableError) as caught:
            ask(client)
        assert time.monotonic() - began < 2.0
    assert str(caught.value) == ("the server at 127.0.0.1:1 cannot be reached: Connection refused")


def test_interrupting_a_call_cancels_it(fake: FakeService, client: PlannerClient) -> None:
    cancelled = threading.Event()

    def slow(request: Any, context: grpc.ServicerContext) -> Any:
        context.add_callback(cancelled.set)
        cancelled.wait(10.0)
        return solved()

    fake.script = [slow]

    class InterruptError(BaseException):
        pass

    import signal

    def interrupt(number: int, frame: object) -> None:
        raise InterruptError

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(InterruptError):
            ask(client)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert cancelled.wait(5.0)


def test_leaving_a_stream_cancels_it(fake: FakeService, client: PlannerClient) -> None:
    from planner.v1 import planner_service_pb2 as pb

    cancelled = threading.Event()

    def endless(request: Any, context: grpc.ServicerContext) -> Any:
        context.add_callback(cancelled.set)
        while not cancelled.is_set():
            yield pb.StreamPlanResponse(progress=pb.PlanProgress(layouts_done_count=1))
            time.sleep(0.02)

    fake.script = [endless]
    stream = client.stream_plan("llama3-8b", "dgx-h100:1", **QUESTION)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert cancelled.wait(5.0)


# --- a real server -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server("--slots", "1") as found:
        yield found


@pytest.fixture
def real(server: ServerProcess) -> Iterator[PlannerClient]:
    with PlannerClient(server.address) as found:
        yield found


def test_a_plan_is_the_librarys(real: PlannerClient) -> None:
    here = planner.plan("llama3-8b", "dgx-h100:1", **QUESTION, pareto=True, rejected=True)
    answer = ask(real, pareto=True, rejected=True)
    assert answer.plan.to_json() == here.to_json()
    assert answer.revisions.model_revision == planner.load_model("llama3-8b").digest()
    assert answer.termination is not None
    assert (answer.termination.reason, answer.termination.limit) == ("optimal", "none")
    assert answer.termination.value_ms == here.step_time_ms
    assert real.get_plan(answer.plan_id).to_json() == here.to_json()
    found = {summary.plan_id: summary for summary in real.list_plans(page_size=1)}
    assert found[answer.plan_id].step_time_ms == here.step_time_ms
    assert found[answer.plan_id].status is Status.OPTIMAL
    assert found[answer.plan_id].created is not None
    whole = {summary.plan_id: summary.plan for summary in real.list_plans(full=True)}
    assert whole[answer.plan_id] == here


def test_pins_of_revisions_hold(real: PlannerClient) -> None:
    answer = ask(real)
    assert ask(real, expected=answer.revisions).plan == answer.plan
    with pytest.raises(RevisionChangedError) as caught:
        ask(real, expected=Revisions(model_revision="0" * 16))
    assert caught.value.reason == "MODEL_REVISION_CHANGED"


def test_validation_does_no_work(real: PlannerClient) -> None:
    answer = ask(real, validate_only=True)
    assert answer.plan.status is Status.UNKNOWN
    assert answer.termination is None
    with pytest.raises(RemoteInputError):
        ask(real, validate_only=True, tp=3)


def test_progress_ends_with_the_answer(real: PlannerClient) -> None:
    *progress, answer = real.stream_plan("gpt3-175b", "dgx-a100-80gb:16", global_batch_size=512)
    assert isinstance(answer, PlanAnswer)
    values = [each.value_ms for each in progress if isinstance(each, PlanProgress)]
    known = [value for value in values if value is not None]
    assert known == sorted(known, reverse=True)
    here = planner.plan("gpt3-175b", "dgx-a100-80gb:16", global_batch_size=512)
    assert answer.plan.to_json() == here.to_json()


def test_partitions_and_judgements_are_the_librarys(real: PlannerClient) -> None:
    cluster = planner.load_cluster("dgx-a100-80gb:1")
    answer = real.partition_stages("gpt3-175b", 8, 16, cluster=cluster, objective="step-time")
    here = planner.partition("gpt3-175b", 8, 16, cluster=cluster, objective="step-time")
    assert answer.plan.to_json() == here.to_json()
    assert real.evaluate_plan(here).verification == planner.evaluate(here)
    assert real.explain_plan(here).explanation == planner.explain(here)
    assert real.explain_plan(answer.plan_id).explanation == planner.explain(here)
    sketch = Plan.model_validate({"layout": {"pp": 2, "num_microbatches": 4}})
    with pytest.raises(RemoteInputError, match=r"names no(ne| model)"):
        real.evaluate_plan(sketch)
    with pytest.raises(RemoteNotFoundError) as caught:
        real.evaluate_plan("no-such-plan")
    assert caught.value.reason == "PLAN_NOT_FOUND"


def test_simulations_are_the_librarys(real: PlannerClient) -> None:
    here = planner.simulate("zb-h1", stages=4, microbatches=8)
    answer = real.simulate_schedule(
        Schedule.ZB_H1, stages=4, microbatches=8, renderings=["json", Rendering.TORCH_CSV]
    )
    (found,) = answer.simulations
    assert found.makespan_ms == here.makespan_ms
    assert found.in_flight == here.in_flight
    assert found.peak_activation == here.peak_activation
    assert answer.texts[Rendering.JSON] == here.to_json()
    order = [line.split(",") for line in answer.texts[Rendering.TORCH_CSV].splitlines()]
    again = real.simulate_schedule(order=order)
    assert again.simulations[0].makespan_ms == here.makespan_ms
    both = real.simulate_schedule(compare=["1f1b", "gpipe"], stages=2, microbatches=4)
    assert [one.schedule for one in both.simulations] == ["1f1b", "gpipe"]


def test_operations_outlive_their_call(server: ServerProcess, real: PlannerClient) -> None:
    operation = real.create_plan("llama3-8b", "dgx-h100:1", **QUESTION)
    assert operation.name.startswith("operations/")
    with PlannerClient(server.address) as other:
        again = other.operation(operation.name)
        assert again.wait(30.0)
        assert again.result().plan == ask(real).plan
        assert operation.name in [each.name for each in other.operations(page_size=1)]
    assert operation.refresh().done
    assert operation.result().plan_id
    operation.delete()
    with pytest.raises(RemoteNotFoundError):
        operation.refresh()


def test_operations_are_cancelled(real: PlannerClient) -> None:
    operation = real.create_plan(
        "gpt3-175b", "dgx-a100-80gb:128", global_batch_size=1536, schedules="auto", work_limit=10**6
    )
    time.sleep(0.2)
    operation.cancel()
    assert operation.wait(10.0)
    if operation.error is None:
        assert operation.result().plan.status in (Status.FEASIBLE, Status.UNKNOWN)
    else:
        with pytest.raises(RemoteCancelledError):
            operation.result()


def test_models_are_kept_by_their_content(real: PlannerClient) -> None:
    model = planner.load_model("llama3-8b")
    kept = real.put_model(model)
    assert kept == real.put_model("llama3-8b")
    answer = real.solve_plan(kept, "dgx-h100:1", **QUESTION)
    assert answer.plan == ask(real).plan
    other = planner.load_model("llama3-8b", sequence_length=2048)
    lost = KeptModel(content_hash(model_source(other)), other)
    # The server does not have it; the client sends it and asks again.
    assert real.solve_plan(lost, "dgx-h100:1", **QUESTION).plan.sequence_length == 2048
    other = planner.load_model("llama3-8b", sequence_length=1024)
    lost = KeptModel(content_hash(model_source(other)), other)
    *_, last = real.stream_plan(lost, "dgx-h100:1", **QUESTION)
    assert isinstance(last, PlanAnswer)
    assert last.plan.sequence_length == 1024
    with pytest.raises(RemoteNotFoundError) as caught:
        real.solve_plan(KeptModel("0" * 64), "dgx-h100:1", **QUESTION)
    assert caught.value.reason == "MODEL_NOT_FOUND"


def test_the_catalog_and_health(real: PlannerClient) -> None:
    assert real.health() == "SERVING"
    with pytest.raises(RemoteNotFoundError, match=r"^there is no service x on the server at "):
        real.health("x")
    entries = {(entry.kind, entry.name) for entry in real.catalog()}
    assert ("model", "llama3-8b") in entries
    assert ("cluster", "dgx-h100") in entries
    (entry,) = real.catalog("llama3-8b")
    assert Model.model_validate_json(entry.spec_json) == planner.load_model("llama3-8b")
    assert real.catalog("nothing") == ()


# --- asyncio -------------------------------------------------------------------------------------


def test_coroutines_answer_as_calls_do(server: ServerProcess, real: PlannerClient) -> None:
    async def run() -> None:
        async with AsyncPlannerClient(server.address) as client:
            assert await client.health() == "SERVING"
            with pytest.raises(RemoteNotFoundError, match=r"^there is no service x on"):
                await client.health("x")
            question: Any = ("llama3-8b", "dgx-h100:1")
            answers = await asyncio.gather(
                *(client.solve_plan(*question, **QUESTION) for _ in range(4))
            )
            assert {answer.plan.to_json() for answer in answers} == {ask(real).plan.to_json()}
            items = [item async for item in client.stream_plan(*question, **QUESTION)]
            assert isinstance(items[-1], PlanAnswer)
            cut = await client.partition_stages("gpt3-175b", 4, cluster="dgx-a100-80gb:1")
            assert (await client.evaluate_plan(cut.plan)).verification.ok
            assert (await client.explain_plan(cut.plan_id)).explanation.headline
            simulated = await client.simulate_schedule("1f1b", stages=2, microbatches=2)
            assert simulated.fits
            assert await client.get_plan(cut.plan_id) == cut.plan
            assert cut.plan_id in [summary.plan_id async for summary in client.list_plans()]
            assert await client.put_model(planner.load_model("llama3-8b"))
            assert await client.catalog()
            operation = await client.create_plan(*question, **QUESTION)
            assert (await operation.result(30.0)).plan == answers[0].plan
            assert (await client.operation(operation.name)).done
            assert operation.name in [each.name async for each in client.operations()]
            await operation.cancel()
            await operation.delete()

    asyncio.run(run())


def test_coroutines_retry_and_are_cancelled(fake: FakeService) -> None:
    cancelled = threading.Event()

    def slow(request: Any, context: grpc.ServicerContext) -> Any:
        context.add_callback(cancelled.set)
        cancelled.wait(10.0)
        return solved()

    async def run() -> None:
        async with AsyncPlannerClient(fake.address) as client:
            question: Any = ("llama3-8b", "dgx-h100:1")
            fake.script = [UNAVAILABLE, busy(0.1)]
            assert (await client.solve_plan(*question, **QUESTION)).plan_id == "made"
            assert len({request.request_id for _, request in fake.calls}) == 1
            fake.script = [busy(30.0)]
            with pytest.raises(ServerBusyError):
                await client.solve_plan(*question, **QUESTION, timeout_s=1.0)
            fake.script = [slow]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.solve_plan(*question, **QUESTION), 0.3)
            assert await asyncio.to_thread(cancelled.wait, 5.0)
        async with AsyncPlannerClient("127.0.0.1:1", connect_timeout_s=0.3) as client:
            with pytest.raises(ServerUnavailableError, match="Connection refused"):
                await client.health()

    asyncio.run(run())

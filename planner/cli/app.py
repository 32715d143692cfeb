"""All commands. Each imports what it needs when it runs, so that --help stays fast."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import (
    EVERY_LAUNCHER,
    MOST_DEGREE,
    MOST_SAMPLES,
    Format,
    FormatOption,
    OptimizerChoice,
    OptimizerOption,
    OutputOption,
    PartitionObjective,
    PrecisionOption,
    RecomputeOption,
    SendsOption,
    ServerCaOption,
    ServerCertificateOption,
    ServerKeyOption,
    ServerOption,
    ServerTokenOption,
    TimeLimitOption,
    VppOption,
    WorkLimitOption,
    bandwidth_option,
    bytes_option,
    milliseconds_option,
    parse_recompute,
    refuse_without_server,
    seconds_option,
)
from planner.specs import Objective, Sends

app = typer.Typer(
    name="planner",
    help="Proven pipeline partitions and parallel layouts for distributed training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Catalog name, profile CSV, Hugging Face config.json, PipeDream graph.txt, or -.",
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from planner.version import planner_version

        typer.echo(f"planner {planner_version()}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    server: ServerOption = None,
    server_token_file: ServerTokenOption = None,
    server_ca: ServerCaOption = None,
    server_certificate: ServerCertificateOption = None,
    server_key: ServerKeyOption = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    from planner.cli.backend import use_backend

    use_backend(None)
    if server is None:
        refuse_without_server(context)
        return
    from planner.cli.remote import RemoteBackend

    use_backend(
        RemoteBackend(
            server,
            token_file=server_token_file,
            ca_file=server_ca,
            certificate_file=server_certificate,
            key_file=server_key,
            on_close=context.call_on_close,
        )
    )


@app.command()
def plan(
    model: ModelArgument,
    cluster: Annotated[
        str, typer.Option(metavar="CLUSTER", help="name:nodes (dgx-a100-80gb:128) or a YAML file.")
    ],
    global_batch: Annotated[
        int, typer.Option(min=1, max=MOST_SAMPLES, help="Samples per optimizer step.")
    ],
    seq_len: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_SAMPLES, help="Tokens per sample; default: the model's."),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, max=MOST_DEGREE, help="Override the cluster's nodes.")
    ] = None,
    objective: Annotated[Objective, typer.Option(help="What is optimised.")] = Objective.STEP_TIME,
    schedule: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Comma list to choose from; auto: every synchronous schedule that stores the "
            "parameters once.",
        ),
    ] = EVERY_LAUNCHER,
    dp: Annotated[
        int | None, typer.Option(min=1, max=MOST_DEGREE, help="Pin the data-parallel degree.")
    ] = None,
    pp: Annotated[
        int | None, typer.Option(min=1, max=MOST_DEGREE, help="Pin the pipeline degree.")
    ] = None,
    tp: Annotated[
        int | None, typer.Option(min=1, max=MOST_DEGREE, help="Pin the tensor-parallel degree.")
    ] = None,
    vpp: VppOption = None,
    microbatch_size: Annotated[
        int | None, typer.Option(min=1, max=MOST_SAMPLES, help="Pin samples a micro-batch.")
    ] = None,
    recompute: RecomputeOption = "auto",
    precision: PrecisionOption = None,
    optimizer: OptimizerOption = OptimizerChoice.ADAM,
    sharded_optimizer: Annotated[
        bool, typer.Option(help="Shard optimizer state over data-parallel ranks.")
    ] = True,
    sequence_parallel: Annotated[
        bool, typer.Option(help="Shard activations over tensor-parallel ranks.")
    ] = True,
    flash_attention: Annotated[bool, typer.Option(help="Fused attention kernels.")] = True,
    overlap_gradient_reduction: Annotated[
        bool, typer.Option(help="Reduce gradients under the last backward.")
    ] = True,
    sends: SendsOption = Sends.OVERLAPPED,
    allow_fewer: Annotated[
        bool | None,
        typer.Option(
            "--allow-fewer/--no-allow-fewer",
            help="GPUs may stay idle; the default is no, and yes for the objectives "
            "tokens-per-dollar and fewest-gpus.",
        ),
    ] = None,
    allow_cross_domain: Annotated[
        bool, typer.Option(help="Tensor parallel may leave the nvlink domain.")
    ] = False,
    price_per_gpu_hour: Annotated[
        float | None, typer.Option(help="Dollars; overrides the cluster's price.")
    ] = None,
    runners_up: Annotated[
        int, typer.Option(min=0, max=1000, help="Next-best layouts to show.")
    ] = 3,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="Pareto set of step time, peak memory and GPUs.")
    ] = False,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="List every layout that lost, with the reason.")
    ] = False,
    time_limit: TimeLimitOption = None,
    work_limit: WorkLimitOption = None,
    workers: Annotated[
        int,
        typer.Option(min=1, max=1024, help="Worker processes; no more than there are cores."),
    ] = 1,
    format: FormatOption = Format.TABLE,
    output: OutputOption = None,
) -> None:
    """Find the best layout of a model on a cluster, and prove it."""
    from planner import api
    from planner.cli.backend import backend
    from planner.cli.output import check_output, finish, naming, read_model_argument, shown_name
    from planner.cli.progress import Progress
    from planner.errors import InputError

    check_output(output, inputs=(model, cluster))
    model_spec = read_model_argument(model, precision=precision, sequence_length=seq_len)
    cluster_spec = api.load_cluster(cluster)
    changes: dict[str, object] = {}
    if nodes is not None:
        changes["nodes"] = nodes
    if price_per_gpu_hour is not None:
        if not 0 < price_per_gpu_hour < float("inf"):
            raise InputError("is no price", value=price_per_gpu_hour, expected="dollars > 0")
        changes["price_per_gpu_hour"] = price_per_gpu_hour
    if allow_fewer is False and objective is Objective.FEWEST_GPUS:
        raise InputError(
            "contradicts --objective fewest-gpus, which looks for GPUs to leave idle",
            value="--no-allow-fewer",
            fix="leave one of the two out",
        )
    options: dict[str, Any] = {} if allow_fewer is None else {"allow_fewer": allow_fewer}
    modes = parse_recompute(recompute)
    if modes is not None:
        options["recompute"] = modes
    if precision is not None:
        options["precision"] = precision
    with naming(model), Progress("searching layouts") as progress:
        answer = backend().plan(
            model_spec,
            cluster_spec.model_copy(update=changes) if changes else cluster_spec,
            global_batch_size=global_batch,
            sequence_length=seq_len,
            objective=objective,
            dp=dp,
            pp=pp,
            tp=tp,
            vpp=vpp,
            microbatch_size=microbatch_size,
            runners_up=runners_up,
            pareto=pareto,
            rejected=rejected,
            time_limit_s=seconds_option(time_limit),
            work_limit=work_limit,
            workers=workers,
            progress=progress,
            schedules=schedule,
            optimizer=optimizer.value,
            sharded_optimizer=sharded_optimizer,
            sequence_parallel=sequence_parallel,
            flash_attention=flash_attention,
            overlap_gradient_reduction=overlap_gradient_reduction,
            sends=sends,
            allow_cross_domain=allow_cross_domain,
            **options,
        )
    inputs = {**answer.inputs, "model": shown_name(model), "cluster": shown_name(cluster)}
    finish(answer.model_copy(update={"inputs": inputs}), format, output)


@app.command()
def partition(
    profile: ModelArgument,
    stages: Annotated[
        int, typer.Option(min=1, max=MOST_DEGREE, help="Pipeline stages, none of them empty.")
    ],
    microbatches: Annotated[
        int, typer.Option(min=1, max=MOST_SAMPLES, help="Micro-batches a step.")
    ] = 1,
    schedule: Annotated[
        str, typer.Option(metavar="NAMES", help="One, a comma list to choose from, or auto.")
    ] = "1f1b",
    vpp: VppOption = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Budget of each rank, as 80GiB.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(metavar="RATE", help="Of a cut, one way, as 25GB/s; absent: free.")
    ] = None,
    latency: Annotated[str | None, typer.Option(metavar="TIME", help="Of a cut, as 5us.")] = None,
    objective: Annotated[
        PartitionObjective, typer.Option(help="What is minimised.")
    ] = PartitionObjective.BOTTLENECK,
    cluster: Annotated[
        str | None, typer.Option(help="Whose GPU runs it; needed for FLOPs or a config.json.")
    ] = None,
    tp: Annotated[
        int, typer.Option(min=1, max=MOST_DEGREE, help="Tensor degree of the prices.")
    ] = 1,
    microbatch_size: Annotated[int | None, typer.Option(min=1, max=MOST_SAMPLES)] = None,
    seq_len: Annotated[int | None, typer.Option(min=1, max=MOST_SAMPLES)] = None,
    device: Annotated[str | None, typer.Option(help="Which of a profile's devices.")] = None,
    recompute: RecomputeOption = "auto",
    precision: PrecisionOption = None,
    optimizer: OptimizerOption = OptimizerChoice.ADAM,
    sequence_parallel: Annotated[bool, typer.Option()] = True,
    sends: SendsOption = Sends.OVERLAPPED,
    time_limit: TimeLimitOption = None,
    work_limit: WorkLimitOption = None,
    format: FormatOption = Format.TABLE,
    output: OutputOption = None,
) -> None:
    """Cut a model into pipeline stages with the smallest bottleneck or step time."""
    from planner.cli.backend import backend
    from planner.cli.output import check_output, finish, naming, read_model_argument, shown_name
    from planner.cli.progress import Progress

    check_output(output, inputs=(profile, cluster))
    model = read_model_argument(profile, precision=precision, sequence_length=seq_len)
    modes = parse_recompute(recompute)
    options: dict[str, Any] = {} if modes is None else {"recompute": modes}
    with naming(profile), Progress("cutting into stages"):
        answer = backend().partition(
            model,
            stages,
            microbatches,
            objective=objective.value,
            cluster=cluster,
            time_limit_s=seconds_option(time_limit),
            work_limit=work_limit,
            schedule=schedule,
            vpp=vpp,
            memory_bytes=bytes_option(memory),
            bandwidth_bytes_per_s=bandwidth_option(bandwidth),
            latency_ms=milliseconds_option(latency),
            tp=tp,
            microbatch_size=microbatch_size,
            sequence_length=seq_len,
            device=device,
            precision=precision,
            optimizer=optimizer.value,
            sequence_parallel=sequence_parallel,
            sends=sends,
            **options,
        )
    inputs = {**answer.inputs, "model": shown_name(profile)}
    if cluster is not None:
        inputs["cluster"] = shown_name(cluster)
    finish(answer.model_copy(update={"inputs": inputs}), format, output)


PlanArgument = Annotated[
    str, typer.Argument(metavar="PLAN", help="A plan file (JSON), or - for standard input.")
]
PlanModelOption = Annotated[
    str | None, typer.Option(help="Judge against this model instead of the plan's.")
]
PlanClusterOption = Annotated[
    str | None, typer.Option(help="Judge against this cluster instead of the plan's.")
]
PlanBatchOption = Annotated[
    int | None,
    typer.Option(
        "--global-batch", min=1, max=MOST_SAMPLES, help="For a sketch without a training set-up."
    ),
]
PlanLengthOption = Annotated[int | None, typer.Option("--seq-len", min=1, max=MOST_SAMPLES)]


@app.command()
def evaluate(
    plan: PlanArgument,
    model: PlanModelOption = None,
    cluster: PlanClusterOption = None,
    global_batch: PlanBatchOption = None,
    seq_len: PlanLengthOption = None,
    format: FormatOption = Format.TABLE,
    output: OutputOption = None,
) -> None:
    """Price a plan again from the specs, and list what it says that is not so."""
    from planner.cli.judge import evaluate_command

    evaluate_command(plan, model, cluster, global_batch, seq_len, format, output)


@app.command()
def explain(
    plan: PlanArgument,
    model: PlanModelOption = None,
    cluster: PlanClusterOption = None,
    global_batch: PlanBatchOption = None,
    seq_len: PlanLengthOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Say what limits a plan, or why nothing fits and what would."""
    from planner.cli.judge import explain_command

    explain_command(plan, model, cluster, global_batch, seq_len, format)


@app.command()
def catalog(
    name: Annotated[str | None, typer.Argument(help="Show one entry.")] = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """List the models, clusters and GPUs that come with the planner."""
    from planner.cli.catalog import catalog_command

    catalog_command(name, format)


@app.command()
def schema(
    what: Annotated[str, typer.Argument(help="plan, model, cluster or training.")] = "plan",
) -> None:
    """Print the JSON schema of a plan or of an input."""
    from planner.cli.catalog import schema_command

    schema_command(what)


def _add_more_commands() -> None:
    from planner.cli.profile import profile_app
    from planner.cli.serve import add_to as add_serve
    from planner.cli.simulate import simulate

    app.command()(simulate)
    app.add_typer(profile_app, name="profile")
    add_serve(app)


_add_more_commands()

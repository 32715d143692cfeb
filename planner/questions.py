"""From names, files and plans to priced questions: what every verb of the library reads first."""

from __future__ import annotations

import warnings

from planner.cost.pricing import Pricer
from planner.cost.question import partition_question, plan_pricer
from planner.errors import PlanFileError
from planner.formats.cluster_file import read_cluster
from planner.formats.models import read_model
from planner.formats.plan_file import complete_sketch
from planner.graph import contract
from planner.options import stored_spec
from planner.plans import Layout, Plan
from planner.search.partition import solve_partition
from planner.search.run import SearchLimits
from planner.specs import Cluster, Model, PartitionSetup, Precision, Training

__all__ = ["InputWarning", "load_cluster", "load_model", "plan_question", "specs_of_plan"]


class InputWarning(UserWarning):
    """Something in an input file that was used in a way its author should know about."""


def load_model(
    source: str, *, precision: Precision | str | None = None, sequence_length: int | None = None
) -> Model:
    """A model from a catalog name, profile CSV, config.json or PipeDream ``graph.txt``.

    Raises
    ------
    InputError
        No such file or name, or a file that cannot be used; the message says where and why.

    Warns
    -----
    InputWarning
        Unknown columns that were ignored, several components, and the like.

    Examples
    --------
    >>> model = load_model("gpt3-175b")
    >>> len(model.layers), model.layers[0].name, model.layers[-1].name
    (98, 'embedding', 'head')
    """
    model, notes = read_model(
        source,
        precision=Precision(precision) if precision else None,
        sequence_length=sequence_length,
    )
    for note in notes:
        warnings.warn(note, InputWarning, stacklevel=2)
    return model


def load_cluster(source: str) -> Cluster:
    """A cluster from ``name:nodes`` or a YAML or JSON file.

    Examples
    --------
    >>> load_cluster("dgx-a100-80gb:128").num_gpus
    1024
    """
    return read_cluster(source)


def plan_question(
    plan: Plan,
    model: Model | str | None = None,
    cluster: Cluster | str | None = None,
    training: Training | None = None,
) -> tuple[Pricer, Plan]:
    """The prices of the question a plan answers, and the plan with what a sketch leaves out.

    Parameters
    ----------
    plan
        A plan or a sketch; one with a layout alone gets its best cut, and no stages where none
        fits.
    model, cluster, training
        Replace what the plan's ``inputs`` name.

    Raises
    ------
    PlanFileError
        The plan names no model, cluster or training, or a model that has changed since.
    """
    pricer, default_layout = _question_of(plan, model, cluster, training)
    if default_layout is not None and "layout" not in plan.model_fields_set:
        plan = plan.model_copy(update={"layout": default_layout})
    plan = complete_sketch(plan, pricer.training.global_batch_size)
    if not plan.stages:
        found = solve_partition(pricer, plan.layout, plan.objective, SearchLimits())
        plan = plan if found is None else found
    return pricer, plan


def specs_of_plan(
    subject: Plan, model: Model | str | None = None, cluster: Cluster | str | None = None
) -> tuple[Model, Cluster | None]:
    """The model and the cluster that a plan is about; a cut of times needs no cluster.

    Parameters
    ----------
    model, cluster
        Replace what the plan's ``inputs`` name.

    Raises
    ------
    PlanFileError
        The plan names no model, or one that has changed since.
    """
    inputs = subject.inputs
    model_source = model or inputs.get("model") or subject.model
    if not model_source:
        raise PlanFileError("names no model", fix="give it with --model")
    model_spec = load_model(model_source) if isinstance(model_source, str) else model_source
    if isinstance(model_source, str) and model is None:
        model_spec = _as_it_was_read(model_spec, model_source, inputs)
    _same_model(model_spec, inputs, model)
    return model_spec, _cluster_of(subject, cluster)


def _question_of(
    subject: Plan,
    model: Model | str | None,
    cluster: Cluster | str | None,
    training: Training | None,
) -> tuple[Pricer, Layout | None]:
    inputs = subject.inputs
    model_spec, cluster_spec = specs_of_plan(subject, model, cluster)
    if inputs.get("question") == "partition" and training is None:
        setup = stored_spec(PartitionSetup, inputs, "setup")
        return partition_question(model_spec, setup, cluster_spec)
    if training is None and "training" not in inputs:
        raise PlanFileError("does not say how it trains", fix="give --global-batch and --seq-len")
    if cluster_spec is None:
        raise PlanFileError("names no cluster", fix="give it with --cluster")
    if training is None:
        training = stored_spec(Training, inputs, "training")
    # Priced anew, so that whoever judges a plan does not read what its solver left behind.
    return plan_pricer(model_spec, cluster_spec, training, contract(model_spec)), None


def _cluster_of(subject: Plan, override: Cluster | str | None) -> Cluster | None:
    if isinstance(override, Cluster):
        return override
    if override is None and "cluster_spec" in subject.inputs:
        return stored_spec(Cluster, subject.inputs, "cluster_spec")
    source = override or subject.inputs.get("cluster") or subject.cluster
    return load_cluster(source) if source else None


def _as_it_was_read(model: Model, source: str, inputs: dict[str, str]) -> Model:
    """The model with the precision and sequence length it was read with, where those were asked
    for: they are part of what the plan's hash is of."""
    known = inputs.get("model_digest")
    if known is None or model.digest() == known:
        return model
    asked: PartitionSetup | Training | None = None
    if inputs.get("question") == "partition" and "setup" in inputs:
        asked = stored_spec(PartitionSetup, inputs, "setup")
    elif "training" in inputs:
        asked = stored_spec(Training, inputs, "training")
    if asked is None or source == "-":
        return model
    for precision, length in (
        (None, asked.sequence_length),
        (asked.precision, None),
        (asked.precision, asked.sequence_length),
    ):
        found, _ = read_model(source, precision=precision, sequence_length=length)
        if found.digest() == known:
            return found
    return model


def _same_model(model: Model, inputs: dict[str, str], override: object) -> None:
    """A plan judged against other data than it was made from would be judged wrongly."""
    known = inputs.get("model_digest")
    if override is None and known is not None and known != model.digest():
        raise PlanFileError(
            f"the model {inputs.get('model')} has changed since the plan was made "
            f"(hash {model.digest()}, was {known})",
            fix="give --model to judge the plan against another model",
        )

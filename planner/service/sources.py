"""In a worker: the models, clusters and plans that a request names, resolved and kept for a while.

A model is parsed once per worker and content: a round of a thousand questions about ten models
parses ten.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from typing import Any, TypeVar

from planner.errors import NotInCatalogError
from planner.formats import catalog
from planner.formats.plan_file import read_plan
from planner.messages.fields import RequestError, at_field
from planner.messages.inputs import (
    cluster_of,
    content_hash,
    model_of,
    training_options,
)
from planner.messages.plans import plan_of
from planner.options import spec_of
from planner.plans import Plan
from planner.service import errors
from planner.specs import Cluster, Model, Pins, Training
from planner.v1 import inputs_pb2, plan_pb2

__all__ = ["Sources"]

T = TypeVar("T")

_MOST_MODELS, _MOST_CLUSTERS = 64, 64


class _Kept(OrderedDict[str, T]):
    """A few of the most recently used."""

    def __init__(self, most: int) -> None:
        self.most = most
        super().__init__()

    def find(self, key: str) -> T | None:
        found = self.get(key)
        if found is not None:
            self.move_to_end(key)
        return found

    def keep(self, key: str, value: T) -> T:
        self[key] = value
        if len(self) > self.most:
            self.popitem(last=False)
        return value


class Sources:
    """What a worker has parsed."""

    def __init__(self) -> None:
        self._models: _Kept[tuple[Model, tuple[str, ...]]] = _Kept(_MOST_MODELS)
        self._clusters: _Kept[Cluster] = _Kept(_MOST_CLUSTERS)
        self._model_names = frozenset(entry.name for entry in catalog.list_models())

    def model(
        self, source: inputs_pb2.ModelSource, sent: dict[str, bytes]
    ) -> tuple[Model, tuple[str, ...]]:
        """The model of a source, and warnings about it.

        Parameters
        ----------
        sent
            Serialised sources by content hash, which the front looked up.
        """
        key = content_hash(source)
        found = self._models.find(key)
        if found is not None:
            return found
        if source.WhichOneof("source") == "content_hash":
            content = sent.get(source.content_hash)
            if content is None:
                raise errors.model_not_found(source.content_hash)
            inner = inputs_pb2.ModelSource.FromString(content)
            if source.precision:
                inner.precision = source.precision
            if source.sequence_length:
                inner.sequence_length = source.sequence_length
            return self._models.keep(key, self.model(inner, {}))
        return self._models.keep(key, model_of(source))

    def cluster(self, source: inputs_pb2.ClusterSource) -> Cluster:
        """The cluster of a source."""
        key = source.SerializeToString(deterministic=True).hex()
        found = self._clusters.find(key)
        return found if found is not None else self._clusters.keep(key, cluster_of(source))

    def plan(self, source: plan_pb2.PlanSource, kept: dict[str, bytes]) -> Plan:
        """The plan of a source.

        Parameters
        ----------
        kept
            Plan JSON by id, which the front looked up.
        """
        kind = source.WhichOneof("source")
        if kind == "plan_id":
            text = kept.get(source.plan_id)
            if text is None:
                raise errors.not_found("plan", source.plan_id)
            return Plan.model_validate_json(text)
        if kind == "plan":
            with at_field("plan"):
                return plan_of(source.plan)
        if kind == "plan_json":
            with at_field("plan_json"):
                return read_plan("-", stdin=io.StringIO(source.plan_json))
        raise RequestError("", "no plan is given")

    def overrides(self, request: Any, plan: Plan, sent: dict[str, bytes]) -> dict[str, Any]:
        """``model``, ``cluster`` and ``training`` of a request about a plan, as the library's
        verbs take them.

        What the request leaves out the plan has to name, and by names of the catalog: a name is
        never looked up as a file here.
        """
        found: dict[str, Any] = {"model": None, "cluster": None, "training": None}
        if request.HasField("model"):
            with at_field("model"):
                found["model"] = self.model(request.model, sent)[0]
        elif plan.inputs.get("model_content_hash") in sent:
            source = inputs_pb2.ModelSource(content_hash=plan.inputs["model_content_hash"])
            found["model"] = self.model(source, sent)[0]
        else:
            name = plan.inputs.get("model") or plan.model
            if not name:
                raise RequestError("model", "is missing, and the plan names none")
            if name not in self._model_names:
                raise RequestError(
                    "model", f"the plan's model {name} is not in the catalog; send it"
                )
        if request.HasField("cluster"):
            with at_field("cluster"):
                found["cluster"] = self.cluster(request.cluster)
        elif "cluster_spec" not in plan.inputs:
            known = plan.inputs.get("cluster") or plan.cluster
            if known:
                try:
                    found["cluster"] = catalog.load_cluster(known)
                except NotInCatalogError:
                    raise RequestError(
                        "cluster", f"the plan's cluster {known} is not in the catalog; send it"
                    ) from None
        if request.HasField("training"):
            with at_field("training"):
                found["training"] = self.training(request.training, found["model"])
        return found

    def training(self, message: inputs_pb2.Training, model: Model | None) -> Training:
        """A whole training set-up."""
        options = training_options(message)
        pins = {name: options.pop(name) for name in Pins.model_fields if name in options}
        if model is not None and model.sequence_length is not None:
            options.setdefault("sequence_length", model.sequence_length)
        return spec_of(Training, pins=Pins(**pins), **options)

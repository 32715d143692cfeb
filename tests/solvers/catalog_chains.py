"""Priced chains of the catalog's models, for the study of how often a partition is proved."""

from __future__ import annotations

from collections.abc import Iterator

from planner.cost.pricing import Pricer
from planner.cost.stage_table import ChainProblem
from planner.cost.tables import FixedLink
from planner.formats.catalog import list_models, load_cluster, load_model
from planner.graph import contract
from planner.plans import Layout
from planner.schedules.simulate import RECURRENT
from planner.specs import Recompute, Training


def catalog_chains(
    link: FixedLink, stages: tuple[int, ...]
) -> Iterator[tuple[str, Layout, ChainProblem]]:
    """Analytic models x P x M in {P/2, P, P+1, 2P, 4P, 8P} x both schedules, memory unlimited."""
    cluster = load_cluster("dgx-h100:64")
    roomy = cluster.gpu.model_copy(update={"memory_bytes": 2**52})
    cluster = cluster.model_copy(update={"gpu": roomy})
    training = Training(global_batch_size=4096, sequence_length=2048, recompute=(Recompute.NONE,))
    for entry in list_models():
        model = load_model(entry.name)
        if not model.is_analytic:
            continue
        pricer = Pricer(model, contract(model), cluster, training, fixed_link=link, tail=False)
        for pp in stages:
            if pp > len(model.layers):
                continue
            for count in sorted({max(1, pp // 2), pp, pp + 1, 2 * pp, 4 * pp, 8 * pp}):
                for schedule in RECURRENT:
                    layout = Layout(pp=pp, num_microbatches=count, schedule=schedule)
                    yield entry.name, layout, pricer.problem(layout)

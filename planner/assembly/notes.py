"""What a reader should know about a layout and its prices."""

from __future__ import annotations

from collections.abc import Sequence

from planner.assembly.priced import Priced
from planner.cost.pricing import Pricer
from planner.cost.profile_rows import KNOWN_TYPES
from planner.plans import Layout, Stage, Verdict
from planner.specs import Precision, Schedule
from planner.units import format_ms, format_ranges

__all__ = ["plan_notes"]


def plan_notes(priced: Priced, stages: Sequence[Stage]) -> tuple[str, ...]:
    """What a reader should know about this layout."""
    pricer, layout = priced.pricer, priced.layout
    notes = [*pricer.chain.notes, *_pricing_notes(pricer, layout)]
    if layout.schedule is Schedule.ONE_F_ONE_B and 1 < layout.num_microbatches <= layout.pp:
        alike = layout.pp - layout.num_microbatches + 1
        notes.append(
            f"with M={layout.num_microbatches} <= P={layout.pp}, 1f1b keeps all micro-batches on "
            f"the first {alike} stages and saves no memory there over gpipe"
        )
    if layout.schedule is Schedule.PIPEDREAM and pricer.tail:
        updates = int((priced.states.reduction + priced.states.update).sum())
        if updates:
            notes.append(
                "pipedream reduces and updates after every micro-batch: B holds "
                f"{format_ms(pricer.quantum.ms(updates))} of it a micro-batch over all stages"
            )
    tight = [stage.rank for stage in stages if stage.verdict is Verdict.TIGHT]
    if tight:
        notes.append(
            f"rank{'s' if len(tight) > 1 else ''} {format_ranges(tight)}: the estimate fits "
            "but its upper bound does not"
        )
    return tuple(notes)


def _pricing_notes(pricer: Pricer, layout: Layout) -> list[str]:
    """Prices that stand for something else: another precision's rate, collectives not profiled."""
    notes = []
    gpu, precision = pricer.cluster.gpu, pricer.training.precision
    by_rate = any(
        layer.shape is not None or any(row.forward_ms is None for row in layer.costs)
        for layer in pricer.model.layers
    )
    if by_rate and precision not in gpu.peak_flops:
        other = Precision.FP16 if precision is Precision.BF16 else Precision.BF16
        notes.append(
            f"{gpu.name} has no {precision.value} rate: priced at its {other.value} rate; "
            f"give --precision {other.value}"
        )
    prices = pricer.layer_prices(layout.tp, layout.microbatch_size)
    added = [price for price in prices if price.collectives_added]
    if added:
        added_ms = sum(price.tensor_parallel_ms for price in added)
        how = (
            f"{format_ms(added_ms)} a micro-batch was added by formula"
            if added_ms
            else "without a cluster they are free; give --cluster to price them"
        )
        notes.append(f"the profile's rows exclude collectives at tp={layout.tp}: {how}")
    unknown = {
        layer.type
        for layer in pricer.model.layers
        if layout.tp > 1 and layer.type not in KNOWN_TYPES
        for row in layer.costs
        if row.tp == layout.tp and not row.collectives_included
    }
    if unknown:
        notes.append(
            f"the profile's rows exclude collectives at tp={layout.tp}, and what layers of type "
            f"{', '.join(sorted(unknown))} exchange is not known: it is counted as free"
        )
    return notes

"""Pins and colocations as windows, against every cut of small chains."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

import planner
from planner.cost.pins import stage_windows
from planner.errors import PinError
from planner.graph import contract
from planner.specs import Layer, LayerCost, Model

COSTS = (LayerCost(forward_ms=1.0, backward_ms=2.0),)


def chain(count: int, pins: dict[int, int], together: dict[int, int] | None = None) -> Model:
    return Model(
        name="chain",
        layers=tuple(
            Layer(
                name=f"l{i}",
                inputs=(f"l{i - 1}",) if i else (),
                pin_stage=pins.get(i),
                colocate_with=f"l{together[i]}" if together and i in together else None,
                costs=COSTS,
            )
            for i in range(count)
        ),
    )


def windows(model: Model, stages: int):
    return stage_windows(model, contract(model), stages)


def obeys(cuts, pins, together, stages) -> bool:
    """Whether cuts obey, by definition."""
    stage_of = [s for s, (a, b) in enumerate(pairwise(cuts)) for _ in range(a, b)]
    return all(stage_of[i] == pin % stages for i, pin in pins.items()) and all(
        stage_of[i] == stage_of[j] for i, j in together.items()
    )


def test_windows_allow_exactly_the_cuts_that_obey():
    refused = allowed_some = 0
    for seed in range(1500):
        rng = random.Random(seed)
        count = rng.randint(2, 7)
        stages = rng.randint(1, min(4, count))
        pins = {
            rng.randrange(count): rng.randrange(-stages, stages) for _ in range(rng.randint(0, 3))
        }
        together = {}
        for _ in range(rng.choice([0, 0, 1, 2])):
            first, second = rng.sample(range(count), 2)
            together[first] = second
        every = [(0, *interior, count) for interior in combinations(range(1, count), stages - 1)]
        good = {cuts for cuts in every if obeys(cuts, pins, together, stages)}
        try:
            found = windows(chain(count, pins, together), stages)
        except PinError:
            assert not good, seed
            refused += 1
            continue
        admitted = {
            cuts
            for cuts in every
            if all(found.legal_cut[list(cuts)])
            and all(
                found.stage_low[i] <= s <= found.stage_high[i]
                for s, (a, b) in enumerate(pairwise(cuts))
                for i in range(a, b)
            )
        }
        assert admitted == good, seed
        allowed_some += bool(good)
    assert refused > 300
    assert allowed_some > 500


def refusal(count, pins, stages, together=None) -> str:
    with pytest.raises(PinError) as caught:
        windows(chain(count, pins, together), stages)
    return str(caught.value)


def test_messages_name_the_layers():
    assert "l0 is pinned to stage 5, which 3 stages do not have; expected -3 .. 2" in refusal(
        4, {0: 5}, 3
    )
    assert "pinned to stage -4" in refusal(4, {0: -4}, 3)
    assert "l2 is pinned to stage 0 but follows layer l1, pinned to stage 1" in refusal(
        4, {1: 1, 2: 0}, 2
    )
    assert "l1 is pinned to stage 2, but stage 1 is the last it can be on with 1 block" in refusal(
        4, {1: 2}, 3
    )
    assert "after layer l3, pinned to its stage, too few blocks are left" in refusal(4, {3: 0}, 2)
    assert "colocations leave 2 groups of layers for 3 stages; use at most 2" in refusal(
        4, {}, 3, {3: 1}
    )


def test_two_pins_of_one_block_that_contradict():
    layers = [
        Layer(name="a", costs=COSTS),
        Layer(name="b", inputs=("a",), pin_stage=0, costs=COSTS),
        Layer(name="c", inputs=("a",), pin_stage=1, costs=COSTS),
        Layer(name="d", inputs=("b", "c"), costs=COSTS),
    ]
    model = Model(name="diamond", layers=tuple(layers))
    with pytest.raises(PinError, match="b and c share a stage but are pinned to stages 0 and 1"):
        windows(model, 2)


def test_pins_that_contradict_reach_the_caller():
    with pytest.raises(PinError):
        planner.partition(chain(4, {0: 1}), 2, 4)
    plan = planner.partition(chain(4, {1: -1}), 2, 4)
    assert [stage.layers for stage in plan.stages] == [("l0",), ("l1", "l2", "l3")]

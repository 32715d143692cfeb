"""From layers to the table of a layout: sums, crossings, ties, tails."""

from __future__ import annotations

import numpy as np
import pytest

import planner
from planner import placement
from planner.cost import compute, network
from planner.cost.pricing import Pricer
from planner.cost.question import NO_LIMIT_BYTES, partition_question, plan_pricer
from planner.cost.tables import FixedLink
from planner.errors import InputError, LayoutError, ProfileError
from planner.graph import contract
from planner.plans import Layout
from planner.specs import (
    Layer,
    LayerCost,
    Model,
    PartitionSetup,
    Precision,
    Recompute,
    Schedule,
    Tier,
    Training,
)
from tests.factories import chain_model, small_cluster, tiny_llama


def diamond() -> Model:
    """a, then b and c side by side, then d."""

    def layer(name: str, number: int, *inputs: str, **fields: object) -> Layer:
        cost = LayerCost(
            forward_ms=number,
            backward_ms=3 * number,
            weight_gradient_ms=number,
            parameter_bytes=20 * number,
            activation_bytes=100 * number,
            output_bytes=1000 * number,
            gradient_bytes=10 * number,
            workspace_bytes=7 * number,
        )
        return Layer(name=name, inputs=inputs, costs=(cost,), **fields)

    layers = (
        layer("a", 1),
        layer("b", 2, "a"),
        layer("c", 3, "a"),
        layer("d", 4, "b", "c"),
    )
    return Model(name="diamond", layers=layers)


def ms(pricer: Pricer, values) -> list[float]:
    return [pricer.quantum.ms(value) for value in np.asarray(values).tolist()]


def test_blocks_sum_their_layers_and_cuts_sum_their_producers():
    setup = PartitionSetup(num_stages=2, num_microbatches=4, bandwidth_bytes_per_s=1e6)
    pricer, layout = partition_question(diamond(), setup)
    problem = pricer.problem(layout)
    assert problem.block_names == ("a", "b..c (2 layers)", "d")
    assert ms(pricer, problem.forward) == [1, 5, 4]
    assert ms(pricer, problem.input_gradient) == [2, 10, 8]
    assert ms(pricer, problem.weight_gradient) == [1, 5, 4]
    assert problem.kept_bytes.tolist() == [100, 500, 400]
    # Workspace is the largest of a block, not the sum.
    assert problem.transient_bytes.tolist() == [7, 21, 28]
    # Behind a: 1000 bytes forward; behind b and c: 5000. At 1 MB/s that is 1 and 5 ms.
    assert ms(pricer, problem.edge_forward[0]) == [0, 1, 5, 0]
    assert ms(pricer, problem.edge_backward[0]) == [0, 0.01, 0.05, 0]
    # bf16 weights of 2 bytes, with gradients and Adam 18 bytes a parameter.
    assert problem.static_bytes.tolist() == [180, 900, 720]
    assert problem.budget_bytes.tolist() == [NO_LIMIT_BYTES] * 2
    assert problem.in_flight.tolist() == [2, 1]
    assert problem.fixed_tail == 0
    assert not problem.update.any()


def test_equal_layers_are_priced_alike_and_tables_are_kept():
    model = tiny_llama()
    training = Training(global_batch_size=8, sequence_length=256)
    pricer = plan_pricer(model, small_cluster(), training)
    prices = pricer.layer_prices(2, 1)
    assert len(prices) == len(model.layers)
    assert len({id(price) for price in prices}) == 3  # embedding, block, head
    assert pricer.block_table(2, 1) is pricer.block_table(2, 1)
    assert pricer.state_table(2, 2, 1) is pricer.state_table(2, 2, 4)


def test_a_problem_of_a_layout_has_its_degrees_and_tail():
    model, cluster = tiny_llama(), small_cluster(2, 4)
    training = Training(global_batch_size=16, sequence_length=256)
    pricer = plan_pricer(model, cluster, training)
    layout = Layout(dp=2, pp=4, tp=1, microbatch_size=2, num_microbatches=4)
    problem = pricer.problem(layout)
    assert (problem.num_stages, problem.num_microbatches) == (4, 4)
    assert problem.num_blocks == len(model.layers)
    assert problem.in_flight.tolist() == [4, 3, 2, 1]
    assert set(problem.budget_bytes.tolist()) == {cluster.budget_bytes}
    # Ranks dp x pp on two nodes of four: the middle boundary alone leaves the node.
    tiers = pricer.boundary_tiers(layout)
    assert tiers == (Tier.DOMAIN, Tier.CLUSTER, Tier.DOMAIN)
    assert problem.boundary_tier.tolist() == [0, 1, 0]
    inside, across = problem.edge_forward[:, 1]
    assert inside < across
    size = int(pricer.block_table(1, 2).cut_forward_bytes[1])
    assert pricer.quantum.ms(int(across)) == pytest.approx(
        network.point_to_point_ms(size, Tier.CLUSTER, cluster), rel=1e-9
    )
    # The tail: reduction of each block over dp, optimizer, fixed overhead.
    reduce = network.reduce_scatter(placement.data_group(cluster, 2, 1), cluster)
    gradients = pricer.state_table(1, 2, 2).gradient_bytes
    assert ms(pricer, problem.reduction) == pytest.approx(
        [int(g) * reduce.ms_per_byte for g in gradients], rel=1e-6
    )
    assert pricer.quantum.ms(problem.reduction_latency) == pytest.approx(reduce.latency_ms)
    update = compute.optimizer_step_ms(
        int(pricer.block_table(1, 2).trainable_parameters[1]),
        dp=2, training=training, cluster=cluster, tp=1,
    )  # fmt: skip
    assert pricer.quantum.ms(int(problem.update[1])) == pytest.approx(update, rel=1e-6)
    assert problem.fixed_tail > 0


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("optimizer", ["adam", "none"])
def test_what_is_reduced(dp, optimizer):
    training = Training(global_batch_size=16, sequence_length=256, optimizer=optimizer)
    pricer = plan_pricer(tiny_llama(), small_cluster(2, 4), training)
    states = pricer.state_table(1, dp, 1)
    trains = optimizer != "none"
    assert states.reduction.any() == (dp > 1 and trains)
    assert states.update.any() == trains
    assert states.gradient_bytes.any() == trains
    assert (states.reduction_bytes > 0).all() == (dp > 1 and trains)


def test_the_sharded_optimizer_divides_its_states_alone():
    model = tiny_llama()
    tables = [
        plan_pricer(
            model,
            small_cluster(2, 4),
            Training(global_batch_size=16, sequence_length=256, sharded_optimizer=sharded),
        ).state_table(1, 4, 1)
        for sharded in (True, False)
    ]
    assert tables[0].parameter_bytes.tolist() == tables[1].parameter_bytes.tolist()
    assert tables[0].gradient_bytes.tolist() == tables[1].gradient_bytes.tolist()
    assert (4 * tables[0].optimizer_bytes).tolist() == tables[1].optimizer_bytes.tolist()


def tied(model: Model, first: int, second: int) -> Model:
    layers = list(model.layers)
    layers[second] = layers[second].model_copy(update={"tied_to": layers[first].name})
    return model.model_copy(update={"layers": tuple(layers)})


def test_tied_layers_are_stored_once_on_one_stage_and_twice_on_two():
    model = tied(chain_model([1.0] * 3, parameter_bytes=[200, 0, 200]), 0, 2)
    for stages, bytes_of in ((1, [1800]), (3, [1800, 0, 1800])):
        pricer, layout = partition_question(model, PartitionSetup(num_stages=stages))
        problem = pricer.problem(layout)
        cuts = range(4) if stages == 3 else (0, 3)
        found = [
            problem.stage_memory(rank, start, end, Recompute.NONE, 0)
            for rank, (start, end) in enumerate(zip(list(cuts), list(cuts)[1:], strict=False))
        ]
        assert found == bytes_of


def test_layers_tied_inside_one_block_are_stored_once():
    model = tied(diamond(), 1, 2)  # b and c share a block
    pricer, layout = partition_question(model, PartitionSetup(num_stages=2))
    states = pricer.state_table(1, 1, 1)
    assert states.tied == ()
    # b has 20 parameters, c 30; the smaller matrix is shared.
    assert pricer.problem(layout).static_bytes.tolist() == [180, (50 - 20) * 18, 720]


def test_tied_gradients_are_reduced_once_a_step_between_two_stages():
    from planner.formats.catalog import load_model

    model = load_model("gpt2-xl")
    cluster = small_cluster(1, 4)
    training = Training(global_batch_size=8, sequence_length=256)
    pricer = plan_pricer(model, cluster, training)
    alone = pricer.fixed_tail_ms(Layout(dp=4, pp=1))
    split = pricer.fixed_tail_ms(Layout(dp=2, pp=2))
    group = placement.tied_group(cluster, 2, 1, 2)
    (once,) = pricer.state_table(1, 2, 1).tied_states
    reduce_ms = network.all_reduce_ms(once.gradients, group, cluster)
    assert split - alone == pytest.approx(reduce_ms, rel=0.05)


def test_a_fixed_link_replaces_the_cluster():
    link = FixedLink(bandwidth_bytes_per_s=1e6, latency_ms=0.5)
    assert link.transfer_ms(1000) == 1.5
    assert link.transfer_ms(0) == 0.5
    assert FixedLink(None, 0.25).transfer_ms(10**9) == 0.25
    assert FixedLink().transfer_ms(10**9) == 0


def test_frozen_layers_have_no_weight_gradient_and_no_states():
    model = chain_model([1.0, 1.0], parameter_bytes=200)
    layers = list(model.layers)
    layers[0] = layers[0].model_copy(update={"trainable": False})
    frozen = model.model_copy(update={"layers": tuple(layers)})
    pricer, layout = partition_question(frozen, PartitionSetup(num_stages=1))
    problem = pricer.problem(layout)
    assert problem.static_bytes.tolist() == [200, 1800]


def test_gpipe_keeps_all():
    setup = PartitionSetup(num_stages=3, num_microbatches=5, schedule=Schedule.GPIPE)
    pricer, layout = partition_question(chain_model([1.0] * 3), setup)
    assert pricer.problem(layout).in_flight.tolist() == [5, 5, 5]


# --- questions that cannot be priced ------------------------------------------------------------


def test_more_stages_than_layers():
    with pytest.raises(LayoutError, match="3 stages are more than the 2 layers") as caught:
        partition_question(chain_model([1.0, 1.0]), PartitionSetup(num_stages=3))
    assert "at most 2 stages" in str(caught.value)


def test_shapes_need_a_machine():
    with pytest.raises(InputError, match="gives FLOPs or shapes") as caught:
        partition_question(tiny_llama(), PartitionSetup(num_stages=2))
    assert "--cluster" in str(caught.value)


def test_several_devices_need_a_choice():
    costs = tuple(LayerCost(forward_ms=1, backward_ms=1, device=name) for name in ("x", "y"))
    model = Model(name="two", layers=(Layer(name="a", costs=costs),))
    with pytest.raises(ProfileError, match="several devices") as caught:
        partition_question(model, PartitionSetup(num_stages=1))
    assert "--device" in str(caught.value)
    pricer, layout = partition_question(model, PartitionSetup(num_stages=1, device="y"))
    assert pricer.quantum.ms(int(pricer.problem(layout).forward[0])) == 1


def test_a_precision_the_gpu_has_not():
    training = Training(global_batch_size=8, sequence_length=256, precision=Precision.FP8)
    with pytest.raises(LayoutError, match="no fp8 rate") as caught:
        plan_pricer(tiny_llama(), small_cluster(), training)
    assert "bf16" in str(caught.value)


def test_a_pricer_takes_a_chain_of_its_own():
    model = diamond()
    training = Training(global_batch_size=4, sequence_length=1)
    pricer = plan_pricer(model, small_cluster(), training, contract(model))
    assert pricer.chain.names == ("a", "b..c (2 layers)", "d")


def test_sizes_beyond_64_bits_are_refused_by_layer():
    huge = chain_model([1.0, 1.0, 1.0], activation_bytes=[1, 10**14, 1], name="huge")
    with pytest.raises(InputError, match="check the sizes of layer l1"):
        planner.partition(huge, 2, 100_000, schedule="gpipe")


def test_times_printed_in_full_precision_are_measurements_not_exact_decimals():
    times = [5.1234567890123455 + i / 7 for i in range(12)]
    plan = planner.partition(chain_model(times), 3, 8, objective="step-time")
    assert plan.status == "optimal"
    assert plan.bottleneck_ms == pytest.approx(
        max(
            sum(3 * t for t in times[a:b])
            for a, b in zip((0, *cuts_of(plan)), (*cuts_of(plan), 12), strict=False)
        ),
        rel=1e-10,
    )


def cuts_of(plan):
    sizes, cuts = [len(stage.layers) for stage in plan.stages], []
    for size in sizes[:-1]:
        cuts.append(size + (cuts[-1] if cuts else 0))
    return cuts


def test_times_of_larger_microbatches_than_profiled_stay_exact():
    plan = planner.partition(
        chain_model([1.5] * 8), 4, 50_000, microbatch_size=16, objective="step-time"
    )
    assert plan.status == "optimal"
    assert plan.step_time_ms == (50_000 + 3) * 2 * 4.5 * 16

"""Questions that users asked in public, put to the library; each names where it was asked.

The facts are of the thread; the answers come out of ``plan``, ``partition`` and ``evaluate``.
"""

from __future__ import annotations

import re

import pytest

import planner
from planner.cost.legality import legal_tensor_degrees
from planner.cost.network import ring_all_reduce_ms
from planner.cost.question import plan_pricer
from planner.errors import LayoutError, PinError, ProfileError, UnitError
from planner.formats.huggingface import read_config
from planner.formats.profile_csv import read_profile
from planner.placement import boundary_tiers
from planner.plans import Plan, Stage, Status
from planner.specs import Calibration, Layer, LayerCost, Link, Model, Tier, Training
from planner.units import parse_bandwidth, parse_bytes
from tests.factories import chain_model, small_cluster, times_model, tiny_llama

GIB = 2**30


def counts(plan: Plan) -> list[int]:
    """Layers per stage, after checking that each layer is on exactly one stage, in order."""
    held = [name for stage in plan.stages for name in stage.layers]
    assert held == [f"l{index}" for index in range(len(held))]
    assert all(stage.layers for stage in plan.stages)
    return [len(stage.layers) for stage in plan.stages]


def weights_only(**options: object) -> dict[str, object]:
    """States are the weights alone, so that parameter_bytes is all a layer keeps."""
    return {"optimizer": "none", "recompute": ("none",), **options}


# --- layers that do not divide evenly ----------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "stages", "largest", "smallest"),
    [
        (30, 4, 8, 7),  # NVIDIA/Megatron-LM#1304
        (42, 16, 3, 2),  # deepspeedai/DeepSpeed#5078
        (10, 3, 4, 3),  # ml-explore/mlx-lm#1688
    ],
)
@pytest.mark.parametrize("objective", ["bottleneck", "step-time"])
def test_every_layer_once_and_no_stage_empty(layers, stages, largest, smallest, objective):
    plan = planner.partition(times_model([1.0] * layers), stages, 2 * stages, objective=objective)
    found = counts(plan)
    assert sum(found) == layers
    assert (max(found), min(found)) == (largest, smallest)
    assert plan.status is Status.OPTIMAL


def test_a_short_last_stage_pinned_on_one_stage_is_refused():
    """NVIDIA/Megatron-LM#1778: one layer on the last stage, 20 layers, one stage."""
    model = times_model([1.0] * 20, pins={18: -2, 19: -1})
    with pytest.raises(PinError, match="l18 is pinned to stage -2, which 1 stages do not have"):
        planner.partition(model, 1)
    assert counts(planner.partition(model, 2)) == [19, 1]


def test_a_pinned_short_last_stage_is_the_lightest():
    """radixark/miles#1102: 61 layers on 4 stages, 13 of them on the last."""
    model = times_model([1.0] * 61, pins={47: -2, 48: -1})
    plan = planner.partition(model, 4, 8)
    assert counts(plan) == [16, 16, 16, 13]
    loads = [stage.forward_ms + stage.backward_ms for stage in plan.stages]
    assert min(loads) == loads[-1]


# --- memory estimates -------------------------------------------------------------------------


def test_states_with_and_without_the_sharded_optimizer():
    """flagos-ai/FlagScale#408: 8e9 parameters, T=2, P=2, D=4: 9 or 18 bytes each."""
    model = chain_model(
        [1.0, 1.0], type="mlp", parameter_bytes=8 * 10**9, output_bytes=1000, activation_bytes=1000
    )
    cluster = small_cluster(2, 8, memory_bytes=80 * 10**9)
    states = []
    for sharded in (True, False):
        plan = planner.plan(
            model, cluster, global_batch_size=8, sequence_length=128, dp=4, pp=2, tp=2,
            microbatch_size=1, sharded_optimizer=sharded,
        )  # fmt: skip
        memory = plan.stages[0].memory
        states.append(memory["parameters"] + memory["gradients"] + memory["optimizer"])
    assert states == [18 * 10**9, 36 * 10**9]


def test_reserved_memory_refuses_a_stage():
    """mlc-ai/pith-train#18: 80 GiB with 6 GiB reserved refuses 75 GiB and takes 73."""
    cluster = small_cluster(1, 2, memory_bytes=80 * GIB).model_copy(
        update={"reserved_bytes": 6 * GIB}
    )
    options = weights_only(global_batch_size=1, sequence_length=1, pp=2, tp=1)
    first, second = (
        chain_model([1.0, 1.0], parameter_bytes=sizes)
        for sizes in ([75 * GIB, 73 * GIB], [73 * GIB, 73 * GIB])
    )
    refused = planner.plan(first, cluster, **options)
    assert refused.status is Status.INFEASIBLE
    assert (refused.infeasible.rank, refused.infeasible.short_bytes) == (0, GIB)
    verdicts = [stage.verdict.value for stage in refused.stages]
    assert verdicts == ["out_of_memory", "fits"]
    assert planner.plan(second, cluster, **options).status is Status.OPTIMAL


# --- first and last stages --------------------------------------------------------------------


def test_a_heavy_head():
    """deepspeedai/DeepSpeed#2974: embedding 1, 24 blocks of 10, head and loss 30, on 4."""
    plan = planner.partition(times_model([1.0, *[10.0] * 24, 30.0]), 4, 8)
    assert plan.bottleneck_ms == 70
    first, *middle, last = counts(plan)
    assert [first - 1, *middle, last - 1] == [6, 7, 7, 4]


def test_a_stage_each_for_embedding_blocks_and_head():
    """deepspeedai/DeepSpeed#1378: 8 layers on 8 stages."""
    model = times_model([1.0] * 8)
    assert planner.partition(model, 8, 4).bottleneck_ms == 1.0
    with pytest.raises(LayoutError, match="9 stages are more than the 8 layers"):
        planner.partition(model, 9, 4)


def test_multi_token_prediction_counts():
    """NVIDIA/Megatron-LM#2136: 61 layers, an MTP layer and a loss of 0.5 on 16 stages."""
    plan = planner.partition(times_model([0.0, *[1.0] * 61, 1.0, 0.5]), 16, 16)
    assert plan.bottleneck_ms == 4.0
    assert "l62" not in plan.stages[0].layers


def test_no_split_beats_the_default_one():
    """pytorch/torchtitan#2093: 80 blocks, ends of 0.2 and 1.6, on 8: 11.0 either way."""
    model = times_model([0.2, *[1.0] * 80, 1.6])
    plan = planner.partition(model, 8, 16)
    assert plan.bottleneck_ms == pytest.approx(11.0, abs=1e-9)
    assert plan.status is Status.OPTIMAL
    ends = [0, 11, 22, 32, 42, 52, 62, 72, 82]
    default = Plan(
        layout=plan.layout,
        stages=tuple(
            Stage(rank=rank, layers=tuple(f"l{i}" for i in range(ends[rank], ends[rank + 1])))
            for rank in range(8)
        ),
        inputs=plan.inputs,
    )
    assert [len(s.layers) - (s.rank in (0, 7)) for s in default.stages] == [
        10, 11, 10, 10, 10, 10, 10, 9,
    ]  # fmt: skip
    judged = planner.evaluate(default, model=model).plan
    assert judged.bottleneck_ms == pytest.approx(plan.bottleneck_ms, abs=1e-9)


# --- the first stage runs out of memory -------------------------------------------------------


def test_the_equal_split_overflows_the_first_stage():
    """sail-sg/zero-bubble-pipeline-parallelism#8: 5 + 0.75 in-flight GiB a layer in 60 GiB."""
    model = times_model([1.0] * 32, parameter_bytes=5 * GIB, activation_bytes=3 * GIB // 4)
    options = weights_only(memory_bytes=60 * GIB)
    plan = planner.partition(model, 4, 16, **options)
    assert max(counts(plan)) == 9
    assert plan.status is Status.OPTIMAL
    equal = Plan(
        layout=plan.layout,
        stages=tuple(
            Stage(rank=rank, layers=tuple(f"l{i}" for i in range(8 * rank, 8 * rank + 8)))
            for rank in range(4)
        ),
        inputs=plan.inputs,
    )
    violations = planner.evaluate(equal, model=model).violations
    assert [(v.code, v.rank) for v in violations] == [("OUT_OF_MEMORY", 0)]


def test_microbatches_alive_on_the_first_stage():
    """fangwei123456/spikingjelly#726: P=8, M=4, 3 GiB a stage: 12 GiB, not 24."""
    model = times_model([1.0] * 8, activation_bytes=3 * GIB)
    stage = planner.partition(model, 8, 4).stages[0]
    assert stage.in_flight == 4
    assert stage.memory["activations"] == 12 * GIB


def test_the_remainder_goes_to_the_last_stage():
    """NVIDIA/Megatron-LM#381: 7 layers on 2 stages in 26 GiB: only 3,4 fits."""
    model = times_model([1.0] * 7, parameter_bytes=4 * GIB, activation_bytes=2 * GIB)
    plan = planner.partition(model, 2, 8, **weights_only(memory_bytes=26 * GIB))
    assert counts(plan) == [3, 4]
    assert [stage.memory_bytes for stage in plan.stages] == [24 * GIB, 24 * GIB]
    tight = planner.partition(model, 2, 8, **weights_only(memory_bytes=24 * GIB - 1))
    assert tight.status is Status.INFEASIBLE
    assert tight.infeasible.short_bytes == 1


# --- batches and GPUs -------------------------------------------------------------------------


def test_the_nearest_batches_are_named():
    """mosaicml/examples#41: 96 GPUs, T=8, D=12, batch 1024."""
    model = tiny_llama()
    cluster = small_cluster(12, 8)
    for size, nearest in ((1, "1020, 1032"), (2, "1008, 1032"), (4, "1008, 1056")):
        with pytest.raises(LayoutError, match=f"nearest global batches that work are {nearest}"):
            planner.plan(
                model, cluster, global_batch_size=1024, sequence_length=512,
                dp=12, pp=1, tp=8, microbatch_size=size,
            )  # fmt: skip
    for batch, microbatches in ((1008, 42), (1032, 43)):
        plan = planner.plan(
            model, cluster, global_batch_size=batch, sequence_length=512,
            dp=12, pp=1, tp=8, microbatch_size=2,
        )  # fmt: skip
        assert plan.layout.num_microbatches == microbatches


def test_the_batch_stays_when_the_degrees_change():
    """Oneflow-Inc/libai#345: batch 32, micro-batches of 16, from D=2 to T=2."""
    cluster = small_cluster(1, 2)
    found = [
        planner.plan(
            tiny_llama(), cluster, global_batch_size=32, sequence_length=128,
            dp=dp, tp=tp, pp=1, microbatch_size=16,
        ).layout.num_microbatches
        for dp, tp in ((2, 1), (1, 2))
    ]  # fmt: skip
    assert found == [1, 2]


def heads(count: int, kv_heads: int, *, hidden: int = 0, ffn: int = 0) -> Model:
    hidden = hidden or 128 * count
    return read_config(
        f"""{{"model_type": "llama", "hidden_size": {hidden}, "head_dim": 128,
              "intermediate_size": {ffn or 4 * hidden}, "num_hidden_layers": 4,
              "num_attention_heads": {count}, "num_key_value_heads": {kv_heads},
              "vocab_size": 32000, "max_position_embeddings": 2048}}""",
        name="heads",
        file="config.json",
    )


def test_degrees_that_do_not_divide_the_gpus():
    """google/or-tools#973: 12 GPUs, T=8, P=2: with P kept, T in 1, 2, 3, 6."""
    model = heads(24, 24)
    cluster = small_cluster(1, 12)
    with pytest.raises(LayoutError) as caught:
        planner.plan(model, cluster, global_batch_size=24, sequence_length=512, tp=8, pp=2)
    assert "pp=2 x tp=8 needs a multiple of 16 GPUs and the cluster has 12" in str(caught.value)
    assert "with pp=2 kept, tp can be 1, 2, 3, 6" in str(caught.value)
    for tp in (1, 2, 3, 6):
        plan = planner.plan(model, cluster, global_batch_size=24, sequence_length=512, tp=tp, pp=2)
        assert plan.layout.num_gpus == 12


def test_tensor_degrees_of_52_heads():
    """deepspeedai/DeepSpeed#3634: T in 1, 2, 4."""
    model = heads(52, 52, hidden=6656, ffn=17920)
    assert legal_tensor_degrees(model, 8) == [1, 2, 4]
    with pytest.raises(LayoutError, match=r"does not divide the 52 .*tp can be 1, 2, 4"):
        planner.plan(model, small_cluster(1, 8), global_batch_size=8, sequence_length=128, tp=8)


def test_fewer_nodes_and_the_same_batch():
    """NVIDIA/Megatron-LM#361: 120 GPUs left, T=8, P=4: D=2 for 256, D=3 for 255 and 258."""
    model = tiny_llama()
    cluster = small_cluster(15, 8)
    for batch, dp, idle in ((256, 2, 56), (255, 3, 24), (258, 3, 24)):
        options = {
            "global_batch_size": batch, "sequence_length": 256, "tp": 8, "pp": 4,
            "microbatch_size": 1,
        }  # fmt: skip
        plan = planner.plan(model, cluster, allow_fewer=True, **options)
        assert (plan.layout.dp, plan.idle_gpus) == (dp, idle)
        with pytest.raises(LayoutError):
            planner.plan(model, cluster, **options)


def test_fewest_boundaries_between_nodes():
    """alpa-projects/alpa#752: 32 stages on 4 nodes of 8 cross nodes three times."""
    tiers = boundary_tiers(small_cluster(4, 8), dp=1, tp=1, pp=32)
    crossing = [rank for rank, tier in enumerate(tiers) if tier is Tier.CLUSTER]
    assert crossing == [7, 15, 23]


def test_pairs_of_gpus_carry_the_tensor_groups():
    """msr-fiddle/pipedream#21: NVLink between GPUs 0,1 and 2,3 of a box."""
    cluster = small_cluster(1, 4).model_copy(
        update={
            "nvlink_domain": 2,
            "links": (
                Link(tier=Tier.DOMAIN, bandwidth_bytes_per_s=50e9),
                Link(tier=Tier.NODE, bandwidth_bytes_per_s=12e9),
            ),
        }
    )
    options = {"global_batch_size": 8, "sequence_length": 512}
    plan = planner.plan(tiny_llama(), cluster, tp=2, pp=2, **options)
    tiers = {group.kind: group.tier for group in plan.communication}
    assert tiers == {"tensor": Tier.DOMAIN, "pipeline": Tier.NODE}
    with pytest.raises(LayoutError, match="nvlink domain of 2"):
        planner.plan(tiny_llama(), cluster, tp=4, **options)


# --- units ------------------------------------------------------------------------------------


def test_a_bare_number_is_refused_and_a_named_unit_is_not():
    """Hsword/Hetu#70: 48.05 of an encoder layer is MiB of fp32 parameters."""
    bare = "name,forward_ms,backward_ms,memory\nencoder,1,2,48.05\n"
    with pytest.raises(ProfileError, match="memory"):
        read_profile(None, bare)
    config = """{"model_type": "gpt2", "n_embd": 1024, "n_layer": 1, "n_head": 16,
                 "vocab_size": 50257, "n_positions": 512}"""
    model = read_config(config, name="one", file="config.json")
    training = Training(global_batch_size=1, sequence_length=512)
    table = plan_pricer(model, small_cluster(), training).block_table(1, 1)
    parameters = int(table.parameters[1])
    assert parameters == 12_596_224 == 12 * 1024**2 + 13 * 1024
    assert round(4 * parameters / 2**20, 2) == 48.05
    named = (
        "name,forward_ms,backward_ms,parameter_mib,activation_bytes,output_bytes\n"
        "encoder,1,2,48.05,0,0\n"
    )
    profile, _ = read_profile(None, named)
    assert profile.layers[0].costs[0].parameter_bytes == pytest.approx(4 * parameters, rel=1e-4)


def test_bandwidths_and_sizes_need_units():
    """msr-fiddle/pipedream#21: four unit systems meet in two neighbouring tools."""
    assert parse_bandwidth("2.5Gbit/s") == parse_bandwidth("312500000B/s") == 312_500_000
    assert parse_bandwidth("42.5Gbit/s") == parse_bandwidth("5312500000 B/s")
    assert (parse_bytes("16GB"), parse_bytes("16GiB")) == (16 * 10**9, 16 * GIB)
    for text, parse in (("312500000", parse_bandwidth), ("16", parse_bytes)):
        with pytest.raises(UnitError):
            parse(text)


# --- recompute --------------------------------------------------------------------------------


def test_selective_recompute_saves_nothing_with_flash_attention():
    """NVIDIA/Megatron-LM#1225: h=4096, 32 heads, s=2048, b=1."""
    config = """{"model_type": "gpt2", "n_embd": 4096, "n_layer": 1, "n_head": 32,
                 "vocab_size": 50257, "n_positions": 2048, "attn_pdrop": 0.1,
                 "embd_pdrop": 0.1, "resid_pdrop": 0.1}"""
    model = read_config(config, name="one", file="config.json")
    kept = []
    for flash in (False, True):
        training = Training(global_batch_size=1, sequence_length=2048, flash_attention=flash)
        table = plan_pricer(model, small_cluster(), training).block_table(1, 1)
        kept += [int(table.kept_bytes[1]), int(table.kept_selective_bytes[1])]
    naive, naive_selective, flash_kept, flash_selective = kept
    assert (naive, naive_selective) == (956_301_312, 285_212_672)
    # Fused attention keeps its row statistics, four bytes a head and token, and nothing else.
    assert flash_kept == pytest.approx(285_212_672, rel=0.002)
    assert flash_selective == 285_212_672


def test_only_the_first_stage_recomputes():
    """AMD-AGI/Primus#286: 30 GiB of states, 4 or 0.5 GiB a micro-batch, 44 GiB."""
    model = chain_model(
        [1.0] * 4, type="block", parameter_bytes=30 * GIB, activation_bytes=4 * GIB,
        checkpoint_bytes=GIB // 2,
    )  # fmt: skip
    plan = planner.partition(
        model, 4, 8, optimizer="none", recompute=("none", "full"), memory_bytes=44 * GIB
    )
    assert [stage.recompute.value for stage in plan.stages] == ["full", "none", "none", "none"]
    assert [stage.memory_bytes // GIB for stage in plan.stages] == [36, 42, 38, 34]
    strict = planner.partition(
        model, 4, 8, optimizer="none", recompute=("none",), memory_bytes=44 * GIB
    )
    assert strict.infeasible.rank == 0
    assert strict.infeasible.short_bytes == 2 * GIB


# --- what a schedule costs --------------------------------------------------------------------


def test_the_slowest_stage_alone_does_not_decide():
    """microsoft/nnscaler#30: 8,8,8,16 against 15,15,15,15: a tie at M=21."""

    def step(times: list[float], microbatches: int) -> float:
        model = chain_model([t / 2 for t in times], [t / 2 for t in times])
        plan = planner.partition(model, 4, microbatches, schedule="gpipe", objective="step-time")
        return plan.step_time_ms

    uneven, even = [8.0, 8.0, 8.0, 16.0], [15.0] * 4
    assert step(uneven, 20) < step(even, 20)
    assert step(uneven, 21) == step(even, 21) == 360
    assert step(uneven, 22) > step(even, 22)


def test_tensor_or_pipeline_by_the_link():
    """NVIDIA/Megatron-LM#258: 32 layers of 24 ms, 8 GPUs, M=32, at 16 or 300 GB/s.

    Four ring all-reduces of 16.8 MB a layer, nothing else: T=8 takes 10,588 or 3,473 ms against
    the 3,744 ms of P=8.
    """
    size = 4096 * 2048 * 2
    rows = tuple(
        LayerCost(
            tp=tp, forward_ms=8.0 / tp, backward_ms=16.0 / tp, output_bytes=size,
            sequence_length=2048,
        )
        for tp in (1, 8)
    )  # fmt: skip
    model = Model(
        name="blocks",
        layers=tuple(
            Layer(name=f"l{i}", type="block", inputs=(f"l{i - 1}",) if i else (), costs=rows)
            for i in range(32)
        ),
        sequence_length=2048,
    )
    pipeline = planner.partition(model, 8, 32, objective="step-time", tp=1)
    assert pipeline.step_time_ms == 3744
    found = []
    for bandwidth in (16e9, 300e9):
        base = small_cluster(1, 8)
        exact = Calibration(
            domain_efficiency=1, collective_latency_ms=0, step_overhead_ms=0, layer_floor_ms=0
        )
        cluster = base.model_copy(
            update={
                "gpu": base.gpu.model_copy(update={"calibration": exact}),
                "links": (Link(tier=Tier.DOMAIN, bandwidth_bytes_per_s=bandwidth),),
            }
        )
        plan = planner.plan(
            model, cluster, global_batch_size=32, sequence_length=2048, tp=8, pp=1, dp=1,
            microbatch_size=1, optimizer="none", sequence_parallel=False,
        )  # fmt: skip
        found.append(plan.step_time_ms)
    assert found == pytest.approx([10_588, 3_473], abs=2)


def test_tensor_groups_over_two_nodes_have_their_price():
    """bigscience-workshop/bigscience#15: h=12288, s=2048: 1.174 ms in a node, 15.10 over two."""
    size = 2048 * 12288 * 2
    assert 4 * ring_all_reduce_ms(size, 8, 300e9) == pytest.approx(1.174, abs=0.01)
    assert 4 * ring_all_reduce_ms(size, 16, 25e9) == pytest.approx(15.10, abs=0.01)
    options = {"global_batch_size": 16, "sequence_length": 2048, "pp": 1, "dp": 1}
    model = planner.load_model("gpt3-175b")
    with pytest.raises(LayoutError, match="nvlink domain of 8"):
        planner.plan(model, "dgx-a100-80gb:2", tp=16, **options)
    across = planner.plan(
        model, "dgx-a100-80gb:4", tp=16, allow_cross_domain=True, **{**options, "pp": 2}
    )
    inside = planner.plan(model, "dgx-a100-80gb:4", tp=8, **{**options, "pp": 4})
    exposed = [
        sum(stage.tensor_parallel_ms for stage in plan.stages) / plan.layout.microbatch_size
        for plan in (across, inside)
    ]
    # Half the ranks would halve the work of each; the wires between nodes more than undo that.
    assert exposed[0] > 1.5 * exposed[1]


# --- frozen, tied and padded ------------------------------------------------------------------


def test_frozen_layers_have_weights_alone():
    """pytorch/torchtitan#3438: 7e9 frozen parameters, 20e6 trained, gradients in fp32."""

    def states(embedding_trains: bool) -> int:
        costs = (LayerCost(forward_ms=1.0, backward_ms=1.0),)
        embedding = 128_256 * 4096
        layers = [
            ("embedding", embedding, embedding_trains),
            ("base", 7 * 10**9 - embedding, False),
            ("adapter", 20 * 10**6, True),
        ]
        model = Model(
            name="adapted",
            layers=tuple(
                Layer(
                    name=name,
                    inputs=(layers[i - 1][0],) if i else (),
                    trainable=trains,
                    costs=(costs[0].model_copy(update={"parameter_bytes": 2 * count}),),
                )
                for i, (name, count, trains) in enumerate(layers)
            ),
        )
        return planner.partition(model, 1).stages[0].memory_bytes

    assert states(False) == 7 * 10**9 * 2 + 20 * 10**6 * 18
    assert states(True) - states(False) == 525_336_576 * 16


def test_a_tied_matrix_is_stored_and_reduced_on_both_ends():
    """NVIDIA/Megatron-LM#844: 50,304 x 1600 a second time; 321,945,600 bytes once a step."""
    model = planner.load_model("gpt2-xl")
    cluster = planner.load_cluster("dgx-a100-80gb:1")
    training = Training(global_batch_size=8, sequence_length=1024)
    pricer = plan_pricer(model, cluster, training)
    (once,) = pricer.state_table(1, 1, 1).tied_states
    assert once.parameters == 2 * 80_486_400
    assert once.gradients == 321_945_600
    plan = planner.plan(model, cluster, global_batch_size=8, sequence_length=1024, dp=2, pp=4, tp=1)
    whole = planner.plan(
        model, cluster, global_batch_size=8, sequence_length=1024, dp=8, pp=1, tp=1
    )
    held = sum(stage.memory["parameters"] for stage in plan.stages)
    assert held - whole.stages[0].memory["parameters"] == 2 * 80_486_400
    # Once a step, whatever the number of micro-batches: the same fixed term.
    fixed = {
        planner.plan(
            model, cluster, global_batch_size=batch, sequence_length=1024,
            dp=2, pp=4, tp=1, microbatch_size=1,
        ).step_terms.fixed_ms
        for batch in (8, 64)
    }  # fmt: skip
    assert len(fixed) == 1
    assert fixed.pop() > whole.step_terms.fixed_ms


def test_a_padded_vocabulary():
    """NVIDIA-NeMo/Megatron-Bridge#1331: 151,669 tokens, T=4, h=2560."""
    model = read_config(
        """{"model_type": "qwen2", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 2, "num_attention_heads": 20, "num_key_value_heads": 20,
            "vocab_size": 151669, "max_position_embeddings": 2048,
            "tie_word_embeddings": false}""",
        name="padded",
        file="config.json",
    )
    training = Training(global_batch_size=1, sequence_length=128)
    pricer = plan_pricer(model, small_cluster(), training)
    assert pricer.layer_prices(4, 1)[0].parameters == 152_064 * 2560 // 4 == 97_320_960


# --- more than one kind of layer ----------------------------------------------------------------


def test_encoder_and_decoder_on_stages_of_their_own():
    """pytorch/PiPPy#881: six layers of 1 and six of 1.5 on 2 + 2 stages: 4.5."""
    model = times_model([1.0] * 6 + [1.5] * 6, pins={5: 1, 6: 2})
    plan = planner.partition(model, 4, 8)
    assert plan.bottleneck_ms == 4.5
    assert counts(plan) == [3, 3, 3, 3]


def test_the_encoder_output_travels_along():
    """pytorch/PiPPy#881: 128 + 512 tokens of 4 x 1024 in bf16 over a decoder boundary."""
    source, target = 512 * 4 * 1024 * 2, 128 * 4 * 1024 * 2
    layers = []
    for i in range(12):
        inputs = [f"l{i - 1}"] if i else []
        if i > 6:
            inputs.append("l5")
        cost = LayerCost(forward_ms=0.5, backward_ms=0.5, output_bytes=source if i < 6 else target)
        layers.append(Layer(name=f"l{i}", inputs=tuple(inputs), costs=(cost,)))
    model = Model(name="encoder-decoder", layers=tuple(layers))
    plan = planner.partition(model, 12, 4, bandwidth_bytes_per_s=1e9)
    middle = plan.stages[9]
    # Received and sent, activations and gradients: four times the boundary.
    assert middle.communication_ms == pytest.approx(4 * 5_242_880 / 1e6)


def test_vision_encoder_with_the_first_layers():
    """QwenLM/Qwen3-VL#1497: 12 with three layers of 1, then 33 more on three stages."""
    model = times_model([12.0] + [1.0] * 36, colocate={3: 0})
    plan = planner.partition(model, 4, 8)
    assert plan.bottleneck_ms == 15
    assert counts(plan) == [4, 11, 11, 11]


# --- answers in time, and always the same --------------------------------------------------------


def test_a_deadline_is_never_an_infeasibility():
    """google/or-tools#5163: 400 layers; what came in time with its gap, or unknown."""
    model = chain_model(
        [1.0 + (7 * i % 13) for i in range(400)], output_bytes=[i * 37 % 1000 for i in range(400)]
    )
    for limit in (1e-9, 0.02, 5.0):
        plan = planner.partition(
            model, 32, 64, objective="step-time", bandwidth_bytes_per_s=1e6, time_limit_s=limit
        )
        assert plan.status is not Status.INFEASIBLE
        if plan.status is Status.FEASIBLE:
            assert 0 < plan.gap < 1
            assert re.match("time_limit|work_limit", plan.termination.reason)


def test_the_same_question_has_the_same_answer():
    """google/or-tools#3590: byte-identical plans."""
    texts = {
        planner.partition(times_model([2.0, 1.0, 2.0, 1.0, 2.0, 1.0]), 3, 4).to_json()
        for _ in range(3)
    }
    assert len(texts) == 1

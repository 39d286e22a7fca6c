from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxq
from onnxq.checking.inventory import inventory
from onnxq.operator import Float
from onnxq.ort.runtime import open_session
from onnxq.qparams.group_spec import GroupSpec
from onnxq.weights.experts import unfolded
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.reasons import MixtureInBody, NoQMoE
from onnxq.weights.weight_plan import WeightRequest
from tests.weights.block_models import canonical

if TYPE_CHECKING:
    from onnxq.core.arrays import Array

EXPERTS, HIDDEN, INNER = 4, 64, 96


def mixture(name: str = "moe", seed: int = 0, **attributes: Any) -> onnx.ModelProto:
    """Y = MoE(X, X R) of random weights."""
    random = np.random.default_rng(seed)
    gated = attributes.get("activation_type") == "swiglu"
    shapes = {
        "router": (HIDDEN, EXPERTS),
        "w1": (EXPERTS, INNER * (2 if gated else 1), HIDDEN),
        "b1": (EXPERTS, INNER * (2 if gated else 1)),
        "w2": (EXPERTS, HIDDEN, INNER),
        "b2": (EXPERTS, HIDDEN),
    }
    arrays = {n: (random.standard_normal(s) / 8).astype(np.float32) for n, s in shapes.items()}
    make = onnx.helper.make_node
    nodes = [
        make("Reshape", ["x", "flat"], ["rows"], name="flatten"),
        make("MatMul", ["rows", "router"], ["r"], name="gate"),
        make(
            "MoE",
            ["x", "r", "w1", "b1", "w2", "b2"],
            ["y"],
            name=name,
            domain="com.microsoft",
            **{"k": 2, **attributes},
        ),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "mixture",
        [value("x", 1, ["n", "t", HIDDEN])],
        [value("y", 1, ["n", "t", HIDDEN])],
        [onnx.numpy_helper.from_array(a, n) for n, a in arrays.items()]
        + [onnx.numpy_helper.from_array(np.array([-1, HIDDEN]), "flat")],
    )
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)


def batches(count: int = 8) -> list[dict[str, Array]]:
    random = np.random.default_rng(1)
    mix = random.standard_normal((HIDDEN, HIDDEN)) / 4
    return [
        {"x": (random.standard_normal((1, 40, HIDDEN)) @ mix).astype(np.float32)}
        for _ in range(count)
    ]


def run(model: object, batch: dict[str, Array]) -> Array:
    (y,) = open_session(model).run(batch)  # type: ignore[arg-type]
    return np.asarray(y, np.float32)


SWIGLU: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 1}
KINDS: list[dict[str, Any]] = [
    {"activation_type": "relu", "normalize_routing_weights": 1},
    {"activation_type": "gelu", "normalize_routing_weights": 1},
    {"activation_type": "silu"},
    {"activation_type": "identity"},
    {"k": None, "normalize_routing_weights": 1},  # one expert for each token
    {**SWIGLU, "normalize_routing_weights": 1},
    {**SWIGLU, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_gemms_of_each_expert_compute_what_the_mixture_does(kind: dict[str, Any]) -> None:
    model = ir.from_proto(mixture(**kind))
    (batch, *_) = batches(1)
    wanted = run(model, batch)
    apart = unfolded(model, {"moe"})
    assert "MoE" not in {node.op_type for node in apart.graph}
    assert np.abs(np.subtract(run(apart, batch), wanted)).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_mixture_becomes_qmoe_of_the_same_routing(kind: dict[str, Any]) -> None:
    model = mixture(**kind)
    made = onnxq.quantize_weights(model, bits=8, exclude=["gate"], check=onnxq.Check.NONE)
    (batch, *_) = batches(1)
    wanted = run(ir.from_proto(model), batch)
    error = np.square(np.subtract(run(made, batch), wanted)).mean() / np.square(wanted).mean()
    assert "QMoE" in {node.op_type for node in made.graph}
    assert -10 * np.log10(error) > 34


def test_a_quantized_router_that_sends_tokens_elsewhere_is_no_hindrance() -> None:
    samples = batches(2)
    made = onnxq.quantize_weights(mixture(), samples, bits=2, check=onnxq.Check.NONE)
    assert {"QMoE", "MatMulNBits"} <= {node.op_type for node in made.graph}


def test_an_expert_that_no_sample_goes_to_is_rounded_without() -> None:
    model = mixture(**SWIGLU)
    one = [{"x": np.ones((1, 3, HIDDEN), np.float32)}]
    made = onnxq.quantize_weights(
        model, one, method="gptq", exclude=["gate"], check=onnxq.Check.NONE
    )
    scales = {
        n: v.const_value.numpy()
        for n, v in made.graph.initializers.items()
        if n.endswith("scales") and v.const_value is not None
    }
    assert len(scales) == 2
    assert all(np.abs(each).min() > 0 for each in scales.values())


def test_experts_of_one_mixture_have_the_same_bits_where_bits_are_mixed() -> None:
    size = onnxq.SizeAim(size=0.25)
    made = onnxq.quantize_weights(mixture(), batches(2), exclude=["gate"], size=size)
    (node,) = [node for node in made.graph if node.op_type == "QMoE"]
    assert node.attributes.get_int("expert_weight_bits") in (2, 4)


@pytest.mark.parametrize(
    ("request_", "kind", "words"),
    [
        (WeightRequest(exclude=("moe",)), {}, "excluded"),
        (WeightRequest(exclude=("mo*",)), {}, "excluded"),
        (WeightRequest(GroupSpec(4, 64)), {}, "rows of 64 weights in groups of 64"),
        (WeightRequest(), {**SWIGLU, "swiglu_fusion": 2}, "swiglu_fusion 1"),
    ],
)
def test_a_mixture_stays_float_with_a_reason(
    request_: WeightRequest, kind: dict[str, Any], words: str
) -> None:
    decision = plan_weights(canonical(mixture(**kind)), request_).decisions["moe"]
    assert isinstance(decision, Float)
    assert words in decision.reason.words


def test_the_inventory_has_the_weights_of_experts_in_their_bits() -> None:
    made = onnxq.quantize_weights(mixture(), exclude=["gate"], check=onnxq.Check.NONE)
    weights = inventory(made).weights
    assert {weight.dtype for weight in weights} == {"4 bits"}
    assert {weight.granularity for weight in weights} == {"groups of 32, affine"}


def test_a_mixture_stays_float_in_operators_of_onnx_alone() -> None:
    made = onnxq.quantize_weights(mixture(), format="qdq", check=onnxq.Check.NONE)
    assert {"MoE", "DequantizeLinear"} <= {node.op_type for node in made.graph}


def test_the_reason_why_another_operator_stays_float_is_of_weights_in_groups() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[1, 4, 8, 8] x, float[n, 64] z) => (float[1, 4, 8, 8] y, float[n, 64] u)
        <float[4, 4, 1, 1] w = {REPEAT}, float[64, 64] m = {MATRIX}> {
            [conv] y = Conv(x, w)
            [up] u = MatMul(z, m)
        }""".replace("REPEAT", ",".join(["1"] * 16)).replace("MATRIX", ",".join(["1"] * 4096))
    )
    decision = plan_weights(canonical(model), WeightRequest()).decisions["conv"]
    assert isinstance(decision, Float)
    assert "weights in groups" in decision.reason.words


@pytest.mark.parametrize("scheme", ["affine", "symmetric", "real"])
def test_gptq_of_what_each_expert_sees_is_nearer_than_rounding(scheme: str) -> None:
    model = mixture(**SWIGLU, normalize_routing_weights=1)
    samples = batches()
    found = {}
    for method in ("rtn", "gptq"):
        made = onnxq.quantize_weights(
            model, samples, method=method, scheme=scheme, exclude=["gate"], check=samples
        )
        assert made.verdict is not None
        found[method] = made.verdict.outputs[0].known_db
    assert found["gptq"] > found["rtn"] + 1


def test_experts_store_integers_and_compute_in_float_beside_a_router_in_integers() -> None:
    verdict = onnxq.quantize_weights(mixture(), samples=batches()).verdict
    assert verdict is not None
    assert (verdict.integer_nodes, verdict.stored_nodes) == (1, 1)


def test_a_mixture_in_a_body_stays_float_for_a_reason_of_its_own() -> None:
    body = mixture().graph
    del body.input[:]
    make, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    branch = make("If", ["c"], ["z"], name="if", then_branch=body, else_branch=body)
    inputs = [value("c", 9, []), value("x", 1, ["n", "t", HIDDEN])]
    outputs = [value("z", 1, ["n", "t", HIDDEN])]
    graph = onnx.helper.make_graph([branch], "g", inputs, outputs)
    imports = mixture().opset_import
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    decisions = plan_weights(canonical(model), WeightRequest()).decisions.values()
    reasons = {decision.reason for decision in decisions if isinstance(decision, Float)}
    assert MixtureInBody() in reasons
    assert not any(isinstance(reason, NoQMoE) for reason in reasons)

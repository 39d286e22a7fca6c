from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

import onnxq
from onnxq import catalog
from onnxq.checking.predict import predict
from onnxq.dtypes import INT8, UINT8
from onnxq.operator import Call, NodePlan
from onnxq.qdq import sum_scales
from onnxq.qdq.sum_scales import Sum
from onnxq.qparams import QParams, per_tensor
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import Plan, plan
from onnxq.static.planning.plan_sums import find_sums
from onnxq.static.prepare import prepare
from tests.examples import ALL_INTEGERS, model, weights

# a quarter of all pairs of integers is half way between two integers of the result
TIES = {"x": np.linspace(0, 255, 16, dtype=np.float32).reshape(1, 16)}
FOURS = {"x": np.arange(-128, 128, dtype=np.float32).reshape(16, 16) / 32}


def doubled() -> onnx.ModelProto:
    """y = relu(x w) + relu(x v), and z = y + relu(x w)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["ra"]),
        helper.make_node("MatMul", ["x", "v"], ["b"]),
        helper.make_node("Relu", ["b"], ["rb"]),
        helper.make_node("Add", ["ra", "rb"], ["s"], "first"),
        helper.make_node("Add", ["s", "ra"], ["t"], "second"),
        helper.make_node("MatMul", ["t", "u"], ["y"]),
    ]
    eye = np.eye(16, dtype=np.float32)
    return model(nodes, {"w": eye, "v": eye, "u": weights(3, 16, 4)}, {"x": ["N", 16]})


def made_for(target: str) -> Plan:
    prepared = prepare(doubled(), ALL_INTEGERS, target)
    return plan(prepared, calibrate(prepared, TIES))


def disagreeing(made: Plan) -> list[str]:
    add = catalog.find("Add", "")
    assert add is not None
    sums = {"first": ("ra", "rb", "s"), "second": ("s", "ra", "t")}
    plans = {
        name: NodePlan((made.tensors[a], made.tensors[b]), (made.tensors[c],))
        for name, (a, b, c) in sums.items()
    }
    return [name for name, one in plans.items() if not add.agrees(Call(add.op_type, (), one))]


def test_sums_of_portable_models_are_the_same_on_every_machine() -> None:
    exact, portable = made_for("x86-vnni"), made_for("portable")
    assert disagreeing(exact)
    assert not disagreeing(portable)
    for name, qparams in portable.tensors.items():
        ratio = qparams.scale / exact.tensors[name].scale
        assert 1 <= ratio <= 1.002
        assert qparams.zero_point == exact.tensors[name].zero_point
    assert not [note for note in portable.notes if "ARM" in note]


@pytest.mark.parametrize("target", ["arm64", "arm64-dot", "arm64-i8mm"])
def test_models_for_arm_agree_with_the_reference_too(target: str) -> None:
    assert not disagreeing(made_for(target))


def subtracted() -> onnx.ModelProto:
    """y = (x + x) u, written as a difference."""
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["b"]),
        helper.make_node("Sub", ["x", "b"], ["s"]),
        helper.make_node("MatMul", ["s", "u"], ["y"]),
    ]
    constants = {"v": -np.eye(16, dtype=np.float32), "u": weights(3, 16, 4)}
    return model(nodes, constants, {"x": ["N", 16]})


def straightened(alpha: float, beta: float) -> onnx.ModelProto:
    """y = HardSigmoid(x v) u."""
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"]),
        helper.make_node("HardSigmoid", ["a"], ["s"], alpha=alpha, beta=beta),
        helper.make_node("MatMul", ["s", "u"], ["y"]),
    ]
    constants = {"v": np.eye(16, dtype=np.float32), "u": weights(3, 16, 4)}
    return model(nodes, constants, {"x": ["N", 16]})


@pytest.mark.parametrize(
    ("source", "samples"),
    [
        (subtracted(), TIES),
        (straightened(0.2, 0.5), FOURS),
        (straightened(0.25, 0.75), FOURS),
    ],
    ids=["Sub", "HardSigmoid", "HardSigmoid, other line"],
)
def test_operators_that_write_a_sum_agree_too(
    source: onnx.ModelProto, samples: dict[str, npt.NDArray[np.float32]]
) -> None:
    exact, portable = (
        onnxq.quantize(source, samples, qconfig=ALL_INTEGERS, target=target)
        for target in ("x86-vnni", "portable")
    )
    (on_arm,) = predict(exact, machines="arm64").machines
    assert [layer.op_type for layer in on_arm.risky_layers] == ["QLinearAdd"]
    assert not any(machine.may_differ for machine in predict(portable).machines)


def scaled(step: float) -> onnx.ModelProto:
    """y = ((x v) (x v) / step) u."""
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"]),
        helper.make_node("Mul", ["a", "a"], ["b"], "square"),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("Div", ["r", "step"], ["s"], "scale"),
        helper.make_node("Sub", ["s", "r"], ["t"], "rest"),
        helper.make_node("MatMul", ["t", "u"], ["y"]),
    ]
    constants = {"v": weights(2, 16, 16), "u": weights(3, 16, 4)}
    return model(nodes, constants | {"step": np.array(step, np.float32)}, {"x": ["N", 16]})


def test_constants_that_products_of_integers_hold_are_known() -> None:
    prepared = prepare(scaled(3.0), ALL_INTEGERS, "wasm")
    square, divided, rest = find_sums(prepared, prepared.decisions)
    assert not square.constants
    assert divided.constants[1] == np.float32(3)
    assert not rest.constants


def test_a_falling_line_has_no_sum_to_agree_on() -> None:
    operator = catalog.find("HardSigmoid", "")
    assert operator is not None
    one = NodePlan((per_tensor(1 / 32, 128, UINT8),), (per_tensor(1 / 255, 0, UINT8),))
    assert not operator.agrees(Call(operator.op_type, (), one))
    assert operator.agrees(Call(operator.op_type, (), one, attributes={"alpha": -0.2}))


def test_a_sum_that_no_scale_near_its_own_helps_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = made_for("x86-vnni").tensors
    monkeypatch.setattr(sum_scales, "MULTIPLES", ())
    made = made_for("portable")
    assert any(
        "'first': ARM, x86 without AVX2 or WebAssembly may round some of its results" in note
        for note in made.notes
    )
    assert made.tensors == wanted


def test_integers_of_int8_agree_as_uint8_too() -> None:
    rng, add = np.random.default_rng(0), catalog.find("Add", "")
    assert add is not None
    one = Sum("sum", "Add", "", ("a", "b"), ("c",))
    as_uint8 = 0
    for _ in range(100):
        scales = rng.uniform([0.02, 0.02, 0.03], [0.03, 0.03, 0.06])
        all_qparams = list(zip("abc", scales, rng.integers(-90, 90, 3), strict=True))
        signed = {name: per_tensor(s, int(z), INT8) for name, s, z in all_qparams}
        shifted = {name: per_tensor(s, int(z) + 128, UINT8) for name, s, z in all_qparams}
        assert one.agrees(signed) <= one.agrees(shifted)
        plain = NodePlan((signed["a"], signed["b"]), (signed["c"],))
        as_uint8 += add.agrees(Call(add.op_type, (), plain)) and not one.agrees(signed)
    assert as_uint8  # some agree in int8 alone


def test_halves_disagree_until_the_scale_moves() -> None:
    add = catalog.find("Add", "")
    assert add is not None

    def one(scale: float) -> NodePlan:
        operand: QParams = per_tensor(1.0, 0, UINT8)
        return NodePlan((operand, operand), (per_tensor(scale, 0, UINT8),))

    assert not add.agrees(Call(add.op_type, (), one(2.0)))
    assert add.agrees(Call(add.op_type, (), one(2.001)))
    assert add.agrees(Call(add.op_type, (), NodePlan(one(2.0).inputs, (None,))))

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxq import affine, catalog, reference
from onnxq.errors import ModelError, QConfigError, ShapeError, UnsupportedError
from onnxq.operator import Case, IntegerCall, IntegerOperator, integer_registry, register_integer
from onnxq.ort import runtime
from onnxq.ort.runtime import Optimization
from onnxq.reference.float_nodes import FloatNodes
from onnxq.targets.accumulation import Overflows, SaturationEffect, SaturationMode
from tests import this_machine
from tests.examples import as_ir, model, quantized_matmul, weights
from tests.reference.on_integers import (
    CONVOLUTION,
    MICROSOFT,
    convolution,
    images,
    integers,
    integers_only,
    make,
    on_integers,
    scales,
)

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array


def assert_equals_onnx_runtime(source: onnx.ModelProto | ir.Model, feeds: dict[str, Array]) -> None:
    got = this_machine.evaluator(source).run(None, feeds)
    target = source if isinstance(source, ir.Model) else as_ir(source)
    with runtime.open_session(target, threads=1) as session:
        wanted = session.run(feeds)
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


# --- which models run


def test_a_qdq_model_gives_the_integers_of_onnx_runtime(qdq: ir.Model) -> None:
    assert_equals_onnx_runtime(qdq, {"x": images(8, 1)})


def test_a_qdq_model_is_no_float_simulation(qdq: ir.Model) -> None:
    x = {"x": images(64, 1)}
    with runtime.open_session(qdq, optimization=Optimization.NONE) as session:
        (simulated,) = session.run(x)
    (got,) = this_machine.evaluator(qdq).run(None, x)
    assert not np.array_equal(simulated, got)


def test_a_qoperator_model_runs() -> None:
    proto = on_integers([convolution(pads=[1] * 4)], CONVOLUTION)
    assert_equals_onnx_runtime(proto, {"x": integers()})


def test_operators_of_com_microsoft_run() -> None:
    add = make("QLinearAdd", ["x", "s", "z", "x", "ws", "z", "ys", "z"], ["y"], domain=MICROSOFT)
    assert_equals_onnx_runtime(on_integers([add], CONVOLUTION), {"x": integers()})


def test_the_graph_that_onnx_runtime_optimized_runs(qdq: ir.Model) -> None:
    optimized = runtime.optimized_graph(qdq)
    assert any(n.domain == MICROSOFT for n in optimized.graph)
    x = {"x": images(4, 2)}
    with runtime.open_session(qdq) as session:
        (wanted,) = session.run(x)
    np.testing.assert_array_equal(this_machine.evaluator(optimized).run(None, x)[0], wanted)


def test_a_mixed_model_runs() -> None:
    nodes = [
        convolution(y="c", pads=[1] * 4),
        make("DequantizeLinear", ["c", "ys", "z"], ["d"], "dq"),
        make("Relu", ["d"], ["y"], "relu"),
    ]
    proto = on_integers(nodes, CONVOLUTION, outputs={"y": TensorProto.FLOAT})
    assert_equals_onnx_runtime(proto, {"x": integers()})


@pytest.mark.parametrize("kind", ["path", "str", "proto", "ir"])
def test_every_kind_of_model_is_taken(kind: str, tmp_path: Path) -> None:
    proto = on_integers([convolution()], CONVOLUTION)
    onnx.save(proto, tmp_path / "m.onnx")
    source = {
        "path": tmp_path / "m.onnx",
        "str": str(tmp_path / "m.onnx"),
        "proto": proto,
        "ir": as_ir(proto),
    }[kind]
    session = reference.evaluator(source)  # type: ignore[arg-type]
    assert isinstance(session, ReferenceEvaluator)
    assert session.run(None, {"x": integers()})[0].shape == (2, 4, 4, 4)


def test_weights_in_a_file_of_their_own_are_found(tmp_path: Path) -> None:
    constants = {**CONVOLUTION, "w": integers(1, "int8", (40, 4, 3, 3))}
    proto = on_integers([convolution()], constants)
    path = tmp_path / "m.onnx"
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    onnx.save(copy, path, save_as_external_data=True, location="m.data", size_threshold=0)
    got, wanted = (reference.evaluator(m).run(None, {"x": integers()})[0] for m in (path, proto))
    np.testing.assert_array_equal(got, wanted)


def test_a_missing_file_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        reference.evaluator(tmp_path / "none.onnx")


def test_the_model_stays_as_it_is(qdq: ir.Model) -> None:
    before = ir.to_proto(qdq).SerializeToString()
    reference.evaluator(qdq).run(None, {"x": images(1)})
    assert ir.to_proto(qdq).SerializeToString() == before


def test_functions_of_the_model_run() -> None:
    proto = on_integers([make("Twice", ["x"], ["y"], "call", domain="own")], {})
    body = [make("Transpose", ["a"], ["b"], perm=[0, 2, 3, 1])]
    opsets = [helper.make_opsetid("", 21)]
    proto.functions.append(helper.make_function("own", "Twice", ["a"], ["b"], body, opsets))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    (y,) = reference.evaluator(proto).run(None, {"x": integers()})
    np.testing.assert_array_equal(y, integers().transpose(0, 2, 3, 1))


def test_bodies_of_if_run_on_the_kernels() -> None:
    branch = {
        name: helper.make_graph(
            [convolution(name, y=f"{name}_y", pads=pads)],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.UINT8, None)],
        )
        for name, pads in (("then", [1] * 4), ("else", [0] * 4))
    }
    graphs = {"then_branch": branch["then"], "else_branch": branch["else"]}
    nodes = [
        make("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        make("ReduceMax", ["f"], ["top"], keepdims=0),
        make("Greater", ["top", "hundred"], ["large"]),
        make("If", ["large"], ["y"], "if", **graphs),
    ]
    proto = on_integers(nodes, {**CONVOLUTION, "hundred": scales(100)})
    for x in (integers(), integers(limit=90)):
        assert_equals_onnx_runtime(proto, {"x": x})


def test_int4_weights_are_read() -> None:
    w = np.arange(-8, 8).reshape(4, 4).astype(ml_dtypes.int4)
    nodes = [
        make("DequantizeLinear", ["w", "s"], ["wf"], "dq"),
        make("MatMul", ["x", "wf"], ["y"], "matmul"),
    ]
    proto = model(nodes, {"s": scales(0.5)}, {"x": [2, 4]}, opset=21)
    proto.graph.initializer.append(
        helper.make_tensor("w", TensorProto.INT4, [4, 4], w.astype(np.int8).ravel())
    )
    x = weights(0, 2, 4)
    (y,) = reference.evaluator(proto).run(None, {"x": x})
    with runtime.open_session(ir.from_proto(proto), threads=1) as session:
        (wanted,) = session.run({"x": x})
    np.testing.assert_allclose(y, np.asarray(wanted, np.float32), rtol=1e-5)
    # a MatMulNBits there, which rounds x to 8 bits
    in_float = np.asarray(x @ (w.astype(np.float32) * 0.5), np.float32)
    np.testing.assert_allclose(y, in_float, atol=0.01)


# --- which implementation serves


def test_pools_of_integers_run_on_the_kernel_and_of_floats_on_onnx() -> None:
    pool = make("MaxPool", ["x"], ["y"], "pool", kernel_shape=[2, 2], pads=[1] * 4)
    assert_equals_onnx_runtime(on_integers([pool], {}), {"x": integers()})
    runner = reference.node_runner(pool, {"": 21}, [integers()])
    assert isinstance(runner, reference.KernelOp)
    assert runner.uses_kernel([integers()])
    assert not runner.uses_kernel([images(1)])
    (y,) = runner.run(images(1))  # type: ignore[no-untyped-call]
    assert y.dtype == np.float32


@pytest.mark.parametrize(
    ("opset", "sizes", "attributes"),
    [(13, [1, 3], {}), (13, None, {}), (21, None, {"num_outputs": 2}), (21, [4, 0], {})],
)
def test_split_knows_how_many_parts_are_wanted(
    opset: int, sizes: list[int] | None, attributes: dict[str, Any]
) -> None:
    constants: dict[str, Array] = {} if sizes is None else {"sizes": np.array(sizes)}
    split = make("Split", ["x", *constants], ["y", "z"], "split", axis=1, **attributes)
    kinds = {"y": TensorProto.UINT8, "z": TensorProto.UINT8}
    shape: dict[str, list[int | str]] = {"x": ["N", 4, 6, 6]}
    proto = model([split], constants, shape, kinds, opset=opset, dtype=TensorProto.UINT8)
    assert_equals_onnx_runtime(proto, {"x": integers()})
    inputs = [integers().astype(ml_dtypes.int4), *constants.values()]
    parts = reference.node_runner(split, {"": opset}, inputs).run(*inputs)  # type: ignore[no-untyped-call]
    assert [part.dtype for part in parts] == [ml_dtypes.int4] * 2


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_float_transposed_convolutions_of_many_images_and_groups_run(
    group: int, with_bias: bool, count: int
) -> None:
    constants = {"w": weights(1, 4, 3, 3, 2), "b": weights(2, 3 * group)}
    names = list(constants)[: 1 + with_bias]
    attributes: dict[str, Any] = {"strides": [2, 1], "pads": [1, 0, 0, 1], "group": group}
    node = make("ConvTranspose", ["x", *names], ["y"], "up", **attributes)
    proto = model([node], constants, {"x": ["N", 4, 6, 6]})
    x = weights(3, count, 4, 6, 6)
    (got,) = reference.evaluator(proto).run(None, {"x": x})
    with runtime.open_session(as_ir(proto), threads=1) as session:
        (wanted,) = session.run({"x": x})
    np.testing.assert_allclose(got, np.asarray(wanted, np.float32), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [-1, 1])
def test_float_norms_take_no_signs(p: int, axis: int) -> None:
    proto = model(
        [make("LpNormalization", ["x"], ["y"], "norm", p=p, axis=axis)], {}, {"x": [3, 4, 5]}
    )
    x = weights(3, 3, 4, 5)
    x[0] = 0
    (got,) = reference.evaluator(proto).run(None, {"x": x})
    with runtime.open_session(as_ir(proto), threads=1) as session:
        (wanted,) = session.run({"x": x})
    np.testing.assert_allclose(got, np.asarray(wanted, np.float32), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("value", [0.0, -1.5, float("-inf")])
def test_negative_pads_cut_floats_away(mode: str, value: float) -> None:
    constants = {"pads": np.array([0, -1, 2, 0, 1, -2]), "value": np.array(value, np.float32)}
    pad = make("Pad", ["x", "pads", "value"], ["y"], "pad", mode=mode)
    proto = model([pad], constants, {"x": [2, 4, 5]})
    assert_equals_onnx_runtime(proto, {"x": weights(3, 2, 4, 5)})


@pytest.mark.parametrize(("axis", "shape"), [(1, (1, 9)), (0, (40, 100)), (-1, (1, 600))])
def test_elements_are_gathered_from_axes_of_any_length(axis: int, shape: tuple[int, int]) -> None:
    gather = make("GatherElements", ["x", "i"], ["y"], "gather", axis=axis)
    x = weights(0, 2, 512)
    places = np.random.default_rng(0).integers(-x.shape[axis], x.shape[axis], shape)
    proto = model([gather], {"i": places}, {"x": [2, 512]})
    assert_equals_onnx_runtime(proto, {"x": x})


@pytest.mark.parametrize("opset", [13, 21])
def test_floats_run_on_the_implementation_of_the_models_opset(opset: int) -> None:
    nodes = [make("Split", ["x"], ["y", "z"], "split", axis=1)]
    if opset == 21:
        nodes[0].attribute.append(helper.make_attribute("num_outputs", 2))
    proto = model(nodes, {}, {"x": [2, 4]}, {"y": 1, "z": 1}, opset=opset)
    assert_equals_onnx_runtime(proto, {"x": weights(0, 2, 4)})


def test_integers_that_nothing_quantizes_run_on_onnx() -> None:
    add = make("Add", ["x", "x"], ["y"], "add")  # wraps
    runner = reference.node_runner(add, {"": 21}, [integers()] * 2)
    assert not (isinstance(runner, reference.KernelOp) and runner.uses_kernel([integers()] * 2))
    assert_equals_onnx_runtime(on_integers([add], {}), {"x": integers()})


def test_there_is_a_class_per_operator_and_domain() -> None:
    known = {(cls.op_domain, cls.__name__) for cls in reference.op_classes()}
    for operator in catalog.all_integer_operators():
        assert {(domain, operator.op_type) for domain in operator.domains} <= known
    assert ("", "MaxPool") in known
    assert all(issubclass(cls, OpRun) for cls in reference.op_classes())


def test_the_classes_serve_an_evaluator_of_ones_own() -> None:
    class Twice(OpRun):
        op_domain = "own"

        def _run(self, x: Array) -> tuple[Array, ...]:
            return (np.minimum(x, 127) * np.uint8(2),)

    proto = on_integers(
        [make("Twice", ["x"], ["t"], domain="own"), convolution(x="t")], CONVOLUTION
    )
    proto.opset_import.append(helper.make_opsetid("own", 1))
    session = ReferenceEvaluator(proto, new_ops=[*reference.op_classes(), Twice])
    (y,) = session.run(None, {"x": integers()})
    (wanted,) = reference.evaluator(on_integers([convolution()], CONVOLUTION)).run(
        None, {"x": np.minimum(integers(), 127) * np.uint8(2)}
    )
    np.testing.assert_array_equal(y, wanted)


def test_a_class_is_found_by_name() -> None:
    assert reference.op_class("QLinearConv", MICROSOFT).op_domain == MICROSOFT
    with pytest.raises(UnsupportedError, match=r"QLinearCon\. Did you mean 'QLinearConv'"):
        reference.op_class("QLinearCon")


@pytest.mark.parametrize(
    "node",
    [
        make("QuickGelu", ["x"], ["y"], "alpha", alpha=1.5),
        make("QuickGelu", ["x"], ["y"], "gelu"),
        make("Gelu", ["x"], ["y"], "erf"),
        make("BiasGelu", ["x", "b"], ["y"], "bias"),
        make("FusedMatMul", ["x", "w"], ["y"], "transposed", transB=1, alpha=0.5),
        make("FusedMatMul", ["x", "w"], ["y"], "matmul"),
    ],
    ids=lambda node: node.name,
)
def test_trivial_float_operators_of_optimized_graphs_run(node: onnx.NodeProto) -> None:
    assert_near_onnx_runtime(node, (3, 4))


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("Relu", None),
        ("Sigmoid", None),
        ("LeakyRelu", [0.1]),
        ("Clip", [-0.2, 0.3]),
        ("HardSigmoid", [0.2, 0.4]),
    ],
)
def test_fused_convolutions_run(activation: str, parameters: list[float] | None) -> None:
    attributes: dict[str, Any] = {"activation": activation, "pads": [1, 1, 0, 0]}
    if parameters is not None:
        attributes["activation_params"] = parameters
    node = make("FusedConv", ["x", "w4", "b"], ["y"], "conv", **attributes)
    assert_near_onnx_runtime(node, (2, 3, 5, 5))


def assert_near_onnx_runtime(node: onnx.NodeProto, shape: tuple[int, ...]) -> None:
    """A float operator of com.microsoft on random numbers."""
    copy = onnx.NodeProto.FromString(node.SerializeToString())
    copy.domain = MICROSOFT
    constants = {"w": weights(1, 4, 4), "b": weights(2, 4), "w4": weights(3, 4, 3, 2, 2)}
    proto = model([copy], constants, {"x": shape}, opset=21)
    proto.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    x = weights(0, *shape)
    (y,) = reference.evaluator(proto).run(None, {"x": x})
    with runtime.open_session(as_ir(proto)) as session:
        wanted = np.asarray(session.run({"x": x})[0], np.float32)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def test_an_operator_that_is_registered_later_is_found() -> None:
    class Halve(IntegerOperator):
        """y = x / 2, rounded down."""

        op_type, domains = "Halve", ("own",)

        def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
            assert not call.attributes
            return (call.plain(0) // 2,)

        def cases(self) -> list[Case]:
            return []

    proto = on_integers([make("Halve", ["x"], ["y"], "h", domain="own")], {})
    proto.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(UnsupportedError, match=r"own Halve \('h'\)"):
        reference.evaluator(proto)
    register_integer(Halve)
    try:
        (y,) = reference.evaluator(proto).run(None, {"x": integers()})
    finally:
        del integer_registry["own", "Halve"]
    np.testing.assert_array_equal(y, np.asarray(integers()) // 2)


# --- refusals


def test_operators_without_implementation_are_all_named() -> None:
    nodes = [
        make("Conv", ["x", "x"], ["a"], "first", domain="com.microsoft.nchwc"),
        make("Conv", ["a", "x"], ["b"], "second", domain="com.microsoft.nchwc"),
        make("Frob", ["b"], ["y"], "third"),
    ]
    proto = model(nodes, {}, {"x": [1]})
    proto.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    wanted = r"com.microsoft.nchwc Conv \('first', 'second'\); ai.onnx Frob \('third'\)"
    with pytest.raises(UnsupportedError, match=wanted):
        reference.evaluator(proto)


def test_an_error_of_a_kernel_names_the_node() -> None:
    proto = on_integers([convolution("layer1/conv")], CONVOLUTION, shape=["N", "C", 6, 6])
    session = reference.evaluator(proto)
    with pytest.raises(ShapeError, match=r"node QLinearConv 'layer1/conv': .*channels"):
        session.run(None, {"x": integers(shape=(1, 3, 6, 6))})


def test_a_kernel_that_gives_too_few_outputs_is_named() -> None:
    class Half(OpRun):
        op_domain = "test"

        def _run(self, x: Array) -> tuple[Array, ...]:
            return (x,)

    node = make("Half", ["x"], ["y", "i"], "half", domain="test")
    proto = model([node], {}, {"x": [1]}, {"y": 1, "i": 7})
    proto.opset_import.append(helper.make_opsetid("test", 1))
    session = reference.Evaluator(proto, new_ops=[Half])
    with pytest.raises(UnsupportedError, match=r"Half 'half': its kernel gives 1 .* not 'i'"):
        session.run(None, {"x": weights(0, 1)})


def test_fewer_than_one_thread_is_refused(qdq: ir.Model) -> None:
    with pytest.raises(QConfigError, match="0 worker threads"):
        reference.evaluator(qdq, threads=0)


def test_a_kernel_is_a_function_of_arrays() -> None:
    constants = {**CONVOLUTION, "x": integers()}
    slots = ["x", "s", "z", "w", "ws", "wz", "ys", "z"]
    (y,) = reference.kernel("QLinearConv")([constants[name] for name in slots], {})
    session = reference.evaluator(on_integers([convolution()], CONVOLUTION))
    np.testing.assert_array_equal(y, session.run(None, {"x": integers()})[0])


def test_kernels_are_found_in_both_domains() -> None:
    (y,) = reference.kernel("MaxPool")([integers()], {"kernel_shape": [2, 2]})
    assert y.shape == (2, 4, 5, 5)
    assert reference.kernel("QGemm") == reference.kernel("QGemm", MICROSOFT)


def test_a_kernel_refuses_what_its_operator_does_not_have() -> None:
    quantize = reference.kernel("QuantizeLinear")
    x, scale, zero = images(1), np.array(0.1, np.float32), np.array(3, np.uint8)
    with pytest.raises(ModelError, match=r"no attribute 'axs'.*Did you mean 'axis'"):
        quantize([x, scale, zero], {"axs": 1})
    with pytest.raises(ModelError, match="4 inputs for QuantizeLinear, which has 3 at most"):
        quantize([x, scale, zero, zero], {})
    squeezed = reference.kernel("Squeeze")([integers(shape=(1, 4))], {"axes": [0]})  # of opset 11
    assert squeezed[0].shape == (4,)


@pytest.mark.parametrize(
    ("op_type", "domain", "message"),
    [
        ("QLinearConvv", None, r"kernel for QLinearConvv. Did you mean 'QLinearConv' of ai.onnx"),
        ("QGemm", "", r"ai.onnx QGemm. Did you mean 'QGemm' of com.microsoft"),
        ("Zzz", None, r"no kernel for Zzz.$"),
    ],
)
def test_an_unknown_kernel_is_refused_with_the_nearest(
    op_type: str, domain: str | None, message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        reference.kernel(op_type, domain)


@pytest.mark.parametrize("count", [1.5, "2", None, True])
def test_threads_are_a_whole_number(qdq: ir.Model, count: Any) -> None:
    with pytest.raises(QConfigError, match=r"wanted a whole number from 1"):
        reference.evaluator(qdq, threads=count)


# --- how it runs


def test_results_do_not_depend_on_the_number_of_threads(qdq: ir.Model) -> None:
    x = {"x": images(9, 3)}
    one, two = (reference.evaluator(qdq, threads=n).run(None, x)[0] for n in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("count", [1, 2])
def test_convolutions_run_in_the_threads(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    all_came = threading.Event()

    def noting(*given: Any) -> Array:
        names.add(threading.current_thread().name)
        if len(names) == count:
            all_came.set()
        all_came.wait(60)  # so that one thread cannot take all, however busy the machine
        return affine.requantize(*given)

    monkeypatch.setattr("onnxq.operators.conv.requantize", noting)
    reference.evaluator(on_integers([convolution()], CONVOLUTION), threads=count).run(
        None, {"x": integers(shape=(4, 4, 6, 6))}
    )
    assert len(names) == count


def test_a_plain_float_model_runs_too() -> None:
    (y,) = reference.evaluator(integers_only()).run(None, {"x": images(2)})
    assert y.shape == (2, 10)


def test_a_matmul_whose_result_stays_float_runs() -> None:
    proto = quantized_matmul(np.array(3, np.uint8), requantized=False)
    assert_equals_onnx_runtime(proto, {"x": weights(0, 3, 8)})


# --- machines


def saturating() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """MatMulInteger whose sums leave int16, beside a Softmax in float."""
    nodes = [
        make("MatMulInteger", ["x", "w"], ["p"], "matmul"),
        make("Cast", ["p"], ["f"], "cast", to=TensorProto.FLOAT),
        make("Softmax", ["f"], ["y"], "softmax"),
    ]
    proto = on_integers(
        nodes,
        {"w": np.full((4, 3), 127, np.int8)},
        outputs={"p": TensorProto.INT32, "y": TensorProto.FLOAT},
        shape=("N", 4),
    )
    return proto, {"x": np.full((2, 4), 255, np.uint8)}


def test_products_are_added_as_the_machine_adds_them() -> None:
    proto, x = saturating()
    wanted = {SaturationMode.EXACT: 4 * 255 * 127, SaturationMode.SATURATES: 2 * 32767}
    for saturation_mode, total in wanted.items():
        found = reference.evaluator(proto, saturation_mode=saturation_mode).run(["p"], x)[0]
        assert (found == total).all()


def test_float_nodes_elsewhere_leave_products_to_the_machine() -> None:
    proto, x = saturating()
    evaluator = reference.evaluator(
        proto,
        saturation_mode=SaturationMode.SATURATES,
        float_nodes=FloatNodes(ir.from_proto(proto)),
    )
    assert (evaluator.run(["p"], x)[0] == 2 * 32767).all()


def test_overflows_are_told_with_their_node_and_need_not_be_applied() -> None:
    proto, x = saturating()
    heard: list[tuple[str, int]] = []

    def hear(node: onnx.NodeProto, found: Overflows) -> None:
        heard.append((node.name, int(found.count.sum())))

    evaluator = reference.evaluator(
        proto, saturation_mode=SaturationMode.SATURATES, hear=hear, effect=SaturationEffect.NOTED
    )
    assert (evaluator.run(["p"], x)[0] == 4 * 255 * 127).all()
    assert heard == [("matmul", 2 * 2 * 3)]


def test_operator_of_a_domain_that_is_not_imported_is_named() -> None:
    source = quantized_matmul(np.array(3, np.uint8))
    source.graph.node.append(helper.make_node("Lost", ["x"], ["z"], "lost", domain="nowhere"))
    with pytest.raises(UnsupportedError, match=r"nowhere Lost \('lost'\)"):
        reference.evaluator(source)

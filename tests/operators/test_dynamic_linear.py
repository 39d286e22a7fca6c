from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_ir.tape import Tape

import onnxq
from onnxq import cross_check
from onnxq.dtypes import INT4, INT8
from onnxq.errors import UnsupportedError
from onnxq.observers import LeastErrorObserver, NarrowRangeObserver, PerChannelMinMaxObserver
from onnxq.operator import (
    Case,
    DynamicNodePlan,
    DynamicRule,
    DynamicSite,
    Float,
    Operator,
    Precision,
)
from onnxq.operator.examples import normal
from onnxq.operators.gemm import Gemm
from onnxq.operators.mat_mul import MatMul
from onnxq.qconfig import QConfigDynamic, QConfigMapping, onnxq_default_qconfig
from onnxq.qparams import PerBlock, PerChannel, QParams
from tests import this_machine
from tests.operators import builder, dynamic_builder
from tests.operators.dynamic_builder import (
    HALF,
    PER_TENSOR,
    SYMMETRIC,
    affine,
    optimized_ops,
    quantized_case,
    run,
    samples,
)

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.observers import ObserverSpec

M, K, N = 6, 50, 7
A, B, C = normal(M, K), normal(K, N, seed=1), normal(N, seed=2)
BATCHES = normal(2, M, K)

RIGHT = [
    (MatMul(), Case("matrix", (A, B), (1,))),
    (MatMul(), Case("batches", (BATCHES, B), (1,))),
    (MatMul(), Case("four axes", (normal(2, 3, M, K), B), (1,))),
    (MatMul(), Case("row", (A[0], B), (1,))),
    (Gemm(), Case("bias", (A, B, C), (1, 2))),
    (Gemm(), Case("no bias", (A, B), (1,))),
    (Gemm(), Case("transB", (A, B.T.copy(), C), (1, 2), {"transB": 1})),
    (Gemm(), Case("transA", (A.T.copy(), B, C), (1, 2), {"transA": 1})),
    (Gemm(), Case("factors", (A, B, normal(M, N)), (1,), {"alpha": 0.3, "beta": -2.0})),
    (Gemm(), Case("bias of rows", (A, B, normal(M, 1)), (1, 2))),
]
LEFT = [
    (MatMul(), Case("left", (A, B), (0,))),
    (MatMul(), Case("left, batches", (A, normal(2, K, N)), (0,))),
    (MatMul(), Case("left, column", (A, B[:, 0].copy()), (0,))),
    (Gemm(), Case("left, bias", (A, B, C), (0, 2))),
    (
        Gemm(),
        Case("left, transA, transB", (A.T.copy(), B.T.copy()), (0,), {"transA": 1, "transB": 1}),
    ),
]
STACKS = [
    (MatMul(), Case("stack", (BATCHES, normal(2, K, N)), (1,))),
    (MatMul(), Case("column", (A, B[:, 0].copy()), (1,))),
]
ALL = RIGHT + LEFT + STACKS
LINEAR = pytest.mark.parametrize(
    ("operator", "case"), ALL, ids=[f"{o.op_type} {c.name}" for o, c in ALL]
)
MATRICES = pytest.mark.parametrize(
    ("operator", "case"), RIGHT + LEFT, ids=[f"{o.op_type} {c.name}" for o, c in RIGHT + LEFT]
)


def largest_error(operator: Operator, case: Case, model: ir.Model, share: float) -> None:
    """The result is within a share of the largest possible sum of |a| |w|."""
    (wanted,), (got,) = (
        [np.asarray(y, np.float64) for y in ys]
        for ys in (builder.run_float(operator, case), run(model, samples(case)))
    )
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() < share * np.abs(wanted).max()


class TestInteger:
    @LINEAR
    @pytest.mark.parametrize("weight", [SYMMETRIC, PER_TENSOR, affine("uint8")], ids=repr)
    def test_equals_the_reference_bit_for_bit(
        self, operator: Operator, case: Case, weight: ObserverSpec
    ) -> None:
        model = quantized_case(operator, case, Precision.DYNAMIC_INT8, weight)
        findings = cross_check(model, [samples(case)])
        findings.check()
        largest_error(operator, case, model, 0.05)

    @pytest.mark.parametrize(("operator", "case"), RIGHT[:7], ids=[c.name for _, c in RIGHT[:7]])
    def test_is_fused(self, operator: Operator, case: Case, tmp_path: Path) -> None:
        model = quantized_case(operator, case, Precision.DYNAMIC_INT8)
        assert optimized_ops(model, tmp_path) == ["DynamicQuantizeMatMul"]

    def test_left_constant_is_fused_between_transpositions(self, tmp_path: Path) -> None:
        model = quantized_case(*LEFT[0], Precision.DYNAMIC_INT8)
        ops = optimized_ops(model, tmp_path)
        assert ops == ["DynamicQuantizeLinear", "MatMulIntegerToFloat", "Transpose", "Transpose"]

    def test_weights_of_4_bits_are_refused(self) -> None:
        qparams = QParams(np.ones(N, np.float32), np.zeros(N, np.int8), INT4, PerChannel(1))
        with pytest.raises(UnsupportedError, match="no integer MatMul with int4 weights"):
            lower(DynamicNodePlan(Precision.DYNAMIC_INT8, (qparams,)))

    def test_blocks_are_refused(self) -> None:
        ones = np.ones((2, N), np.float32)
        qparams = QParams(ones, ones.astype(np.int8), INT8, PerBlock(0, 32))
        with pytest.raises(UnsupportedError, match=r"no integer MatMul of weights with PerBlock"):
            lower(DynamicNodePlan(Precision.DYNAMIC_INT8, (qparams,)))


def lower(plan: DynamicNodePlan) -> None:
    """MatMul's lowering on the plan."""
    node = builder.node_of(*RIGHT[0])
    MatMul().lower_dynamic(DynamicSite(Tape(), node, node.inputs, plan))


@pytest.mark.parametrize("precision", [Precision.DYNAMIC_INT8, Precision.WEIGHT_ONLY_GROUPWISE])
def test_transposed_input_of_unknown_shape_is_transposed(precision: Precision) -> None:
    node = builder.node_of(*RIGHT[7])
    integers, x = ir.val("w_quantized", const_value=ir.tensor(B.astype(np.int8))), ir.val("x")
    node.replace_input_with(0, x)
    ones = np.ones((2, N), np.float32)
    blocks = QParams(ones, ones.astype(np.int8), INT8, PerBlock(0, 32))
    columns = QParams(ones[0], np.zeros(N, np.int8), INT8, PerChannel(1))
    plan = DynamicNodePlan(precision, (columns if precision is Precision.DYNAMIC_INT8 else blocks,))
    tape = Tape()
    Gemm().lower_dynamic(DynamicSite(tape, node, [x, integers, node.inputs[2]], plan))
    assert [n.op_type for n in tape.nodes].count("Transpose") == 1


DTYPES = ["int8", "uint8", "int4", "uint4", "int2", "uint2"]
# of the largest result: half an LSB of the integers, and int8 activations per block
SHARES = {"8": 0.05, "4": 0.3, "2": 1.5}


class TestBlocks:
    @MATRICES
    @pytest.mark.parametrize("dtype", ["int8", "uint4", "int2"])
    def test_becomes_mat_mul_n_bits(
        self, operator: Operator, case: Case, dtype: str, tmp_path: Path
    ) -> None:
        model = quantized_case(operator, case, Precision.WEIGHT_ONLY_GROUPWISE, affine(dtype), 16)
        assert "MatMulNBits" in optimized_ops(model, tmp_path)
        largest_error(operator, case, model, SHARES[dtype[-1]])

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("size", [16, 32, 64, 128, 256])
    @pytest.mark.parametrize("columns", [4, 5, 6, 7])
    def test_is_what_the_integers_say(self, dtype: str, size: int, columns: int) -> None:
        case = Case("", (A, normal(K, columns)), (1,))
        model = quantized_case(MatMul(), case, Precision.WEIGHT_ONLY_GROUPWISE, affine(dtype), size)
        findings = cross_check(model, [samples(case)])
        assert [n.op_type for n in findings.nodes] == ["MatMulNBits"]
        assert not any(node.differing for node in findings.nodes)  # within the bound
        largest_error(MatMul(), case, model, SHARES[dtype[-1]])

    @pytest.mark.parametrize("dtype", ["int8", "int4", "int2"])
    def test_symmetric_integers_need_no_zero_point(self, dtype: str) -> None:
        spec = LeastErrorObserver.with_args(dtype=dtype)
        model = quantized_case(
            MatMul(), Case("", (A, B), (1,)), Precision.WEIGHT_ONLY_GROUPWISE, spec, 32
        )
        assert not [
            name for name in model.graph.initializers if "zero_point" in name and dtype != "int2"
        ]

    def test_bias_is_part_of_the_linear_layer(self, tmp_path: Path) -> None:
        model = quantized_case(*RIGHT[6], Precision.WEIGHT_ONLY_GROUPWISE, SYMMETRIC, 32)
        assert optimized_ops(model, tmp_path) == ["MatMulNBits"]

    def test_opset_is_what_the_types_need(self) -> None:
        case = dataclasses.replace(RIGHT[0][1], opset=13)
        for dtype, opset in (("int8", 21), ("int4", 21), ("int2", 25)):
            spec = affine(dtype)
            model = quantized_case(MatMul(), case, Precision.WEIGHT_ONLY_GROUPWISE, spec, 32)
            assert model.opset_imports[""] == opset


class TestStored:
    @LINEAR
    @pytest.mark.parametrize("weight", [SYMMETRIC, affine("uint8"), affine("int4")], ids=repr)
    def test_is_the_float_node_when_it_runs(
        self, operator: Operator, case: Case, weight: ObserverSpec, tmp_path: Path
    ) -> None:
        model = quantized_case(operator, case, Precision.WEIGHT_ONLY, weight)
        assert "Cast" not in optimized_ops(model, tmp_path)
        assert "MatMulNBits" not in optimized_ops(model, tmp_path)
        largest_error(operator, case, model, 0.05 if weight != affine("int4") else 0.4)

    @LINEAR
    def test_half_is_exact_to_11_bits(self, operator: Operator, case: Case, tmp_path: Path) -> None:
        model = quantized_case(operator, case, Precision.WEIGHT_ONLY_FLOAT16, HALF)
        assert "Cast" not in optimized_ops(model, tmp_path)
        largest_error(operator, case, model, 2e-3)


class TestRule:
    def test_computed_matrices_stay_float(self) -> None:
        for operator in (MatMul(), Gemm()):
            rule = operator.dynamic_rule(builder.node_of(operator, Case("", (A, B))))
            assert isinstance(rule, Float)
            assert "computed at run time" in rule.reason.words

    def test_stack_on_the_left_is_stored_only(self) -> None:
        case = Case("", (BATCHES, B), (0,))
        rule = MatMul().dynamic_rule(builder.node_of(MatMul(), case))
        assert isinstance(rule, DynamicRule)
        assert rule.precisions == (Precision.WEIGHT_ONLY, Precision.WEIGHT_ONLY_FLOAT16)

    def test_stack_on_the_right_has_one_scale(self) -> None:
        rule = MatMul().dynamic_rule(builder.node_of(*STACKS[0]))
        assert isinstance(rule, DynamicRule)
        assert rule.weights[0].axis is None
        assert Precision.WEIGHT_ONLY_GROUPWISE not in rule.precisions

    def test_matmuls_of_integers_stay_as_they_are(self) -> None:
        whole = Case("", (A.astype(np.int32), B.astype(np.int32)), (1,))
        rule = MatMul().dynamic_rule(builder.node_of(MatMul(), whole))
        assert isinstance(rule, Float)
        assert "int32" in rule.reason.words


def dense(rank: int, *, dynamic: bool, first: str = "matmul") -> onnx.ModelProto:
    """MatMul + Add with a bias, as torch exports Linear on 3 axes."""
    sizes: list[int | str] = [*[2, 3, K][-rank:]]
    if dynamic:
        sizes[0] = "batch"
    terms = ["matmul", "b"] if first == "matmul" else ["b", "matmul"]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["matmul"], "m"),
        helper.make_node("Add", terms, ["y"], "a"),
    ]
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*sizes[:-1], N])],
        [numpy_helper.from_array(B, "w"), numpy_helper.from_array(C, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("first", ["matmul", "bias"])
def test_bias_behind_is_fused(rank: int, dynamic: bool, first: str, tmp_path: Path) -> None:
    model = dense(rank, dynamic=dynamic, first=first)
    integers = dynamic_builder.quantized(model, Precision.DYNAMIC_INT8)
    assert optimized_ops(integers, tmp_path) == ["DynamicQuantizeMatMul"]
    blocks = dynamic_builder.quantized(model, Precision.WEIGHT_ONLY_GROUPWISE)
    ops = optimized_ops(blocks, tmp_path)
    assert set(ops) <= {"MatMulNBits", "Reshape", "Add"}
    assert "Add" not in ops or rank == 2  # the price of what the next test shows


@pytest.mark.parametrize("other", [(M, N), (1, N), (M, 1)])
@pytest.mark.parametrize("operator", [MatMul(), Gemm()], ids=["MatMul", "Gemm"])
def test_sum_with_a_matrix_behind_blocks_is_not_made_a_gemm(
    operator: Operator, other: tuple[int, int], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node(operator.op_type, ["x", "w"], ["matmul"], "m"),
        helper.make_node("Add", ["matmul", "r"], ["y"], "a"),
    ]
    graph = helper.make_graph(
        nodes,
        "residual",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [M, K]),
            helper.make_tensor_value_info("r", TensorProto.FLOAT, other),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [M, N])],
        [numpy_helper.from_array(B, "w")],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    blocks = dynamic_builder.quantized(model, Precision.WEIGHT_ONLY_GROUPWISE)
    assert optimized_ops(blocks, tmp_path) == ["Add", "MatMulNBits"]


@pytest.mark.parametrize("bias", ["", "a"])
@pytest.mark.parametrize("clip", ["Relu", "Clip"])
def test_blocks_ahead_of_a_clip_are_no_float_matmul(clip: str, bias: str, tmp_path: Path) -> None:
    """ONNX Runtime leaves DequantizeLinear -> MatMul -> Relu, and dequantizes in every run."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["matmul"], "m")]
    if bias:
        nodes.append(helper.make_node("Add", ["matmul", "b"], ["a"], "a"))
    nodes.append(helper.make_node(clip, [bias or "matmul"], ["r"], "r"))
    nodes.append(helper.make_node("Neg", ["r"], ["y"], "n"))
    graph = helper.make_graph(
        nodes,
        "clipped",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", N])],
        [numpy_helper.from_array(B, "w"), numpy_helper.from_array(C, "b")][: 2 if bias else 1],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    ops = optimized_ops(dynamic_builder.quantized(model, Precision.WEIGHT_ONLY_GROUPWISE), tmp_path)
    assert "MatMulNBits" in ops
    assert "DequantizeLinear" not in ops


def test_observer_of_one_scale_gives_one() -> None:
    spec = NarrowRangeObserver.with_args(ch_axis=None)
    model = dynamic_builder.quantized(dense(2, dynamic=True), Precision.DYNAMIC_INT8, spec)
    assert model.graph.initializers["w_scale"].shape == []


@pytest.mark.parametrize("operator", [MatMul(), Gemm()], ids=["MatMul", "Gemm"])
@pytest.mark.parametrize("last", [True, False])
def test_blocks_between_static_nodes_run_as_blocks(
    operator: Operator, last: bool, tmp_path: Path
) -> None:
    sizes: list[int | str | None] = ["batch", 3, K]
    if operator.op_type == "Gemm":
        sizes = ["batch", K]
    square = [normal(K, K, seed=i) for i in range(3)]
    names = ["x", "a", "b", "c"]
    nodes = [
        helper.make_node(operator.op_type, [names[i], f"w{i}"], [names[i + 1]], f"n{i}")
        for i in range(2 if last else 3)
    ]
    graph = helper.make_graph(
        nodes,
        "mixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, sizes)],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(square[: len(nodes)])],
    )
    opset = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    mapping = QConfigMapping(onnxq_default_qconfig)
    mapping = mapping.set_node("n1", QConfigDynamic(SYMMETRIC, Precision.WEIGHT_ONLY_GROUPWISE))
    feeds = {"x": normal(4, *sizes[1:])}  # type: ignore[arg-type]
    mixed = onnxq.quantize(model, feeds, qconfig=mapping, target=this_machine.TARGET)
    assert "MatMulNBits" in optimized_ops(mixed, tmp_path)
    (wanted,) = builder.session(model).run(None, feeds)
    (got,) = this_machine.run_exactly(mixed, dict(feeds))
    assert np.abs(np.asarray(got, np.float32) - wanted).max() < 0.05 * np.abs(wanted).max()


@pytest.mark.parametrize("gemm", [False, True])
@pytest.mark.parametrize(
    "weight",
    [
        NarrowRangeObserver.with_args(),
        NarrowRangeObserver.with_args(dtype="int4", quant_max=7),
        LeastErrorObserver.with_args(dtype="int4"),
        PerChannelMinMaxObserver.with_args(dtype="quint8", qscheme="per_channel_affine"),
        PerChannelMinMaxObserver.with_args(dtype="qint8", qscheme="per_channel_symmetric"),
        PerChannelMinMaxObserver.with_args(dtype="quint8", qscheme="per_channel_symmetric"),
    ],
)
def test_blocks_of_zeros_give_exactly_zero(weight: ObserverSpec, gemm: bool) -> None:
    """ONNX Runtime's sums of 2^(bits - 1) a - 2^(bits - 1) a are not 0, but 1e-11 or so."""
    zeros = np.zeros((K, N), np.float32)
    operator: Operator = Gemm() if gemm else MatMul()
    case = Case(
        "zeros", (A, zeros.T.copy() if gemm else zeros), (1,), {"transB": 1} if gemm else {}
    )
    model = builder.float_model(operator, case)
    entry = QConfigDynamic(weight, Precision.WEIGHT_ONLY_GROUPWISE, 16)
    made = onnxq.quantize_dynamic(model, entry, objective="size")
    assert [node.op_type for node in made.graph] == ["MatMulNBits"]
    findings = cross_check(made, [{made.graph.inputs[0].name: A}])
    findings.check()
    assert not any(output.differing for output in findings.outputs)

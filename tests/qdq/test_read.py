from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq import dtypes
from onnxq.affine import dequantize, quantize
from onnxq.dtypes import INT8, INT32, UINT8, QDType
from onnxq.ort.runtime import Optimization, open_session
from onnxq.qdq.read import (
    DEQUANTIZE,
    QUANTIZE,
    Unread,
    integer_type,
    is_dequantize,
    is_quantize,
    one_scale,
    qparams_of,
)
from onnxq.qparams import PerTensor, QParams, per_tensor

Array = npt.NDArray[np.generic]
MICROSOFT = "com.microsoft"
X = ir.val("x", ir.DataType.FLOAT, [2])
OPSETS = (10, 13, 19, 21, 23, 25)
BLOCKS, HALF = 21, 19  # first opsets that have them


@dataclass(frozen=True)
class Legal:
    """A QuantizeLinear or DequantizeLinear that ONNX Runtime runs."""

    op_type: str
    domain: str
    opset: int
    dtype: QDType
    shape: tuple[int, ...]
    scale: Array
    zero_point: Array | None
    attributes: dict[str, int] = field(default_factory=dict)

    @property
    def one_number(self) -> bool:
        return self.scale.size == 1 and not self.in_blocks

    @property
    def in_blocks(self) -> bool:
        return "block_size" in self.attributes

    def numbers(self) -> Array:
        """Reals around the ends of the integers, or integers; the same ones for the same node."""
        rng = np.random.default_rng(7)
        if self.op_type == QUANTIZE:
            reals = rng.normal(0, 40, self.shape)
            return reals.astype(self.scale.dtype)
        top = min(self.dtype.qmax, 1000)
        return stored(rng.integers(max(self.dtype.qmin, -1000), top + 1, self.shape), self.dtype)

    def model(self) -> ir.Model:
        """The node, named as onnxq names it, and a Cast that shows narrow integers."""
        constants = {"x_scale": self.scale, "x_zero_point": self.zero_point}
        name = "x" if self.op_type == QUANTIZE else "x_quantized"
        if self.op_type == DEQUANTIZE:
            constants["x_quantized"] = self.numbers()
        values = {
            name: ir.val(name, ir.DataType.from_numpy(a.dtype), a.shape, const_value=ir.tensor(a))
            for name, a in constants.items()
            if a is not None
        }
        for value in values.values():
            assert value.const_value is not None
            value.const_value.name = value.name
        x = values.get(name) or ir.val(name, ir.DataType.from_numpy(self.scale.dtype), self.shape)
        inputs = [x, values["x_scale"]]
        inputs += [] if self.zero_point is None else [values["x_zero_point"]]
        node = ir.node(self.op_type, inputs, self.attributes, domain=self.domain, name="node")
        made = node.outputs[0]
        made.name = "x_quantized" if self.op_type == QUANTIZE else "x_dequantized"
        made.shape = ir.Shape(self.shape)
        shown = ir.DataType.INT32 if self.op_type == QUANTIZE else ir.DataType.FLOAT
        cast = ir.node("Cast", [made], {"to": shown.value}, name="cast")
        output = cast.outputs[0]
        output.name, output.dtype, output.shape = "shown", shown, ir.Shape(self.shape)
        graph = ir.Graph(
            [] if x.const_value is not None else [x],
            [output],
            nodes=[node, cast],
            initializers=list(values.values()),
            opset_imports={"": self.opset, MICROSOFT: 1},
            name="g",
        )
        return ir.Model(graph, ir_version=10)


def stored(integers: Array, dtype: QDType) -> Array:
    narrow = getattr(ml_dtypes, dtype.name, None) if dtype.bits < 8 else None
    return integers.astype(dtype.storage if narrow is None else narrow)


@st.composite
def legal(draw: st.DrawFn) -> Legal:
    op_type = draw(st.sampled_from([QUANTIZE, DEQUANTIZE]))
    domain = draw(st.sampled_from(["", "ai.onnx", MICROSOFT]))
    opset = draw(st.sampled_from(OPSETS))
    known = [t for t in dtypes.all_qdtypes() if t.is_integer and t.min_opset <= opset]
    kinds = [t for t in known if op_type == DEQUANTIZE or t != INT32]
    if domain == MICROSOFT:
        kinds = [t for t in kinds if t.bits > 2]
    dtype = draw(st.sampled_from(kinds))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    attributes = draw(st.sampled_from([{}, {"axis": axis}])) if opset >= 13 else {}
    ways = ["number", "vector of one"]
    if attributes or len(shape) > 1:
        axis = attributes.get("axis", 1)
        ways.append("channels")
    if opset >= BLOCKS and domain != MICROSOFT and "channels" in ways:
        ways.append("blocks")
    way = draw(st.sampled_from(ways))
    sizes: tuple[int, ...] = {"number": (), "vector of one": (1,)}.get(way, (shape[axis],))
    if way == "blocks":
        size = draw(st.integers(2, 5))
        attributes |= {"block_size": size}
        along = axis % len(shape)
        sizes = tuple(-(-n // size) if i == along else n for i, n in enumerate(shape))
        if sizes == (1,):  # ONNX allows it; ONNX Runtime 1.31 refuses to run it
            attributes, sizes = {"axis": axis}, (shape[axis],)
    real = draw(st.sampled_from([np.float32, np.float16] if opset >= HALF else [np.float32]))
    if domain == MICROSOFT:
        real = np.float32
    scale = np.asarray(draw(st.sampled_from([0.25, 0.5, 2.0])), real) * np.ones(sizes, real)
    scale = np.asarray(scale + np.arange(scale.size, dtype=real).reshape(sizes) / real(4), real)
    zeros: Array | None = None
    must = op_type == QUANTIZE and dtype != UINT8
    if must and opset >= BLOCKS and domain != MICROSOFT and draw(st.booleans()):
        attributes |= {"output_dtype": ir.DataType[dtype.onnx].value}
    elif must or draw(st.booleans()):
        top = 0 if dtype == INT32 else min(dtype.qmax, 100)
        integers = np.arange(scale.size) % (top + 1)
        if scale.size == 1 and "block_size" not in attributes:
            sizes = draw(st.sampled_from([(), (1,)]))
        zeros = stored(integers.reshape(sizes), dtype)
    return Legal(op_type, domain, opset, dtype, shape, scale, zeros, attributes)


def ran(case: Legal) -> Array:
    with open_session(case.model(), optimization=Optimization.NONE, threads=1) as session:
        feeds = {"x": case.numbers()} if case.op_type == QUANTIZE else {}
        return np.asarray(session.run(feeds)[0])


def stood_for(case: Legal, qparams: QParams) -> Array:
    """Integers of a Q, or real values of a DQ, as the node shows them."""
    x = case.numbers()
    if case.op_type == QUANTIZE:
        return np.asarray(quantize(x.astype(np.float32), qparams), np.int32)
    real = dequantize(x.astype(case.dtype.storage), qparams)
    return np.asarray(real.astype(case.scale.dtype), np.float32)


@settings(max_examples=300, deadline=None)
@given(case=legal())
def test_qparams_of_a_legal_node_are_those_that_onnx_runtime_computes_with(case: Legal) -> None:
    node = case.model().graph.node(0)
    found = qparams_of(node)
    assert isinstance(found, QParams)
    assert found.dtype == case.dtype
    assert (found.granularity == PerTensor()) == case.one_number
    assert is_quantize(node) != is_dequantize(node)
    np.testing.assert_array_equal(stood_for(case, found), ran(case))


def test_one_scale_as_a_vector_is_one_number() -> None:
    one = ir.node(QUANTIZE, [X, constant(np.full(1, 0.5, np.float32), "s")], {"axis": 3})
    assert one_scale(one) == per_tensor(0.5, 0, UINT8)
    many = ir.node(QUANTIZE, [X, constant(np.full(2, 0.5, np.float32), "s")], {"axis": 0})
    assert one_scale(many) is None
    assert one_scale(None) is None


def constant(array: Array, name: str) -> ir.Value:
    return ir.val(
        name, ir.DataType.from_numpy(array.dtype), array.shape, const_value=ir.tensor(array)
    )


def test_an_initializer_that_a_caller_may_override_is_no_constant() -> None:
    scale = constant(np.array(0.5, np.float32), "s")
    node = ir.node(QUANTIZE, [X, scale])
    assert qparams_of(node) == per_tensor(0.5, 0, UINT8)
    ir.Graph([scale], [], nodes=[node], initializers=[scale])
    assert qparams_of(node) == Unread("its scale or zero point is computed at run time")


def test_a_zero_point_that_is_computed_is_not_taken_for_an_absent_one() -> None:
    zero_point = ir.val("z", ir.DataType.INT8, [])
    node = ir.node(QUANTIZE, [X, constant(np.array(0.5, np.float32), "s"), zero_point])
    assert qparams_of(node) == Unread("its scale or zero point is computed at run time")


def test_scale_and_zero_point_may_come_from_constant_nodes() -> None:
    made = ir.node("Constant", [], {"value_float": 0.5})
    assert qparams_of(ir.node(QUANTIZE, [X, made.outputs[0]])) == per_tensor(0.5, 0, UINT8)


@pytest.mark.parametrize("scale", [0.0, np.inf, np.nan, -1.0])
def test_a_scale_that_is_not_positive_and_finite_is_not_read(scale: float) -> None:
    found = qparams_of(ir.node(QUANTIZE, [X, constant(np.array(scale, np.float32), "s")]))
    assert isinstance(found, Unread)
    assert "wanted positive, finite" in found.reason


def test_integers_of_float8_have_no_qparams() -> None:
    zero_point = constant(np.zeros((), ml_dtypes.float8_e4m3fn), "z")
    node = ir.node(QUANTIZE, [X, constant(np.array(0.5, np.float32), "s"), zero_point])
    assert qparams_of(node) == Unread("its integers are float8e4m3fn")


def test_other_domains_have_operators_of_their_own() -> None:
    inputs = [X, constant(np.array(0.5, np.float32), "s")]
    assert not is_quantize(ir.node(QUANTIZE, inputs, domain="org.example"))
    assert not is_dequantize(ir.node(DEQUANTIZE, inputs, domain="org.example"))
    assert is_quantize(ir.node(QUANTIZE, inputs, domain=MICROSOFT))
    assert not is_quantize(None)


def test_integers_of_no_zero_point_have_the_type_of_what_a_dequantize_linear_reads() -> None:
    inputs = [ir.val("q", ir.DataType.INT8, [2]), constant(np.array(0.5, np.float32), "s")]
    node = ir.node(DEQUANTIZE, inputs)
    assert qparams_of(node) == per_tensor(0.5, 0, INT8)
    assert integer_type(ir.node(DEQUANTIZE, [ir.val("q"), inputs[1]])) is None
    untyped = ir.node(QUANTIZE, [X, inputs[1]], {"output_dtype": ir.DataType.INT8}).outputs[0]
    assert integer_type(ir.node(DEQUANTIZE, [untyped, inputs[1]])) == ir.DataType.INT8

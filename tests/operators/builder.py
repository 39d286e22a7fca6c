"""Builds the small models that the operator tests run: float, QDQ and lowered forms of a Case.

Over 300 lines, because the three forms share names, plan and integers.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import helper
from onnx_ir.tape import Tape

from onnxq import catalog
from onnxq.affine import dequantize, quantize
from onnxq.dtypes import INT8, INT32, UINT8, QDType
from onnxq.graph.io import load
from onnxq.operator import (
    Array,
    AttributeValue,
    Call,
    Case,
    Float,
    IntegerOperator,
    NodePlan,
    Operator,
    Rule,
    Site,
)
from onnxq.qparams import PerChannel, PerTensor, QParams, per_tensor
from tests import this_machine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

IR_VERSION = 10
Integers = npt.NDArray[np.generic]
MICROSOFT = "com.microsoft"
FLOAT = onnx.TensorProto.FLOAT


@dataclasses.dataclass(frozen=True, slots=True)
class Types:
    """Types of activations and weights; where zero points and scales lie."""

    x: QDType = UINT8
    w: QDType = INT8
    zero_point: str = "fitted"  # or low, high: at the ends of the type
    power_of_two: bool = False  # scales: many ties
    squeeze: float = 1.0  # output range over what would fit: below 1 saturates

    def __str__(self) -> str:
        ties = "-ties" if self.power_of_two else ""
        return f"{self.x}-{self.w}-{self.zero_point}{ties}-{self.squeeze}"


def names(case: Case) -> list[str]:
    """Input names by slot, empty for absent ones."""
    return [f"in{i}" if x is not None else "" for i, x in enumerate(case.inputs)]


def float_model(operator: Operator, case: Case) -> onnx.ModelProto:
    """The case as a float model; outputs out0, out1 ..."""
    return onnx.shape_inference.infer_shapes(
        one_node(operator.op_type, case, operator.domain), strict_mode=True
    )


def one_node(op_type: str, case: Case, domain: str = "") -> onnx.ModelProto:
    """A model of the case alone, on the types that it has; those of its outputs are left open."""
    outputs = [f"out{i}" for i in range(case.outputs)]
    node = helper.make_node(op_type, names(case), outputs, "node", domain=domain)
    node.attribute.extend(helper.make_attribute(k, v) for k, v in (case.attributes or {}).items())
    present = [
        (i, n, x) for i, (n, x) in enumerate(zip(names(case), case.inputs, strict=True)) if n
    ]
    graph = helper.make_graph(
        [node],
        "case",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for i, n, x in present
            if x is not None and i not in case.constants
        ],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [
            onnx.numpy_helper.from_array(np.asarray(x), n)
            for i, n, x in present
            if x is not None and i in case.constants
        ],
    )
    opsets = [helper.make_opsetid("", case.opset)]
    opsets += [helper.make_opsetid(domain, 1)] if domain else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def node_of(operator: Operator, case: Case) -> ir.Node:
    """The case's node inside a graph."""
    return ir.from_proto(float_model(operator, case)).graph[0]


def operator(op_type: str, domain: str = "") -> Operator:
    """The operator of that name."""
    found = catalog.find(op_type, domain)
    assert found is not None, op_type
    return found


def rule_of(operator: Operator, case: Case) -> Rule:
    """The case's rule, which must not be Float."""
    found = rule(operator, case)
    assert isinstance(found, Rule), f"{operator.op_type}, {case.name}: {found.reason.words}"
    return found


def session(model: onnx.ModelProto | ir.Model) -> onnxruntime.InferenceSession:
    """A single-threaded ONNX Runtime session."""
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def optimized_ops(model: onnx.ModelProto, folder: Path) -> list[str]:
    """Operators of the graph that ONNX Runtime runs, sorted."""
    path = folder / "optimized.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return sorted(node.op_type for node in onnx.load(path).graph.node)


def run(
    model: onnx.ModelProto | ir.Model, case: Case, inputs: Sequence[Array | None]
) -> list[Array]:
    """Outputs of ONNX Runtime; `inputs` by slot, those of the case's constants are in the model."""
    feeds = {
        n: x
        for i, (n, x) in enumerate(zip(names(case), inputs, strict=True))
        if x is not None and i not in case.constants
    }
    return [np.asarray(y) for y in session(model).run(None, feeds)]


def run_exactly(
    model: onnx.ModelProto | ir.Model, case: Case, inputs: Sequence[Array | None]
) -> list[Array]:
    """Runs the exact reference where products may saturate on this machine; else as `run`."""
    if not this_machine.may_saturate(model):
        return run(model, case, inputs)
    feeds = {
        n: x
        for i, (n, x) in enumerate(zip(names(case), inputs, strict=True))
        if x is not None and i not in case.constants
    }
    return this_machine.run_exactly(load(model), feeds)


def run_float(operator: Operator, case: Case) -> list[Array]:
    """Outputs of the float operator."""
    return run(float_model(operator, case), case, case.inputs)


def fit(low: float, high: float, dtype: QDType, types: Types) -> QParams:
    """Per-tensor qparams that cover [low, high] and 0, zero point as `types` asks."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max((high - low) * types.squeeze / (dtype.qmax - dtype.qmin), 1e-4)
    if types.power_of_two:
        scale = 2.0 ** np.ceil(np.log2(scale))
    fitted = round(dtype.qmin - low * types.squeeze / scale)
    ends = {"low": dtype.qmin, "high": dtype.qmax, "fitted": fitted}
    return per_tensor(scale, int(np.clip(ends[types.zero_point], dtype.qmin, dtype.qmax)), dtype)


def plan_of(operator: Operator, case: Case, types: Types, *, output: bool = True) -> NodePlan:
    """Qparams by the operator's rule, fitted to the case's data."""
    rule = rule_of(operator, case)
    inputs: list[QParams | None] = [None] * len(case.inputs)
    outputs: list[QParams | None] = [None] * case.outputs
    exact = dataclasses.replace(types, squeeze=1.0)
    for slot in rule.activations:
        inputs[slot] = fit(*_range(case.inputs[slot]), types.x, exact)
    copies = rule.shares_qparams or rule.clamp is not None
    if copies:
        ranges = [_range(case.inputs[slot]) for slot in rule.activations]
        common = fit(min(r[0] for r in ranges), max(r[1] for r in ranges), types.x, exact)
        for slot in rule.activations:
            inputs[slot] = common
    if rule.weight is not None:
        weight = np.asarray(case.inputs[rule.weight.slot])
        inputs[rule.weight.slot] = _fit_weight(weight, rule.weight.axis, types)
        if rule.bias is not None and len(case.inputs) > rule.bias:
            inputs[rule.bias] = _bias(inputs, rule, np.asarray(case.inputs[rule.bias]))
    for slot in rule.outputs if output or rule.needs_output else ():
        fitting = types
        if rule.output_range is not None:  # known, so that no plan saturates it badly
            fitting = dataclasses.replace(types, squeeze=max(types.squeeze, 0.3))
        low, high = rule.output_range or _result_ranges(operator, case)[slot]
        outputs[slot] = inputs[rule.activations[0]] if copies else fit(low, high, types.x, fitting)
    return NodePlan(tuple(inputs), tuple(outputs))


@functools.lru_cache(maxsize=1024)  # the contract test plans each case a dozen times
def _result_ranges(operator: Operator, case: Case) -> tuple[tuple[float, float], ...]:
    return tuple(_range(y) for y in run_float(operator, case))


def _range(x: Array | None) -> tuple[float, float]:
    values = np.asarray(x, np.float32)
    return float(values.min(initial=0)), float(values.max(initial=0))


def _fit_weight(w: npt.NDArray[np.floating], axis: int, types: Types) -> QParams:
    others = tuple(i for i in range(w.ndim) if i != axis)
    scale = np.maximum(np.abs(w).max(axis=others), 1e-3) / 127
    if types.power_of_two:
        scale = 2.0 ** np.ceil(np.log2(scale))
    zero_point = np.full(scale.shape, 0 if types.w.signed else 128)
    return QParams(scale.astype(np.float32), zero_point, types.w, PerChannel(axis))


def _bias(inputs: list[QParams | None], rule: Rule, bias: Array) -> QParams:
    x, w = inputs[0], inputs[rule.weight.slot if rule.weight else 1]
    assert x is not None
    assert w is not None
    scale = np.asarray(x.scale * w.scale)
    granularity = PerChannel(bias.ndim - 1) if scale.ndim else PerTensor()
    if scale.ndim:  # groups of a transposed convolution share scales
        scale = np.tile(scale, bias.shape[-1] // scale.size)
    return QParams(scale, np.zeros(scale.shape, np.int32), INT32, granularity)


def integers_of(case: Case, plan: NodePlan) -> list[Array | None]:
    """The case's inputs, as integers where the plan has qparams."""
    return [
        x if x is None or p is None else quantize(np.asarray(x, np.float32), p)
        for x, p in zip(case.inputs, plan.inputs, strict=True)
    ]


def reals_of(integers: Sequence[Array | None], plan: NodePlan) -> tuple[Array | None, ...]:
    """Real numbers that the integers stand for."""
    return tuple(
        x if x is None or p is None else dequantize(np.asarray(x), p)
        for x, p in zip(integers, plan.inputs, strict=True)
    )


def lowered_model(
    operator: Operator,
    case: Case,
    plan: NodePlan,
    integers: Sequence[Array | None],
    behind: Sequence[Array] = (),
) -> ir.Model:
    """The operator's own lowering, its constants in the model.

    Args:
        operator: that lowers the case's node.
        case: the node.
        plan: of its inputs and results.
        integers: its inputs.
        behind: constants that the site has behind them.
    """
    node = node_of(operator, case)
    tape = Tape()
    values: list[ir.Value | None] = []
    for i, (name, x) in enumerate(zip(names(case), integers, strict=True)):
        if x is None:
            values.append(None)
        elif i in case.constants:
            values.append(tape.initializer(ir.tensor(x), name=name))
        else:
            values.append(ir.val(name, dtype=ir.tensor(x).dtype, shape=x.shape))
    values += [tape.initializer(ir.tensor(x), name=f"behind{i}") for i, x in enumerate(behind)]
    outputs = list(operator.lower(Site(tape, node, values, plan)))
    for i, value in enumerate(outputs):
        value.name = f"out{i}"
    graph = ir.Graph(
        [v for v in values if v is not None and v.const_value is None],
        outputs,
        nodes=tape.nodes,
        initializers=tape.initializers,
        opset_imports={"": max(case.opset, 13), MICROSOFT: 1},
        name="lowered",
    )
    return ir.Model(graph, ir_version=IR_VERSION)


def qdq_model(
    operator: Operator,
    case: Case,
    plan: NodePlan,
    integers: Sequence[Array | None],
    oldest: int = 13,  # the first opset whose DQ has an axis
) -> onnx.ModelProto:
    """DQ on every quantized input, Q on every quantized output.

    Below opset 13, DQ and Q are those of com.microsoft.
    """
    model = float_model(operator, case)
    del model.graph.value_info[:]
    nodes, inits = [], []
    node = model.graph.node[0]
    for i, (p, x) in enumerate(zip(plan.inputs, integers, strict=True)):
        if p is None or x is None:
            continue
        inits += _parameters(f"in{i}", p)
        nodes.append(_convert("DequantizeLinear", f"in{i}", f"in{i}_real", p))
        node.input[i] = f"in{i}_real"
        tensor = onnx.numpy_helper.from_array(np.asarray(x), f"in{i}")
        for old in (*model.graph.initializer, *model.graph.input):
            if old.name == f"in{i}" and isinstance(old, onnx.TensorProto):
                old.CopyFrom(tensor)
            elif old.name == f"in{i}":
                old.type.tensor_type.elem_type = tensor.data_type
    nodes.append(node)
    for i, p in enumerate(plan.outputs):
        if p is not None:
            node.output[i] = f"out{i}_real"
            inits += _parameters(f"out{i}", p)
            nodes.append(_convert("QuantizeLinear", f"out{i}_real", f"out{i}", p))
    opset = max(case.opset, oldest)
    for made in nodes:
        if made is not node and opset < 13:
            made.domain = MICROSOFT
    graph = model.graph
    outputs = [onnx.ValueInfoProto(name=o.name) for o in graph.output]
    built = helper.make_graph(nodes, "qdq", graph.input, outputs, [*graph.initializer, *inits])
    opsets: Mapping[str, int] = {"": opset} if opset >= 13 else {"": opset, MICROSOFT: 1}
    return onnx.shape_inference.infer_shapes(
        helper.make_model(
            built,
            opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()],
            ir_version=IR_VERSION,
        )
    )


def integer_model(
    operator: IntegerOperator, domain: str, case: Case, cast: Collection[int] = ()
) -> onnx.ModelProto:
    """The case as a model of one node; outputs in `cast`, which NumPy has no type for, as reals."""
    slots = names(case)
    outputs = [f"out{i}" for i in range(case.outputs)]
    node = helper.make_node(operator.op_type, slots, outputs, "node", domain=domain)
    node.attribute.extend(helper.make_attribute(k, v) for k, v in (case.attributes or {}).items())
    inputs, constants = [], []
    for i, (name, x) in enumerate(zip(slots, case.inputs, strict=True)):
        if x is None:
            continue
        if i in case.constants:
            constants.append(onnx.numpy_helper.from_array(np.asarray(x), name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(x.dtype)
            inputs.append(helper.make_tensor_value_info(name, kind, x.shape))
    nodes = [node]
    for i in cast:
        nodes.append(helper.make_node("Cast", outputs[i : i + 1], [f"real{i}"], to=FLOAT))
        outputs[i] = f"real{i}"
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "case", inputs, results, constants)
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _parameters(name: str, p: QParams) -> list[onnx.TensorProto]:
    return [
        onnx.numpy_helper.from_array(np.asarray(p.scale), f"{name}_scale"),
        onnx.numpy_helper.from_array(np.asarray(p.zero_point), f"{name}_zero_point"),
    ]


def _convert(op: str, x: str, y: str, p: QParams) -> onnx.NodeProto:
    name = x if op == "DequantizeLinear" else y
    node = helper.make_node(op, [x, f"{name}_scale", f"{name}_zero_point"], [y])
    if isinstance(p.granularity, PerChannel):
        node.attribute.append(helper.make_attribute("axis", p.granularity.axis))
    return node


def is_float(operator: Operator, case: Case) -> bool:
    """Whether the operator leaves the case in float."""
    return isinstance(rule(operator, case), Float)


@functools.lru_cache(maxsize=1024)  # the contract test asks ten times for each of 483 cases
def rule(operator: Operator, case: Case) -> Rule | Float:
    """The rule, or the reason for float."""
    return operator.rule(node_of(operator, case))


SHARED = per_tensor(0.5, 7, UINT8)


def copied(
    operator: Operator,
    *inputs: npt.ArrayLike | None,
    results: int = 1,
    **attributes: AttributeValue,
) -> tuple[Array, ...]:
    """The kernel's outputs where uint8 inputs and all results have the qparams SHARED."""
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    qparams = tuple(None if x is None or x.dtype != np.uint8 else SHARED for x in arrays)
    return operator.kernel(
        Call(
            operator.op_type, arrays, NodePlan(qparams, (SHARED,) * results), attributes=attributes
        )
    )


def integers(*shape: int) -> npt.NDArray[np.uint8]:
    """0, 1, 2 ... in that shape."""
    return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)


def u8(values: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """The values as uint8."""
    return np.asarray(values, np.uint8)


def i16(values: npt.ArrayLike) -> npt.NDArray[np.int16]:
    """The values as int16."""
    return np.asarray(values).astype(np.int16)


def misshapen(inputs: Sequence[Array | None]) -> Iterator[list[Array | None]]:
    """The inputs with one of them of another rank, one longer along an axis, or empty along it."""
    for slot, x in enumerate(inputs):
        if x is None:
            continue
        shapes: list[tuple[int, ...]] = [(), (x.size,), (1, *x.shape)]
        for axis, size in enumerate(x.shape):
            shapes += [(*x.shape[:axis], n, *x.shape[axis + 1 :]) for n in (size + 1, 0)]
        for shape in shapes:
            yield [np.resize(x, shape) if i == slot else y for i, y in enumerate(inputs)]

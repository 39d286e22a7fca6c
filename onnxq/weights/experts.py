"""Mixtures of experts: com.microsoft MoE as Gemms of each expert, which QMoE stores in groups.

    Y[t] = sum over the experts e of token t of r[t, e] fc2_e(act(fc1_e(X[t])))

QMoE has one node for all experts. To choose its integers, the node is taken apart: each expert
multiplies the rows of its own tokens, so that Hessians are of what it saw.

    rows = Compress(X, r[:, e] > 0)        h = act(Gemm(rows, W1[e]'))        y = Gemm(h, W2[e]') r
"""

from collections.abc import Collection

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from onnxq.core.reason import Reason
from onnxq.graph.edit import FreeNames, graph_of
from onnxq.graph.walk import node_name, value_name
from onnxq.graph.weights import derived
from onnxq.operator.nodes import find_input, has_input, input_at, is_constant, sizes, tensor_of
from onnxq.operator.site import MICROSOFT
from onnxq.qparams.group_spec import GroupSpec
from onnxq.weights.reasons import MixtureInBody, NoQMoE

FC1, FC2, FC3 = 2, 4, 6
"""Slots of the weights of MoE; biases stand behind them."""
PART_OF = "onnxq.part_of"
"""Metadata of the Gemms of an expert: name of the node that they are parts of."""
SWIGLU = "swiglu"
LEAST_GROUPS = 2  # of a row: zero points of one lie otherwise in ONNX Runtime 1.29
DEFAULTS = {"alpha": 1.0, "beta": 0.0}
"""activation_alpha and activation_beta of SwiGLU."""
BOOL, FLOAT, INT64 = ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.INT64


def is_mixture(node: ir.Node) -> bool:
    """Whether the node is a mixture of experts in float."""
    return node.op_type == "MoE" and node.domain == MICROSOFT


def why_no_qmoe(node: ir.Node, spec: GroupSpec, main: ir.Graph) -> Reason | None:
    """Why the node becomes no QMoE; None: it does."""
    if node.graph is not main:
        return MixtureInBody()
    if has_input(node, FC3):
        return NoQMoE("third layer of an expert (fc3)")
    if not (is_constant(node, FC1) and is_constant(node, FC2)):
        return NoQMoE("weights that are computed at run time")
    gated = node.attributes.get_string("activation_type", "relu") == SWIGLU
    if gated != (node.attributes.get_int("swiglu_fusion", 0) == 1):
        return NoQMoE("swiglu but that of swiglu_fusion 1")
    for slot in (FC1, FC2):
        width = sizes(node, slot)[-1]
        if width % spec.group_size or width < LEAST_GROUPS * spec.group_size:
            return NoQMoE(f"rows of {width} weights in groups of {spec.group_size}")
    return None


def unfolded(model: ir.Model, mixtures: Collection[str]) -> ir.Model:
    """The model with the Gemms of each expert in place of these nodes; it shares what it can."""
    if not mixtures:
        return model
    copy = model.clone()
    names = FreeNames(copy)
    for node in list(copy.graph):
        if node_name(node) in mixtures:
            _Unfolding(node, names).write()
    return copy


def part_name(mixture: str, expert: int, slot: int) -> str:
    """Name of an expert's Gemm in the model that is taken apart."""
    return f"{mixture}.experts.{expert}.{'fc1' if slot == FC1 else 'fc2'}"


class _Unfolding:
    """Nodes that compute what a mixture does, expert by expert."""

    def __init__(self, node: ir.Node, names: FreeNames) -> None:
        self._node, self._names, self._tape = node, names, Tape()

    def write(self) -> None:
        """Puts the nodes in the mixture's place."""
        node, tape = self._node, self._tape
        x = input_at(node, 0)
        whole = self._op("Shape", x, gives=INT64)
        rows = self._op("Reshape", x, self._ints([-1, sizes(node, FC2)[1]]))
        share = self._shares(input_at(node, 1))
        y = self._op("ConstantOfShape", self._op("Shape", rows, gives=INT64))
        for expert in range(sizes(node, FC1)[0]):
            y = self._with_expert(expert, y, rows, share)
        self._op("Reshape", y, whole)
        graph, old, new = graph_of(node), node.outputs[0], tape.nodes[-1].outputs[0]
        for value in tape.initializers:
            graph.register_initializer(value)
        graph.insert_before(node, tape.nodes)
        stem, new.type, new.shape = old.name, old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        old.name, new.name = None, stem

    def _shares(self, router: ir.Value) -> ir.Value:
        """(tokens, experts): what an expert's result counts for a token, 0 of others."""
        attributes = self._node.attributes
        k = self._ints([attributes.get_int("k", 1)])
        best, chosen = self._tape.op_multi_out("TopK", [router, k], num_outputs=2)
        self._typed(best, FLOAT)
        self._typed(chosen, INT64)
        if attributes.get_int("normalize_routing_weights", 0):
            share = self._op("Softmax", best, axis=1)
        else:
            share = self._op("GatherElements", self._op("Softmax", router, axis=1), chosen, axis=1)
        none = self._op("ConstantOfShape", self._op("Shape", router, gives=INT64))
        return self._op("ScatterElements", none, chosen, share, axis=1)

    def _with_expert(self, expert: int, y: ir.Value, x: ir.Value, share: ir.Value) -> ir.Value:
        """The sum y of all experts so far, and that of one more."""
        own = self._op("Gather", share, self._ints(expert), axis=1)
        seen = self._op("Greater", own, self._constant(np.float32(0)), gives=BOOL)
        rows = self._op("Compress", x, seen, axis=0)
        h = self._activated(self._layer(expert, FC1, rows))
        made = self._layer(expert, FC2, h)
        weight = self._op("Unsqueeze", self._op("Compress", own, seen, axis=0), self._ints([1]))
        places = self._op("Transpose", self._op("NonZero", seen, gives=INT64), gives=INT64)
        sum_ = self._op("Add", self._op("GatherND", y, places), self._op("Mul", made, weight))
        return self._op("ScatterND", y, places, sum_)

    def _layer(self, expert: int, slot: int, x: ir.Value) -> ir.Value:
        """The Gemm of an expert's layer, (rows, outputs)."""
        node = self._node
        inputs = [x, self._part(expert, slot)]
        if find_input(node, slot + 1) is not None:
            inputs.append(self._part(expert, slot + 1))
        y = self._op("Gemm", *inputs, transB=1)
        made = self._tape.nodes[-1]
        made.name = part_name(node_name(node), expert, slot)
        made.meta[PART_OF] = node_name(node)
        return y

    def _part(self, expert: int, slot: int) -> ir.Value:
        """The part of a stacked constant that is an expert's."""
        stacked = input_at(self._node, slot)
        tensor = tensor_of(stacked)
        shape = sizes(self._node, slot)[1:]
        name = self._names.value(f"{value_name(stacked)}.{expert}")
        part = derived(lambda: tensor.numpy()[expert], tensor.dtype, shape, name)
        return self._tape.initializer(part, name=name)

    def _activated(self, h: ir.Value) -> ir.Value:
        attributes = self._node.attributes
        match attributes.get_string("activation_type", "relu"):
            case "relu":
                return self._op("Relu", h)
            case "gelu":
                return self._op("FastGelu", h, domain=MICROSOFT)
            case "silu":
                return self._op("Mul", h, self._op("Sigmoid", h))
            case "identity":
                return h
        limit = attributes.get_float("swiglu_limit", np.inf)
        gate, linear = (self._half(h, start) for start in (0, 1))
        if np.isfinite(limit):
            low, high = (self._constant(np.float32(sign * limit)) for sign in (-1, 1))
            gate, linear = self._op("Min", gate, high), self._op("Clip", linear, low, high)
        alpha, beta = (attributes.get_float(f"activation_{n}", d) for n, d in DEFAULTS.items())
        steep = self._op("Mul", gate, self._constant(np.float32(alpha)))
        gated = self._op("Mul", gate, self._op("Sigmoid", steep))
        return self._op("Mul", gated, self._op("Add", linear, self._constant(np.float32(beta))))

    def _half(self, h: ir.Value, start: int) -> ir.Value:
        """Every second column."""
        bounds = ([start], [np.iinfo(np.int64).max], [1], [2])
        return self._op("Slice", h, *(self._ints(each) for each in bounds))

    def _op(
        self,
        op_type: str,
        *inputs: ir.Value,
        gives: ir.DataType = FLOAT,
        domain: str = "",
        **attributes: int,
    ) -> ir.Value:
        made = self._tape.op(op_type, inputs, attributes or None, domain=domain)
        return self._typed(made, gives)

    def _typed(self, value: ir.Value, gives: ir.DataType) -> ir.Value:
        stem = f"{node_name(self._node)}.{self._tape.nodes[-1].op_type.lower()}"
        value.name, value.type = self._names.value(stem), ir.TensorType(gives)
        node = self._tape.nodes[-1]
        node.name = node.name or self._names.node(stem)
        return value

    def _constant(self, array: np.generic | np.ndarray) -> ir.Value:
        name = self._names.value(f"{node_name(self._node)}.constant")
        return self._tape.initializer(ir.tensor(np.asarray(array), name=name), name=name)

    def _ints(self, numbers: int | list[int]) -> ir.Value:
        return self._constant(np.array(numbers, np.int64))

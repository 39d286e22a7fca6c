"""Dynamically quantized torch.ao modules, exported as float modules, become integers again.

The plan of `onnxq.quantize_dynamic` says how ONNX Runtime runs each node; its scales, which an
observer found, are replaced by those of the packed parameters.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, nn

from onnxq import targets
from onnxq.affine import quantize
from onnxq.dtypes import INT8
from onnxq.dynamic.dynamic_decision import DynamicWeightPlan, Objective, QuantizeDynamic
from onnxq.dynamic.dynamic_plan import dynamic_plan
from onnxq.dynamic.dynamic_weights import permuted, unpermuted
from onnxq.dynamic.reasons import WeightsStored
from onnxq.dynamic.rewrite_dynamic import rewrite_dynamic
from onnxq.errors import ModelError, UnsupportedError
from onnxq.graph.canonical import canonicalize_module
from onnxq.graph.io import model_hash
from onnxq.graph.walk import node_name, walk
from onnxq.graph.weights import constant_array
from onnxq.operator import Precision
from onnxq.ort.types_by_run import types_by_run
from onnxq.pytorch.exporting.dynamic_export import entries_of_nodes
from onnxq.pytorch.importers.int8_weights import INT8_MAX, within
from onnxq.pytorch.importers.packed import read_quantized
from onnxq.qconfig import QConfigDynamic, float16_dynamic_qconfig, onnxq_default_dynamic_qconfig
from onnxq.qdq.tidy import holds_integers
from onnxq.qparams import PerChannel, PerTensor, QParams

# --- Float modules of dynamically quantized torch.ao modules, with their dequantized weights.
#
#     DynamicQuantizedLinear   ->  nn.Linear,  weight = integers * scale, exactly
#     DynamicQuantizedLSTM     ->  nn.LSTM     (with two directions: one nn.LSTM for each, because
#     DynamicQuantizedGRU      ->  nn.GRU       torch gives each its own scale, and ONNX Runtime's
#     ...Cell                  ->  nn....Cell   operator shares them)
#
# Exported and quantized again with the very scales (`dynamic`), they give the integers that torch
# had.

DYNAMIC = "torch.ao.nn.quantized.dynamic"
FUSED = "torch.ao.nn.intrinsic.quantized.dynamic"


@dataclass(slots=True)
class Dequantized:
    """Modules that were put in, and the scales that give the integers back."""

    paths: dict[str, bool]
    rows: dict[bytes, tuple[float, int]]

    def take(self, weight: Tensor, path: str) -> Tensor:
        """The float values of a weight, which is noted with its scales."""
        if not weight.is_quantized:
            self.paths[path] = False
            return weight.detach().float()
        read = read_quantized(weight, path)
        self.paths[path] = True
        real = weight.dequantize()
        rows = np.ascontiguousarray(real.numpy().reshape(real.shape[0], -1))
        scales = np.broadcast_to(read.qparams.scale, len(rows))
        zeros = np.broadcast_to(read.qparams.zero_point, len(rows))
        for row, scale, zero in zip(rows, scales, zeros, strict=True):
            self.rows[row.tobytes()] = (float(scale), int(zero))
        return real


def dequantized_modules(model: nn.Module) -> tuple[Dequantized, dict[int, nn.Module]]:
    """The float module of every dynamically quantized module of the model, by its id."""
    dequantized, made = Dequantized({}, {}), dict[int, nn.Module]()
    for path, module in model.named_modules():
        package, kind = type(module).__module__, type(module).__name__
        if not package.startswith((DYNAMIC, FUSED)) or kind in (
            "LinearPackedParams",
            "PackedParameter",
        ):
            continue
        if kind not in _MAKERS:
            raise UnsupportedError(
                f"module '{path}': {kind} of {package} cannot be imported; known are "
                f"{', '.join(_MAKERS)}. Put the float module back and let onnxq quantize it."
            )
        made[id(module)] = _MAKERS[kind](module, dequantized, path).eval()
    return dequantized, made


def _linear(module: Any, dequantized: Dequantized, path: str) -> nn.Module:
    weight, bias = dequantized.take(module.weight(), path), module.bias()
    made = nn.Linear(module.in_features, module.out_features, bias is not None)
    _fill(made, {"weight": weight, "bias": bias})
    return made


def _fill(made: nn.Module, values: Mapping[str, Tensor | None]) -> None:
    made.load_state_dict({k: v.detach() for k, v in values.items() if v is not None})


def _cell(kind: type[nn.RNNCellBase]) -> Callable[[Any, Dequantized, str], nn.Module]:
    def make(module: Any, dequantized: Dequantized, path: str) -> nn.Module:
        named = {} if kind is not nn.RNNCell else {"nonlinearity": module.nonlinearity}
        bias = module.get_bias()["bias_ih"] is not None
        made = kind(module.input_size, module.hidden_size, bias, **named)
        values = {k: dequantized.take(w, path) for k, w in module.get_weight().items()}
        # not module.bias_ih: torch leaves random numbers there, and computes with the packed ones
        _fill(made, {**values, **module.get_bias()})
        return made

    return make


def _recurrent(kind: type[nn.LSTM | nn.GRU]) -> Callable[[Any, Dequantized, str], nn.Module]:
    def make(module: Any, dequantized: Dequantized, path: str) -> nn.Module:
        values = {k: dequantized.take(w, path) for k, w in module.get_weight().items()}
        values |= {k: b for k, b in module.get_bias().items() if b is not None}
        if not module.bidirectional:
            made = _layers(kind, module, module.input_size, module.num_layers)
            _fill(made, values)
            return made
        return BothWays(kind, module, values)

    return make


def _layers(
    kind: type[nn.LSTM | nn.GRU], module: Any, input_size: int, layers: int
) -> nn.LSTM | nn.GRU:
    return kind(
        input_size,
        module.hidden_size,
        layers,
        bias=bool(module.bias),
        batch_first=bool(module.batch_first),
    )


class BothWays(nn.Module):
    """A bidirectional LSTM or GRU: y[t] = (forward(x)[t], backward(reversed x)[T - 1 - t])."""

    def __init__(
        self, kind: type[nn.LSTM | nn.GRU], module: Any, values: dict[str, Tensor]
    ) -> None:
        super().__init__()
        self.time = 1 if module.batch_first else 0
        self.has_cell = kind is nn.LSTM
        self.there, self.back = nn.ModuleList(), nn.ModuleList()
        for layer in range(module.num_layers):
            size = module.input_size if layer == 0 else 2 * module.hidden_size
            for parts, suffix in ((self.there, ""), (self.back, "_reverse")):
                made = _layers(kind, module, size, 1)
                wanted = made.state_dict()
                _fill(made, {k: values[f"{k[: -len('_l0')]}_l{layer}{suffix}"] for k in wanted})
                parts.append(made)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:  # torch's name
        """(output, final state) as nn.LSTM and nn.GRU return them."""
        x = input
        states = []
        for layer, (there, back) in enumerate(zip(self.there, self.back, strict=True)):
            ahead, state = there(x, self._start(hx, 2 * layer))
            behind, other = back(x.flip(self.time), self._start(hx, 2 * layer + 1))
            x = torch.cat([ahead, behind.flip(self.time)], -1)
            states += [state, other]
        if not self.has_cell:
            return x, torch.cat(states)
        return x, (torch.cat([h for h, _ in states]), torch.cat([c for _, c in states]))

    def _start(self, hx: Any, index: int) -> Any:
        if hx is None:
            return None
        if not self.has_cell:
            return hx[index : index + 1]
        return tuple(state[index : index + 1] for state in hx)


_MAKERS: dict[str, Callable[[Any, Dequantized, str], nn.Module]] = {
    "Linear": _linear,
    "LinearReLU": lambda *given: nn.Sequential(_linear(*given), nn.ReLU()),
    "LSTM": _recurrent(nn.LSTM),
    "GRU": _recurrent(nn.GRU),
    "LSTMCell": _cell(nn.LSTMCell),
    "GRUCell": _cell(nn.GRUCell),
    "RNNCell": _cell(nn.RNNCell),
}


_INTEGER = QConfigDynamic(onnxq_default_dynamic_qconfig.weight, Precision.DYNAMIC_INT8)


def quantize_again(
    model: nn.Module, exported: ir.Model, dequantized: Dequantized, limit: int | None
) -> ir.Model:
    """The exported model with integer linear layers where the dequantized modules are."""
    entries: dict[type[nn.Module] | str, QConfigDynamic | None] = {
        path: _INTEGER if integers else float16_dynamic_qconfig
        for path, integers in dequantized.paths.items()
    }
    canonical = exported  # canonicalizing would fold the DequantizeLinear of static weights
    if not holds_integers(exported):
        canonical = canonicalize_module(exported, types_by_run).model
    mapping = entries_of_nodes(model, canonical, entries)
    found = model_hash(canonical)
    plan = dynamic_plan(canonical, mapping, targets.get_default(), Objective.SIZE, known_hash=found)
    nodes = {node_name(node): node for node, _ in walk(canonical.graph)}
    decisions = {
        name: _with_scales(decision, nodes[name], dequantized, limit)
        if isinstance(decision, QuantizeDynamic)
        else decision
        for name, decision in plan.decisions.items()
    }
    return rewrite_dynamic(canonical, dataclasses.replace(plan, decisions=decisions), found)


def _with_scales(
    decision: QuantizeDynamic, node: ir.Node, dequantized: Dequantized, limit: int | None
) -> QuantizeDynamic:
    if decision.precision is Precision.WEIGHT_ONLY_FLOAT16:
        return decision
    weights = tuple(_with_scale(weight, node, dequantized, limit) for weight in decision.weights)
    how = WeightsStored("int8 weights as torch packed them", "activations quantized at run time")
    return dataclasses.replace(decision, how=how, weights=weights)


def _with_scale(
    weight: DynamicWeightPlan, node: ir.Node, dequantized: Dequantized, limit: int | None
) -> DynamicWeightPlan:
    """The plan of a weight with the scales that torch has for its rows."""
    value = node.inputs[weight.slot]
    if value is None or weight.qparams is None:
        raise AssertionError("a weight of a node that is quantized")
    array = constant_array(value)
    planned = unpermuted(weight.qparams, weight.perm)
    per_channel = isinstance(planned.granularity, PerChannel)
    axis = planned.granularity.axis if isinstance(planned.granularity, PerChannel) else 0
    rows = np.ascontiguousarray(np.moveaxis(array, axis, 0)).reshape(array.shape[axis], -1)
    known = [dequantized.rows.get(row.tobytes()) for row in rows]
    if any(pair is None for pair in known):
        raise ModelError(
            f"'{node_name(node)}' reads weight '{weight.tensor}', which is not as torch packed it: "
            "the exporter has changed its values. Import the modules one by one to find it."
        )
    pairs = [pair for pair in known if pair is not None]
    if per_channel:
        scale, zero = (np.array(part) for part in zip(*pairs, strict=True))
        qparams = QParams(scale, zero, INT8, PerChannel(axis))
    else:
        qparams = QParams(np.array(pairs[0][0]), np.array(pairs[0][1]), INT8, PerTensor())
    if limit is not None and limit < INT8_MAX:
        _, scale = within(quantize(array, qparams).astype(np.int8), qparams.scale, limit, axis)
        qparams = dataclasses.replace(qparams, scale=scale)
    return dataclasses.replace(weight, qparams=permuted(qparams, weight.perm), integer_limit=limit)

"""Adds the numbers: qparams of every tensor, weight and bias. May only demote a node to float, with a reason."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.dtypes import INT8, INT32, QDType
from onnxq.errors import CalibrationError, ModelError, QConfigError
from onnxq.graph.io import write_atomically
from onnxq.observers import Observer, ObserverSpec
from onnxq.operator import Float, Form, Role, Rule, WeightSlot
from onnxq.qparams import PerChannel, PerTensor, QParams, per_tensor, quantize
from onnxq.stages.calibrate import Statistics
from onnxq.stages.placement import Decision, Quantize, node_name, walk
from onnxq.stages.prepare import Prepared, TensorGroup

# The int32 accumulator wraps; half of its range is kept for the products, the other half for the bias.
MAX_BIAS_CODE = 2**30
CHUNK_ELEMENTS = 1 << 22  # weights are looked at in pieces: a model may be larger than the memory


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """How one node's weight is stored.

    Attributes:
        tensor: name of the float initializer.
        qparams: of the codes.
        code_limit: codes are clipped to [-code_limit, code_limit]; None: the type's own range.
    """

    tensor: str
    qparams: QParams
    code_limit: int | None


@dataclass(frozen=True, slots=True)
class BiasPlan:
    """int32 codes of a bias at x_scale * w_scale, zero point 0."""

    tensor: str
    qparams: QParams


@dataclass(frozen=True, eq=False)
class Plan:
    """Every decision with its numbers; `rewrite` carries it out and decides nothing.

    Attributes:
        model_hash: the canonical float model that it was made for.
        target: name of the target.
        decisions: node name -> Quantize or Float(reason).
        tensors: activation tensor -> qparams (constants that stand in activation slots included).
        code_bounds: tensor -> codes that a folded Relu or Clip bounds it to, where its qparams reach further.
        weights: node name -> WeightPlan.
        biases: node name -> BiasPlan.
        notes: what a user should know.
    """

    model_hash: str
    target: str
    decisions: Mapping[str, Decision]
    tensors: Mapping[str, QParams]
    code_bounds: Mapping[str, tuple[int, int]]
    weights: Mapping[str, WeightPlan]
    biases: Mapping[str, BiasPlan]
    notes: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.model_hash)

    def to_dict(self) -> dict[str, object]:
        """Plain values that JSON can hold; float32 survives exactly."""
        return {
            "format": "onnxq plan 1",
            "model_hash": self.model_hash,
            "target": self.target,
            "decisions": {k: _decision_to_dict(d) for k, d in self.decisions.items()},
            "tensors": {k: p.to_dict() for k, p in self.tensors.items()},
            "code_bounds": {k: list(b) for k, b in self.code_bounds.items()},
            "weights": {
                k: {"tensor": w.tensor, "qparams": w.qparams.to_dict(), "code_limit": w.code_limit}
                for k, w in self.weights.items()
            },
            "biases": {
                k: {"tensor": b.tensor, "qparams": b.qparams.to_dict()} for k, b in self.biases.items()
            },
            "notes": list(self.notes),
        }

    def save(self, path: str | Path) -> None:
        """Writes JSON, atomically.

        Raises:
            OutputError: the path cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1)
        write_atomically(Path(path), lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Reads what `save` wrote.

        Raises:
            CalibrationError: the file is missing or is not a plan of this version.
        """
        try:
            data = json.loads(Path(path).read_text())
            if data["format"] != "onnxq plan 1":
                raise KeyError("format")
            return cls(
                data["model_hash"],
                data["target"],
                {k: _decision_from_dict(d) for k, d in data["decisions"].items()},
                {k: QParams.from_dict(p) for k, p in data["tensors"].items()},
                {k: (b[0], b[1]) for k, b in data["code_bounds"].items()},
                {
                    k: WeightPlan(w["tensor"], QParams.from_dict(w["qparams"]), w["code_limit"])
                    for k, w in data["weights"].items()
                },
                {
                    k: BiasPlan(b["tensor"], QParams.from_dict(b["qparams"]))
                    for k, b in data["biases"].items()
                },
                tuple(data["notes"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CalibrationError(
                f"{path}: not a plan that this version of onnxq wrote ({error}). "
                "Make it anew with `onnxq quantize --save-plan`."
            ) from error


def plan(prepared: Prepared, statistics: Statistics) -> Plan:
    """A Plan: the decisions of `prepared`, with qparams from `statistics` and from the weights.

    Raises:
        CalibrationError: the statistics are of another model, or lack a tensor that prepared asks for.
        QConfigError: a weight observer gives codes that the target cannot run exactly.
    """
    statistics.check_model(prepared.model_hash)
    notes: list[str] = []
    tensors, unseen = _tensor_qparams(prepared, statistics)
    decisions = _demote(prepared, unseen)
    nodes = {node_name(node): node for node, _ in walk(prepared.model.graph)}
    weights: dict[str, WeightPlan] = {}
    biases: dict[str, BiasPlan] = {}
    observed: dict[_WeightKey, QParams] = {}
    for name, decision in decisions.items():
        if isinstance(decision, Float) or decision.rule.weight is None or decision.folded_into:
            continue
        node = nodes[name]
        weight = _plan_weight(prepared, node, decision.rule, observed, notes)
        if decision.rule.bias is not None and _has_input(node, decision.rule.bias):
            x = tensors[_tensor_name(node, decision.rule.activations[0])]
            weight, biases[name] = _plan_bias(node, decision.rule, x, weight, notes)
        weights[name] = weight
    return Plan(
        prepared.model_hash,
        prepared.target.name,
        decisions,
        tensors,
        _code_bounds(prepared.clamps, tensors),
        weights,
        biases,
        (*prepared.notes, *notes),
    )


# --- activations


def _tensor_qparams(
    prepared: Prepared, statistics: Statistics
) -> tuple[dict[str, QParams], dict[str, str]]:
    """(tensor -> qparams, tensor -> why it has none)."""
    tensors: dict[str, QParams] = {}
    unseen: dict[str, str] = {}
    constants = prepared.model.graph.initializers
    for group in prepared.groups:
        if group.range is not None:
            qparams = _qparams_of_range(group.range, group.observer().dtype)
            tensors.update(dict.fromkeys(group.members, qparams))
            continue
        merged = _merged(group, prepared, statistics, constants)
        if merged.is_empty():
            reason = f"tensor '{group.members[0]}' was never observed: no sample reached it"
            unseen.update(dict.fromkeys(group.members, reason))
            continue
        tensors.update(dict.fromkeys(group.members, merged.calculate_qparams()))
    return tensors, unseen


def _merged(
    group: TensorGroup,
    prepared: Prepared,
    statistics: Statistics,
    constants: Mapping[str, ir.Value],
) -> Observer:
    observers = [statistics.observer(source, group.observer) for source in group.sources]
    for name in group.constants:
        observer = group.observer()
        observer.observe(_constant_array(_find_constant(prepared.model, name)), 0)
        observers.append(observer)
    return functools.reduce(lambda a, b: a.merge(b), observers)


def _find_constant(model: ir.Model, name: str) -> ir.Value:
    if name in model.graph.initializers:
        return model.graph.initializers[name]
    for node, _ in walk(model.graph):
        for value in node.inputs:
            if value is not None and value.name == name:
                return value
    raise AssertionError(f"no constant '{name}'")


def _qparams_of_range(interval: tuple[float, float], dtype: QDType) -> QParams:
    """qparams that cover [low, high) with 2^bits steps.

    The end itself saturates to the last code: scale 1/256 for [0, 1] is a power of two, and ONNX
    Runtime's integer Softmax computes floor(1 / scale), which loses a step at 1/255.
    """
    low, high = interval
    scale = (high - low) / 2**dtype.bits
    return per_tensor(scale, dtype.qmin - round(low / scale), dtype)


def _demote(prepared: Prepared, unseen: Mapping[str, str]) -> dict[str, Decision]:
    """The decisions, with every node in float that has a tensor without qparams."""
    if not unseen:
        return dict(prepared.decisions)
    decisions: dict[str, Decision] = {}
    for node, _ in walk(prepared.model.graph):
        name = node_name(node)
        decision = prepared.decisions[name]
        if isinstance(decision, Quantize):
            read = [_tensor_name(node, slot) for slot in decision.rule.activations]
            missing = [unseen[t] for t in (*read, *decision.results) if t in unseen]
            if missing:
                decision = Float(missing[0])
        decisions[name] = decision
    for name, decision in decisions.items():
        if isinstance(decision, Quantize) and decision.folded_into:
            into = decisions[decision.folded_into]
            if isinstance(into, Float):
                decisions[name] = into
    return decisions


def _code_bounds(
    clamps: Mapping[str, tuple[float, float]], tensors: Mapping[str, QParams]
) -> dict[str, tuple[int, int]]:
    bounds = {}
    for tensor, interval in clamps.items():
        if tensor not in tensors:
            continue
        p = tensors[tensor]
        low, high = (int(code) for code in quantize(np.array(interval, np.float32), p))
        if (low, high) != (p.dtype.qmin, p.dtype.qmax):
            bounds[tensor] = (low, high)
    return bounds


# --- weights


@dataclass(frozen=True, slots=True)
class _WeightKey:
    """What makes the codes of a weight: nodes that agree in it share one integer tensor."""

    tensor: str
    axis: int
    limit: int
    observer: ObserverSpec


def _plan_weight(
    prepared: Prepared,
    node: ir.Node,
    rule: Rule,
    observed: dict[_WeightKey, QParams],
    notes: list[str],
) -> WeightPlan:
    assert rule.weight is not None
    value = node.inputs[rule.weight.slot]
    assert value is not None
    assert value.name
    target = prepared.target
    limit = target.weight_qmax_saturating if rule.saturating_pairs else target.weight_qmax
    qconfig = prepared.qconfig.for_node(node_name(node), node.op_type)
    assert qconfig is not None
    spec = qconfig.weight_observer
    key = _WeightKey(value.name, rule.weight.axis, limit, spec)
    if key not in observed:
        observed[key] = _observe_weight(value, key, notes)
    qparams = observed[key]
    return WeightPlan(value.name, qparams, limit if qparams.dtype == INT8 else None)


def _observe_weight(value: ir.Value, key: _WeightKey, notes: list[str]) -> QParams:
    weight = _constant_array(value)
    spec = key.observer
    probe = spec()
    axis = key.axis % weight.ndim
    if probe.qscheme.per_channel:
        spec = spec.with_args(ch_axis=axis)
    if probe.dtype == INT8 and key.limit < INT8.qmax and spec.accepts("quant_max"):
        spec = spec.with_args(**_limited_range(spec, key.limit))
    observer = spec()
    try:
        observer.observe(weight, 0)
    except CalibrationError as error:
        raise ModelError(f"weight '{key.tensor}': {error}") from error
    qparams = observer.calculate_qparams()
    if qparams.dtype == INT8:
        _check_codes(weight, qparams, key, notes)
    return qparams


def _limited_range(spec: ObserverSpec, limit: int) -> dict[str, int]:
    return {"quant_max": limit} | ({"quant_min": -limit} if spec.accepts("quant_min") else {})


def _check_codes(
    weight: npt.NDArray[np.float32], qparams: QParams, key: _WeightKey, notes: list[str]
) -> None:
    """Counts codes outside the limit: clipped and noted at 127, refused where products would saturate."""
    outside = sum(
        int(np.count_nonzero(np.abs(quantize(piece, p).astype(np.int16)) > key.limit))
        for piece, p in _pieces(weight, qparams)
    )
    if not outside:
        return
    if key.limit < INT8.qmax:
        raise QConfigError(
            f"weight '{key.tensor}': {key.observer.name} gives {outside} codes outside "
            f"[-{key.limit}, {key.limit}], which the target does not run exactly. Use a symmetric "
            "observer with quant_max, reduce_range=True, or a target such as 'x86-vnni'."
        )
    notes.append(
        f"weight '{key.tensor}': {outside} of {weight.size} codes of -128 were clipped to -127; "
        "sums with -128 wrap on ARM"
    )


def _pieces(
    weight: npt.NDArray[np.float32], qparams: QParams
) -> list[tuple[npt.NDArray[np.float32], QParams]]:
    """The weight in pieces along its first axis, each with the qparams of its channels."""
    if weight.size <= CHUNK_ELEMENTS or weight.ndim == 0:
        return [(weight, qparams)]
    rows = max(1, CHUNK_ELEMENTS // max(1, weight[0].size))
    pieces = []
    for start in range(0, len(weight), rows):
        piece_qparams = qparams
        if qparams.granularity == PerChannel(0):
            piece_qparams = dataclasses.replace(
                qparams,
                scale=qparams.scale[start : start + rows],
                zero_point=qparams.zero_point[start : start + rows],
            )
        pieces.append((weight[start : start + rows], piece_qparams))
    return pieces


# --- biases


def _plan_bias(
    node: ir.Node, rule: Rule, x: QParams, weight: WeightPlan, notes: list[str]
) -> tuple[WeightPlan, BiasPlan]:
    """The bias at x_scale * w_scale; raises w_scale of channels whose bias would leave int32."""
    assert rule.bias is not None
    value = node.inputs[rule.bias]
    assert value is not None
    assert value.name
    bias = _constant_array(value).reshape(-1).astype(np.float64)
    if not np.isfinite(bias).all():
        raise ModelError(f"bias '{value.name}' of '{node.name}' holds NaN or Inf; repair the model.")
    w_scale = weight.qparams.scale
    needed = np.abs(bias) / (np.float64(x.scale) * MAX_BIAS_CODE)
    needed = needed if w_scale.ndim else needed.max(initial=0.0)
    raised = np.maximum(w_scale, np.asarray(needed, np.float32))
    count = int(np.count_nonzero(raised > w_scale))
    if count:
        notes.append(
            f"'{node.name}': the weight scale of {count} channel(s) was raised so that the bias fits "
            "int32 at x_scale * w_scale"
        )
        weight = dataclasses.replace(weight, qparams=dataclasses.replace(weight.qparams, scale=raised))
    scale = np.float32(x.scale) * raised
    # a product of two tiny scales is 0 in float32; the smallest normal number keeps it positive
    scale = np.maximum(scale, np.finfo(np.float32).tiny)
    granularity = PerChannel(0) if raised.ndim else PerTensor()
    zero_point = np.zeros(scale.shape, np.int32)
    return weight, BiasPlan(value.name, QParams(scale, zero_point, INT32, granularity))


# --- small things


def _has_input(node: ir.Node, slot: int) -> bool:
    return slot < len(node.inputs) and node.inputs[slot] is not None


def _tensor_name(node: ir.Node, slot: int) -> str:
    value = node.inputs[slot]
    assert value is not None
    assert value.name
    return value.name


def _constant_array(value: ir.Value) -> npt.NDArray[np.float32]:
    assert value.const_value is not None
    return value.const_value.numpy()


def _decision_to_dict(decision: Decision) -> dict[str, object]:
    if isinstance(decision, Float):
        return {"float": decision.reason}
    rule = dataclasses.asdict(decision.rule)
    rule["role"], rule["form"] = decision.rule.role.value, decision.rule.form.value
    return {
        "quantize": decision.how,
        "folded_into": decision.folded_into,
        "results": list(decision.results),
        "rule": rule,
    }


def _decision_from_dict(data: Mapping[str, object]) -> Decision:
    if "float" in data:
        return Float(str(data["float"]))
    fields = data["rule"]
    assert isinstance(fields, dict)
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    values |= {"role": Role(fields["role"]), "form": Form(fields["form"])}
    if fields["weight"] is not None:
        values["weight"] = WeightSlot(**fields["weight"])
    results, folded_into = data["results"], data["folded_into"]
    assert isinstance(results, list)
    assert folded_into is None or isinstance(folded_into, str)
    return Quantize(Rule(**values), str(data["quantize"]), folded_into, tuple(results))

"""Ways to quantize a model of the suite, and how each ends."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

import onnxq
from onnxq import catalog
from onnxq.errors import OnnxqError
from onnxq.qconfig import QConfigMapping, default_qconfig
from scripts._confined import place_of
from scripts._timing import session

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx

    from onnxq.checking.cross_findings import CrossFindings
    from scripts._backend.cases import SuiteCase


STORED = (ir.DataType.INT8, ir.DataType.UINT8)  # weights of float nodes


class Outcome(enum.Enum):
    """How a way ended."""

    QUANTIZED = "quantized"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    TRACEBACK = "traceback"
    NOT_LOADED = "not run by ONNX Runtime"
    WRONG = "wrong"
    UNCHECKED = "not checked"
    CRASH = "crash"
    HANG = "hang"


BAD = (Outcome.TRACEBACK, Outcome.NOT_LOADED, Outcome.WRONG, Outcome.CRASH, Outcome.HANG)


@dataclass(frozen=True, slots=True)
class Ended:
    """How one way ended with one model.

    Attributes:
        case, way: which.
        outcome: how.
        detail: the refusal's message, the exception and its place, what differs.
        runs: ONNX Runtime runs the float model.
    """

    case: str
    way: str
    outcome: Outcome
    detail: str = ""
    runs: bool = True


KEPT = onnxq.Check(repair=None)
"""Integers stay, though single nodes are faster in float, and smaller."""


def static(case: SuiteCase) -> ir.Model:
    """Static quantization, by default."""
    return onnxq.quantize(case.model, [case.feeds], check=KEPT)


def forced(case: SuiteCase) -> ir.Model:
    """Static quantization of every node whose operator has an integer form, whatever it costs."""
    return onnxq.quantize(case.model, [case.feeds], qconfig=_everything(case.model), check=KEPT)


def qoperator(case: SuiteCase) -> ir.Model:
    """Forced, too, in the other format: by default the suite's single nodes stay in float."""
    return onnxq.quantize(
        case.model, [case.feeds], qconfig=_everything(case.model), format="qoperator", check=KEPT
    )


def dynamic(case: SuiteCase) -> ir.Model:
    """Dynamic quantization of every weight."""
    return onnxq.quantize_dynamic(case.model, objective="size", check=KEPT)


WAYS: dict[str, Callable[[SuiteCase], ir.Model]] = {
    way.__name__: way for way in (static, forced, qoperator, dynamic)
}


def _everything(model: onnx.ModelProto) -> QConfigMapping:
    """The default mapping, with every quantizable operator of the canonical model by name."""
    prepared = onnxq.prepare(model)
    mapping = onnxq.qconfig.default_qconfig_mapping()
    for op_type in {node.op_type for node in prepared.model.graph.all_nodes()}:
        if catalog.find(op_type) is not None:
            mapping = mapping.set_op_type(op_type, default_qconfig)
    return mapping


def run_case(case: SuiteCase) -> list[Ended]:
    """How all ways end."""
    wanted = _float_outputs(case)
    return [_ended(case, way, wanted) for way in WAYS]


def _float_outputs(case: SuiteCase) -> list[Any] | None:
    """Outputs of the float model; None: ONNX Runtime does not run it."""
    try:
        outputs: list[Any] = session(case.model).run(None, case.feeds)
    except Exception:  # whatever ONNX Runtime says: it does not run it
        return None
    return outputs


def _ended(case: SuiteCase, way: str, wanted: list[Any] | None) -> Ended:
    runs = wanted is not None
    try:
        made = WAYS[way](case)
    except OnnxqError as error:
        return Ended(case.name, way, Outcome.REFUSED, str(error), runs)
    except Exception as error:  # what is looked for
        return Ended(case.name, way, Outcome.TRACEBACK, place_of(error), runs)
    if wanted is None:
        return Ended(case.name, way, Outcome.UNCHANGED, "nothing to compare it with", runs)
    try:
        got = session(made).run(None, case.feeds)
    except Exception as error:  # whatever ONNX Runtime says
        return Ended(case.name, way, Outcome.NOT_LOADED, str(error)[:300], runs)
    try:
        outcome, detail = _judged(case, way, made, got, wanted)
    except OnnxqError as error:
        outcome, detail = Outcome.UNCHECKED, str(error)
    except Exception as error:  # what is looked for
        outcome, detail = Outcome.TRACEBACK, place_of(error)
    return Ended(case.name, way, outcome, detail, runs)


def _judged(
    case: SuiteCase, way: str, made: ir.Model, got: list[Any], wanted: list[Any]
) -> tuple[Outcome, str]:
    if way != "dynamic" and not _is_quantized(made):
        if all(_near(x, y, *case.tolerances) for x, y in zip(got, wanted, strict=True)):
            return Outcome.UNCHANGED, ""
        return Outcome.WRONG, "nothing was quantized, and outputs are others than the float model's"
    if not case.has_tensors_only:
        return Outcome.UNCHECKED, "its inputs are no tensors"
    found = onnxq.cross_check(made, [case.feeds])
    if differing := _differing(found):
        return Outcome.WRONG, "; ".join(differing)
    unchecked = [node.reason.words for node in found.uncompared]
    if unchecked or found.end_to_end:
        return Outcome.UNCHECKED, "; ".join([*unchecked, found.end_to_end])
    return Outcome.QUANTIZED, ""


def _is_quantized(made: ir.Model) -> bool:
    """Whether a node computes with integers, or reads a table that is stored as such."""
    return any(map(catalog.is_on_integers, made.graph.all_nodes())) or any(
        weight.dtype in STORED for weight in made.graph.initializers.values()
    )


def _differing(found: CrossFindings) -> list[str]:
    """Integers that differ, and outputs beyond their bounds."""
    nodes = [n for n in found.nodes if n.differing or n.problem]
    outputs = [o for o in found.outputs if o.problem or (o.differing and not found.is_rounding(o))]
    return [
        *(f"{n.op_type} '{n.name}': {n.differing} by up to {n.largest} {n.unit} {n.problem}"
          for n in nodes),
        *(f"output '{o.name}': {o.differing} by up to {o.largest} {o.unit} {o.problem}"
          for o in outputs),
    ]  # fmt: skip


def _near(x: Any, y: Any, rtol: float, atol: float) -> bool:
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y) and all(_near(a, b, rtol, atol) for a, b in zip(x, y, strict=True))
    if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
        return type(x) is type(y)
    if x.dtype.kind in "OSU" or y.dtype.kind in "OSU":
        return x.shape == y.shape and bool((x.astype(str) == y.astype(str)).all())
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    return np.allclose(x.astype(np.float64), y.astype(np.float64), rtol, atol, equal_nan=True)

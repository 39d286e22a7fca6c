"""A graph with its inner tensors as outputs, handed out as NumPy arrays of their own types.

ONNX Runtime gives Python no arrays of types that NumPy itself lacks (int4, float8, bfloat16). Such
a tensor goes out through a Cast to a type that holds each of its numbers, and is cast back here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.graph.edit import FreeNames, NamePool
from onnxq.ort import runtime
from onnxq.ort.expose import Exposed, expose
from onnxq.ort.runtime import Optimization, Session

Inner = Array | list[Array]
"""A tensor; of the body of a Loop, one per step. Stacks of those of a Scan are arrays."""

CARRIERS = {
    **dict.fromkeys(("int4", "int2"), ir.DataType.INT8),
    **dict.fromkeys(("uint4", "uint2"), ir.DataType.UINT8),
    **dict.fromkeys(
        ("bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"),
        ir.DataType.FLOAT,
    ),
}
"""Type in ONNX Runtime's words -> the one that carries it."""
NUMPY = {"float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz"}
NUMPY |= {"float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz"}
"""Names of ml_dtypes, where they differ from ONNX Runtime's."""


def type_name(session: Session, output: str) -> str:
    """Type of the tensor's elements: "uint8" of "tensor(uint8)"."""
    return session.types[output].removeprefix("tensor(").removesuffix(")")


def handed_out(session: Session) -> list[str]:
    """The outputs that can be had as arrays."""
    return [name for name in session.outputs if type_name(session, name) not in CARRIERS]


class Visible:
    """A session, of one thread and not optimized, in which every exposed tensor can be read."""

    def __init__(self, exposed: Exposed) -> None:
        self._outputs = dict(exposed.outputs)
        self._types: dict[str, np.dtype[np.generic]] = {}
        self.session = _open(exposed.model)
        odd = {name: type_name(self.session, name) for name in self.session.outputs}
        odd = {name: kind for name, kind in odd.items() if kind in CARRIERS}
        if odd:
            self.session.close()
            carriers = _add_carriers(exposed.model, odd)
            self._outputs = {k: carriers.get(v, v) for k, v in self._outputs.items()}
            self._types = {
                carriers[name]: np.dtype(getattr(ml_dtypes, NUMPY.get(kind, kind)))
                for name, kind in odd.items()
            }
            self.session = _open(exposed.model)
        self._wanted = handed_out(self.session)

    def run(self, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Inner]]:
        """(outputs, inner tensors), by name; a tensor of nodes that did not run is left out."""
        found = self.session.run_named(feeds, self._wanted)
        inner: dict[str, Inner] = {}
        for name, output in self._outputs.items():
            array = found.get(output)
            if output != name and isinstance(array, list) and array:
                inner[name] = array
            lifted = output != name and output not in self._types
            if not isinstance(array, np.ndarray) or (lifted and array.shape == (0,)):
                continue
            inner[name] = array.astype(self._types[output]) if output in self._types else array
        return found, inner


def _open(model: ir.Model) -> Session:
    return runtime.open_session(model, threads=1, optimization=Optimization.NONE)


def _add_carriers(model: ir.Model, odd: Mapping[str, str]) -> dict[str, str]:
    """Casts the outputs of odd types; output -> the new output that carries it."""
    names = FreeNames(model)
    carriers = {}
    for value in list(model.graph.outputs):
        kind = odd.get(str(value.name))
        if kind is None:
            continue
        cast = ir.node("Cast", [value], {"to": CARRIERS[kind].value}, name=names.node("carrier"))
        carrier = cast.outputs[0]
        carrier.name = names.value(f"{value.name}_carried")
        carrier.type = ir.TensorType(CARRIERS[kind])
        model.graph.append(cast)
        model.graph.outputs.append(carrier)
        carriers[str(value.name)] = carrier.name
    return carriers


# --- Models that are cut at some tensors: what reads these gets them from outside


@dataclass(frozen=True, slots=True)
class CutModel:
    """A model that is cut.

    Attributes:
        given: tensor -> name of the input that stands for it.
        outputs: tensor -> name of the output that has it.
    """

    model: ir.Model
    given: Mapping[str, str]
    outputs: Mapping[str, str]


def cut_at(model: ir.Model, tensors: Mapping[str, Array]) -> CutModel:
    """A copy that is cut at these tensors of its main graph.

    Args:
        model: left untouched; weights are shared.
        tensors: names of results of nodes, or of inputs (see `cuttable`) -> an array of the type
            and the rank that each has; files need not say them.
    """
    exposed = expose(model, list(tensors))
    copy = exposed.model
    values = _values(copy)
    taken = NamePool([*values, *(v.name or "" for n in copy.graph.all_nodes() for v in n.outputs)])
    given = {}
    for name, array in tensors.items():
        value = values[name]
        kind = ir.DataType.from_numpy(array.dtype)
        outside = ir.val(taken.take(f"{name}_given"), kind, [None] * array.ndim)
        for use in list(value.uses()):
            use.node.replace_input_with(use.idx, outside)
        copy.graph.inputs.append(outside)
        given[name] = str(outside.name)
    return CutModel(copy, given, exposed.outputs)


def cuttable(model: ir.Model) -> set[str]:
    """Names of the tensors that a model can be cut at: those of its main graph."""
    return set(_values(model))


def _values(model: ir.Model) -> dict[str, ir.Value]:
    inputs = [v for v in model.graph.inputs if not v.is_initializer()]
    results = [v for node in model.graph for v in node.outputs]
    return {v.name: v for v in (*inputs, *results) if v.name}

"""Models that are cut at some tensors: what reads these gets them from outside.

    x -> [a] -> T -> [b] -> y      =>      x -> [a] -> T,      T given -> [b] -> y

Cut at the same tensors, a float and a quantized model can be given the same inputs at every node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.graph.edit import NamePool
from onnxq.ort.expose import expose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.arrays import Array


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
        outside = ir.Value(
            name=taken.take(f"{name}_given"),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            shape=ir.Shape([None] * array.ndim),
        )
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

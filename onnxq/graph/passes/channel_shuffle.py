"""A shuffle of one axis, written as Reshape, Transpose and Reshape, becomes one Gather.

Between integer convolutions ONNX Runtime merges such a Transpose with the change to and from its
layout, into one of five axes on single bytes: with a fixed batch that takes half of a ShuffleNet's
time (1.74 of float's with it, 0.85 with Gather). In float a Gather takes the time of the three.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes, graph_of, new_constant, replace
from onnxq.graph.walk import is_read

Dims = Sequence[int | ir.SymbolicDim]


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Permutation of one axis, as Reshape, Transpose and Reshape write it.

    Attributes:
        axis: whose entries are moved; the others stay as they are.
        parts: sizes that the axis is split into, axis size = their product.
        order: of the parts, behind the Transpose.
    """

    axis: int
    parts: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """Entry of the input for each of the result's, int64 (axis size,)."""
        places = np.arange(math.prod(self.parts), dtype=np.int64).reshape(self.parts)
        return places.transpose(self.order).ravel()


class ShuffleToGather(ir.passes.InPlacePass):
    """Reshape(Transpose(Reshape(x))) = Gather(x, indices, axis), where one axis is permuted.

    x (.., C, ..) is split into (.., p, q, ..), the parts change places, and merge again. All
    graphs. Sizes must be known as far as they prove that; one may be unknown, for a Reshape keeps
    the number of elements. Results in between that others read keep their nodes.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        names: FreeNames | None = None
        for node in all_nodes(model):
            found = _shuffle(node)
            if found is None:
                continue
            x, ahead, shuffle = found
            names = names or FreeNames(model)
            name = names.value(f"{node.outputs[0].name}_order")
            indices = new_constant(node, name, shuffle.indices)
            gather = ir.node("Gather", [x, indices], {"axis": shuffle.axis}, name=node.name)
            gather.metadata_props.update(node.metadata_props)
            replace(node, gather, names)
            for left in ahead:
                if not any(map(is_read, left.outputs)):
                    graph_of(left).remove(left, safe=True)
        return ir.passes.PassResult(model, modified=names is not None)


def _shuffle(last: ir.Node) -> tuple[ir.Value, tuple[ir.Node, ...], Shuffle] | None:
    """Input, Transpose and Reshape ahead of `last`, and the shuffle; None: they are none."""
    transpose = _feeding(last, "Transpose") if last.op_type == "Reshape" else None
    first = None if transpose is None else _feeding(transpose, "Reshape")
    if transpose is None or first is None or last.domain:
        return None
    x, split, y = first.inputs[0], first.outputs[0], last.outputs[0]
    if x is None or x.shape is None or split.shape is None or y.shape is None:
        return None
    order = list(transpose.attributes.get_ints("perm", []))
    moved = [i for i, axis in enumerate(order) if axis != i]
    if not moved or len(order) != len(split.shape):
        return None
    axis, end = moved[0], moved[-1] + 1
    parts = split.shape.dims[axis:end]
    whole = x.shape.dims[axis] if axis < len(x.shape) else None
    sizes = [part for part in parts if isinstance(part, int)]
    if len(sizes) < len(parts) or whole != math.prod(sizes):
        return None
    kept = _is_kept(x.shape.dims, split.shape.dims, axis, end)
    if not kept or not _are_equal(x.shape.dims, y.shape.dims):
        return None
    shuffle = Shuffle(axis, tuple(sizes), tuple(order[i] - axis for i in range(axis, end)))
    return x, (transpose, first), shuffle


def _feeding(node: ir.Node, op_type: str) -> ir.Node | None:
    """The node of ai.onnx of that type whose result this one reads, in the same graph."""
    found = node.inputs[0].producer() if node.inputs[0] is not None else None
    if found is None or found.op_type != op_type or found.domain or found.graph is not node.graph:
        return None
    return found


def _is_kept(x: Dims, split: Dims, axis: int, end: int) -> bool:
    """Whether all but the axis that is split keeps its place; of as many elements is known.

    One of the sizes ahead of it, or all behind it together, may be unknown then.
    """
    unknown = sum(not _is_same(a, b) for a, b in zip(x[:axis], split[:axis], strict=True))
    behind = x[axis + 1 :], split[end:]
    return unknown + (not _have_equal_size(*behind)) <= 1


def _have_equal_size(a: Dims, b: Dims) -> bool:
    """Whether as many elements lie along these axes, as far as is known."""
    if len(a) == len(b) and all(itertools.starmap(_is_same, zip(a, b, strict=True))):
        return True
    known = [[size for size in sizes if isinstance(size, int)] for sizes in (a, b)]
    if [len(sizes) for sizes in known] != [len(a), len(b)]:
        return False
    return math.prod(known[0]) == math.prod(known[1])


def _are_equal(a: Dims, b: Dims) -> bool:
    """Whether two shapes of as many elements are one; one size may be unknown."""
    if len(a) != len(b):
        return False
    return sum(not _is_same(m, n) for m, n in zip(a, b, strict=True)) <= 1


def _is_same(a: int | ir.SymbolicDim, b: int | ir.SymbolicDim) -> bool:
    """Whether both are one number, or one name."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    return a.value is not None and a.value == b.value

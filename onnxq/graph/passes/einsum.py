"""An Einsum that multiplies matrices becomes a MatMul, which has integer forms.

letters     of both operands and the result    batch
of both operands alone             summed
of one operand and the result      its rows, or its columns

Einsum(x, w) = Transpose(Reshape(MatMul(Transpose(x), w')))        what changes nothing left out
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.graph.edit import FreeNames, all_nodes, graph_of, new_constant, new_initializer, replace
from onnxq.graph.walk import value_name
from onnxq.graph.weights import constant
from onnxq.operator.nodes import input_at

_TERMS = 2
_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class MatMulEquation:
    """An equation of two operands, read as a MatMul."""

    left: str
    right: str
    result: str

    @property
    def batch(self) -> str:
        """Letters of matrices that are multiplied one by one."""
        return "".join(c for c in self.left if c in self.right and c in self.result)

    @property
    def summed(self) -> str:
        """Letters that are summed over."""
        return "".join(c for c in self.left if c in self.right and c not in self.result)

    @property
    def rows(self) -> str:
        """Letters of the left operand alone."""
        return "".join(c for c in self.left if c not in self.right)

    @property
    def columns(self) -> str:
        """Letters of the right operand alone."""
        return "".join(c for c in self.right if c not in self.left)

    @property
    def ahead(self) -> str:
        """Letters of the result ahead of its columns, as MatMul lays them out."""
        return self.rows[:-1] + self.batch + self.rows[-1:]

    @property
    def is_matmul(self) -> bool:
        """Whether a MatMul computes it, but for the order of axes."""
        terms = (self.left, self.right, self.result)
        is_plain = all(len(set(term)) == len(term) and term.isalpha() for term in terms)
        has_all = {*self.rows, *self.columns} <= {*self.result}
        return is_plain and has_all and bool(self.summed and self.rows and self.columns)

    @property
    def swapped(self) -> MatMulEquation:
        """The same with the operands in the other order."""
        return MatMulEquation(self.right, self.left, self.result)


class EinsumToMatMul(ir.passes.InPlacePass):
    """Einsum(x, w) of two operands that multiplies matrices becomes MatMul.

    Transpose and Reshape stand at its ends where the letters need them; a constant operand becomes
    the right one, and is laid out anew. All graphs. Operands must be float32; where several axes of
    a right operand that is computed would have to be one, the node stays. The result keeps its
    name, and the MatMul has the node's.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        names: FreeNames | None = None
        for node in list(all_nodes(model)):
            found = _operands(node)
            if found is None:
                continue
            names = names or FreeNames(model)
            _write(node, found, names)
        return ir.passes.PassResult(model, modified=names is not None)


def read_equation(text: str, ranks: Sequence[int | None]) -> MatMulEquation | None:
    """The MatMul that an equation of two terms says; None: it is none.

    Without "->", the result has the letters that are there once, in alphabetic order (ONNX,
    operator Einsum). An ellipsis is written out, with letters that are not in use.
    """
    given, arrow, result = text.replace(" ", "").partition("->")
    terms = given.split(",")
    if len(terms) != _TERMS or (not arrow and _ELLIPSIS in given):
        return None
    if not arrow:
        result = "".join(c for c in sorted({*given} - {","}) if given.count(c) == 1)
    free = "".join(c for c in string.ascii_letters if c not in text)
    widths = [0]
    for place, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        if _ELLIPSIS not in term:
            continue
        if rank is None:
            return None
        widths.append(rank - len(term) + len(_ELLIPSIS))
        terms[place] = term.replace(_ELLIPSIS, free[: widths[-1]][::-1])  # aligned at the right
    found = MatMulEquation(terms[0], terms[1], result.replace(_ELLIPSIS, free[: max(widths)][::-1]))
    return found if found.is_matmul else None


@dataclass(frozen=True, slots=True, eq=False)
class _Operands:
    """A MatMul, and its operands in the order that MatMul takes them."""

    matmul: MatMulEquation
    x: ir.Value
    w: ir.Value


def _operands(node: ir.Node) -> _Operands | None:
    """The MatMul that a node is, a constant operand on its right; None: the node stays."""
    if node.op_type != "Einsum" or node.domain or len(node.inputs) != _TERMS:
        return None
    x, w = (input_at(node, slot) for slot in range(_TERMS))
    ranks = [None if value.shape is None else len(value.shape) for value in (x, w)]
    found = read_equation(node.attributes.get_string("equation", "") or "", ranks)
    if found is None or any(value.dtype != ir.DataType.FLOAT for value in (x, w)):
        return None
    if constant(x) is not None and constant(w) is None:
        found, x, w = found.swapped, w, x
    is_bare = len(found.summed) == len(found.columns) == 1
    fits = _agree(found, x, w) and (is_bare or constant(w) is not None)
    return _Operands(found, x, w) if fits else None


def _agree(matmul: MatMulEquation, x: ir.Value, w: ir.Value) -> bool:
    """Whether no letter is known to have two sizes: 1 stands for any size in Einsum."""
    if x.shape is None or w.shape is None:
        return True
    sizes = dict(zip(matmul.left, x.shape, strict=True))
    pairs = [(sizes[c], n) for c, n in zip(matmul.right, w.shape, strict=True) if c in sizes]
    return all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def _write(node: ir.Node, found: _Operands, names: FreeNames) -> None:
    """Puts the MatMul, and what it needs around it, in the node's place."""
    chain, matmul, x, w = _Chain(node, names), found.matmul, found.x, found.w
    layout = matmul.batch + matmul.summed + matmul.columns
    left = chain.ordered(x, matmul.left, matmul.ahead + matmul.summed)
    if len(matmul.summed) > 1:
        left = chain.reshaped(left, [*[0] * len(matmul.ahead), -1])
    if constant(w) is not None:
        right, sizes = _laid_out(node, w, matmul, names)
    else:
        right, sizes = chain.ordered(w, matmul.right, layout), ()
    y = chain.add("MatMul", [left, right], {}, name=node.name)
    if len(matmul.columns) > 1:
        y = chain.reshaped(y, [*[0] * len(matmul.ahead), *sizes])
    chain.close(chain.ordered(y, matmul.ahead + matmul.columns, matmul.result))


def _laid_out(
    node: ir.Node, w: ir.Value, matmul: MatMulEquation, names: FreeNames
) -> tuple[ir.Value, tuple[int, ...]]:
    """A constant as (batch, summed, columns), and the sizes of its columns' letters."""
    assert w.const_value is not None
    tensor, size = w.const_value, dict(zip(matmul.right, w.const_value.shape.numpy(), strict=True))
    order = [matmul.right.index(c) for c in matmul.batch + matmul.summed + matmul.columns]
    columns = tuple(size[c] for c in matmul.columns)
    shape = [*(size[c] for c in matmul.batch), math.prod(size[c] for c in matmul.summed)]
    shape.append(math.prod(columns))
    if order == sorted(order) and len(shape) == len(matmul.right):
        return w, columns

    def moved() -> ir.TensorProtocol:
        array: Array = tensor.numpy().transpose(order).reshape(shape)
        return ir.Tensor(np.ascontiguousarray(array))

    name = names.value(f"{value_name(w)}_matrix")
    # made when it is read: a weight may be larger than memory has room for
    lazy = ir.LazyTensor(moved, dtype=tensor.dtype, shape=ir.Shape(shape), name=name)
    return new_initializer(graph_of(node), name, lazy), columns


class _Chain:
    """Nodes in the place of one, ahead of it."""

    def __init__(self, node: ir.Node, names: FreeNames) -> None:
        self._node, self._names, self._stem = node, names, value_name(node.outputs[0])
        self._last: ir.Node | None = None

    def add(
        self,
        op_type: str,
        inputs: list[ir.Value],
        attributes: dict[str, list[int]],
        name: str | None = None,
    ) -> ir.Value:
        """The float32 result of a new node."""
        label = self._names.value(f"{self._stem}_{op_type.lower()}")
        made = ir.node(op_type, inputs, attributes, name=name or self._names.node(label))
        made.metadata_props.update(self._node.metadata_props)
        made.outputs[0].name, made.outputs[0].type = label, ir.TensorType(ir.DataType.FLOAT)
        graph_of(self._node).insert_before(self._node, made)
        self._last = made
        return made.outputs[0]

    def ordered(self, x: ir.Value, letters: str, wanted: str) -> ir.Value:
        """The axes of x in another order."""
        if letters == wanted:
            return x
        return self.add("Transpose", [x], {"perm": [letters.index(c) for c in wanted]})

    def reshaped(self, x: ir.Value, sizes: list[int]) -> ir.Value:
        """X in other sizes; 0: as it is."""
        array: npt.NDArray[np.int64] = np.array(sizes, np.int64)
        shape = new_constant(self._node, self._names.value(f"{self._stem}_sizes"), array)
        return self.add("Reshape", [x, shape], {})

    def close(self, y: ir.Value) -> None:
        """Gives y the name, the type and the readers of the node's result."""
        last = y.producer()
        assert last is not None
        graph_of(last).remove(last)
        replace(self._node, last, self._names)

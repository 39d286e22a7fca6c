"""MatMul with an Add of a bias behind it, which ONNX Runtime makes a Gemm when it loads a model.

    Y = A B + C     becomes     Reshape -> Gemm(A, B, C) -> Reshape, where A is no matrix

Its MatMulAddFusion, on these terms: B is a matrix, C a vector with one number per column of B; A is
a matrix, or all its sizes are known. Beside a matrix, C may have other shapes that Gemm takes. It
comes before everything else that ONNX Runtime does with integers: the Gemm's float constants are
quantized, and the Gemm is fused where a QuantizeLinear follows it.
"""

from dataclasses import dataclass

import onnx_ir as ir

from onnxq.graph.edit import sole_reader
from onnxq.operator.nodes import input_at

MATRIX = 2


@dataclass(frozen=True, slots=True, eq=False)
class MatMulAdd:
    """A MatMul, and the Add that alone reads its result."""

    matmul: ir.Node
    add: ir.Node
    slot: int

    @property
    def bias(self) -> ir.Value:
        """The value that is added, computed or constant."""
        return input_at(self.add, self.slot)

    @property
    def is_flattened(self) -> bool:
        """Whether A is no matrix: the Gemm then stands between two Reshape."""
        shape = input_at(self.matmul, 0).shape
        return shape is not None and len(shape) != MATRIX

    @property
    def becomes_gemm(self) -> bool:
        """Whether the shapes are those on which ONNX Runtime makes a Gemm of it."""
        a, b, c = input_at(self.matmul, 0).shape, input_at(self.matmul, 1).shape, self.bias.shape
        if a is None or b is None or c is None or len(b) != MATRIX:
            return False
        columns = b[1]
        if self.is_flattened:
            return all(isinstance(size, int) for size in (*a, *b)) and tuple(c) == (columns,)
        rows = a[0]
        wanted: list[tuple[object, ...]] = [(columns,), (1, columns), (rows, 1), (rows, columns)]
        return tuple(c) in wanted

    @property
    def adds_vector(self) -> bool:
        """Whether a constant with one number per column of a matrix B is added."""
        b, c = input_at(self.matmul, 1).shape, self.bias.shape
        if b is None or c is None or len(b) != MATRIX or not self.bias.is_initializer():
            return False
        return tuple(c) == (b[1],)

    @property
    def rounds_bias(self) -> bool:
        """Whether ONNX Runtime rounds the bias to int32, between DQ and Q: a constant vector."""
        shape = self.bias.shape
        return self.becomes_gemm and self.bias.is_initializer() and len(shape or ()) == 1


def matmul_add(node: ir.Node) -> MatMulAdd | None:
    """The MatMulAdd of a MatMul; None: the node is none, or nobody or others read its result."""
    if node.op_type != "MatMul" or node.domain:
        return None
    result = node.outputs[0]
    add = sole_reader(result)
    if add is None or add.op_type != "Add" or add.domain or add.graph is not node.graph:
        return None
    return MatMulAdd(node, add, 1 - add.inputs.index(result))


def matmul_add_of(add: ir.Node) -> MatMulAdd | None:
    """The MatMulAdd whose Add the node is."""
    if add.op_type != "Add" or add.domain:
        return None
    for value in add.inputs:
        producer = None if value is None else value.producer()
        found = None if producer is None else matmul_add(producer)
        if found is not None and found.add is add:
            return found
    return None

"""Helpers that an operator file of your own imports besides onnxq.operator and onnxq.qparams.

The operators of this package use the same functions; the private modules that these come from may
change, the names here stay. Examples: examples/onnxq-example, and every file of operators/.

    the node     has_input, is_constant, constant, shape: for a rule
    formulas     function: an operator that is a formula of Reals, element by element; for its cases
                 anywhere, positive, within. selection: an operator that moves integers
    functions    lower_function, table_kernel: a function of one operand as a table of 256 integers
    float        lower_around: DequantizeLinear, the operator itself, QuantizeLinear
    sums         centred, matmul_int32, integer_matmul: exact modulo 2^32, at the speed of BLAS
    examples     random_reals, random_integers: for cases

Slots, qparams and attributes are read through the `Call` that a kernel is given, new nodes are
written through the `Site` that a lowering is given: onnxq.operator has both.
"""

from onnxq.operator import Reals
from onnxq.operator.examples import integers as random_integers
from onnxq.operator.examples import normal as random_reals
from onnxq.operator.nodes import constant, has_input, is_constant, shape
from onnxq.operators._function import (
    anywhere,
    function,
    lower_around,
    lower_function,
    positive,
    table_kernel,
    within,
)
from onnxq.operators._gemm import centred, integer_matmul, matmul_int32
from onnxq.operators._select import selection

__all__ = [
    "Reals",
    "anywhere",
    "centred",
    "constant",
    "function",
    "has_input",
    "integer_matmul",
    "is_constant",
    "lower_around",
    "lower_function",
    "matmul_int32",
    "positive",
    "random_integers",
    "random_reals",
    "selection",
    "shape",
    "table_kernel",
    "within",
]

"""Helpers that an operator file of your own imports besides onnxq.operator and onnxq.qparams.

The operators of this package use the same functions; the private modules that these come from may
change, the names here stay. Examples: examples/onnxq-example, and every file of operators/.

    guards       codes, plain, qparams_in, qparams_out, weight_qparams: what is in a slot
    attributes   integer, integers, real, text: of a node, with defaults
    the node     has_input, is_constant, constant, shape: for a rule
    writing      emit, scale_and_zero_point, initializer, attributes_of: for a lowering
    functions    lower_function, table_kernel: a function of one operand as a table of 256 codes
    float        lower_around: DequantizeLinear, the operator itself, QuantizeLinear
    products     centred, product, integer_matmul: exact modulo 2^32, at the speed of BLAS
    on codes     operand, optional, operand_qparams, output_qparams, qdtype_of: for IntegerOperator
    examples     random_reals, random_codes: for cases
"""

from __future__ import annotations

from onnxq.operators._around import lower_around, lower_function, table_kernel
from onnxq.operators._attributes import integer, integers, real, text
from onnxq.operators._check import codes, plain, qparams_in, qparams_out, weight_qparams
from onnxq.operators._emit import attributes_of, emit, initializer, scale_and_zero_point
from onnxq.operators._examples import codes as random_codes
from onnxq.operators._examples import normal as random_reals
from onnxq.operators._gemm import centred, integer_matmul, product
from onnxq.operators._integer import operand, optional, output_qparams, qdtype_of
from onnxq.operators._integer import qparams as operand_qparams
from onnxq.operators._nodes import constant, has_input, is_constant, shape

__all__ = [
    "attributes_of",
    "centred",
    "codes",
    "constant",
    "emit",
    "has_input",
    "initializer",
    "integer",
    "integer_matmul",
    "integers",
    "is_constant",
    "lower_around",
    "lower_function",
    "operand",
    "operand_qparams",
    "optional",
    "output_qparams",
    "plain",
    "product",
    "qdtype_of",
    "qparams_in",
    "qparams_out",
    "random_codes",
    "random_reals",
    "real",
    "scale_and_zero_point",
    "shape",
    "table_kernel",
    "text",
    "weight_qparams",
]

"""Products whose integer kernel is written out, because no QuantizeLinear brings it about.

    DQ -> MatMul -> Add(bias)      becomes     MatMulIntegerToFloat with the bias inside

ONNX Runtime makes a Gemm of a MatMul and an Add where it knows the sizes, and computes it in
float32 unless a Q follows. Where it does not know them, the product alone is on integers, and the
Add a float node of its own. Time over that of the kernel with the bias inside, onnxruntime 1.31 on
AVX512, 32 to 512 rows, widths 256 to 3072 (benchmarks/results/fusions.md):

    MatMulIntegerToFloat, Add           1.1 to 1.5
    QGemm with a float32 result         1.0 to 1.7
    QGemm, DequantizeLinear             1.1 to 1.8
    float MatMul, Add                   2.9 to 9.2

Its float bias is not rounded, and the results are those of product and Add bit for bit. A Gemm of
the float model stays one, as QGemm: it adds its bias in integers, so that every machine has the
same results, and most have one row, where neither precision is faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.dtypes import BYTE_BITS
from onnxq.graph.walk import node_name, value_name
from onnxq.operator.nodes import input_at
from onnxq.ort.matmul_add import matmul_add
from onnxq.static.insertion.decision import Quantize

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.ort.matmul_add import MatMulAdd
    from onnxq.static.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class BiasInside:
    """A product to float32 that is written out.

    Attributes:
        found: the Add that it takes along, too; None: the Add adds what is no bias, and would take
            the product along into a float Gemm.
    """

    found: MatMulAdd | None

    @property
    def inputs(self) -> tuple[ir.Value, ...]:
        """Inputs of the product behind its own two."""
        return () if self.found is None else (self.found.bias,)

    @property
    def taken(self) -> tuple[ir.Node, ...]:
        """Nodes that go with the float product."""
        return () if self.found is None else (self.found.add,)


def bias_inside(node: ir.Node, plan: Plan) -> BiasInside | None:
    """The node's product with all that is added to it; None: ONNX Runtime fuses it by itself.

    An Add that stays float is taken along where the result is float32: the numbers are the same.
    """
    found, decision = matmul_add(node), plan.decisions[node_name(node)]
    assert isinstance(decision, Quantize), "a node in integers"
    if found is None or decision.rule.weight is None or not _has_kernel(node, decision, plan):
        return None
    behind = plan.decisions[node_name(found.add)]
    if isinstance(behind, Quantize) and behind.folded_into == node_name(node):
        return None if found.becomes_gemm and decision.results else BiasInside(found)
    if decision.results or not (found.becomes_gemm or found.adds_vector):
        return None
    return BiasInside(found) if found.adds_vector else BiasInside(None)


def _has_kernel(node: ir.Node, decision: Quantize, plan: Plan) -> bool:
    """Whether ONNX Runtime has the product of such types: two of 8 bits, int8 with int8 alone."""
    x = plan.tensors[value_name(input_at(node, decision.rule.activations[0]))]
    weight = plan.weights[node_name(node)].qparams
    if {x.dtype.bits, weight.dtype.bits} != {BYTE_BITS}:
        return False
    return weight.dtype.signed or not x.dtype.signed

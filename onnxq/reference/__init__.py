"""Runs quantized models on the operators' kernels, as ONNX's own ReferenceEvaluator.

    session = onnxq.reference.evaluator("model.int8.onnx")
    outputs = session.run(None, {"x": x})

A QDQ model is brought into its integer form first, so that it computes what ONNX Runtime computes
after fusion. `op_classes()` are the OpRun classes, for an evaluator of one's own:

    onnx.reference.ReferenceEvaluator(model, new_ops=[*onnxq.reference.op_classes(), MyOp])
"""

from onnxq.reference.beside import Beside, Evaluators
from onnxq.reference.elsewhere import FloatNodes, RunNode
from onnxq.reference.evaluation import Evaluator, bodies_run_by, run_node
from onnxq.reference.ops import (
    INTEGER_DTYPES,
    Hear,
    KernelOp,
    kernel,
    on_machine,
    op_class,
    op_classes,
    where,
)
from onnxq.reference.session import evaluator, integer_evaluator, integer_form, node_runner

__all__ = [
    "INTEGER_DTYPES",
    "Beside",
    "Evaluator",
    "Evaluators",
    "FloatNodes",
    "Hear",
    "KernelOp",
    "RunNode",
    "bodies_run_by",
    "evaluator",
    "integer_evaluator",
    "integer_form",
    "kernel",
    "node_runner",
    "on_machine",
    "op_class",
    "op_classes",
    "run_node",
    "where",
]

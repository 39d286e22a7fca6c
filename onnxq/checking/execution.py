"""Execution by ONNX Runtime: what runs in integers, what in float, and what fell back.

A node of the file is meant to run in integers when all that it computes on comes from integers
(the DequantizeLinear of an activation, or constants), and its results go to a QuantizeLinear or it
has a quantized weight, and ONNX Runtime has an integer form of its operator at all: a Gelu between
integers is meant to compute in float. It fell back when the optimized graph still has a node of its
name that computes in float, or the DequantizeLinear of its weight.

Of dynamic quantization, integer MatMuls stand in the file as such. A layer whose weight is
stored in blocks is meant to become MatMulNBits, which multiplies integers too; it fell back when
the DequantizeLinear of its weight is still there. Weights that are dequantized by Cast and Mul are
meant to compute in float.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from onnxq.checking.findings import Execution, Fallback
from onnxq.graph.io import load
from onnxq.ort import facts, runtime
from onnxq.ort.node_kinds import original_name
from onnxq.ort.runtime import NodeKind
from onnxq.qdq import read
from onnxq.qdq.narrow import unpacked
from onnxq.targets.speedups import LINEAR_OPS


def execution(model: ir.Model | Path, provider: str = runtime.CPU) -> Execution:
    """Counts the nodes that ONNX Runtime runs of a quantized model on this machine."""
    loaded = load(model)
    found = execution_in(loaded, runtime.optimized_graph(loaded))
    if provider == runtime.CPU:
        return found
    return replace(found, providers=runtime.placement(loaded, provider))


def execution_in(model: ir.Model, optimized: ir.Model) -> Execution:
    """Counts the nodes in an optimized graph that is there already; see `execution`."""
    model, uses = unpacked(model), runtime.integer_nodes(optimized)
    in_float = {original_name(use.name) for use in uses if use.kind is NodeKind.FLOAT}
    kept = {original_name(use.name) for use in uses if use.op_type == read.DEQUANTIZE}
    return Execution(
        dict(runtime.count(uses, NodeKind.INTEGER)),
        dict(runtime.count(uses, NodeKind.FLOAT)),
        dict(runtime.count(uses, NodeKind.CONVERSION)),
        tuple(
            Fallback(str(node.name), node.op_type)
            for node in meant_in_integers(model)
            if node.name in in_float or kept.intersection(_weight_dequantizers(node))
        ),
    )


def meant_in_integers(model: ir.Model) -> Iterator[ir.Node]:
    """Nodes of a file between DequantizeLinear and QuantizeLinear, and MatMuls by blocks."""
    for node in model.graph.all_nodes():
        if read.is_quantize(node) or read.is_dequantize(node):
            continue
        if _has_blocks(node):
            yield node
            continue
        if facts.of(node).stays_float:
            continue
        inputs = [v for v in node.inputs if v is not None]
        varying = [v for v in inputs if not _is_constant(v)]
        if not varying or not all(read.dequantizer(v) or not read.is_float(v) for v in varying):
            continue
        if not any(map(read.dequantizer, varying)):
            continue
        has_weight = any(not v.is_initializer() and _is_constant(v) for v in inputs)
        if has_weight or all(_is_requantized(v) for v in node.outputs):
            yield node


def _has_blocks(node: ir.Node) -> bool:
    """Whether it multiplies by a constant that is stored in blocks."""
    if node.op_type not in LINEAR_OPS:
        return False
    producers = [v.producer() for v in node.inputs if v is not None and _is_constant(v)]
    return any(p is not None and p.attributes.get_int("block_size", 0) > 0 for p in producers)


def _weight_dequantizers(node: ir.Node) -> Iterator[str]:
    for value in node.inputs:
        producer = None if value is None or not _is_constant(value) else value.producer()
        if producer is not None and producer.name:
            yield producer.name


def _is_constant(value: ir.Value) -> bool:
    """An initializer, or the DequantizeLinear of one."""
    return value.is_initializer() or read.is_constant(read.dequantizer(value))


def _is_requantized(value: ir.Value) -> bool:
    readers = [use.node for use in value.uses()]
    while len(readers) == 1 and facts.of(readers[0]).swallowed:
        readers = [use.node for use in readers[0].outputs[0].uses()]
    return bool(readers) and all(map(read.is_quantize, readers))

"""Turns a QDQ graph into one whose nodes compute on integers, as ONNX Runtime's optimizer does.

    x_quantized -> DQ -> Conv -> Q -> y_quantized       x_quantized -> QLinearConv -> y_quantized

The QDQ graph run by ONNX Runtime and the fused graph give the same integers.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.core.collector import without_collector
from onnxq.graph.edit import use_short_domain
from onnxq.graph.passes.lift_constants import LiftConstants
from onnxq.graph.passes.names import UniqueNames
from onnxq.graph.types import infer_types
from onnxq.qdq.fuse.scales import Int8Activations
from onnxq.qdq.fuse.writer import QPARAMS_KEY, Writer
from onnxq.qdq.read import is_dequantize, is_quantize

__all__ = ["QPARAMS_KEY", "Fused", "Int8Activations", "fuse", "fuse_as_loaded"]


@dataclass(frozen=True)
class Fused:
    """A graph on integers, and what became of the QDQ graph's nodes.

    Attributes:
        model: the fused graph; shares its weights with the QDQ graph.
        integer: name of a node that computes on integers -> op types written for it; none where
            another node carries it out (a Relu behind a Conv).
        kept: name of a node between DequantizeLinear and QuantizeLinear -> why it stays there.
        tables: names of nodes in `integer` that are looked up in a table of all integers, in place
            of a float operator between DequantizeLinear and QuantizeLinear.
    """

    model: ir.Model
    integer: Mapping[str, tuple[str, ...]]
    kept: Mapping[str, str]
    tables: tuple[str, ...]


def fuse(model: ir.Model, int8: Int8Activations = Int8Activations.SHIFTED) -> Fused:
    """The graph on integers of a QDQ graph, onnxq's own or another tool's.

    Args:
        model: with QuantizeLinear and DequantizeLinear nodes; left as it is. Bodies of If, Loop and
            Scan are fused too; a DequantizeLinear outside of a body is not.
        int8: what the machine does with int8 activations.
    """
    return _fuse(model, (), int8)


def fuse_as_loaded(model: ir.Model, int8: Int8Activations = Int8Activations.SHIFTED) -> Fused:
    """Fuses, as `fuse`, after quantizing the float weights that ONNX Runtime quantizes at load.

    `fuse` leaves them for ONNX Runtime to quantize; what this gives needs no ONNX Runtime.

    Args:
        model: as `fuse` takes it.
        int8: what the machine does with int8 activations.
    """
    return _fuse(model, (Writer.quantize_float_weights,), int8)


def _fuse(
    model: ir.Model, before: Iterable[Callable[[Writer], None]], int8: Int8Activations
) -> Fused:
    with without_collector():
        copy = model.clone()
        use_short_domain(copy)
        LiftConstants()(copy)
        UniqueNames()(copy)
        _infer_types(copy)
        writer = Writer(copy, int8)
        for step in before:
            step(writer)
        writer.write()
    return Fused(copy, writer.integer, writer.kept, tuple(writer.tables))


def _infer_types(model: ir.Model) -> None:
    """Infers through Q and DQ of com.microsoft too, which onnx does not know."""
    foreign = [
        node
        for node in model.graph.all_nodes()
        if node.domain and (is_quantize(node) or is_dequantize(node))
    ]
    domains = [node.domain for node in foreign]
    for node in foreign:
        node.domain = ""
    infer_types(model)
    for node, domain in zip(foreign, domains, strict=True):
        node.domain = domain

"""Nodes that read a value, as ONNX Runtime sees them: through nodes that do nothing."""

from collections.abc import Collection

import onnx_ir as ir


def readers(value: ir.Value, vanishing: Collection[str] = ()) -> list[ir.Node]:
    """The nodes that read it, once per slot.

    `vanishing`: op types that are looked through; a canonical graph has none of these.
    """
    found: list[ir.Node] = []
    for node, _ in value.uses():
        through = node.op_type in vanishing and not node.domain
        found += readers(node.outputs[0], vanishing) if through else [node]
    return found


def goes_out(value: ir.Value, vanishing: Collection[str] = ()) -> bool:
    """Whether it is an output of its graph, itself or through nodes that vanish."""
    behind = (node for node, _ in value.uses() if node.op_type in vanishing and not node.domain)
    return value.is_graph_output() or any(goes_out(n.outputs[0], vanishing) for n in behind)


def is_clipped(value: ir.Value, clips: Collection[str], vanishing: Collection[str] = ()) -> bool:
    """Whether its only reader is a Relu or Clip that has one reader itself.

    ONNX Runtime takes such a node for a part of the QuantizeLinear that may stand behind it, and
    where none does, it leaves the MatMul in front of it alone: DequantizeLinear -> MatMul -> Relu
    stays, and so is dequantized in every run.
    """
    found = readers(value, vanishing)
    if len(found) != 1 or found[0].op_type not in clips or found[0].domain:
        return False
    clipped = found[0].outputs[0]
    return len(readers(clipped, vanishing)) == 1 and not goes_out(clipped, vanishing)

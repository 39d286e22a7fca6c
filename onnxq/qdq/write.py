"""Around a node that the writer makes: whether its input is dequantized, and its axis."""

from __future__ import annotations

from onnxq.qparams import PerChannel, PerTensor, QParams


def granularity_attributes(qparams: QParams) -> dict[str, int]:
    """Attributes axis and block_size of a (De)QuantizeLinear with these qparams."""
    match qparams.granularity:
        case PerTensor():
            return {}
        case PerChannel(axis):
            return {"axis": axis}
        case block:
            return {"axis": block.axis, "block_size": block.size}

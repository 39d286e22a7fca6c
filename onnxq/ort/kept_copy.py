"""A copy that ONNX Runtime's optimizers leave where it stands."""

KEPT_COPY = "Max"
"""Operator of one input, y = x. An Identity is removed, and what stood apart by it is fused."""

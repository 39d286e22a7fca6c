"""A copy that ONNX Runtime's optimizers leave where it stands."""

from __future__ import annotations

KEPT_COPY = "Max"
"""Operator of one input, y = x. An Identity is removed, and what stood apart by it is fused."""

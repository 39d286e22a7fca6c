"""Marks that a PyTorch export leaves in a graph."""

from __future__ import annotations

MARK = "Max"
"""ONNX operator of one input that stands for the mark in an exported graph."""

"""Nodes that a caller leaves out of quantization by name: nodes_to_exclude of other tools."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from onnxq.errors import QConfigError
from onnxq.qconfig import QConfigMapping


def excluding(mapping: QConfigMapping, names: Collection[str]) -> QConfigMapping:
    """A mapping that leaves these nodes, by name or glob, in float, whatever it said of them."""
    listed = isinstance(names, Collection) and not isinstance(names, (str, bytes))
    if not listed or not all(isinstance(name, str) for name in names):
        raise QConfigError(
            f"exclude: got {names!r}; wanted a list of names of nodes, such as ['/fc/MatMul']."
        )
    return replace(mapping, nodes={**mapping.nodes, **dict.fromkeys(names)}) if names else mapping

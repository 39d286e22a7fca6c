from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onnxq.pytorch.train.conversion import DYNAMIC_MAPPING, QAT_MAPPING, STATIC_MAPPING

if TYPE_CHECKING:
    from torch import nn

pytestmark = pytest.mark.oracle

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "torch_module_mappings.txt"
ROOT = "onnxq.pytorch.nn."


def shown(kind: type[nn.Module]) -> str:
    """Conv2d, qat.Conv2d, intrinsic.quantized.ConvReLU2d: as documents call it."""
    if not kind.__module__.startswith(ROOT):
        return kind.__name__
    rooms = kind.__module__.removeprefix(ROOT).split(".")
    documented = [room for room in rooms if room in ("intrinsic", "qat", "quantized", "dynamic")]
    return ".".join([*documented, kind.__name__])


def row(kind: type[nn.Module]) -> str:
    """A float type, what trains in its place, and what is deployed."""
    trained = QAT_MAPPING.get(kind)
    quantized = STATIC_MAPPING[trained or kind]
    return f"{shown(kind):<31}  {shown(trained) if trained else '-':<35}  {shown(quantized)}"


def test_the_mappings_that_are_computed_are_those_that_a_reader_expects() -> None:
    floats = {*STATIC_MAPPING, *QAT_MAPPING} - {*QAT_MAPPING.values()}
    static = "\n".join(sorted(map(row, floats)))
    pairs = DYNAMIC_MAPPING.items()
    dynamic = "\n".join(sorted(f"{shown(kind):<21}{shown(made)}" for kind, made in pairs))
    assert f"{static}\n\n{dynamic}\n" == GOLDEN.read_text("utf-8")

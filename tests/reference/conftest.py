from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.reference.on_integers import quantized

if TYPE_CHECKING:
    import onnx_ir as ir


@pytest.fixture(scope="session")
def qdq() -> ir.Model:
    return quantized()

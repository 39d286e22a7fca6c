"""Values are held through changes in place, in compiled code too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from onnxq.pytorch.numerics.exact_buffers import held

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("compiled", [False, True])
def test_a_backward_pass_reads_what_forward_read(compiled: bool) -> None:
    variance = torch.tensor(4.0)

    def scaled(x: Tensor) -> Tensor:
        y = x / held(torch.sqrt(variance))
        variance.mul_(100)
        return y

    run: Any = torch.compile(scaled, backend="aot_eager", fullgraph=True) if compiled else scaled
    x = torch.ones((), requires_grad=True)
    run(x).backward()
    assert x.grad == 0.5

"""Nodes between quantized tensors: sums of integers, and those that have to stay float."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch.insertion.annotate import kept_float, sums
from onnxq.pytorch.insertion.operands import Operands
from onnxq.pytorch.insertion.tensors import Tensors
from onnxq.pytorch.insertion.view import View
from onnxq.static.prepare import prepare
from tests.pytorch.insertion.viewed import small, viewed

pytestmark = pytest.mark.oracle


def annotated(view: View) -> Tensors:
    tensors = Tensors(view)
    assert not [*tensors.annotate(), *Operands(view, tensors).annotate(), *tensors.annotate_rows()]
    return tensors


def test_a_sum_is_named_by_the_nodes_that_make_its_tensors() -> None:
    view = small()
    (one,) = sums(view, annotated(view))
    assert one.inputs == ("adaptive_avg_pool2d_default", "place")
    assert one.outputs == ("add",)


class Branches(nn.Module):
    """Two MatMuls, their sum, and MatMuls that read them too, so that they are rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.after, self.beside = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Three results of shape (N, 4)."""
        one, other = self.left(x), self.right(x)
        return one * other, self.after(one), self.beside(other)


def test_a_float_node_between_integers_needs_a_guard_and_a_quantized_one_does_not() -> None:
    torch.manual_seed(0)
    view = viewed(Branches().eval(), torch.randn(3, 4))
    assert not list(kept_float(view, annotated(view)))
    (mul,) = [node for node in view.nodes if node.op_type == "Mul"]
    mapping = view.prepared.qconfig.set_node(str(mul.name), None)
    left = View(view.traced, view.names, prepare(view.prepared.model.clone(), mapping, None))
    assert [*kept_float(left, annotated(left))] == ["mul"]

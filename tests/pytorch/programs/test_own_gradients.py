"""Functions with a backward of their own keep it in the training graph."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import onnxq
from onnxq.errors import UnsupportedError
from onnxq.pytorch import convert, export, prepare_qat
from onnxq.pytorch.numerics.fake_quantize import disable_observer
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph
from onnxq.pytorch.train.annotations import ANNOTATIONS

pytestmark = pytest.mark.oracle


class Sign(torch.autograd.Function):
    """Sign of x times a factor; the gradient goes straight through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:  # noqa: ARG004  # torch's signature
        """Signs, as x."""
        return (x * factor).sign()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # noqa: ARG004  # torch's signature
        """The gradient of x."""
        return gradient, None


class Reversed(torch.autograd.Function):
    """x itself, with the gradient of -x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004  # torch's signature
        """The same tensor."""
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004  # torch's signature
        """The gradient of -x."""
        return -gradient


class Product(torch.autograd.Function):
    """x w^T, and the sum of x that has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """The product and the sum."""
        ctx.save_for_backward(x, w)
        return x @ w.t(), x.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Twice the gradient of x, three times that of w."""
        x, w = ctx.saved_tensors
        return 2 * gradients[0] @ w, 3 * gradients[0].t() @ x


sign: Any = Sign.apply


class Applying(nn.Module):
    """Functions: bound before, the identity, one of two results that is given a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y = sign(self.first(x), 2.0)
        z = self.second(y) + Reversed.apply(y)  # type: ignore[no-untyped-call]  # torch's
        product, total = Product.apply(z, self.third.weight)  # type: ignore[no-untyped-call]
        result: Tensor = product + total
        return result


def gradients(module: nn.Module, x: Tensor) -> dict[str, Tensor]:
    y: Tensor = module(x)
    y.square().sum().backward()  # type: ignore[no-untyped-call]  # torch's
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def test_a_backward_of_its_own_is_kept() -> None:
    model, x = Applying(), torch.randn(3, 4)
    program = program_of(model, x)
    assert not any("function_" in str(node.target) for node in program.exported.graph.nodes)
    graph = training_graph(copy.deepcopy(model), program)
    got, wanted = gradients(graph, x), gradients(model, x)
    assert got.keys() == wanted.keys()
    assert "first.weight" in wanted
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient)


@pytest.mark.nightly
def test_what_such_a_function_does_inside_stays_float_and_says_so() -> None:
    model, x = Applying(), torch.randn(8, 4)
    prepared = prepare_qat(model, inputs=x)
    found: Any = prepared.meta[ANNOTATIONS]  # type: ignore[index]  # of a graph
    assert "lies inside Product" in found.floats["node_matmul"]
    assert [weight.path for weight in found.weights] == ["first", "second"]
    cosine = nn.functional.cosine_similarity
    got, wanted = gradients(prepared, x), gradients(model, x)
    for name, gradient in wanted.items():
        assert cosine(got[name].flatten(), gradient.flatten(), 0) > 0.9  # 8 bits turn it by less
    prepared.apply(disable_observer).eval()
    converted = export(convert(copy.deepcopy(prepared)), x)
    assert onnxq.cross_check(converted, onnxq.Samples({"x": x.numpy()}, batch_size=len(x))).exact


class InPlace(torch.autograd.Function):
    """x times 2, written into x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """x, changed."""
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004  # torch's signature
        """The gradient of x."""
        return 2 * gradient


class Calling(nn.Module):
    """A layer, and a function on its result.

    Args:
        function: any.
    """

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y: Tensor = self.function(self.fc(x))
        return y


def test_a_function_that_writes_into_its_argument_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"InPlace, a torch\.autograd\.Function, writes"):
        program_of(Calling(InPlace.apply), torch.randn(3, 4))


class Checkpointed(nn.Module):
    """A layer that is computed again for its backward, and one behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y: Tensor = self.second(checkpoint(self.first, x.requires_grad_(), use_reentrant=True))
        return y


def test_a_checkpoint_has_the_gradients_of_what_it_runs() -> None:
    model, x = Checkpointed(), torch.randn(3, 4)
    got = gradients(training_graph(copy.deepcopy(model), program_of(model, x)), x)
    wanted = gradients(model, x)
    assert wanted.keys() == got.keys() == {f"{i}.{n}" for i in ("first", "second") for n in NAMES}
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient)


NAMES = ("weight", "bias")

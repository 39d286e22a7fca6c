"""One fake quantization in three forms: whole under export, open under compile, quick in eager."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch.numerics import rounding_ops
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize, fake_quantize
from onnxq.qconfig import ScaleRule

Form = Callable[..., Tensor]
FORMS = [functools.partial(fake_quantize, rule=rule) for rule in ScaleRule]


def results(form: Form, *, channels: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 3, 5, generator=generator).requires_grad_()
    scale = torch.tensor([0.02, 0.1, 0.01] if channels else 0.02).requires_grad_()
    zero = torch.tensor([1, -2, 3] if channels else 5, dtype=torch.int32)
    y = form(x, scale, zero, -128, 127, 1)
    y.backward(torch.randn(y.shape, generator=generator))  # type: ignore[no-untyped-call]
    assert x.grad is not None
    return [y.detach(), x.grad, torch.zeros(()) if scale.grad is None else scale.grad]


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_compiled_code_and_the_exported_operator_give_the_same_bits(
    form: Form, channels: bool
) -> None:
    compiled = torch.compile(form, backend="aot_eager", fullgraph=True)
    wanted = results(form, channels=channels)
    for ours, theirs in zip(results(compiled, channels=channels), wanted, strict=True):
        assert torch.equal(ours, theirs)
    x, zero = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(1)), torch.tensor(5)
    given = (x, torch.tensor(0.02), zero, -128, 127, 1)
    assert torch.equal(rounding_ops.fake_quantize(*given), form(*given))
    torch._dynamo.reset()


@pytest.mark.parametrize("form", FORMS)
def test_compiled_code_has_open_operations_and_an_exported_program_the_whole_one(
    form: Form,
) -> None:
    class Rounds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scale, zero = torch.tensor(0.1), torch.tensor(0, dtype=torch.int32)
            return form(x, scale, zero, -7, 7, -1)

    x = torch.randn(3)
    seen: list[str] = []

    def note(graph: torch.fx.GraphModule, _: object) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch.compile(Rounds(), backend=note, fullgraph=True)(x)
    assert not any("onnxq" in target for target in seen)
    program = torch.export.export(Rounds(), (x,))
    assert [str(n.target) for n in program.graph.nodes if "onnxq" in str(n.target)] == [
        "onnxq.fake_quantize.default"
    ]
    torch._dynamo.reset()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_cuda_gives_the_bits_of_the_cpu(form: Form, channels: bool) -> None:
    def on_cuda(x: Tensor, scale: Tensor, zero: Tensor, *integers: int) -> Tensor:
        return form(x.cuda(), scale.cuda(), zero.cuda(), *integers).cpu()

    here, there = (results(one, channels=channels) for one in (form, on_cuda))
    for ours, theirs in zip(here[:2], there[:2], strict=True):
        assert torch.equal(ours, theirs)


def test_compiled_gradients_of_another_layout_have_its_strides() -> None:
    fake = FakeQuantize()

    def turned(x: Tensor) -> Tensor:
        y: Tensor = fake((x * 1).view(2, 3, 4)).transpose(1, 2)
        return (y * torch.arange(24.0).view(2, 4, 3)).sum()

    grads: list[Any] = []
    for compiled in (False, True):
        x = torch.arange(24.0).reshape(6, 4).requires_grad_()

        run: Any = torch.compile(turned, backend="aot_eager", fullgraph=True)
        (run if compiled else turned)(x).backward()
        grads.append(x.grad)
    assert torch.equal(*grads)

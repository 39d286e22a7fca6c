"""Converted models of torch.ao: every operator on equal inputs, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao import quantization as tq

from onnxq.errors import UnsupportedError
from onnxq.pytorch.importers import import_quantized
from onnxq.qdq.tidy import output_scales
from tests.exact_engine import exact
from tests.torch_ao_models import Operators, converted, eager, engine

if TYPE_CHECKING:
    import onnx_ir as ir

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::onnxq.pytorch.importers.ImportedModelWarning"),
]

MANY = torch.randn(24, 3, 16, 16, generator=torch.Generator().manual_seed(2))
WEIGHTED = (
    "conv", "strided", "conv_relu", "depthwise", "reflect", "linear", "linear_relu", "conv1d",
)  # fmt: skip


def run(model: ir.Model, x: torch.Tensor) -> list[np.ndarray]:
    with exact(model) as session:
        return [np.asarray(y) for y in session.run({"x": x.numpy()})]


@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
def test_every_operator_gives_torchs_integers(backend: str) -> None:
    quantized = converted(eager(backend, Operators()), backend)
    model = import_quantized(quantized, MANY[:4])
    with engine(backend), torch.no_grad():
        expected = {name: y.numpy() for name, y in quantized(MANY).items()}
    different, elements = 0, 0
    got = zip(run(model, MANY), output_scales(model), strict=True)
    for (name, wanted), (y, (_, scale)) in zip(expected.items(), got, strict=True):
        step = scale or float(np.diff(np.unique(wanted)).min())
        steps = np.rint(np.abs(y - wanted) / step).astype(int)
        if name in WEIGHTED and backend == "qnnpack":
            assert steps.max() == 0, name
        assert steps.max() <= 1, name
        if name not in WEIGHTED:  # computed in float32 on both sides: ties
            assert (steps > 0).mean() <= 1e-3, name
            continue
        different, elements = different + int((steps > 0).sum()), elements + steps.size
    assert different <= 1e-3 * elements  # fbgemm adds the bias in float32
    counts = Counter(node.op_type for node in model.graph)
    assert counts["Conv"] == 7
    assert counts["Gemm"] == 2


class Sorted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant, self.inner = tq.QuantStub(), tq.DeQuantStub(), nn.Identity()
        self.inner.forward = lambda x: torch.sort(x)[0]  # type: ignore[assignment, method-assign]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dequant(self.inner(self.quant(x)))  # type: ignore[no-any-return]


def test_an_operator_without_a_form_is_named_with_its_module() -> None:
    quantized = converted(eager("fbgemm", Sorted()))
    with pytest.raises(UnsupportedError, match=r"module 'inner': sort .* DeQuantStub before it"):
        import_quantized(quantized, MANY[:4])


def test_weights_of_another_type_are_refused() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 12)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.table(ids)  # type: ignore[no-any-return]

    model = Table().eval()
    model.table.qconfig = tq.float_qparams_weight_only_qconfig  # type: ignore[assignment]
    with engine("fbgemm"):
        tq.prepare(model, inplace=True)
        tq.convert(model, inplace=True)
    with pytest.raises(UnsupportedError, match=r"table.*EmbeddingPackedParamsBase"):
        import_quantized(model, torch.tensor([[1, 2], [3, 4]]))


def test_a_module_that_is_called_twice_has_a_bias_for_each_input() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = tq.QuantStub(), tq.QuantStub()
            self.conv, self.ends = nn.Conv2d(3, 4, 1), tq.DeQuantStub()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat(
                [self.ends(self.conv(self.one(x))), self.ends(self.conv(self.two(3 * x)))]
            )

    quantized = converted(eager("qnnpack", Shared()), "qnnpack")
    model = import_quantized(quantized, MANY[:4])
    with torch.no_grad():
        np.testing.assert_allclose(run(model, MANY)[0], quantized(MANY).numpy(), atol=1e-6)
    biases = [
        n for n in model.graph.initializers if "bias" in n and not n.endswith(("scale", "point"))
    ]
    assert len([n for n in model.graph if n.op_type == "Conv"]) == 2
    assert len(biases) >= 2

"""Types of modules that `prepare` looks at: whose result is observed, what is not looked into."""

from __future__ import annotations

from torch import nn

from onnxq.pytorch.modules.float_functional import FloatFunctional
from onnxq.pytorch.modules.stubs import DeQuantStub
from onnxq.pytorch.nn.intrinsic import FUSED
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize, LearnableFakeQuantize
from onnxq.pytorch.train.mappings import STATIC_MAPPING

IN_FLOAT_BETWEEN_INTEGERS: tuple[type[nn.Module], ...] = (
    nn.GELU,
    nn.Hardsigmoid,
    nn.Hardtanh,
    nn.PReLU,
    nn.SiLU,
    nn.Tanh,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.Upsample,
    nn.UpsamplingBilinear2d,
)
"""Types without a quantized form: the float module computes, and its result is rounded."""

# FloatFunctional has a place for its observer, the others round by themselves or not at all
_OBSERVED_OTHERWISE = {DeQuantStub, FakeQuantize, LearnableFakeQuantize, FloatFunctional}

COMPUTING: tuple[type[nn.Module], ...] = (
    *(
        kind
        for kind, quantized in STATIC_MAPPING.items()
        if kind not in _OBSERVED_OTHERWISE and not getattr(quantized, "keeps_qparams", False)
    ),
    *IN_FLOAT_BETWEEN_INTEGERS,
)
"""Types whose result is observed, or fake-quantized."""

UNFOLDED = tuple(kind for kind in FUSED if kind.folds_batch_norm())
"""Batch norm that was fused in train mode."""

WHOLE = (*COMPUTING, FakeQuantize, DeQuantStub, nn.MultiheadAttention, *UNFOLDED)
"""Types that are not looked into."""

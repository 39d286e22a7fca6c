from __future__ import annotations

from torch import nn

from onnxq.pytorch.eager.layer_types import COMPUTING, UNFOLDED
from onnxq.pytorch.train.mappings import QAT_MAPPING, STATIC_MAPPING

IN_FLOAT_BETWEEN_CODES = {
    # convert leaves these as they are, with the grid of their result behind them
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
}


def test_what_is_observed_has_a_deployed_form() -> None:
    assert set(COMPUTING) - set(STATIC_MAPPING) <= IN_FLOAT_BETWEEN_CODES


def test_what_trains_is_observed_and_takes_its_float_type() -> None:
    assert set(QAT_MAPPING.values()) <= set(COMPUTING)
    assert set(QAT_MAPPING) <= {*COMPUTING, *UNFOLDED}
    for kind, trained in QAT_MAPPING.items():
        assert kind in trained.FLOAT  # type: ignore[attr-defined]

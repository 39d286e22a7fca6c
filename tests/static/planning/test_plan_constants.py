from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.dtypes import INT8, INT32
from onnxq.errors import ModelError, QConfigError
from onnxq.observers import MinMaxObserver
from onnxq.qconfig import QConfig, default_qconfig_mapping
from onnxq.qparams import PerChannel
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from tests.static.planned import RNG, batches, conv_name, model, planned


def test_bias_has_scale_x_times_w_in_float32() -> None:
    made, _, _ = planned(model())
    name = conv_name(made)
    bias, weight = made.biases[name].qparams, made.weights[name].qparams
    assert bias.dtype == INT32
    np.testing.assert_array_equal(bias.scale, made.tensors["x"].scale * weight.scale)
    assert not bias.zero_point.any()


def test_weights_are_int8_per_output_channel() -> None:
    made, _, _ = planned(model())
    weight = made.weights[conv_name(made)]
    assert (weight.qparams.dtype, weight.qparams.granularity) == (INT8, PerChannel(0))
    assert weight.integer_limit == 127


def test_nan_in_a_weight_names_the_weight() -> None:
    prepared = prepare(model(), None, "x86-vnni")
    statistics = calibrate(prepared, batches())
    weight = np.ones((4, 4, 1, 1), np.float32)
    weight[2, 1] = np.nan
    prepared.model.graph.initializers["w"].const_value = ir.Tensor(weight)
    with pytest.raises(ModelError, match=r"weight 'w'.*NaN"):
        plan(prepared, statistics)


def test_inf_in_a_bias_names_the_bias() -> None:
    prepared = prepare(model(), None, "x86-vnni")
    statistics = calibrate(prepared, batches())
    prepared.model.graph.initializers["b"].const_value = ir.Tensor(
        np.array([0, np.inf, 0, 0], np.float32)
    )
    with pytest.raises(ModelError, match=r"bias 'b'.*Inf"):
        plan(prepared, statistics)


def test_all_zero_channel_gets_a_positive_scale_and_a_bias_that_fits() -> None:
    weight = RNG.standard_normal((4, 4, 1, 1)).astype(np.float32)
    weight[1] = 0
    made, _, _ = planned(model(weight=weight, bias=np.array([0, 1e5, 0, 0], np.float32)))
    name = conv_name(made)
    assert (made.weights[name].qparams.scale > 0).all()
    assert abs(1e5 / made.biases[name].qparams.scale[1]) <= 2**30 * (1 + 1e-6)


class WideObserver(MinMaxObserver):
    """A user's own, which knows nothing of quant_max."""

    def __init__(self, qscheme: str = "per_tensor_symmetric") -> None:
        super().__init__(dtype="qint8", qscheme=qscheme)


def test_weight_integers_that_the_target_cannot_run_are_refused() -> None:
    base = default_qconfig_mapping()
    mine = base.set_global(QConfig(MinMaxObserver.with_args(), WideObserver.with_args()))
    with pytest.raises(QConfigError, match=r"outside \[-64, 64\]"):
        planned(model(), mine, "portable", "everywhere")
    affine = WideObserver.with_args(qscheme="per_tensor_affine")
    with pytest.raises(QConfigError, match=r"outside \[-64, 64\]"):
        planned(model(), base.set_global(QConfig(MinMaxObserver.with_args(), affine)), "portable")
    made, _, _ = planned(model(), mine, "x86-vnni")
    assert made.weights

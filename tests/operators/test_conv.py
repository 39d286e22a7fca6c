from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.dtypes import INT8, INT32, UINT8
from onnxq.errors import ShapeError
from onnxq.operator import AttributeValue, Call, Case, Float, NodePlan, WeightSlot
from onnxq.operators.conv import Conv
from onnxq.qparams import PerChannel, QParams, per_tensor
from tests import this_machine
from tests.operators import builder
from tests.operators.builder import SHARED, copied, integers

OP = Conv()


X, W = np.zeros((1, 4, 5, 5), np.float32), np.zeros((6, 4, 3, 3), np.float32)


def test_weight_has_a_scale_per_output_channel() -> None:
    rule = builder.rule_of(OP, Case("", (X, W), (1,)))
    assert rule.weight == WeightSlot(1, 0)
    assert rule.bias == 2
    assert rule.needs_output


@pytest.mark.parametrize(
    ("shape", "group", "slow"),
    [
        ((16, 3, 3, 3, 3), 1, True),
        ((16, 15, 1, 7, 7), 1, True),
        ((16, 16, 3, 3, 3), 1, False),
        ((32, 8, 3, 3, 3), 4, True),
        ((8, 1, 3, 3, 3), 8, False),
        ((16, 3, 1, 1, 1), 1, False),
        ((16, 3, 3, 3), 1, False),
    ],
    ids=["rgb", "flat", "many", "groups", "depthwise", "pointwise", "2d"],
)
def test_few_channels_with_three_spatial_axes_stay_float_unless_named(
    shape: tuple[int, ...], group: int, slow: bool
) -> None:
    x = np.zeros((1, shape[1] * group, 8, 8, 8)[: len(shape)], np.float32)
    w = np.zeros(shape, np.float32)
    rule = builder.rule_of(OP, Case("", (x, w), (1,), {"group": group}))
    assert bool(rule.named_only) is slow


@pytest.mark.parametrize(
    ("shape", "group", "saturating"),
    [
        ((6, 4, 3, 3), 1, True),
        ((4, 2, 3, 3), 2, True),
        ((8, 1, 3, 3), 4, True),
        ((4, 1, 3, 3), 4, False),
    ],
)
def test_only_depthwise_convolutions_do_not_saturate(
    shape: tuple[int, ...], group: int, saturating: bool
) -> None:
    case = Case("", (X, np.zeros(shape, np.float32)), (1,), {"group": group})
    assert builder.rule_of(OP, case).saturating_pairs is saturating


@pytest.mark.parametrize(
    ("case", "word"),
    [
        (Case("", (X, W)), "weight is computed"),
        (Case("", (X, W, np.zeros(6, np.float32)), (1,)), "bias is computed"),
    ],
    ids=["weight", "bias"],
)
def test_computed_parameters_stay_float(case: Case, word: str) -> None:
    rule = builder.rule(OP, case)
    assert isinstance(rule, Float)
    assert word in rule.reason.words


def test_four_spatial_axes_stay_float() -> None:
    x, w = np.zeros((1, 1, 2, 2, 2, 2), np.float32), np.zeros((1, 1, 1, 1, 1, 1), np.float32)
    assert isinstance(builder.rule(OP, Case("", (x, w), (1,))), Float)


@given(
    batch=st.integers(0, 2),
    group=st.integers(1, 3),
    channels=st.integers(1, 3),
    outputs=st.integers(1, 3),
    size=st.integers(3, 7),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    rank=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=50, deadline=None)
def test_kernel_equals_onnx_runtime_for_any_geometry(
    batch: int,
    group: int,
    channels: int,
    outputs: int,
    size: int,
    kernel: int,
    stride: int,
    dilation: int,
    pads: tuple[int, int],
    rank: int,
    seed: int,
) -> None:
    if size + sum(pads) < dilation * (kernel - 1) + 1:
        return
    random = np.random.default_rng(seed)
    x = random.integers(0, 256, (batch, group * channels, *[size] * rank)).astype(np.uint8)
    w = random.integers(-127, 128, (group * outputs, channels, *[kernel] * rank)).astype(np.int8)
    attributes: dict[str, AttributeValue] = {
        "group": group,
        "strides": [stride] * rank,
        "dilations": [dilation] * rank,
        "pads": [pads[0]] * rank + [pads[1]] * rank,
    }
    case = Case("geometry", (x.astype(np.float32), w.astype(np.float32)), (1,), attributes)
    scales = random.uniform(0.001, 0.01, len(w)).astype(np.float32)
    weight = QParams(scales, np.zeros(len(w), np.int8), INT8, PerChannel(0))
    plan = NodePlan((per_tensor(0.02, 131, UINT8), weight), (per_tensor(0.05, 100, UINT8),))
    inputs = [x, w]
    model = builder.lowered_model(OP, case, plan, inputs)
    (here,) = this_machine.evaluator(model).run(None, {"in0": x})
    assert np.array_equal(here, builder.run(model, case, inputs)[0])
    (wanted,) = builder.run_exactly(model, case, inputs)
    assert np.array_equal(
        OP.kernel(Call(OP.op_type, inputs, plan, attributes=attributes))[0], wanted
    )


def test_images_unfolded_in_parts_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = integers(5, 2, 3, 3), integers(2, 2, 2, 2)
    whole = copied(OP, x, w)
    monkeypatch.setattr("onnxq.operators.conv.COLUMN_ELEMENTS", 1)
    assert np.array_equal(copied(OP, x, w)[0], whole[0])


def test_kernel_refuses_a_bias_of_another_length() -> None:
    plan = NodePlan((SHARED, SHARED, per_tensor(0.25, 0, INT32)), (SHARED,))
    with pytest.raises(ShapeError, match="bias"):
        OP.kernel(
            Call(OP.op_type, [integers(1, 1, 3), integers(2, 1, 2), np.zeros(3, np.int32)], plan)
        )


def test_kernel_refuses_scales_along_another_axis() -> None:
    weight = QParams(np.ones(2, np.float32), np.zeros(2, np.uint8), UINT8, PerChannel(1))
    with pytest.raises(ShapeError, match="along axis 0"):
        OP.kernel(
            Call(
                OP.op_type,
                [integers(1, 2, 3), integers(2, 2, 2)],
                NodePlan((SHARED, weight), (SHARED,)),
            )
        )

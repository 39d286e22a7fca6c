from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.dtypes import UINT8
from onnxq.observers import ChannelHistogramObserver, MinMaxObserver, NarrowRangeObserver
from onnxq.ort import runtime
from onnxq.qconfig import QConfig, QConfigMapping, default_qconfig_mapping
from onnxq.qparams import per_tensor
from onnxq.static.calibrate import calibrate
from onnxq.static.insertion.channel_scales import (
    MAX_CHANNEL_SCALE,
    channel_scales_of,
    read_channel_scales,
    written_channel_scales,
)
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from onnxq.survey.verified import verify
from tests.this_machine import TARGET, run_exactly

if TYPE_CHECKING:
    import numpy.typing as npt

CHANNELS = 8
IMBALANCE = np.float32(2.0) ** -np.arange(CHANNELS, dtype=np.float32)
BODY = (
    "e = Conv(x, w, b) r = Clip(e, zero, six)"
    " d = Conv<group=8, pads=[1,1,1,1]>(r, k, c) y = Relu(d)"
)


def model(body: str = BODY, imbalance: npt.NDArray[np.float32] = IMBALANCE) -> ir.Model:
    """expand -> Clip(0, 6) -> depthwise, channel c of the expand result scaled by imbalance[c]."""
    source = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 17]>'
        f" g (float[N,4,6,6] x) => (float[N,8,H,W] y) {{ {body} }}"
    )
    rng = np.random.default_rng(0)
    rows = imbalance.reshape(-1, 1, 1, 1)
    arrays: dict[str, npt.NDArray[np.float32]] = {
        "w": (rng.standard_normal((8, 4, 1, 1)) * rows).astype(np.float32),
        "b": (rng.standard_normal(8) * imbalance).astype(np.float32),
        "k": (rng.standard_normal((8, 1, 3, 3)) / rows).astype(np.float32),
        "c": rng.standard_normal(8).astype(np.float32),
        "p": rng.standard_normal((8, 8, 1, 1)).astype(np.float32),
        "zero": np.array(0, np.float32),
        "half": np.array(0.5, np.float32),
        "six": np.array(6, np.float32),
    }
    named = {v.name: v for n in source.graph for v in n.inputs if v is not None}
    for name, array in arrays.items():
        if name in named:
            named[name].const_value = ir.Tensor(array, name=name)
            source.graph.register_initializer(named[name])
    return source


def batches() -> list[dict[str, npt.NDArray[np.float32]]]:
    rng = np.random.default_rng(1)
    return [{"x": (rng.standard_normal((2, 4, 6, 6)) / 2).astype(np.float32)} for _ in range(16)]


def quantized(
    source: ir.Model, qconfig: QConfigMapping | None = None, target: str = TARGET
) -> tuple[ir.Model, Plan]:
    prepared = prepare(source, qconfig, target)
    made = plan(prepared, calibrate(prepared, batches()))
    return rewrite(prepared, made), made


def sqnr_db(source: ir.Model, integer: ir.Model) -> float:
    signal = noise = 0.0
    for batch in batches():
        wanted = np.asarray(runtime.open_session(source).run(batch)[0], np.float64)
        got = np.asarray(runtime.open_session(integer).run(batch)[0], np.float64)
        signal, noise = signal + np.square(wanted).sum(), noise + np.square(got - wanted).sum()
    return float(10 * np.log10(signal / noise))


def test_imbalanced_channels_cost_no_accuracy() -> None:
    balanced = model(imbalance=np.ones(CHANNELS, np.float32))
    even = sqnr_db(balanced, quantized(balanced)[0])
    uneven = sqnr_db(model(), quantized(model())[0])
    assert uneven > even - 1  # dB; a scale of its own for each channel makes the two alike
    without = default_qconfig_mapping().set_global(
        QConfig(MinMaxObserver.with_args(), NarrowRangeObserver.with_args())
    )
    assert uneven > sqnr_db(model(), quantized(model(), without)[0]) + 6  # a bit of resolution


def test_no_weight_integer_changes() -> None:
    prepared = prepare(model(), None, TARGET)
    made = plan(prepared, calibrate(prepared, batches()))
    weights = rewrite(prepared, made).graph.initializers
    plain = default_qconfig_mapping().set_tensor("r", MinMaxObserver.with_args())
    others = quantized(model(), plain)[0].graph.initializers
    for name in ("w_quantized", "k_quantized"):
        ours, theirs = weights[name].const_value, others[name].const_value
        assert ours is not None
        assert theirs is not None
        # the factor is rounded to float32 twice: a tie may fall the other way
        assert np.abs(ours.numpy().astype(int) - theirs.numpy().astype(int)).max() <= 1


def test_every_channel_reaches_the_last_integer() -> None:
    integer, made = quantized(model(), target="x86-vnni")
    assert set(made.channel_scales) == {"r"}
    integers = next(v for n in integer.graph for v in n.outputs if v.name == "r_quantized")
    integer.graph.outputs.append(integers)
    largest = np.max(
        [np.asarray(run_exactly(integer, b)[1]).max(axis=(0, 2, 3)) for b in batches()],
        axis=0,
    )
    assert (largest >= 254).all()


def test_clip_needs_no_node_of_its_own() -> None:
    integer, made = quantized(model())
    assert "r" not in made.integer_bounds
    assert not any(node.op_type == "Clip" for node in integer.graph)


def test_verify_compares_in_units_of_the_integers() -> None:
    source = model()
    findings = verify(source, quantized(source)[0], batches())
    tensor = next(t for t in findings.tensors if t.name == "r")
    assert tensor.sqnr_db > 35


@pytest.mark.parametrize(
    "body",
    [
        "r = Conv(x, w, b) y = Conv<group=8, pads=[1,1,1,1]>(r, k)",  # may be negative
        "e = Conv(x, w, b) r = Clip(e, half, six) y = Conv<group=8>(r, k)",  # g[c] * 0.5 differs
        "e = Conv(x, w) r = Relu(e)"
        " d = Conv<group=8, pads=[1,1,1,1]>(r, k) f = Conv(r, p) y = Add(d, f)",
        "e = Conv(x, w) r = Relu(e) y = Conv(r, p)",  # every row sees every channel
    ],
)
def test_other_readers_and_signs_do_not_qualify(body: str) -> None:
    _, made = quantized(model(body))
    assert made.channel_scales == {}


def test_documented_observers_keep_their_scale() -> None:
    minmax = default_qconfig_mapping().set_global(
        QConfig(MinMaxObserver.with_args(), NarrowRangeObserver.with_args())
    )
    assert quantized(model(), minmax)[1].channel_scales == {}


def test_reader_left_float_takes_the_gains_away() -> None:
    source = model()
    names = [node.name for node in prepare(source).model.graph if node.op_type == "Conv"]
    qconfig = default_qconfig_mapping().set_node(str(names[1]), None)
    integer, made = quantized(source, qconfig)
    assert made.channel_scales == {}
    assert sqnr_db(source, integer) > 10


def test_gain_is_bounded_and_one_for_a_dead_channel() -> None:
    observer = ChannelHistogramObserver()
    x = np.ones((1, 3, 2), np.float32)
    x[0, 1], x[0, 2] = 0, 1e-9
    observer.observe(x, 0)
    channel_scales = channel_scales_of(observer, per_tensor(1 / 255, 0, UINT8))
    np.testing.assert_allclose(channel_scales, [1, 1, MAX_CHANNEL_SCALE], rtol=1e-6)


def test_plan_with_gains_survives_its_file(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    _, made = quantized(model())
    made.save(tmp_path / "p.json")
    assert Plan.load(tmp_path / "p.json") == made


def test_gains_come_back_from_their_text_bit_for_bit_and_from_the_earlier_one() -> None:
    channel_scales = tuple(
        float(np.float32(channel_scale)) for channel_scale in (1, 1.7, 1 / 3, MAX_CHANNEL_SCALE)
    )
    assert read_channel_scales(written_channel_scales(channel_scales)) == channel_scales
    assert len(written_channel_scales(channel_scales)) == 5 * len(channel_scales)

from __future__ import annotations

from typing import TYPE_CHECKING

import onnxq
from onnxq.operator import Float, Precision
from onnxq.qconfig import default_qconfig_mapping
from onnxq.static.insertion.decision import Quantize
from tests.examples import ALL_INTEGERS
from tests.static.noise.nets import feed_forwards, filter_bank, sounds, spectral, tokens

if TYPE_CHECKING:
    import onnx

    from onnxq.static.plan import Plan


def forms(made: Plan) -> dict[str, Precision]:
    return {name: chosen.precision for name, chosen in made.precisions.items()}


def planned(source: onnx.ModelProto, samples: object, setting: str = "") -> Plan:
    mapping = default_qconfig_mapping().with_overrides([setting] if setting else [])
    prepared = onnxq.prepare(source, mapping, "x86-vnni")
    return onnxq.plan(prepared, onnxq.calibrate(prepared, samples))


def test_what_makes_the_logarithm_of_a_spectrum_stays_float_with_figures() -> None:
    made = planned(spectral(logarithm=True), sounds(8))
    front = ("stft", "split", "square_re", "square_im", "power", "floored", "log")
    assert {forms(made)[name] for name in front} == {Precision.FLOAT}
    assert {forms(made)[name] for name in ("first", "second")} == {Precision.INT8}
    reasons = {chosen.reason.words for chosen in made.precisions.values()}
    assert any("dB behind Log 'log' in 8 bits" in reason for reason in reasons)
    decision = made.decisions["stft"]
    assert isinstance(decision, Float)
    assert decision.reason == made.precisions["stft"].reason


def test_a_matmul_that_reads_a_copy_of_such_a_tensor_stays_float_too() -> None:
    made = planned(filter_bank(), sounds(8))
    assert {forms(made)[name] for name in ("stft", "root", "turn", "bank_sums")} == {
        Precision.FLOAT
    }
    assert forms(made)["second"] == Precision.INT8


def test_the_same_front_end_without_a_logarithm_is_in_integers() -> None:
    made = planned(spectral(logarithm=False), sounds(8))
    assert Precision.INT8 in forms(made).values()


def test_what_the_user_names_stays_in_integers_whatever_the_data_say() -> None:
    made = planned(spectral(logarithm=True), sounds(8), "op:Conv=default")
    assert isinstance(made.decisions["stft"], Quantize)


def test_all_integers_do_not_ask_the_data() -> None:
    prepared = onnxq.prepare(spectral(logarithm=True), ALL_INTEGERS, "x86-vnni")
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, sounds(8)))
    assert forms(made) == {name: chosen.precision for name, chosen in prepared.precisions.items()}


def test_matmuls_that_all_lose_alike_stay_in_integers() -> None:
    made = planned(feed_forwards(6, 30.0), tokens(8))
    matmuls = {c.precision for c in made.precisions.values() if c.op_type == "MatMul"}
    assert matmuls == {Precision.INT8_FLOAT_OUTPUT, Precision.INT8}
    assert {c.precision for c in made.precisions.values() if c.op_type == "Add"} == {
        Precision.FLOAT
    }

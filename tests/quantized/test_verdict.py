from __future__ import annotations

import dataclasses
import math
import pickle
from typing import TYPE_CHECKING

import pytest

from onnxq.errors import VerificationError
from onnxq.quantized.output_verdict import Collapse, OutputVerdict
from onnxq.quantized.verdict import InputSource, Verdict, VerdictError

if TYPE_CHECKING:
    from pathlib import Path

GOOD = OutputVerdict("logits", 34.0, top1_agreement=1.0)
VERDICT = Verdict(InputSource.CALIBRATION, 16, 256, (GOOD,), None, 3.1, 1000, 270, 32, 1)


def test_it_is_said_in_sentences() -> None:
    assert str(VERDICT).splitlines() == [
        "it runs: 32 of its 33 nodes compute in integers; 27% of the float model's size, 3.10 "
        "times as fast as float",
        "beside float, on 16 of 256 calibration samples:",
        "  output 'logits': SQNR 34.0 dB, 2.00% away from float; same top-1 in 100.0%",
    ]


@pytest.mark.parametrize(
    ("integers", "speedup", "beside", "said"),
    [
        (32, 1.0, "float", "it gains little or no time on this machine: onnxq report shows"),
        (32, 0.5, "the given file", "it is slower than the given file on this machine\n"),
        (0, 0.5, "float", "it is slower than float on this machine\n"),
        (0, 1.0, "float", ""),
    ],
)
def test_what_is_not_faster_is_said(integers: int, speedup: float, beside: str, said: str) -> None:
    stored = dataclasses.replace(VERDICT, integer_nodes=integers, stored_nodes=32)
    verdict = dataclasses.replace(stored, speedup=speedup, beside=beside)
    text = f"{verdict}\n"
    assert said in text
    assert ("on this machine" in text) is bool(said)


def test_without_samples_no_sqnr_is_made_up() -> None:
    verdict = dataclasses.replace(
        VERDICT, input_source=InputSource.MADE_UP, outputs=(), speedup=None
    )
    (line,) = str(verdict).splitlines()
    assert line.startswith("it runs (on made-up inputs): 32 of its 33 nodes")
    opened = dataclasses.replace(verdict, input_source=InputSource.NONE)
    assert str(opened).startswith("ONNX Runtime opens it")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (OutputVerdict("y", math.inf), "SQNR inf dB, equal to float"),
        (
            OutputVerdict("y", math.nan),
            "SQNR nan dB, where float gives zeros or NaN, or another shape",
        ),
        (OutputVerdict("y", agreement=0.98765), "98.77% of the elements are equal"),
    ],
)
def test_an_output_is_said_in_words(output: OutputVerdict, said: str) -> None:
    assert str(output) == f"output 'y': {said}"


@pytest.mark.parametrize(
    ("db", "low"), [(15.0, False), (14.9, True), (math.nan, True), (-math.inf, True)]
)
def test_below_15_db_it_warns_and_asks_for_the_users_metric(db: float, low: bool) -> None:
    verdict = dataclasses.replace(VERDICT, outputs=(GOOD, OutputVerdict("y", db)))
    assert bool(verdict.low) == low
    assert ("measure your own metric" in verdict.warning) == low
    assert ("output 'y'" in verdict.warning) == low
    assert "nan dB" not in verdict.warning


def test_what_was_left_out_and_where_it_collapses_is_named() -> None:
    verdict = dataclasses.replace(
        VERDICT, collapse=Collapse("mul", "t", 3.0), left_in_float=("pool",), notes=("no time",)
    )
    text = str(verdict)
    assert "it collapses first behind node 'mul': tensor 't' has 3.0 dB" in text
    assert "left in float, since ONNX Runtime does not run it else: 'pool'" in text
    assert text.endswith("no time")


def test_it_is_saved_and_read_back(tmp_path: Path) -> None:
    verdict = dataclasses.replace(
        VERDICT,
        outputs=(OutputVerdict("y", math.inf), OutputVerdict("n", agreement=1.0)),
        collapse=Collapse("mul", "t", -math.inf),
    )
    verdict.save(tmp_path / "verdict.json")
    assert Verdict.load(tmp_path / "verdict.json") == verdict


def test_a_bound_that_is_kept_passes() -> None:
    VERDICT.check(34.0)


def test_a_bound_on_a_model_without_float_outputs_is_refused_with_their_agreement() -> None:
    verdict = dataclasses.replace(VERDICT, outputs=(OutputVerdict("n", agreement=0.5),))
    with pytest.raises(VerdictError, match=r"outputs of floats, and there are none:\n.*50\.00%"):
        verdict.check(20.0)


@pytest.mark.parametrize("outputs", [(GOOD,), (GOOD, OutputVerdict("n", math.nan)), ()])
def test_a_bound_that_is_missed_is_an_error_with_the_verdict(
    outputs: tuple[OutputVerdict, ...],
) -> None:
    verdict = dataclasses.replace(VERDICT, outputs=outputs)
    with pytest.raises(VerificationError, match="the bound of 40 dB is broken") as caught:
        verdict.check(40.0)
    assert isinstance(caught.value, VerdictError)
    assert caught.value.verdict == verdict
    assert caught.value.exit_code == 8
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert str(again.verdict) == str(verdict)


@pytest.mark.parametrize(
    ("speedup", "said"),
    [(0.4, "slower than float"), (0.96, "little or no time"), (1.04, "little or no time")],
)
def test_no_gain_of_time_is_said_with_what_to_do(speedup: float, said: str) -> None:
    lines = list(dataclasses.replace(VERDICT, speedup=speedup).sentences())
    assert any(said in line and "onnxq report" in line for line in lines)


@pytest.mark.parametrize("speedup", [1.06, None])
def test_a_gain_of_time_needs_no_remedy(speedup: float | None) -> None:
    assert "onnxq report" not in str(dataclasses.replace(VERDICT, speedup=speedup))


def test_a_model_left_in_float_is_not_told_that_it_gains_no_time() -> None:
    verdict = dataclasses.replace(VERDICT, speedup=1.0, integer_nodes=0)
    assert "little or no time" not in str(verdict)

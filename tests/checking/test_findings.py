from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING

import pytest

from onnxq.checking.findings import (
    Execution,
    Fallback,
    Findings,
    OutputFinding,
    TensorFinding,
    Unmatched,
)
from onnxq.errors import CalibrationError, QConfigError, VerificationError

if TYPE_CHECKING:
    from pathlib import Path

TENSOR = TensorFinding("t", "uint8", 0.5, 10, 30.0, 0.99, 2.5, 0.1)
OUTPUT = OutputFinding("y", 10, 40.0, 0.999, 1.0, None, 0.75)
EXECUTION = Execution({"QLinearConv": 2}, {"Softmax": 1}, {"QuantizeLinear": 1}, ())
FINDINGS = Findings("aa", "bb", 3, (TENSOR,), (OUTPUT,), (Unmatched("u", "why"),), EXECUTION)


def with_tensor(**fields: float) -> Findings:
    return dataclasses.replace(FINDINGS, tensors=(dataclasses.replace(TENSOR, **fields),))  # type: ignore[arg-type]  # any field


def test_findings_survive_json() -> None:
    fallen = dataclasses.replace(EXECUTION, fallbacks=(Fallback("n", "Conv"),))
    for findings in (FINDINGS, dataclasses.replace(FINDINGS, execution=fallen)):
        assert Findings.from_dict(json.loads(findings.to_json())) == findings


def test_infinities_survive_json_that_is_strict() -> None:
    findings = with_tensor(sqnr_db=math.inf)
    text = findings.to_json()
    assert '"inf"' in text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert Findings.from_dict(json.loads(text)) == findings


def test_load_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "findings.json"
    path.write_text(FINDINGS.to_json())
    assert Findings.load(path) == FINDINGS


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": "onnxq findings 0"}', '{"format": "onnxq findings 1"}']
)
def test_load_refuses_other_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "findings.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match="findings"):
        Findings.load(path)


def test_load_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="cannot be read"):
        Findings.load(tmp_path / "none.json")


def test_bounds_that_hold_pass() -> None:
    FINDINGS.check()
    FINDINGS.check(min_sqnr_db=30.0, max_lsb=2.5)


def test_broken_sqnr_names_where_got_and_wanted() -> None:
    with pytest.raises(VerificationError, match=r"'t': SQNR 30.00 dB, wanted at least 31") as error:
        FINDINGS.check(min_sqnr_db=31)
    assert error.value.exit_code == 8
    assert "output 'y'" not in str(error.value)


def test_broken_steps_name_where_got_and_wanted() -> None:
    with pytest.raises(VerificationError, match=r"'t': max error 2.50 LSB, wanted at most 2"):
        FINDINGS.check(max_lsb=2)


def test_nan_is_no_bound() -> None:
    with pytest.raises(QConfigError, match="got nan; wanted a number of dB"):
        with_tensor().check(min_sqnr_db=math.nan)


@pytest.mark.parametrize("bounds", [{"min_sqnr_db": 1.0}, {"max_lsb": 1e9}])
def test_nan_keeps_no_bound(bounds: dict[str, float]) -> None:
    findings = with_tensor(sqnr_db=math.nan, max_error_lsb=math.nan)
    with pytest.raises(VerificationError):
        findings.check(**bounds)


def test_no_calibration_is_advised_where_there_is_none() -> None:
    with pytest.raises(VerificationError) as error:
        dataclasses.replace(FINDINGS, tensors=()).check(min_sqnr_db=1000)
    assert "No tensor has integers of a fixed scale" in str(error.value)
    assert "calibrate" not in str(error.value)


def test_a_bound_on_nothing_is_broken() -> None:
    dynamic = dataclasses.replace(FINDINGS, tensors=())
    with pytest.raises(VerificationError, match=r"no compared tensor has a scale.*--min-sqnr DB"):
        dynamic.check(max_lsb=100)
    with pytest.raises(VerificationError, match="nothing of floats was compared"):
        dataclasses.replace(FINDINGS, tensors=(), outputs=()).check(min_sqnr_db=0)


def test_many_broken_bounds_are_counted() -> None:
    tensors = tuple(dataclasses.replace(TENSOR, name=f"t{i}") for i in range(9))
    with pytest.raises(VerificationError, match="and 4 more"):
        dataclasses.replace(FINDINGS, tensors=tensors).check(min_sqnr_db=35)


def test_broken_bounds_stand_in_graph_order_with_the_node_to_leave_in_float() -> None:
    with pytest.raises(VerificationError) as error:
        dataclasses.replace(
            FINDINGS,
            tensors=(
                dataclasses.replace(TENSOR, node="conv1"),
                dataclasses.replace(TENSOR, name="u"),
            ),
        ).check(min_sqnr_db=50)
    tensor, other, output, remedy = str(error.value).splitlines()[1:]
    assert "tensor 't' of node 'conv1'" in tensor
    assert "tensor 'u':" in other
    assert "output 'y'" in output
    assert "--exclude NODE" in remedy

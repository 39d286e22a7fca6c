from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx.parser
import pytest

from onnxq import targets
from onnxq.targets.accumulation import SaturationMode
from tests.isa import machines
from tests.isa.emulators import REQUIRED, find_emulators
from tests.isa.machines import MACHINES, Machine, run, save_case

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """This Python, without an emulator."""
    monkeypatch.setattr(Machine, "command", lambda *_: [sys.executable, str(machines.RUNNER)])
    return Machine("host", "x86-vnni")


def test_without_the_machines_tests_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXQ_ISA", str(tmp_path))
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="run scripts/setup_isa"):
        find_emulators()


def test_without_the_machines_tests_fail_where_these_are_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXQ_ISA", str(tmp_path))
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="run scripts/setup_isa"):
        find_emulators()
    (tmp_path / "stamp").touch()
    assert find_emulators() == tmp_path


def test_every_arithmetic_but_the_host_s_and_a_browser_s_has_a_machine() -> None:
    others = {SaturationMode.EXACT, SaturationMode.DIVIDES}  # DIVIDES: tests/wasm
    assert {machine.saturation_mode for machine in MACHINES} == {*SaturationMode} - others
    assert all(targets.find(machine.target).name == machine.target for machine in MACHINES)


def test_outputs_come_back_and_errors_name_the_case(tmp_path: Path, host: Machine) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]>'
        "net (int8[N] x) => (int8[N] y, int8[N] z) { y = Identity(x)\n z = Identity(y) }"
    )
    cases = tmp_path / "cases"
    cases.mkdir()
    save_case(cases, "good", model.SerializeToString(), {"x": np.array([1, -128], np.int8)})
    save_case(cases, "bad", b"no model", {})
    results = run(host, tmp_path, cases, tmp_path / "results")
    assert [y.tolist() for y in results.outputs("good")] == [[1, -128], [1, -128]]
    with pytest.raises(AssertionError, match=r"bad on host: .*INVALID_PROTOBUF"):
        results.outputs("bad")
    with pytest.raises(AssertionError, match="absent did not run on host"):
        results.outputs("absent")


def test_a_process_that_dies_says_how_far_it_came(
    tmp_path: Path, host: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = tmp_path / "runner.py"
    runner.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    monkeypatch.setattr(machines, "RUNNER", runner)
    with pytest.raises(AssertionError, match="host: exit -4 after 0 of 0 cases"):
        run(host, tmp_path, tmp_path, tmp_path / "results")

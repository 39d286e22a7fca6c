from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from scripts import backend_suite
from scripts._backend import cases, isolated, ways
from scripts._backend.cases import SuiteCase
from scripts._backend.ways import BAD, WAYS, Ended, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable


PARTS = 8  # 250 models, 60 CPU seconds


@pytest.mark.nightly
def test_models_of_a_seed_are_quantized_and_nothing_is_wrong() -> None:
    names = backend_suite.drawn(8, seed=3)
    ended = backend_suite.run(names, processes=1)
    assert len(ended) == len(names) * len(WAYS)
    assert not backend_suite.wrong(ended), "\n".join(backend_suite.lines(ended))
    assert {e.outcome for e in ended} >= {Outcome.QUANTIZED, Outcome.UNCHANGED, Outcome.REFUSED}


@pytest.mark.nightly(nights=PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_model_of_the_suite_is_wrong(part: int) -> None:
    names = cases.names()[part::PARTS]
    ended = backend_suite.run(names, processes=1)
    assert len(ended) == len(names) * len(WAYS)
    assert not backend_suite.wrong(ended), "\n".join(backend_suite.lines(ended))


def dead(_: SuiteCase) -> list[Ended]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return []


@pytest.mark.parametrize(
    ("act", "detail", "limit_s"),
    [(dead, "SIGSEGV", 100.0), (lambda _: signal.pause(), "more than", 1.0)],
)
def test_a_process_that_dies_or_hangs_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[SuiteCase], list[Ended]],
    detail: str,
    limit_s: float,
) -> None:
    monkeypatch.setattr(isolated, "run_case", act)
    monkeypatch.setattr(isolated, "WALL_LIMIT_S", limit_s)
    (ended,) = isolated.run(["test_relu"], processes=1)
    assert [e.way for e in ended] == list(WAYS)
    assert all(e.outcome in BAD and detail in e.detail for e in ended)


def tanh(op_type: str = "Tanh") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {{y={op_type}(x)}}'
    )


CASE = SuiteCase("tanh", tanh(), {"x": np.array([1, 2, 3], np.float32)}, (1e-3, 1e-7))


def test_a_file_that_onnx_runtime_does_not_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WAYS, "static", lambda _: ir.from_proto(tanh("Frob")))
    found = {e.way: e.outcome for e in ways.run_case(CASE)}
    assert found["static"] is Outcome.NOT_LOADED
    assert found["forced"] is Outcome.QUANTIZED


def test_other_outputs_of_a_model_that_was_left_alone_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(WAYS, "static", lambda _: ir.from_proto(tanh("Sigmoid")))
    found = {e.way: e.outcome for e in ways.run_case(CASE)}
    assert found["static"] is Outcome.WRONG


def test_a_traceback_is_found_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: SuiteCase) -> ir.Model:
        raise KeyError("key")

    monkeypatch.setitem(WAYS, "static", broken)
    (found,) = (e for e in ways.run_case(CASE) if e.way == "static")
    assert found.outcome is Outcome.TRACEBACK
    assert "test_backend_suite.py" in found.detail


def test_reasons_are_counted_without_the_names_in_them() -> None:
    ended = [
        Ended("a", "static", Outcome.REFUSED, "tensor 'x' is double; take float. Export."),
        Ended("b", "static", Outcome.REFUSED, "tensor 'y' is double; take float. Export."),
    ]
    assert "| tensor '...' is double; take float | 2 | 2 | a, b |" in backend_suite.lines(ended)

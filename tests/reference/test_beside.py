from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq import reference
from onnxq.errors import CalibrationError
from onnxq.targets.accumulation import SaturationMode
from tests.examples import as_ir, images, network

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from onnxq.targets.accumulation import Overflows

X = images(6, 3)


@pytest.fixture(scope="module")
def integer() -> ir.Model:
    made = onnxq.quantize(as_ir(network()), [{"x": images(16)}], target="x86-vnni")
    return reference.integer_form(made)


class Watch:
    """Words heard and values seen of a machine."""

    def __init__(self, integer: ir.Model) -> None:
        self.heard: list[str] = []
        self.same: dict[str, bool] = {}
        self.risky = [str(node.outputs[0].name) for node in integer.graph]

    def beside(self, saturation_mode: SaturationMode) -> reference.Beside:
        return reference.Beside(saturation_mode, self.risky, self.hear, self.see)

    def hear(self, node: onnx.NodeProto, _: Overflows) -> None:
        self.heard.append(node.name)

    def see(self, name: str, got: object, wanted: object) -> None:
        self.same[name] = got is wanted


def test_both_results_are_those_of_evaluators_of_their_own(integer: ir.Model) -> None:
    watch = Watch(integer)
    both = reference.Evaluators(integer, [watch.beside(SaturationMode.SATURATES)])
    exact, (theirs,) = both.run(["y"], {"x": X}, [{"x": X}])
    for kind, got in ((SaturationMode.EXACT, exact), (SaturationMode.SATURATES, theirs)):
        (wanted,) = reference.integer_evaluator(integer, saturation_mode=kind).run(["y"], {"x": X})
        assert np.array_equal(got["y"], wanted)
    assert watch.heard
    assert not watch.same["y"]


def test_a_machine_that_agrees_shares_every_array(integer: ir.Model) -> None:
    watch = Watch(integer)
    both = reference.Evaluators(integer, [watch.beside(SaturationMode.WRAPS)])
    exact, (theirs,) = both.run(["y"], {"x": X}, [{"x": X.copy()}])
    assert theirs["y"] is exact["y"]
    assert all(watch.same.values())


def test_another_input_is_a_machines_own(integer: ir.Model) -> None:
    watch = Watch(integer)
    both = reference.Evaluators(integer, [watch.beside(SaturationMode.EXACT)])
    exact, (theirs,) = both.run(["y"], {"x": X}, [{"x": X[::-1].copy()}])
    assert np.array_equal(theirs["y"], exact["y"][::-1])
    assert not watch.same["y"]


def test_inputs_are_checked(integer: ir.Model) -> None:
    both = reference.Evaluators(integer, [])
    with pytest.raises(CalibrationError, match="input 'x' is missing"):
        both.run(["y"], {}, [])

"""Models for `portable` on every emulated machine, on inputs that were chosen against them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq import targets
from onnxq.ort import runtime
from onnxq.targets.accumulation import SaturationMode
from onnxq.targets.reduce_range import ReduceRange
from tests.examples import model
from tests.isa.machines import BY_MACHINE, Machine, save_case
from tests.this_machine import SATURATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import onnx

    from onnxq.core.arrays import Array, Singles
    from tests.isa.machines import Results

pytestmark = [pytest.mark.isa, pytest.mark.usefixtures("emulators")]

SEEDS = 2
CONTROL = "control"
KINDS: dict[str, dict[str, Any]] = {
    "worst-case": {"target": "portable"},
    "on integers": {"target": "portable", "format": "qoperator"},
    "everywhere": {
        "target": replace(targets.resolve("portable"), reduce_range=ReduceRange.EVERYWHERE)
    },
    CONTROL: {"target": "x86-vnni"},
}


def sources(seed: int) -> Iterator[tuple[str, onnx.ModelProto, tuple[int, ...]]]:
    """(name, float model with input x, shape of one sample), with weights that are mostly large."""
    rng = np.random.default_rng(seed)

    def large(*shape: int) -> Singles:
        signs = np.where(rng.random(shape) < 0.8, 1, -1)
        return np.asarray(signs * rng.beta(4, 1, shape), np.float32)

    for name, channels, shape, group in (
        ("odd channels", 3, (8, 3, 3, 3), 1),
        ("groups", 6, (4, 3, 3, 3), 2),
        ("multiplier", 4, (8, 1, 3, 3), 4),
        ("depthwise", 16, (16, 1, 3, 3), 16),
        ("pointwise", 17, (8, 17, 1, 1), 1),
    ):
        spatial = shape[2] // 2
        node = helper.make_node("Conv", ["x", "w"], ["y"], "n", group=group, pads=[spatial] * 4)
        yield name, one_node(node, large(*shape), channels), (channels, 7, 7)
    for name, channels in (("transposed", 4), ("transposed, odd", 3)):
        node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], "n", strides=[2, 2])
        yield name, one_node(node, large(channels, 5, 3, 3), channels), (channels, 6, 6)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "n")
    yield "product", model([node], {"w": large(33, 7)}, {"x": ["N", 33]}), (33,)
    node = helper.make_node("Gemm", ["x", "w"], ["y"], "n", transB=1)
    yield "gemm", model([node], {"w": large(7, 33)}, {"x": ["N", 33]}), (33,)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["b"], "second", pads=[1] * 4),
        helper.make_node("Add", ["b", "r"], ["s"], "sum"),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    constants = {"w": large(6, 3, 3, 3), "v": large(6, 6, 3, 3)}
    yield "residual", model(nodes, constants, {"x": ["N", 3, 7, 7]}), (3, 7, 7)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("HardSigmoid", ["a"], ["h"], "gate"),
        helper.make_node("Conv", ["h", "v"], ["b"], "second", pads=[1] * 4),
        helper.make_node("Sub", ["b", "h"], ["s"], "difference"),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    yield "difference", model(nodes, constants, {"x": ["N", 3, 7, 7]}), (3, 7, 7)


def one_node(node: onnx.NodeProto, weight: Singles, channels: int) -> onnx.ModelProto:
    return model([node], {"w": weight}, {"x": ["N", channels, "H", "W"]})


def inputs(seed: int, shape: tuple[int, ...]) -> Singles:
    """The largest integer everywhere, the smallest, both at random, and everything between."""
    rng = np.random.default_rng(seed)
    ends = np.where(rng.random((6, *shape)) < 0.7, 9, -9)
    between = rng.uniform(-1, 1, (6, *shape))
    return np.concatenate(
        [np.full((1, *shape), 9), np.full((1, *shape), -9), ends, between]
    ).astype(np.float32)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Array]]:
    """(folder of cases, what this machine computes of each)."""
    folder = tmp_path_factory.mktemp("portable")
    results: dict[str, Array] = {}
    for seed in range(SEEDS):
        for name, source, shape in sources(seed):
            calibration = np.random.default_rng(seed).uniform(-1, 1, (8, *shape))
            samples = {"x": calibration.astype(np.float32)}
            for kind, options in KINDS.items():
                made = onnxq.quantize(source, samples, check=onnxq.Check.NONE, **options)
                x, case = {"x": inputs(seed, shape)}, f"{name} {seed} {kind}".replace(",", "")
                save_case(folder, case, ir.to_proto(made).SerializeToString(), x)
                with runtime.open_session(made, threads=1) as session:
                    (results[case],) = session.run(x)
    return folder, results


@pytest.mark.parametrize("machine", BY_MACHINE)
def test_portable_models_are_the_same_bit_for_bit_whatever_the_input(
    machine: Machine,
    wanted: tuple[Path, dict[str, Array]],
    run_on: Callable[[Machine, Path], Results],
) -> None:
    folder, results = wanted
    there = run_on(machine, folder)
    differing = [
        case for case, y in results.items() if not np.array_equal(there.outputs(case)[0], y)
    ]
    assert [case for case in differing if not case.endswith(CONTROL)] == []
    if (machine.saturation_mode is SaturationMode.SATURATES) != SATURATES:
        # the inputs do find what is not portable: all but the depthwise convolutions
        assert len(differing) >= SEEDS * 10

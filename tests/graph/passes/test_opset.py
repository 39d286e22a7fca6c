from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.graph.passes.lift_constants import LiftConstants
from onnxq.graph.passes.opset import UpgradeOpset, upgrade_opset

if TYPE_CHECKING:
    from tests.graph.conftest import Parse, Run

RNG = np.random.default_rng(0)
W = RNG.normal(size=(20, 3, 3, 3)).astype(np.float32)  # more than BIG_BYTES: not in the skeleton
X = RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)

OLD = """g (float[2,3,6,6] x) => (float[2,20,1,1] y) {
    [conv] a = Conv(x, w) b = Clip<min=0.0, max=6.0>(a) s = Softmax<axis=1>(b)
    y = ReduceMean<axes=[2,3]>(s) }"""


@pytest.mark.parametrize("opset", [9, 10, 11])
@pytest.mark.parametrize("target", [13, 18, 21, 25])
def test_an_older_model_computes_the_same_at_a_newer_opset(
    opset: int, target: int, parse: Parse, run: Run
) -> None:
    text = OLD if opset < 11 else OLD.replace("Clip<min=0.0, max=6.0>(a)", "Relu(a)")
    model = parse(text, {"w": W}, opset)
    before = run(model, {"x": X})[0]
    assert upgrade_opset(model, target) is model
    assert model.opset_imports[""] == target
    np.testing.assert_allclose(run(model, {"x": X})[0], before, rtol=1e-5)
    assert not UpgradeOpset(target)(model).modified


def test_names_weights_and_metadata_survive(parse: Parse) -> None:
    model = parse(OLD, {"w": W}, 9)
    model.graph.node(0).metadata_props["scope"] = "net.stem"
    tensor = model.graph.initializers["w"].const_value
    upgrade_opset(model, 13)
    conv = model.graph.node(0)
    assert conv.name == "conv"
    assert conv.metadata_props == {"scope": "net.stem"}
    assert model.graph.initializers["w"].const_value is tensor
    assert model.graph.outputs[0].name == "y"
    assert model.opset_imports["local"] == 1


def test_nodes_that_the_converter_adds_have_names_and_their_constants_are_initializers(
    parse: Parse,
) -> None:
    model = upgrade_opset(parse(OLD, {"w": W}, 11), 18)  # whose ReduceMean has axes as an input
    names = [node.name for node in model.graph]
    assert all(names)
    assert len(set(names)) == len(names)
    assert "Constant" not in {node.op_type for node in model.graph}


def test_from_18_on_nodes_and_values_stay_the_same_objects(parse: Parse) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset=18)
    node = model.graph.node(0)
    upgrade_opset(model, 21)
    assert model.graph.node(0) is node
    assert model.opset_imports[""] == 21


def test_the_ir_version_follows_the_opset_and_stays_within_what_runs(parse: Parse) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset=13, ir_version=4)
    assert upgrade_opset(model, 21).ir_version == 10
    model.ir_version = 14
    assert upgrade_opset(model, 21).ir_version == 13


def test_a_newer_model_is_left_alone(parse: Parse) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset=22)
    assert not UpgradeOpset(13)(model).modified


def test_branches_are_converted(parse: Parse, run: Run) -> None:
    model = parse(
        """g (bool c, float[2,3] x) => (float[1,2,3] y) {
        y = If(c) <then_branch = t () => (float[1,2,3] p) { p = Unsqueeze<axes=[0]>(x) },
                   else_branch = e () => (float[1,2,3] q) {
            a = Clip<min=0.5>(x) q = Unsqueeze<axes=[0]>(a) }> }""",
        opset=10,
    )
    x = X[0, 0, :2, :3]
    before = [run(model, {"c": np.array(c), "x": x})[0] for c in (True, False)]
    upgrade_opset(model, 13)
    LiftConstants()(model)
    after = [run(model, {"c": np.array(c), "x": x})[0] for c in (True, False)]
    np.testing.assert_array_equal(after, before)


def test_what_the_converter_cannot_do_is_an_error_with_the_remedy(parse: Parse) -> None:
    model = parse("g (float[N,C,4] x) => (float[N,C,4] y) {"
                  " y = GroupNormalization<num_groups=2>(x, s, s) }",
                  {"s": np.ones(2, np.float32)}, opset=18)  # fmt: skip
    with pytest.raises(
        UnsupportedError, match=r"opset 18 cannot be raised to 21.*opset_version=21"
    ):
        upgrade_opset(model, 21)


def test_group_norm_of_known_size_is_converted(parse: Parse, run: Run) -> None:
    model = parse("g (float[2,4,3] x) => (float[2,4,3] y) {"
                  " y = GroupNormalization<num_groups=2>(x, s, s) }",
                  {"s": np.array([1, 2], np.float32)}, opset=18)  # fmt: skip
    x = X[:, 0, :4, :3]
    before = run(model, {"x": x})[0]
    upgrade_opset(model, 21)
    np.testing.assert_allclose(run(model, {"x": x})[0], before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_a_value_that_an_old_pad_never_reads_is_dropped(mode: str, parse: Parse, run: Run) -> None:
    text = (
        "g (float[2,3,6,6] x) => (float[2,3,8,8] y) "
        f'{{ y = Pad<mode="{mode}", pads=[0,0,1,1,0,0,1,1], value=0.5>(x) }}'
    )
    model = parse(text, {}, 10)
    before = run(model, {"x": X})[0]
    upgrade_opset(model, 13)
    np.testing.assert_array_equal(run(model, {"x": X})[0], before)

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

import onnxq
from onnxq.qconfig import default_qconfig_mapping
from tests.examples import ALL_INTEGERS
from tests.this_machine import TARGET

if TYPE_CHECKING:
    import onnx

    from onnxq.core.arrays import Singles
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
NET = """
    [first] a = Conv <pads = [1, 1, 1, 1]> (x, w)
    [act] h = HardSwish (a)
    [sum] s = Add (h, g)
    [second] y = Conv <pads = [1, 1, 1, 1]> (s, v)
"""
G = 0.7


def net(g: float = G, body: str = NET, outputs: str = "float[N, 8, 12, 12] y") -> onnx.ModelProto:
    text = f"{HEADER} net (float[N, 3, 12, 12] x) => ({outputs}) {{ {body} }}"
    made = parser.parse_model(text)
    random = np.random.default_rng(3)
    constants = {
        "w": random.normal(0, 0.4, (8, 3, 3, 3)),
        "v": random.normal(0, 0.2, (8, 8, 3, 3)),
        "g": np.array(g),
    }
    for name, array in constants.items():
        made.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return made


def images(count: int, seed: int = 1) -> dict[str, Singles]:
    random = np.random.default_rng(seed)
    return {"x": random.normal(0, 1, (count, 3, 12, 12)).astype(np.float32)}


def planned(model: onnx.ModelProto, setting: str = "") -> tuple[Prepared, Plan]:
    mapping = default_qconfig_mapping().with_overrides([setting]) if setting else ALL_INTEGERS
    prepared = onnxq.prepare(model, mapping, TARGET)
    return prepared, onnxq.plan(prepared, onnxq.calibrate(prepared, images(16)))


@pytest.mark.parametrize("g", [G, -G, 0.05, 3.0])
def test_a_number_is_a_whole_count_of_steps_between_the_zero_points(g: float) -> None:
    _, plan = planned(net(g))
    x, y = plan.tensors["h"], plan.tensors["s"]
    assert x.scale == y.scale
    steps = int(x.zero_point) - int(y.zero_point)
    assert steps * float(x.scale) == pytest.approx(g, rel=1e-6)
    assert 0 <= int(y.zero_point) <= 255


def test_one_rounding_less_leaves_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept() -> float:
        made = onnxq.rewrite(*planned(net()))
        return onnxq.verify(net(), ir.to_proto(made), images(8, 7)).outputs[0].sqnr_db

    shifted = kept()
    monkeypatch.setattr("onnxq.static.plan.with_shifts", lambda *args: dict(args[-1]))
    assert shifted > kept() + 0.5


def test_every_integer_is_onnx_runtime_s() -> None:
    prepared, plan = planned(net())
    found = onnxq.cross_check(onnxq.rewrite(prepared, plan), images(4))
    assert sum(node.differing for node in found.nodes) == 0


@pytest.mark.parametrize(
    ("body", "setting"),
    [
        (NET.replace("HardSwish (a)", "Relu (a)"), ""),  # its grid bounds what it gives
        (NET.replace("(s, v)", "(t, v)").replace("[second]", "[both] t = Add (h, s) [second]"), ""),
        (NET, "tensor:h=MinMaxObserver"),
        (NET, "node:sum=float"),
    ],
)
def test_qparams_of_bounds_of_others_and_of_the_user_stay(body: str, setting: str) -> None:
    _, plan = planned(net(body=body), setting)
    x, y = plan.tensors.get("h"), plan.tensors.get("s")
    assert x is None or y is None or x.scale != y.scale


def test_a_number_of_less_than_a_step_is_left_alone() -> None:
    _, plan = planned(net(1e-4))
    assert plan.tensors["h"].scale != plan.tensors["s"].scale

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import numpy_helper, parser

import onnxq
from onnxq.operator import Precision
from onnxq.qconfig import default_qconfig_mapping
from tests.examples import ALL_INTEGERS

if TYPE_CHECKING:
    import onnx

    from onnxq.core.arrays import Array
    from onnxq.qconfig import QConfigMapping

UNITS = 32
HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
ENDS = "(float[1, 32] x, float[1, 32] state) => (float[1, 32] y, float[1, 32] new)"
CELL = """
    [in_x] a = MatMul (x, w)
    [in_h] b = MatMul (state, u)
    [both] s = Add (a, b)
    [gate] f = Sigmoid (s)
    [keep] k = Mul (f, state)
    [take] t = Tanh (s)
    [cell] new = Add (k, t)
    [read] y = MatMul (new, v)
"""
MATMUL = CELL.replace("Mul (f, state)", "MatMul (f, u)")
CACHE = """
    [older] s = Slice (state, one, end, one)
    [newer] z = Slice (x, zero, one, one)
    [shift] new = Concat <axis = 1> (s, z)
    [read] y = MatMul (new, v)
"""
NUMBERS = "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {32}>"


def weighted(text: str) -> onnx.ModelProto:
    made = parser.parse_model(text)
    random = np.random.default_rng(5)
    for name, size in (("w", 0.3), ("u", 0.05), ("v", 0.3)):
        weights = random.normal(0, size, (UNITS, UNITS)).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(weights, name))
    return made


def cell(body: str = CELL) -> onnx.ModelProto:
    return weighted(f"{HEADER} net {ENDS} {NUMBERS} {{ {body} }}")


def steps(count: int, seed: int = 1) -> list[dict[str, Array]]:
    random = np.random.default_rng(seed)
    return [{"x": random.normal(0, 1, (1, UNITS)).astype(np.float32)} for _ in range(count)]


def forms(model: onnx.ModelProto, mapping: QConfigMapping | None = None) -> dict[str, Precision]:
    prepared = onnxq.prepare(model, mapping, "x86-vnni", feedback={"new": "state"})
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, steps(40)))
    return {name: chosen.precision for name, chosen in made.precisions.items()}


def test_a_state_without_a_matmul_on_its_way_is_carried_in_float() -> None:
    found = forms(cell())
    assert {found["keep"], found["cell"]} == {Precision.FLOAT}


def test_matmuls_beside_the_way_stay_in_integers() -> None:
    assert {forms(cell())[name] for name in ("in_x", "in_h", "read")} == {
        Precision.INT8_FLOAT_OUTPUT
    }


def test_a_branch_carries_state_too() -> None:
    read = "inner_y = MatMul (inner_new"
    body = CELL.replace("new =", "inner_new =").replace("y = MatMul (new", read)
    text = f"""{HEADER} net {ENDS} <bool yes = {{1}}> {{
        [choose] y, new = If (yes) <
            then_branch = one () => (float[1, 32] inner_y, float[1, 32] inner_new) {{ {body} }},
            else_branch = two () => (float[1, 32] other_y, float[1, 32] other_new) {{
                [plain] other_y = Identity (x)
                [same] other_new = Identity (state)
            }}
        >
    }}"""
    found = forms(weighted(text))
    assert {found[name] for name in ("keep", "cell")} == {Precision.FLOAT}


def test_the_reason_names_the_state() -> None:
    prepared = onnxq.prepare(cell(), target="x86-vnni", feedback={"new": "state"})
    assert "carries state 'state' from batch to batch" in prepared.precisions["cell"].reason.words


@pytest.mark.parametrize("body", [CELL, MATMUL, CACHE])
def test_without_feedback_or_with_matmuls_or_copies_alone_nothing_is_carried(
    body: str,
) -> None:
    feedback = None if body is CELL else {"new": "state"}
    prepared = onnxq.prepare(cell(body), target="x86-vnni", feedback=feedback)
    assert not any(
        "carries state" in chosen.reason.words for chosen in prepared.precisions.values()
    )


def test_what_the_user_names_and_all_integers_are_left_alone() -> None:
    named = default_qconfig_mapping().with_overrides(["op:Mul=default"])
    prepared = onnxq.prepare(cell(), named, "x86-vnni", feedback={"new": "state"})
    assert "carries state" not in prepared.precisions["keep"].reason.words
    prepared = onnxq.prepare(cell(), ALL_INTEGERS, "x86-vnni", feedback={"new": "state"})
    assert "carries state" not in prepared.precisions["cell"].reason.words


def test_the_saved_forms_give_the_same_file_again() -> None:
    prepared = onnxq.prepare(cell(), target="x86-vnni", feedback={"new": "state"})
    statistics = onnxq.calibrate(prepared, steps(40))
    first = onnxq.plan(prepared, statistics)
    again = onnxq.prepare(cell(), first.qconfig, "x86-vnni", feedback={"new": "state"})
    second = onnxq.plan(again, onnxq.calibrate(again, steps(40)))
    assert second.precisions.keys() == first.precisions.keys()
    assert {n: c.precision for n, c in second.precisions.items()} == {
        n: c.precision for n, c in first.precisions.items()
    }

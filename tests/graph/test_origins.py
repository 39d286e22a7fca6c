"""Origins: a canonical value's origins name values of the model as it was, and are equal to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.graph.canonical import canonicalize, canonicalize_module
from onnxq.graph.edit import all_values
from onnxq.graph.origins import hand_on, move, origins_of, set_origins
from onnxq.ort.expose import expose

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.graph.canonical import Canonical
    from tests.graph.conftest import Feeds, Parse, Run

RNG = np.random.default_rng(0)
# what is folded adds up in another order; other tensors of the model differ by more
TOLERANCE = 1e-4


def numbers(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return RNG.uniform(0.5, 1.5, shape).astype(np.float32)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "batch norm, no-ops, mean": (
        """a = Conv(x, w)  b = BatchNormalization(a, v, v, v, v)  c = Relu(b)  d = Identity(c)
        e = Dropout(d)  f = ReduceMean<keepdims=0>(e, space)  y = Gemm(f, u)""",
        {"w": numbers(4, 3, 1, 1), "v": numbers(4), "u": numbers(4, 2),
         "space": np.array([2, 3], np.int64)},
    ),
    "gelu and layer norm": (
        """a = Div(x, root)  b = Erf(a)  c = Add(b, one)  d = Mul(x, c)  e = Mul(d, half)
        m = ReduceMean<keepdims=1>(e, last)  s = Sub(e, m)  q = Pow(s, two)
        r = ReduceMean<keepdims=1>(q, last)  t = Add(r, eps)  z = Sqrt(t)  n = Div(s, z)
        g = Mul(n, gain)  y = Add(g, gain)""",
        {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5),
         "two": np.float32(2), "eps": np.float32(1e-5), "gain": numbers(6),
         "last": np.array([-1], np.int64)},
    ),
    "shuffle and constants": (
        """a = Reshape(x, apart)  b = Transpose<perm=[0, 2, 1, 3, 4]>(a)  c = Reshape(b, back)
        k = Mul(p, p)  d = Add(c, k)  e = Mul(d, one)  y = Relu(e)""",
        {"apart": np.array([0, 3, 1, 6, 6], np.int64), "back": np.array([0, 3, 6, 6], np.int64),
         "p": numbers(3, 1, 1), "one": np.float32(1)},
    ),
    "factors": (
        "a = Mul(x, half)  b = Conv(a, w)  c = Mul(b, half)  d = Add(c, s)  y = Relu(d)",
        {"half": np.float32(0.5), "w": numbers(4, 3, 1, 1), "s": numbers(4, 1, 1)},
    ),
}  # fmt: skip


def model_of(case: str, parse: Parse) -> ir.Model:
    """The model, each of whose values is its own origin."""
    body, weights = CASES[case]
    arrays = {name: np.asarray(array) for name, array in weights.items()}
    model = parse(f"g (float[2,3,6,6] x) => (float y) {{ {body} }}", arrays)
    for value in all_values(model.graph):
        set_origins(value, [str(value.name)])
    return model


def values(model: ir.Model, names: list[str], run: Run, x: Feeds) -> dict[str, object]:
    exposed = expose(model, names)
    ends = [str(value.name) for value in exposed.model.graph.outputs]
    arrays = dict(zip(ends, run(exposed.model, x), strict=True))
    return {name: arrays[exposed.outputs[name]] for name in names}


@pytest.mark.parametrize("form", [canonicalize, canonicalize_module])
@pytest.mark.parametrize("case", CASES)
def test_a_canonical_value_equals_its_origins(
    case: str, form: Callable[[ir.Model], Canonical], parse: Parse, run: Run
) -> None:
    model = model_of(case, parse)
    canonical = form(model).model
    x = {"x": RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)}
    made = [v for node in canonical.graph for v in node.outputs if origins_of(v)]
    origins = sorted({origin for v in made for origin in origins_of(v)} - {"x"})
    before = values(model, origins, run, x) | x
    after = values(canonical, [str(v.name) for v in made], run, x)
    for value in made:
        for origin in origins_of(value):
            got, wanted = np.asarray(after[str(value.name)]), np.asarray(before[origin])
            np.testing.assert_allclose(got.ravel(), wanted.ravel(), rtol=TOLERANCE, atol=TOLERANCE)


def test_every_result_of_a_fused_or_replaced_node_keeps_its_origin(parse: Parse) -> None:
    wanted: dict[str, set[tuple[str, ...]]] = {
        "batch norm, no-ops, mean": {("b",), ("c", "d", "e"), ("f",), ("y",)},
        "gelu and layer norm": {("e",), ("y",)},
        "shuffle and constants": {("c",), ("d", "e"), ("y",)},
    }
    for case, origins in wanted.items():
        canonical = canonicalize_module(model_of(case, parse)).model
        found = {origins_of(v) for node in canonical.graph for v in node.outputs}
        assert origins <= found


def test_what_is_handed_on_is_added_and_what_moves_is_not_left_behind() -> None:
    x, y = ir.val("x"), ir.val("y")
    set_origins(x, ["a"])
    set_origins(y, ["b", "a"])
    hand_on(y, x)
    assert origins_of(x) == ("a", "b")
    move(x, y)
    assert (origins_of(x), origins_of(y)) == ((), ("a", "b"))

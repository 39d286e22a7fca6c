"""Functions written out in nodes, and how near to them a pass has to stay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from onnxq.graph.passes.unused import RemoveUnused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import onnx_ir as ir

    from tests.graph.conftest import Feeds, Numbers, Parse, Run

MIN_SQNR_DB = 100.0
RNG = np.random.default_rng(0)
X = RNG.uniform(-9, 9, (2, 3, 4, 5)).astype(np.float32)
O = RNG.normal(size=X.shape).astype(np.float32)  # noqa: E741  # o, a tensor of another origin


def model_of(
    parse: Parse, body: str, constants: Mapping[str, float | Numbers], opset: int = 17
) -> ir.Model:
    """z (and y, w where the body has them) of x and o, float[N,3,H,W] each.

    Args:
        parse: of the fixtures.
        body: assignments; d, the first half of an `If`, is true.
        constants: by the names that the body may use.
        opset: of ai.onnx.
    """
    used = set(re.findall(r"\w+", body))
    outputs = [name for name in ("z", "extra") if re.search(rf"\b{name} =", body)]
    weights: Feeds = {
        n: np.asarray(v, np.float32) if isinstance(v, float) else v
        for n, v in constants.items()
        if n in used
    }
    sizes = "float[N,3,H,W]"
    made = ", ".join(f"{sizes} {name}" for name in outputs)
    return parse(f"g ({sizes} x, {sizes} o) => ({made}) {{ {body} }}", weights, opset)


def same(
    model: ir.Model, change: Callable[[ir.Model], object], run: Run, feeds: Feeds | None = None
) -> bool:
    """Whether the results before and after the change agree to 100 dB."""
    given = {v.name for v in model.graph.inputs}
    fed = {n: v for n, v in (feeds or {"x": X, "o": O}).items() if n in given}
    before = run(model, fed)
    change(model)
    RemoveUnused()(model)  # ONNX Runtime would warn of constants that are left
    after = run(model, fed)
    return all(sqnr_db(a, b) >= MIN_SQNR_DB for a, b in zip(after, before, strict=True))


def sqnr_db(got: Numbers, wanted: Numbers) -> float:
    assert got.shape == wanted.shape
    noise = float(np.square(got.astype(np.float64) - wanted).sum())
    return float(
        10 * np.log10(float(np.square(wanted, dtype=np.float64).sum()) / max(noise, 1e-30))
    )

"""Every integer operator in WebAssembly, integer by integer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import catalog
from onnxq.operator import Case
from onnxq.operator.examples import scales, zero
from onnxq.targets.accumulation import SaturationMode
from tests.isa.node_cases import NodeCase, node_cases
from tests.wasm.machine import WASM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.isa.machines import Results

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("modules")]

OPERATORS = [operator.op_type for operator in catalog.all_integer_operators()]
# A NaN has no integer of its own: x86 gives it the lowest one, WebAssembly 0
NOT_A_NUMBER = "NaN, Inf, overflow"
CHOICES = 60  # of scales


@pytest.fixture(scope="session")
def cases() -> list[NodeCase]:
    return [case for case in node_cases(("ends",)) if case.case.name != NOT_A_NUMBER]


@pytest.fixture(scope="session")
def folder(cases: list[NodeCase], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nodes")
    for case in cases:
        case.save(path)
    return path


@pytest.mark.parametrize("op_type", OPERATORS)
def test_every_integer_is_as_predicted(
    op_type: str, cases: list[NodeCase], folder: Path, run_in_node: Callable[[Path], Results]
) -> None:
    results = run_in_node(folder)
    mine = [case for case in cases if case.op_type == op_type]
    assert mine
    differing = {case.name: case.differing(results.outputs(case.name), WASM) for case in mine}
    assert not {name: count for name, count in differing.items() if count}


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
def test_all_pairs_of_integers_are_as_predicted_whatever_the_scales(
    op_type: str, tmp_path: Path, run_in_node: Callable[[Path], Results]
) -> None:
    made = [of_all_pairs(op_type, seed) for seed in range(CHOICES)]
    for case in made:
        case.save(tmp_path)
    results = run_in_node(tmp_path)
    got = {case.name: results.outputs(case.name) for case in made}
    assert not {case.name for case in made if case.differing(got[case.name], WASM)}
    assert any(case.differing(got[case.name], WASM, SaturationMode.EXACT) for case in made)


def of_all_pairs(op_type: str, seed: int) -> NodeCase:
    rng = np.random.default_rng(seed)
    operator = catalog.find_integer(op_type, "com.microsoft")
    assert operator is not None
    a, b = (x.astype(np.uint8) for x in np.indices((256, 256)))
    decimals = 3 + seed % 3  # round numbers make ties
    p, q = rng.uniform(0.005, 0.1, 2).round(decimals).tolist()
    size = p + q if op_type == "QLinearAdd" else 128 * p * q
    out = max(round(size * rng.uniform(0.3, 1), decimals), 0.001)
    zeros = [zero(int(each)) for each in rng.integers(0, 256, 3)]
    inputs = (a, scales(p), zeros[0], b, scales(q), zeros[1], scales(out), zeros[2])
    case = Case(f"all pairs {seed}", inputs, (1, 2, 4, 5, 6, 7))
    return NodeCase(operator, "com.microsoft", case, f"{op_type}-{seed}")

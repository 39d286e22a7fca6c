"""Every integer operator on emulated machines, integer by integer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onnxq import catalog
from onnxq.targets.accumulation import Overflows, SaturationMode
from tests.isa.machines import BY_MACHINE
from tests.isa.node_cases import NodeCase, node_cases

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.isa.machines import Machine, Results

# without the machines no case is made
pytestmark = [pytest.mark.isa, pytest.mark.usefixtures("emulators")]

OPERATORS = [operator.op_type for operator in catalog.all_integer_operators()]
PRODUCTS = [op.op_type for op in catalog.all_integer_operators() if op.depends_on_machine()]
NASTY = {
    "QLinearAdd": (SaturationMode.UNFUSED, SaturationMode.WRAPS),
    "QLinearMul": (SaturationMode.DIVIDES, SaturationMode.WRAPS),
}
"""Arithmetic that rounds results otherwise; of other operators, that whose sums overflow."""


@pytest.fixture(scope="session")
def cases() -> list[NodeCase]:
    return list(node_cases(("ends",)))


@pytest.fixture(scope="session")
def folder(cases: list[NodeCase], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nodes")
    for case in cases:
        case.save(path)
    return path


@pytest.mark.parametrize("op_type", OPERATORS)
@pytest.mark.parametrize("machine", BY_MACHINE)
def test_every_integer_is_as_predicted(
    machine: Machine,
    op_type: str,
    cases: list[NodeCase],
    folder: Path,
    run_on: Callable[[Machine, Path], Results],
) -> None:
    results = run_on(machine, folder)
    mine = [case for case in cases if case.op_type == op_type]
    assert mine
    differing = {case.name: case.differing(results.outputs(case.name), machine) for case in mine}
    wrong = {name: count for name, count in differing.items() if count}
    assert not wrong


@pytest.mark.parametrize(
    ("op_type", "saturation_mode"),
    [
        (op, saturation_mode)
        for op in PRODUCTS
        for saturation_mode in NASTY.get(op, (SaturationMode.SATURATES, SaturationMode.WRAPS))
    ],
)
def test_the_cases_are_nasty_enough(
    op_type: str, saturation_mode: SaturationMode, cases: list[NodeCase]
) -> None:
    heard: list[Overflows] = []
    for case in cases:
        if case.op_type == op_type:
            case.predicted(saturation_mode, heard.append)
    assert heard

"""Quantized files on the ONNX Runtime of this process: loaded, run, compared node by node.

python -m scripts._versions.checked_files FOLDER      # the last line is JSON: Checked
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnxq.checking.cross_check import cross_check
from onnxq.errors import OnnxqError
from onnxq.graph.io import load

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Array

FLOAT = "float.onnx"
"""Name of the file that others were made of."""
BATCH = 2
LENGTH = 8
"""Size of a dynamic axis that is no batch."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Totals of a folder of files, and what went wrong.

    Attributes:
        files: how many there are.
        integers: elements that were compared.
        differing: of these, those that differ from the kernels'.
        refused: files that do not load or do not run.
        problems: a line for each of these, and for each file with another problem.
    """

    files: int = 0
    integers: int = 0
    differing: int = 0
    refused: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether every file runs, and no integer differs."""
        return not (self.refused or self.problems or self.differing)


def drawn(model: ir.Model, seed: int) -> dict[str, Array]:
    """Random numbers for each input of a model."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        sizes = [
            size if isinstance(size, int) else (BATCH if axis == 0 else LENGTH)
            for axis, size in enumerate(value.shape)
        ]
        kind = value.dtype.numpy()
        numbers = rng.standard_normal(sizes) if kind == np.float32 else rng.integers(0, 2, sizes)
        is_bool = kind == np.bool_  # each branch of an If is reached
        feeds[str(value.name)] = np.array(seed % 2 == 0) if is_bool else numbers.astype(kind)
    return feeds


def checked(folder: Path) -> Checked:
    """Every ONNX file below the folder, on the installed ONNX Runtime."""
    files = sorted(file for file in folder.rglob("*.onnx") if file.name != FLOAT)
    integers, differing, refused, problems = 0, 0, [], []
    for file in files:
        name = str(file.relative_to(folder))
        try:
            model = load(file)
            found = cross_check(model, [drawn(model, seed) for seed in (1, 2)])
        except OnnxqError as error:
            refused.append(name)
            problems.append(f"{name}: {error}")
            continue
        integers += sum(node.elements for node in found.nodes)
        differing += sum(node.differing for node in found.nodes)
        wrong = [node for node in found.nodes if node.differing or node.problem]
        problems += [f"{name}: {node.op_type} '{node.name}': {node.problem}" for node in wrong]
    return Checked(len(files), integers, differing, refused, problems)


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(checked(Path(sys.argv[1])))))

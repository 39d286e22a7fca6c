"""ResNet-20 and MobileNetV2, quantized, over real images; integers of every layer are outputs.

Of each, three: for x86-vnni; portable; and "clipped", as other tools may write it: weights half as
large again, so that a part of them is clipped, at -128 and 127. Its weights and the zeros behind
every Relu are what ARM's pairs trip over.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

import onnxq
from onnxq import reference
from onnxq.ort.expose import expose
from scripts._models import float_models
from tests.examples import ALL_INTEGERS
from tests.isa.machines import save_case

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onnxq.core.arrays import Singles
    from onnxq.operator import Array
    from onnxq.targets.accumulation import SaturationMode

BATCH = 20
TARGETS = ("x86-vnni", "portable")
CLIPPED = "clipped"
STRETCH = 1.5


@dataclass(frozen=True, slots=True, eq=False)
class ModelCase:
    """A quantized model and images.

    Attributes:
        name: of its files.
        model: as quantized; its first output are the logits.
        seen: the same, or with more outputs.
        images: (N, 3, 32, 32).
    """

    name: str
    model: ir.Model
    seen: ir.Model
    images: Singles

    @property
    def outputs(self) -> list[str]:
        """Names of what `predicted` gives."""
        return [str(value.name) for value in self.seen.graph.outputs]

    def predicted(self, saturation_mode: SaturationMode) -> list[Array]:
        """Every output on a machine."""
        session = reference.evaluator(self.seen, saturation_mode=saturation_mode)
        parts = [
            session.run(None, {"image": self.images[i : i + BATCH]})
            for i in range(0, len(self.images), BATCH)
        ]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def save(self, folder: Path) -> None:
        """Writes it for a machine."""
        model = ir.to_proto(self.seen).SerializeToString()
        save_case(folder, self.name, model, {"image": self.images})


def model_cases(folder: Path, calibration: Singles, images: Singles) -> Iterator[ModelCase]:
    """Each network, for each target and clipped.

    Args:
        folder: for the float models.
        calibration: images to calibrate on.
        images: to run.
    """
    for source in itertools.islice(float_models(folder, calibration), 2):
        for target in TARGETS:
            # float nodes, which the default has where they are faster, round as machines do
            samples = {"image": calibration}
            model = onnxq.quantize(source.path, samples, qconfig=ALL_INTEGERS, target=target)
            yield ModelCase(f"{source.name}-{target}", model, with_integers(model), images)
            if target == TARGETS[0]:
                wide = clipped(model)
                yield ModelCase(f"{source.name}-{CLIPPED}", wide, with_integers(wide), images)


def with_integers(model: ir.Model) -> ir.Model:
    """A copy that gives the integers of every layer too, after its own outputs."""
    names = [str(node.outputs[0].name) for node in model.graph if node.op_type == "QuantizeLinear"]
    return expose(model, names).model


def clipped(model: ir.Model) -> ir.Model:
    """A copy whose int8 weights are half as large again, and clipped to what int8 holds."""
    copy = model.clone()
    for value in copy.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.dtype != ir.DataType.INT8 or tensor.size < 2:
            continue
        if not tensor.numpy().any():  # zero points
            continue
        wide = np.clip(np.rint(tensor.numpy() * STRETCH), -128, 127).astype(np.int8)
        value.const_value = ir.tensor(wide, name=value.name)
    return copy

"""Checks an exported model in exact sums, where this machine's kernels saturate or wrap.

x86 without VNNI adds pairs of u8 * s8 products in int16, which full-range weights saturate; plain
ARM wraps at (-128) * (-128). A model for machines that add exactly is exported there all the same:
where ONNX Runtime differs from the module, the reference kernels run the model in its place.
"""

import warnings
from collections.abc import Callable, Sequence

import onnx_ir as ir

from onnxq.errors import OnnxqError, VerificationError
from onnxq.ort.target_here import target_here
from onnxq.pytorch.arguments.bound_inputs import BoundInputs
from onnxq.pytorch.exporting.agreement import Engine, onnx_runtime, reference_kernels
from onnxq.pytorch.exporting.check_quantized import difference
from onnxq.qdq.tidy import output_scales
from onnxq.targets import Target
from onnxq.targets.accumulation import SaturationMode

_EFFECTS = {
    SaturationMode.SATURATES: "saturate",
    SaturationMode.WRAPS: "wrap",
    SaturationMode.WRAPS_DEPTHWISE: "wrap",
}
"""Arithmetic of machines that add pairs of products in int16 -> what these do."""


def check_here_or_exactly(
    check: Callable[[Engine], None], model: ir.Model, batches: Sequence[BoundInputs]
) -> None:
    """Runs the check on ONNX Runtime; where it fails for inexact sums, on reference kernels."""
    try:
        check(onnx_runtime)
    except VerificationError as error:
        machine = target_here()
        if machine.saturation_mode not in _EFFECTS:
            raise
        try:
            check(reference_kernels)
        except OnnxqError as other:
            raise error from other
        warnings.warn(_note(machine, _moved(model, batches)), stacklevel=3)


def _moved(model: ir.Model, batches: Sequence[BoundInputs]) -> dict[str, float]:
    """Name of each output -> its largest difference on this machine from exact sums, in LSB."""
    scales = output_scales(model)
    moved = {name: 0.0 for name, _ in scales}
    with onnx_runtime(model) as here, reference_kernels(model) as exact:
        for batch in batches:
            pairs = zip(here.run(batch.arrays), exact.run(batch.arrays), strict=True)
            for (name, scale), pair in zip(scales, pairs, strict=True):
                found = difference(f"output '{name}'", *pair, scale)
                if found is not None:
                    moved[name] = max(moved[name], found.largest)
    return moved


def _note(machine: Target, moved: dict[str, float]) -> str:
    name, lsb = max(moved.items(), key=lambda item: item[1])
    limit = machine.weight_qmax_saturating
    within = f"keep weights in [-{limit}, {limit}]"
    remedy = within
    if machine.reduces_range:
        remedy = (
            "observe activations with reduce_range=True, as the qconfig of backend 'fbgemm' does, "
            f"or {within}"
        )
    return (
        f"on this machine ({machine.name}) pairs of products {_EFFECTS[machine.saturation_mode]} "
        "in "
        f"int16: they move output '{name}' of the exported model by up to {lsb:.3g} LSB. In "
        "exact sums, as on x86-vnni, it computes what the module computes. For a model that does "
        f"so here too, {remedy}. onnxq.predict names the layers."
    )

"""Precisions in which clients of a hub ask for a model, and how each is made."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnxq.checking.check import Check
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import UnsupportedError
from onnxq.float16_model import half
from onnxq.pipeline import quantize, quantize_dynamic
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.samples import Samples
from onnxq.targets import Target
from onnxq.weight_only import quantize_weights


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the float model, and what its variants are made from and judged on.

    Attributes:
        name: of the file, without its ending: "model", "encoder_model".
        check: inputs that variants are judged on, where none are held apart from the samples.
        samples: to calibrate on; None: there are none.
        target: machine that integers are for; None: `targets.get_default()`.
    """

    name: str
    model: ir.Model
    check: Check
    samples: Samples | None
    target: str | Target | None

    @property
    def seen(self) -> object:
        """Samples to look at while a variant is made and judged."""
        return self.check.samples if self.samples is None else self.samples


@dataclass(frozen=True, slots=True)
class Variant:
    """A precision in which clients ask for a model.

    Attributes:
        name: by which transformers.js calls it (its dtype).
        suffix: of the file's name.
        make: makes a part in this precision, with its verdict.
    """

    name: str
    suffix: str
    make: Callable[[Part], QuantizedModel]


def _as_given(part: Part) -> QuantizedModel:
    if _is_float16(part.model):
        raise UnsupportedError("its weights are float16: variant fp16 is the model as it is")
    return QuantizedModel.of(part.model.clone())


def _in_float16(part: Part) -> QuantizedModel:
    if _is_float16(part.model):
        return QuantizedModel.of(part.model.clone())
    return half(part.model, part.seen)


def _is_float16(model: ir.Model) -> bool:
    """Whether most bytes of the model's weights are float16."""
    sizes: dict[ir.DataType | None, int] = defaultdict(int)
    for graph in model.graphs():
        for value in graph.initializers.values():
            sizes[value.dtype] += 0 if value.const_value is None else value.const_value.nbytes
    return max(sizes, key=sizes.__getitem__, default=None) == ir.DataType.FLOAT16


def _in_8_bits(part: Part) -> QuantizedModel:
    small, target = Objective.SIZE, part.target
    if part.samples is None:
        return quantize_dynamic(part.model, objective=small, target=target, check=part.check)
    check = replace(part.check, samples=None)
    return quantize(part.model, part.samples, objective=small, target=target, check=check)


def _in_4_bits(part: Part) -> QuantizedModel:
    if part.samples is None:
        return quantize_weights(part.model, check=part.check)
    return quantize_weights(part.model, part.samples)


VARIANTS = (
    Variant("fp32", "", _as_given),
    Variant("fp16", "_fp16", _in_float16),
    Variant("q8", "_quantized", _in_8_bits),
    Variant("int8", "_int8", _in_8_bits),
    Variant("q4", "_q4", _in_4_bits),
    Variant("q4f16", "_q4f16", lambda part: half(part.model, part.seen, weight_bits=4)),
)
DEFAULT = ("fp32", "fp16", "q8", "q4", "q4f16")

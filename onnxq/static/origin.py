"""The file that a prepared model was read from, to be read again by another process."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import onnx_ir as ir

from onnxq.errors import ModelError
from onnxq.graph.canonical import canonicalize
from onnxq.graph.hashing import Seal
from onnxq.graph.io import load, model_hash
from onnxq.graph.passes.pad_channels import PadDepthwise
from onnxq.graph.passes.pool_to_conv import PoolToConv
from onnxq.graph.pixels import quantized_pixels, take_pixels
from onnxq.ort.types_by_run import types_by_run
from onnxq.qconfig.quantized_input import Pixels, QuantizedInput


@dataclass(frozen=True, slots=True)
class Origin:
    """A file, and the seal of the model that was made of it."""

    path: Path
    seal: Seal

    @classmethod
    def of(cls, path: str | Path, model: ir.Model) -> Self:
        """Origin of a model, as it is now."""
        return cls(Path(path).absolute(), Seal.of(model))

    def gives(self, model: ir.Model) -> bool:
        """Whether this very model comes of the file, unedited."""
        return Seal.of(model) == self.seal


def read_again(
    path: Path,
    wanted_hash: str,
    quantized_input: Mapping[str, QuantizedInput | Pixels],
    op_types: Collection[str],
) -> ir.Model:
    """The model of a Prepared, from its file."""
    model = canonicalize(load(path), types_by_run).model
    take_pixels(model, quantized_pixels(model, quantized_input))
    found = model_hash(model)
    if found != wanted_hash:
        raise ModelError(
            f"'{path}' is not the model that was prepared (hash {found[:12]}; wanted "
            f"{wanted_hash[:12]}): the file changed since, or another version of onnxq reads it "
            "here. Prepare it again, with the same onnxq everywhere."
        )
    suit_kernels(model, op_types)
    return model


def suit_kernels(model: ir.Model, op_types: Collection[str]) -> None:
    """Edits a canonical model so that operators that the qconfig names get fast kernels."""
    PoolToConv(op_types)(model)
    PadDepthwise()(model)

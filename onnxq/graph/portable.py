"""Models as other processes load them: by the path of their file, or by their bytes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import onnx
import onnx_ir as ir

from onnxq.errors import ModelError
from onnxq.graph.annotations import Annotations
from onnxq.graph.io import load, model_hash
from onnxq.graph.saving import to_bytes


@dataclass(frozen=True, slots=True)
class PortableModel:
    """A model that can be pickled.

    Attributes:
        source: absolute path of its file; or its bytes, where it was given in memory.
        model_hash: of the model as it was loaded; empty: it is not checked.
    """

    source: Path | bytes
    model_hash: str = ""

    @classmethod
    def of(cls, source: object, loaded: ir.Model) -> Self:
        """The model."""
        if isinstance(source, str | Path):
            return cls(Path(source).absolute(), model_hash(loaded))
        return cls(to_bytes(loaded, Annotations.KEPT))

    def load(self) -> ir.Model:
        """The model, as `load` gives it.

        Raises:
            ModelError: the file is not there, or holds another model by now.
        """
        if isinstance(self.source, bytes):
            return load(onnx.ModelProto.FromString(self.source))
        model = load(self.source)
        if model_hash(model) != self.model_hash:
            raise ModelError(
                f"'{self.source}' is another model now than where the work began: the file "
                "changed, or the workers have another one under this path."
            )
        return model

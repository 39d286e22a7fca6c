"""Quantized models, ready to be saved, run and looked at."""

from pathlib import Path
from typing import Self

import onnx
import onnx_ir as ir

from onnxq.graph.annotations import Annotations
from onnxq.graph.checks import FORMAT_KEY
from onnxq.graph.hashing import Seal
from onnxq.graph.saving import save, to_bytes
from onnxq.page.card import card
from onnxq.quantized.verdict import Verdict


class QuantizedModel(ir.Model):
    """A quantized model, as `rewrite`, `quantize` and the others return it.

    int8 = onnxq.quantize("model.onnx", samples)
    print(int8.verdict)
    int8.save("model.int8.onnx")
    session = onnxruntime.InferenceSession(int8.to_bytes())

    It may be edited as any onnx_ir.Model; a verdict on what it was is forgotten then.
    """

    _verdict: Verdict | None = None
    _seal: Seal | None = None

    @classmethod
    def of(cls, model: ir.Model) -> Self:
        """The model under this class; the two share the graph, so that one of them is forgotten."""
        return cls(
            model.graph,
            ir_version=model.ir_version,
            producer_name=model.producer_name,
            producer_version=model.producer_version,
            domain=model.domain,
            model_version=model.model_version,
            doc_string=model.doc_string,
            functions=tuple(model.functions.values()),
            metadata_props=model.metadata_props,
            device_configurations=model.device_configurations,
        )

    def attach(self, verdict: Verdict) -> None:
        """Keeps a verdict on the model as it is now."""
        self._verdict, self._seal = verdict, Seal.of(self)

    @property
    def verdict(self) -> Verdict | None:
        """Verdict of a run; None where it was not run, was edited since, or is a copy.

        Numbers that are written into the array of a weight go unnoticed.
        """
        if self._seal is None or self._seal != Seal.of(self):
            return None
        return self._verdict

    def save(
        self,
        path: str | Path,
        annotations: Annotations = Annotations.DROPPED,
        inline_bytes: int | None = None,
    ) -> None:
        """Writes the model, as `onnxq.save`.

        Args:
            path: of the file.
            annotations: whether inferred types and exporters' notes are written, too.
            inline_bytes: most weights in the file itself, as of `onnxq.save`.
        Raises:
            OutputError, ModelError: as there.
        """
        save(self, path, annotations, inline_bytes)

    def to_bytes(self) -> bytes:
        """The file that `save` writes, for onnxruntime.InferenceSession.

        Raises:
            ModelError: it has more than 1.9 GB of weights, which `save` writes beside it.
        """
        return to_bytes(self)

    def to_proto(self) -> onnx.ModelProto:
        """The file that `save` writes, for onnx.save and onnx.checker.

        Raises:
            ModelError: as `to_bytes`.
        """
        proto: onnx.ModelProto = onnx.ModelProto.FromString(self.to_bytes())
        return proto

    def clone(self, deep_copy: bool = False) -> Self:
        """A copy to be edited, which shares the weights and has no verdict."""
        return self.of(super().clone(deep_copy=deep_copy))

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, _memo: dict[int, object]) -> Self:
        return self.clone(deep_copy=True)

    def __reduce__(self) -> tuple[object, tuple[bytes, Verdict | None]]:
        # weights that are computed when they are read cannot be pickled as they are
        return _unpickled, (self.to_bytes(), self.verdict)

    def __repr__(self) -> str:
        nodes = sum(1 for _ in self.graph.all_nodes())
        file_format = self.metadata_props.get(FORMAT_KEY, "none")
        return f"<QuantizedModel '{self.graph.name}', {nodes} nodes, format {file_format}>"

    def __str__(self) -> str:
        verdict = self.verdict
        return f"{self!r}, without a verdict" if verdict is None else str(verdict)

    def _repr_html_(self) -> str:
        verdict = self.verdict
        said = ["no verdict: it was not run, or edited since"]
        if verdict is not None:
            said = list(verdict.sentences())
        return card(repr(self).strip("<>"), said)


def _unpickled(data: bytes, verdict: Verdict | None) -> QuantizedModel:
    made = QuantizedModel.of(ir.from_proto(onnx.ModelProto.FromString(data)))
    if verdict is not None:
        made.attach(verdict)
    return made

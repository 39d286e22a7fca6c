"""Holds a trained module's integers against those of ONNX Runtime, tensor by tensor.

See exporting.agreement for what is fed to the module, and why integers may differ by one LSB.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from torch import fx, nn

from onnxq.errors import UnsupportedError, kind_of
from onnxq.pytorch.arguments.bound_inputs import Inputs, bind
from onnxq.pytorch.exporting.agreement import Feeding, TensorAgreement, beside

__all__ = ["Deployed", "Feeding", "TensorAgreement", "compare"]


@dataclass(slots=True)
class Deployed:
    """Findings of `compare`, tensor by tensor.

    Attributes:
        feeding: what the parts of the module were given.
        tensors: by node, in graph order.
        rows: batch elements whose outputs were compared.
        same_top: of these, how many have the same largest element in the first output.
    """

    feeding: Feeding
    tensors: dict[str, TensorAgreement] = field(default_factory=dict)
    rows: int = 0
    same_top: int = 0

    @property
    def agreement(self) -> float:
        """Share of rows whose largest output is the same."""
        return self.same_top / max(self.rows, 1)


def compare(
    module: nn.Module, model: ir.Model, batches: Iterable[Inputs], feeding: Feeding
) -> Deployed:
    """How a prepared or converted module and its exported model agree.

    Args:
        module: of prepare_qat(..., inputs=...), or what convert made of it; in eval mode.
        model: exported from it, as QDQ.
        batches: inputs of the module.
        feeding: what each part is given.
    Raises:
        UnsupportedError: the module was not traced, or a tensor that it rounds is not in the model.
    """
    if not isinstance(module, fx.GraphModule):
        raise UnsupportedError(
            f"compare: got {kind_of(module)}; wanted what prepare_qat(..., inputs=...) "
            "returns, or convert of that. A module with stubs is compared by export itself."
        )
    found = Deployed(feeding)
    with beside(module, model, feeding) as both:
        found.tensors = both.tensors
        for batch in batches:
            outputs = both.compare(bind(module, batch)).outputs
            rows = outputs[0][0].shape[0]
            got, wanted = (a.reshape(rows, -1).argmax(1) for a in outputs[0])
            found.rows += rows
            found.same_top += int(np.count_nonzero(got == wanted))
    return found

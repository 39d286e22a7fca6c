"""A check asks onnxq for one thing that a document says; its outcome is a value.

    Check("PyTorch 1.8", "nn.quantized", "Linear", ask)

`ask` returns where the document's claim holds. It raises Difference where a value is another one;
an OnnxqError of the product itself is a refusal; any other exception is a difference, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch

from onnxq.errors import OnnxqError

# --- The documents, by the name that an id begins with.

DESIGN = "1.3"
"""PyTorch 1.3's introduction: quantize_linear, the rules of nn.quantized, customization."""
GUIDE = "1.6"
"""PyTorch 1.6's page on quantization: call forms (autofunction, autoclass) and workflows."""
COVERAGE = "1.8"
"""PyTorch 1.8's operation coverage: the list of names, each with a line on what it does."""
NVIDIA = "tensor_quant"
"""pytorch_quantization.tensor_quant of NVIDIA's pytorch-quantization."""

DOCUMENTS = {
    DESIGN: "PyTorch 1.3, introduction to quantization",
    GUIDE: "PyTorch 1.6, quantization",
    COVERAGE: "PyTorch 1.8, quantization operation coverage",
    NVIDIA: "pytorch-quantization, tensor_quant",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One claim of a document.

    Attributes:
        document: a key of DOCUMENTS.
        topic: the namespace or workflow that it is about.
        thing: the name, and what of it.
        ask: raises where the claim does not hold.
    """

    document: str
    topic: str
    thing: str
    ask: Callable[[], None]

    @property
    def id(self) -> str:
        """Name of the check: "1.8 / nn.quantized / Linear"."""
        return f"{self.document} / {self.topic} / {self.thing}"


class Difference(Exception):  # noqa: N818  # an answer, not an error
    """onnxq gives another thing than the document, or torch, does; the text measures it."""


class Kind(Enum):
    """How a check ended."""

    RIGHT = "right"
    REFUSED = "refused by name"
    DEVIATES = "deviates"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a check ended, and in which words: the difference, or the error's message."""

    kind: Kind
    text: str = ""


def outcome(check: Check) -> Outcome:
    """Runs a check from the same seed each time, whatever ran before."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's deprecations of what the documents show
            check.ask()
    except OnnxqError as error:
        return Outcome(Kind.REFUSED, str(error))
    except Difference as difference:
        return Outcome(Kind.DEVIATES, str(difference))
    except Exception as error:  # whatever a documented call raises is its outcome
        return Outcome(Kind.DEVIATES, f"{type(error).__name__}: {error}")
    return Outcome(Kind.RIGHT)

"""A problem of a model: what is wrong with which part, and what to do."""

from dataclasses import dataclass

import onnx_ir as ir

DAMAGED = "The model is damaged or was written by a broken tool; export it again."

WHERE_KEY = "onnxq.where"
"""Key in a model's `meta`, which is not saved: its name in messages, such as "'model.onnx'"."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something for which a model is refused.

    Attributes:
        wrong: a clause that names node or tensor: what it has, and what was wanted.
    """

    wrong: str
    remedy: str = DAMAGED

    def __str__(self) -> str:
        return f"{self.wrong}. {self.remedy}"


def label(node: ir.Node) -> str:
    """The node, for a message: "Conv 'conv1'", by its first result where it has no name."""
    name = node.name or next((value.name for value in node.outputs if value.name), "")
    return f"{node.op_type} '{name}'"

"""Reasons why a weight is not stored group-wise, or how it is."""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.core.reason import Reason


@dataclass(frozen=True)
class NoGroupwiseWeights(Reason):
    """The operator has no constant matrix."""

    WORDS = "{label} has no weights that are stored in groups"
    label: str


@dataclass(frozen=True)
class Excluded(Reason):
    """The user excludes the node."""

    WORDS = "it is excluded"


@dataclass(frozen=True)
class NoGroupwiseMatrix(Reason):
    """The linear layer has no group-wise form."""

    WORDS = "its weight is no matrix, or the rank of its other operand is not known"


@dataclass(frozen=True)
class ConstantProduct(Reason):
    """Both operands are constants."""

    WORDS = "both of its matrices are constants: it is computed when the model is loaded"


@dataclass(frozen=True)
class GroupsAlongRows(Reason):
    """A product sums over what the groups of a shared embedding do not run along."""

    WORDS = "it sums over the rows of '{embedding}', whose groups run along them"
    embedding: str


@dataclass(frozen=True)
class WeightIsEmbedding(Reason):
    """The weight is the embedding of a lookup that stays in float."""

    WORDS = "its weight '{tensor}' is the embedding of '{lookup}' too, which stays in float"
    tensor: str
    lookup: str


@dataclass(frozen=True)
class EmbeddingsNotAsked(Reason):
    """The user asks for products alone."""

    WORDS = "embeddings stay in float unless bits of theirs are asked for"


@dataclass(frozen=True)
class IsEmbedding(Reason):
    """The node looks rows up: its integers are not chosen by what products see."""

    WORDS = "it is an embedding"


@dataclass(frozen=True)
class NoRowsOfFloats(Reason):
    """A lookup takes no rows of a float32 matrix."""

    WORDS = "it does not take rows of a float32 matrix"


@dataclass(frozen=True)
class GroupsDoNotDivide(Reason):
    """Rows of an embedding end within a group."""

    WORDS = "groups of {group_size} do not divide its embedding's rows of {width}"
    group_size: int
    width: int


@dataclass(frozen=True)
class MisreadByRuntime(Reason):
    """ONNX Runtime computes such a product wrongly in that form."""

    WORDS = (
        "ONNX Runtime misreads {bits}-bit integers of {outputs} outputs, which 4 does not divide; "
        "ask "
        "for 4 bits, or for form 'matmulnbits'"
    )
    bits: int
    outputs: int


@dataclass(frozen=True)
class ErrorAboveBudget(Reason):
    """Fewer bits of a weight cost more accuracy than size."""

    WORDS = "its error is dearer than its size: the bound on bits leaves it in float"


@dataclass(frozen=True)
class StoredGroupwise(Reason):
    """A weight is stored group-wise."""

    WORDS = "{spec}, {method}"
    spec: str
    method: str

"""Reasons why a weight is not stored in blocks, or how it is."""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.core.reason import Reason


@dataclass(frozen=True)
class NoBlockWeights(Reason):
    """The operator has no constant matrix."""

    WORDS = "{label} has no weights that are stored in blocks"
    label: str


@dataclass(frozen=True)
class Excluded(Reason):
    """The user excludes the node."""

    WORDS = "it is excluded"


@dataclass(frozen=True)
class NoBlockMatrix(Reason):
    """The product has no form in blocks."""

    WORDS = "its weight is no matrix, or the rank of its other operand is not known"


@dataclass(frozen=True)
class ConstantProduct(Reason):
    """Both operands are constants."""

    WORDS = "both of its matrices are constants: it is computed when the model is loaded"


@dataclass(frozen=True)
class BlocksAlongRows(Reason):
    """A product sums over what the blocks of a shared table do not run along."""

    WORDS = "it sums over the rows of '{table}', whose blocks run along them"
    table: str


@dataclass(frozen=True)
class WeightIsTable(Reason):
    """The weight is the table of a lookup that stays in float."""

    WORDS = "its weight '{tensor}' is the table of '{lookup}' too, which stays in float"
    tensor: str
    lookup: str


@dataclass(frozen=True)
class TablesNotAsked(Reason):
    """The user asks for products alone."""

    WORDS = "embeddings stay in float unless tables are asked for"


@dataclass(frozen=True)
class IsTable(Reason):
    """The node looks rows up: its codes are not chosen by what products see."""

    WORDS = "it is a table"


@dataclass(frozen=True)
class NoRowsOfFloats(Reason):
    """A lookup takes no rows of a float32 matrix."""

    WORDS = "it does not take rows of a float32 matrix"


@dataclass(frozen=True)
class BlocksDoNotDivide(Reason):
    """Rows of a table end within a block."""

    WORDS = "blocks of {block} do not divide its table's rows of {width}"
    block: int
    width: int


@dataclass(frozen=True)
class MisreadByRuntime(Reason):
    """ONNX Runtime computes such a product wrongly in that form."""

    WORDS = (
        "ONNX Runtime misreads {bits}-bit codes of {outputs} outputs, which 4 does not divide; ask "
        "for 4 bits, or for form 'matmulnbits'"
    )
    bits: int
    outputs: int


@dataclass(frozen=True)
class ErrorAboveBudget(Reason):
    """Fewer bits of a weight cost more accuracy than size."""

    WORDS = "its error is dearer than its size: the bound on bits leaves it in float"


@dataclass(frozen=True)
class BlocksStored(Reason):
    """Blocks of a weight are stored."""

    WORDS = "{spec}, {method}"
    spec: str
    method: str

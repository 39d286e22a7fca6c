"""Reasons why a weight is not stored group-wise, or how it is."""

from onnxq.core.reason import Reason


class NoGroupwiseWeights(Reason):
    WORDS = "it has no weights that are stored in groups"
    EXPECTED = True


class Excluded(Reason):
    WORDS = "it is excluded"


class NoGroupwiseOperator(Reason):
    WORDS = (
        "its weight '{constant}' stays in float: weights in groups are those of MatMul, Gemm, "
        "lookups and mixtures of experts; for {label} there are quantize and quantize-dynamic"
    )
    label: str
    constant: str


class ReadByMicrosoftAlone(Reason):
    WORDS = "operators of com.microsoft alone read its weight in groups; ask for 'matmulnbits'"


class MixtureInBody(Reason):
    WORDS = "mixtures of experts in bodies of If, Loop and Scan stay as they are"


class NoQMoE(Reason):
    WORDS = "ONNX Runtime's QMoE has on CPUs no {what}"
    what: str


class NoGroupwiseMatrix(Reason):
    WORDS = "its weight is no matrix, or the rank of its other operand is not known"


class ConstantMatMul(Reason):
    WORDS = "both of its matrices are constants: it is computed when the model is loaded"


class GroupsAlongRows(Reason):
    WORDS = "it sums over the rows of '{embedding}', whose groups run along them"
    embedding: str


class WeightIsEmbedding(Reason):
    WORDS = "its weight '{tensor}' is the embedding of '{lookup}' too, which stays in float"
    tensor: str
    lookup: str


class EmbeddingsNotAsked(Reason):
    WORDS = "embeddings stay in float unless bits of theirs are asked for"


class IsEmbedding(Reason):
    WORDS = "it is an embedding"


class NoRowsOfFloats(Reason):
    WORDS = "it does not take rows of a float32 matrix"


class GroupsDoNotDivide(Reason):
    WORDS = "groups of {group_size} do not divide its embedding's rows of {width}"
    group_size: int
    width: int


class MisreadByRuntime(Reason):
    WORDS = (
        "ONNX Runtime misreads {bits}-bit integers of {outputs} outputs, which 4 does not divide;"
        " ask for 4 bits, or for format 'matmulnbits'"
    )
    bits: int
    outputs: int


class ErrorAboveBudget(Reason):
    WORDS = "its error is dearer than its size: the bound on bits leaves it in float"


class StoredGroupwise(Reason):
    WORDS = "{spec}, {method}"
    spec: str
    method: str

"""The precision of a node: the numbers that it reads, computes on and gives."""

import enum


class Precision(enum.Enum):
    """Numbers that a node of the quantized model works on; YAML, `--set` and tables have its names.

    Two members for one kind of node differ in what its file holds, and so in size and speed.
    """

    FLOAT = "float"
    """Computes in float32: the node stays as it is."""
    INT8 = "int8"
    """Integers in, integers out, with scales that calibration found."""
    INT8_FLOAT_OUTPUT = "int8_float_output"
    """Integers in, float32 out: sums of products are scaled, and not rounded again."""
    DYNAMIC_INT8 = "dynamic_int8"
    """Weights are int8; activations are quantized when the model runs."""
    WEIGHT_ONLY = "weight_only"
    """Weights are integers in the file, with a scale per channel; computes in float32."""
    WEIGHT_ONLY_GROUPWISE = "weight_only_groupwise"
    """Weights are integers with a scale per group, which ONNX Runtime's MatMulNBits reads."""
    WEIGHT_ONLY_FLOAT16 = "weight_only_float16"
    """Weights are float16 in the file; computes in float32."""
    FLOAT_BETWEEN_QDQ = "float_between_qdq"
    """Computes in float32 between DequantizeLinear and QuantizeLinear."""

    @property
    def stores_weights_alone(self) -> bool:
        """Whether scales of activations are not known ahead: dynamic, or weights alone."""
        return self in _STORED

    @property
    def runs_in_float(self) -> bool:
        """Whether the float model's kernel runs, or nearly."""
        return self is Precision.FLOAT or (self in _STORED and self is not Precision.DYNAMIC_INT8)


_STORED = frozenset(
    [
        Precision.DYNAMIC_INT8,
        Precision.WEIGHT_ONLY,
        Precision.WEIGHT_ONLY_GROUPWISE,
        Precision.WEIGHT_ONLY_FLOAT16,
    ]
)

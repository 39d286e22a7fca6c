"""Layouts in which ONNX Runtime runs the nodes around convolutions, on x86-64.

Float convolutions of images run on blocks of channels, integer ones channels last. A node that runs
in such a layout, too, stands between two of them at no price; any other one has its tensors
reordered on both sides. `tests/ort/test_layouts.py` asks ONNX Runtime.
"""

VIEW = "Reshape"
VIEWS = frozenset((VIEW, "Flatten", "Squeeze", "Unsqueeze"))
"""Operators that give another shape to the same elements; one of them is measured."""
CONVOLUTION = "Conv"
FUSED_BEHIND_CONV = frozenset(
    ["Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Tanh"]
)
"""Activations that a float convolution computes itself, where nobody else reads its result."""
ADDED_BY_CONV = frozenset(["Add", "Sum"])
"""Sums that a float convolution computes itself: Conv(x) + y."""
GATE = ("Mul", "Sigmoid")
"""x * Sigmoid(x) runs as one float node, QuickGelu."""
IN_BLOCKS = FUSED_BEHIND_CONV | ADDED_BY_CONV
IN_BLOCKS |= frozenset(
    [
        "AveragePool",
        "Concat",
        "Gelu",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "Identity",
        "MaxPool",
        "Mul",
        "Resize",
    ]
)
"""Float nodes that run on blocks of channels; of two operands, only where their shapes are one."""
INTO_BLOCKS, OUT_OF_BLOCKS, REORDERED = "ReorderInput", "ReorderOutput", "Transpose"
CHANGES_LAYOUT = (INTO_BLOCKS, OUT_OF_BLOCKS, REORDERED)
"""Operators that it adds where layouts change; a Transpose of the file has the name that it had."""
QUANTIZES_AT_RUN = "DynamicQuantizeLinear"
CHANNELS_LAST = frozenset(["AveragePool", "Concat", "GlobalAveragePool", "MaxPool"])
"""Integer nodes that run channels last though their result has another shape than their inputs."""
BLOCK = 16
"""Channels of a block where there is AVX-512: 24 take the time of 32, in integers too; groups of
fewer are not run in blocks."""
FEW_CHANNELS = 16
"""Input channels of a convolution below which it reads (N, C, H, W) and writes blocks."""

"""Operators, types and observers that this package adds to onnxq.

The entry point imports this module, which registers all of them.
"""

from onnxq_example.int6 import INT6
from onnxq_example.mat_mul_integer16 import MatMulInteger16
from onnxq_example.power_of_two import PowerOfTwoObserver
from onnxq_example.quick_gelu import quick_gelu

__all__ = ["INT6", "MatMulInteger16", "PowerOfTwoObserver", "quick_gelu"]

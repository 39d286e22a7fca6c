"""Model checks: what every model passes before a stage reads it, whoever hands it in.

`check_model` runs the checks of the other files, one file per subject, in the order of CHECKS. Each
is a function of the model that yields a Problem where onnxq, or ONNX Runtime, would stumble later:
in a traceback, over a file that is none of the model's business, or without end. None of them reads
a weight, and none calls itself: their time is linear in nodes and tensors.

What ONNX Runtime runs passes, also where it is odd: a wrong value_info, say, is a note of
`graph.types` and no problem.
"""

from onnxq.graph.untrusted.check_model import CHECKS, check_model
from onnxq.graph.untrusted.problem import Problem

__all__ = ["CHECKS", "Problem", "check_model"]

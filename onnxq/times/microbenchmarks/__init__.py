"""Clock: how long this machine takes for a node in each precision, as a table of `onnxq.times`.

    measure_costs().save("here.csv")

Every kind of node is measured among its like, as networks have it: convolutions in the layout that
they hand on to each other, layers behind layers with other weights.
"""

from onnxq.times.microbenchmarks.here import measure_costs

__all__ = ["measure_costs"]

"""Names of array types, each with one meaning in the package."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Singles = npt.NDArray[np.float32]
"""float32: what ONNX Runtime computes with."""
Reals = npt.NDArray[np.float64]
"""float64: what formulas are computed in."""
Ints = npt.NDArray[np.int32]
"""int32: integers that are subtracted, and sums of products."""

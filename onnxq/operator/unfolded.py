"""Unfolded: a node with a weight as a matrix product, Y[g] = X[g] W[g]' + b.

Improvements of weights think in this form: X holds what each output element sees of the activation,
one row per place; a convolution has a place per window, a matrix product one per row.
"""

from abc import ABC, abstractmethod
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Array, Singles

Number = TypeVar("Number", bound=np.generic)


class Unfolded(ABC):
    """The matrices of one node, in float: groups g, places n, outputs o, inputs i.

        results(y)[g, n, o] = sum_i rows(x)[g, n, i] matrix(w)[g, o, i] + bias[g * outputs + o]

    The places of `rows` and of `results` are in one order; a slice of them is read at a time, since
    rows may be many times as large as the activation.
    """

    @abstractmethod
    def places(self, x: Array) -> int:
        """Number of places of an activation x."""

    @abstractmethod
    def rows(self, x: Singles, places: slice) -> Singles:
        """float32 (groups, places, inputs): what these places see of x."""

    @abstractmethod
    def results(self, y: Singles, places: slice) -> Singles:
        """float32 (groups, places, outputs): the node's result at these places."""

    @abstractmethod
    def matrix(self, weight: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """(groups, outputs, inputs): the weight, or any array of its shape, as the node reads it.

        Of an array that is constant along all axes but the channels', rows are constant.
        """

    @abstractmethod
    def weight(self, matrix: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """The weight whose `matrix` this is."""

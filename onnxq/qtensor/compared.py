"""Comparisons of real values, and their order."""

from collections.abc import Callable
from typing import Generic, NamedTuple, Self, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

from onnxq.errors import ShapeError
from onnxq.qparams import IntArray
from onnxq.qtensor.checked import need_per_tensor, shape_errors, whole
from onnxq.qtensor.stored import Indices, StoredTensor

Bools: TypeAlias = npt.NDArray[np.bool]


Values = TypeVar("Values")


class Ordered(NamedTuple, Generic[Values]):
    """Result of `sort`, `topk`, `max` and `min` along an axis: values, and int64 indices."""

    values: Values
    indices: Indices


class ComparedTensor(StoredTensor):
    """Tensors in comparisons, element by element, and in order."""

    __slots__ = ()
    __array_ufunc__ = None  # array < tensor asks the tensor

    def eq(self, other: object) -> Bools:
        """Where self == other, of real values that broadcast; other: tensor, array or number."""
        return self._compare(np.equal, other)

    def ne(self, other: object) -> Bools:
        """Where self != other, as `eq`."""
        return self._compare(np.not_equal, other)

    def ge(self, other: object) -> Bools:
        """Where self >= other, as `eq`."""
        return self._compare(np.greater_equal, other)

    def le(self, other: object) -> Bools:
        """Where self <= other, as `eq`."""
        return self._compare(np.less_equal, other)

    def gt(self, other: object) -> Bools:
        """Where self > other, as `eq`."""
        return self._compare(np.greater, other)

    def lt(self, other: object) -> Bools:
        """Where self < other, as `eq`."""
        return self._compare(np.less, other)

    def _compare(self, compare: Callable[..., Bools], other: object) -> Bools:
        right = other.dequantize() if isinstance(other, StoredTensor) else other
        with shape_errors(f"comparison with {type(other).__name__}", self.shape):
            return np.asarray(compare(self.dequantize(), right))

    __eq__ = eq  # type: ignore[assignment]  # element by element, as documented
    __ne__ = ne  # type: ignore[assignment]  # likewise: object's gives one bool
    __ge__, __le__, __gt__, __lt__ = ge, le, gt, lt
    __hash__ = object.__hash__

    def equal(self, other: object) -> bool:
        """Whether other is a QTensor with the same shape, integers and quantization parameters."""
        return (
            isinstance(other, StoredTensor)
            and self._qparams == other.qparams
            and np.array_equal(self._integers, other.int_repr())
        )

    @overload
    def max(self) -> Self: ...
    @overload
    def max(self, dim: int, keepdim: bool = ...) -> Ordered[Self]: ...
    def max(self, dim: int | None = None, keepdim: bool = False) -> Self | Ordered[Self]:
        """The largest element, rank 0.

        Or, along dim, (values, indices), the first one of equals.
        """
        if dim is None:
            return self._with(np.asarray(self._nonempty("max", None).max()))
        return self._extreme("max", np.argmax, dim, keepdim)

    @overload
    def min(self) -> Self: ...
    @overload
    def min(self, dim: int, keepdim: bool = ...) -> Ordered[Self]: ...
    def min(self, dim: int | None = None, keepdim: bool = False) -> Self | Ordered[Self]:
        """The smallest element, as `max`."""
        if dim is None:
            return self._with(np.asarray(self._nonempty("min", None).min()))
        return self._extreme("min", np.argmin, dim, keepdim)

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Indices:
        """Index of the largest element in order of the indices, or those along dim; int64."""
        return self._index("argmax", np.argmax, dim, keepdim)

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Indices:
        """Index of the smallest element, as `argmax`."""
        return self._index("argmin", np.argmin, dim, keepdim)

    def _index(
        self, op: str, find: Callable[..., Indices], dim: int | None, keepdim: bool
    ) -> Indices:
        integers = self._nonempty(op, dim)
        axis = None if dim is None else self._axis(op, dim)
        found = np.asarray(find(integers.reshape(integers.shape or 1), axis=axis), np.int64)
        if not keepdim:
            return found
        return found.reshape(
            [1 if axis is None or i == axis else n for i, n in enumerate(self.shape)]
        )

    def _extreme(
        self, op: str, find: Callable[..., Indices], dim: int, keepdim: bool
    ) -> Ordered[Self]:
        indices = self._index(op, find, dim, True)
        if not self.ndim:
            return Ordered(self.clone(), indices)
        axis = self._axis(op, dim)
        values = np.take_along_axis(self._integers, indices, axis)
        if keepdim:
            return Ordered(self._with(values), indices)
        return Ordered(self._with(values.squeeze(axis)), indices.squeeze(axis))

    def _nonempty(self, op: str, dim: int | None) -> IntArray:
        need_per_tensor(op, self._qparams)
        sizes = (
            self.shape if dim is None else [self.shape[self._axis(op, dim)]] if self.ndim else ()
        )
        if 0 in sizes:
            raise ShapeError(f"{op}: no elements to reduce: shape {self.shape}, dim {dim}.")
        return self._integers

    def argsort(self, dim: int = -1, descending: bool = False) -> Indices:
        """Indices that sort along dim, int64, the tensor's shape; equals stay in order."""
        need_per_tensor("argsort", self._qparams)
        axis = self._axis("argsort", dim)
        keys = ~self._integers if descending else self._integers  # ~ turns the order round
        order = np.argsort(keys.reshape(keys.shape or 1), axis=axis, kind="stable")
        return order.reshape(self.shape).astype(np.int64)

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Ordered[Self]:
        """(values, indices) sorted along dim; equals stay in order, whether `stable` or not."""
        return self._in_order(self.argsort(dim, descending), self._axis("sort", dim))

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> Ordered[Self]:
        """(values, indices) of the k largest, or smallest, along dim, in order; first of equals."""
        need_per_tensor("topk", self._qparams)
        axis = self._axis("topk", dim)
        there = self.shape[axis] if self.ndim else 1
        if not 0 <= whole("topk", "k", k) <= there:
            raise ShapeError(f"topk: k is {k}; wanted 0 to {there}, the size along dim {dim}.")
        order = self.argsort(dim, descending=largest)
        return self._in_order(
            order[(slice(None),) * axis + (slice(k),)] if self.ndim else order, axis
        )

    def _in_order(self, order: Indices, axis: int) -> Ordered[Self]:
        if not self.ndim:
            return Ordered(self.clone(), order)
        return Ordered(self._with(np.take_along_axis(self._integers, order, axis)), order)

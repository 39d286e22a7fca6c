"""Views of a tensor's integers, of per-tensor quantized tensors, as PyTorch documents."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from onnxq.errors import ShapeError
from onnxq.qtensor.checked import need_per_tensor, shape_errors, sizes_of, whole, wholes
from onnxq.qtensor.stored import StoredTensor
from onnxq.qtensor.strides import expanded, offset_of, strided

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import EllipsisType

    Index = int | slice | EllipsisType | Sequence[int] | npt.NDArray[np.integer | np.bool] | None


class ViewedTensor(StoredTensor):
    """Tensors that share integers with the one they are taken of, each with its own qparams."""

    __slots__ = ()

    def __len__(self) -> int:
        return self.size(0)

    def __iter__(self) -> Iterator[Self]:
        return (self.select(0, i) for i in range(len(self)))

    def view(self, *shape: int | Sequence[int]) -> Self:
        """The same integers in another shape, one size of which may be -1."""
        need_per_tensor("view", self._qparams)
        sizes = sizes_of("view", shape)
        if min(sizes, default=0) < -1:
            raise ShapeError(f"view: got {sizes}; wanted sizes, or -1 once for what is left.")
        with shape_errors(f"view{sizes}", self.shape):
            integers = self._integers.reshape(sizes)
        if integers.size and not np.may_share_memory(integers, self._storage):
            raise ShapeError(
                f"view: integers of shape {self.shape} and strides {self.stride()} cannot be seen "
                f"as {sizes} where they are. Call contiguous() first, which copies them."
            )
        return self._with(integers)

    def as_strided(
        self, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
    ) -> Self:
        """y[i, j, ...] = memory[storage_offset + i * stride[0] + j * stride[1] + ...].

        Args:
            size: of the result.
            stride: in elements, as many as sizes, not negative.
            storage_offset: in elements; default: where this tensor starts.
        """
        need_per_tensor("as_strided", self._qparams)
        sizes, strides = wholes("as_strided", "size", size), wholes("as_strided", "stride", stride)
        if storage_offset is None:
            offset = offset_of(self._integers, self._storage)
            return self._with(strided(self._storage, sizes, strides, offset))
        offset = whole("as_strided", "storage_offset", storage_offset)
        return self._with(strided(self._storage, sizes, strides, offset))

    def expand(self, *sizes: int | Sequence[int]) -> Self:
        """Axes of size 1 repeated, without copying; -1 keeps a size.

        The result cannot be written.
        """
        need_per_tensor("expand", self._qparams)
        shape = expanded(self.shape, sizes_of("expand", sizes))
        return self._with(np.broadcast_to(self._integers, shape))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Axes start_dim to end_dim as one; a view where that needs no copy."""
        need_per_tensor("flatten", self._qparams)
        if not self.ndim:
            return self._with(self._integers.reshape(1))
        start, end = self._axis("flatten", start_dim), self._axis("flatten", end_dim)
        if start > end:
            raise ShapeError(
                f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in {self.shape}; "
                "exchange them."
            )
        middle = math.prod(self.shape[start : end + 1])
        return self._with(
            self._integers.reshape(*self.shape[:start], middle, *self.shape[end + 1 :])
        )

    def select(self, dim: int, index: int) -> Self:
        """The slice at index along dim, which goes; a view."""
        need_per_tensor("select", self._qparams)
        axis = self._axis("select", dim)
        if not -self.shape[axis] <= whole("select", "index", index) < self.shape[axis]:
            raise ShapeError(
                f"select: index {index} along dim {dim} of {self.shape}; wanted "
                f"{-self.shape[axis]} to {self.shape[axis] - 1}."
            )
        return self._with(self._integers[(slice(None),) * axis + (index, ...)])

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Self:
        """Python's indexing.

        A view for numbers and slices, a copy for arrays of indices or masks.
        """
        need_per_tensor("indexing", self._qparams)
        parts = index if isinstance(index, tuple) else (index,)
        steps = [part.step for part in parts if isinstance(part, slice)]
        if any(step is not None and step < 1 for step in steps):
            raise ShapeError(f"indexing: a slice has one of the steps {steps}; wanted 1 or more.")
        with shape_errors("indexing", self.shape):
            # the ellipsis makes the result of numbers alone an array of rank 0, and so a view
            rest = () if any(part is ... for part in parts) else (...,)
            return self._with(self._integers[(*parts, *rest)])

    def transpose(self, dim0: int = 0, dim1: int = 1) -> Self:
        """Two axes exchanged; a view."""
        need_per_tensor("transpose", self._qparams)
        first, second = self._axis("transpose", dim0), self._axis("transpose", dim1)
        return self._with(self._integers.swapaxes(first, second))

    def permute(self, *dims: int | Sequence[int]) -> Self:
        """The axes in another order; a view."""
        need_per_tensor("permute", self._qparams)
        order = sizes_of("permute", dims)
        with shape_errors(f"permute{order}", self.shape):
            return self._with(self._integers.transpose(order))

    def contiguous(self) -> Self:
        """Itself where the integers lie in order, else a copy where they do."""
        return self if self.is_contiguous() else self._with(self._integers.copy(order="C"))

"""A link: one node in one form among its like, and how models of few and of many of them are made.

chain     x -> link -> link -> ... -> y      convolutions, products: each in the layout that
                                             the one before it writes
branches  x -> link -> Shape, x -> link ...  all else; Shape reads the sizes alone, so that
                                             nothing else happens to the result
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.operator import Precision
from onnxq.ort.runtime import Optimization
from onnxq.times import Work
from onnxq.times.microbenchmarks.parts import NO_ATTRIBUTES, Parts

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Array

Build = Callable[[Parts, str], str]
"""build(parts, name of its input): adds the nodes of one link, and returns its result's name."""


SHAPE = (Work("Shape", "", 1, 1), Precision.FLOAT)
"""Work and form of the node that reads the result of a branch."""


class Arrangement(enum.Enum):
    """Order in which links stand in a model."""

    CHAIN = "chain"
    BRANCHES = "branches"


def calling(
    op_type: str,
    attributes: Mapping[str, object] = NO_ATTRIBUTES,
    domain: str = "",
    results: int = 1,
) -> Build:
    """A link of one node with one input."""
    return lambda parts, name: parts.add(op_type, [name], attributes, domain, results)


def both(first: Build, second: Build) -> Build:
    """A link of two links."""
    return lambda parts, name: second(parts, first(parts, name))


def sizes_alone(parts: Parts, name: str) -> str:
    """Reads the sizes of a result."""
    return parts.add("Shape", [name])


def nothing(parts: Parts, name: str) -> str:
    """Adds no node."""
    del parts
    return name


@dataclass(frozen=True, eq=False)
class Link:
    """Nodes that are timed together.

    Attributes:
        works: of the nodes that are timed, which share the time evenly.
        form: that they take.
        build: adds one link.
        inputs: name -> array; "x" is what the first link reads.
        arrangement: of the links in a model.
        begin: adds what stands between "x" and the links.
        end: adds what stands behind them.
        optimization: of the session; links that are equal would be made one.
        minus: further works and their forms that a link holds, whose time is not counted.
        few: links of the shorter model.
        more: links that the longer one has on top, at least.
    """

    works: tuple[Work, ...]
    form: Precision
    build: Build
    inputs: Mapping[str, Array]
    arrangement: Arrangement = Arrangement.BRANCHES
    begin: Build = nothing
    end: Build = nothing
    optimization: Optimization = Optimization.NONE
    minus: tuple[tuple[Work, Precision], ...] = ()
    few: int = 1
    more: int = 3

    @classmethod
    def alone(cls, work: Work, form: Precision, build: Build, inputs: Mapping[str, Array]) -> Link:
        """Branches of one node, whose result nobody reads."""
        return cls((work,), form, build, inputs, end=sizes_alone, minus=(SHAPE,))

    def model(self, count: int) -> ir.Model:
        """The model with so many links."""
        parts = Parts()
        name = self.begin(parts, "x")
        ends = []
        for _ in range(count):
            last = self.build(parts, name)
            if self.arrangement is Arrangement.CHAIN:
                name = last
            else:
                ends.append(self.end(parts, last))
        if self.arrangement is Arrangement.CHAIN:
            ends = [self.end(parts, name)]
        return parts.model(self.inputs, ends)

"""Contracts of PTQ algorithms, and the register of those that there are.

    ModelAlgorithm     before `prepare`: an equal float model that quantizes better (smooth)
    WeightAlgorithm    behind `plan`: other integers of constants (bias, round)

An algorithm is asked for by its name. One of your own is a subclass with `@register`, in a module
that onnxq loads as it loads operators: an entry point `onnxq.operators`, or ONNXQ_PLUGINS.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import onnx_ir as ir

from onnxq.core import plugins
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import QConfigError, nearest
from onnxq.quantized.outcome import Outcome
from onnxq.samples import Batches
from onnxq.static.choosing.proposals import Proposals
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared


@dataclass(frozen=True, slots=True, eq=False)
class EqualModel:
    """A canonical float model that computes what another one does, and how it came about.

    Attributes:
        model: with nodes of the same names, and perhaps more.
        naming: precisions of nodes that the qconfig leaves open, found on the way.
    """

    model: ir.Model
    outcomes: tuple[Outcome, ...]
    naming: Proposals = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Improved:
    """A prepared model with other constants, and the plan that they lie on.

    Attributes:
        prepared: its constants are those that `rewrite` is to write.
        plan: made for it; quantizing the constants by it gives the improved integers.
    """

    prepared: Prepared
    plan: Plan

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Outcomes of every algorithm so far."""
        return self.plan.outcomes


class PTQAlgorithm(ABC):
    """Base of both kinds."""

    name: ClassVar[str]


class ModelAlgorithm(PTQAlgorithm):
    """A PTQ algorithm of the float model, which is calibrated and planned afterwards."""

    @abstractmethod
    def improve(
        self, prepared: Prepared, samples: Batches, objective: Objective = Objective.SPEED
    ) -> EqualModel:
        """Another model in place of `prepared.model`, which stays as it is.

        Judged place by place on samples held back; an outcome says why a place was left as it was.

        Args:
            prepared: the float model, and what is to become of it.
            samples: of the float model; they can be gone through more than once.
            objective: that the plan will have.
        """


class WeightAlgorithm(PTQAlgorithm):
    """A PTQ algorithm of constants, with the qparams of a plan.

    Attributes:
        biases_alone: whether it leaves weights as they are. It then goes behind those that choose
            them, whatever the order in which they are asked for: what a bias makes up for is the
            error of the weights that are there at last.
        corrects_biases: whether it takes the mean of what a layer gives to the float model's. What
            is left of an error then is what factors are chosen by.
    """

    biases_alone: ClassVar[bool] = False
    corrects_biases: ClassVar[bool] = False

    @abstractmethod
    def improve(self, prepared: Prepared, plan: Plan, samples: Batches) -> Improved:
        """The same model with other constants; `prepared.model` stays as it is.

        The constants lie on the scales of the new plan. Judged layer by layer, and by the outputs,
        on samples held back.

        Args:
            prepared: the float model with the constants so far.
            plan: made from it.
            samples: of the float model; they can be gone through more than once.
        """


registry: dict[str, PTQAlgorithm] = {}
"""Name -> algorithm; filled by `register`."""

AlgorithmClass = TypeVar("AlgorithmClass", bound=type[PTQAlgorithm])


def register(cls: AlgorithmClass) -> AlgorithmClass:
    """Class decorator: makes the algorithm known under its name.

    Raises:
        TypeError: it has no name.
        ValueError: another one has that name.
    """
    if not isinstance(getattr(cls, "name", None), str):
        raise TypeError(
            f"PTQ algorithm {cls!r} has no name; wanted a class with name = 'something', under "
            "which it is asked for."
        )
    if cls.name in registry:
        raise ValueError(f"PTQ algorithm '{cls.name}' is registered twice")
    registry[cls.name] = cls()
    return cls


def find(name: str) -> PTQAlgorithm:
    """The algorithm of that name.

    Raises:
        QConfigError: there is none; names those that there are, and the nearest.
    """
    if name not in registry:
        plugins.load()
    if name not in registry:
        known = ", ".join(sorted(registry))
        raise QConfigError(
            f"PTQ algorithm '{name}' is not known; known: {known}.{nearest(name, registry)}"
        )
    return registry[name]

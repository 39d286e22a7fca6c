"""Recipe of quantization-aware training: three phases, one learning rate, a teacher or none.

observe              observers and the statistics of batch norm follow the batches
freeze activations   their observers are disabled, those of weights follow the weights
freeze               all observers are disabled and batch norm is frozen: each step computes what is
                     deployed

Learned scales are parameters, which train to the end.
"""

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.errors import CalibrationError, ModelError, QConfigError, kind_of
from onnxq.pytorch.arguments.forward import eval_mode
from onnxq.pytorch.nn.intrinsic.qat import freeze_bn_stats
from onnxq.pytorch.numerics.all_observers import check_observed_values
from onnxq.pytorch.numerics.fake_quantize import (
    FakeQuantize,
    LearnableFakeQuantize,
    disable_observer,
)
from onnxq.pytorch.train.conversion import convert_in_place

Loss = Callable[[nn.Module, Any], Tensor]
"""Scalar that a batch gives with the model; the batch is whatever the data give."""

_LOOKS = 10  # at the batches held apart, evenly over the steps
_SHARE = 10
"""Learning rates per step of a scale, in its own size: with weights of about 0.1, both move alike.
Adam's steps are as long as the rate, however small the parameter: small scales would go to 0."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How long, how fast, and when the phases begin; the defaults suit trained float weights.

    Attributes:
        steps: of the optimizer, Adam.
        learning_rate: largest one; it rises over the first tenth of the steps, and falls to 0 along
            a cosine.
        freeze_activations: share of the steps after which observers of activations are disabled.
        freeze: share after which all observers are disabled and batch norm is frozen.
    Raises:
        QConfigError: numbers out of their range.
    """

    steps: int = 1000
    learning_rate: float = 1e-4
    freeze_activations: float = 0.25
    freeze: float = 0.5

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.learning_rate > 0:
            raise QConfigError(
                f"Recipe: got {self.steps} steps at a learning rate of {self.learning_rate}; "
                "wanted 1 step or more, and a positive rate."
            )
        if not 0 <= self.freeze_activations <= self.freeze <= 1:
            raise QConfigError(
                f"Recipe: got freeze_activations={self.freeze_activations}, freeze={self.freeze}; "
                "wanted shares of the steps, 0 <= freeze_activations <= freeze <= 1."
            )

    def rate(self, step: int) -> float:
        """The learning rate of that step."""
        rise = max(self.steps // 10, 1)
        warm = min((step + 1) / rise, 1.0)
        return self.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * step / self.steps))

    def enter(self, model: nn.Module, step: int) -> None:
        """Brings a prepared model into the phase that begins at that step, if one does.

        For loops of one's own: call it before each step.
        """
        if step == round(self.freeze_activations * self.steps):
            for part in model.modules():
                if isinstance(part, FakeQuantize) and not part.is_replicated:
                    part.disable_observer()
        if step == round(self.freeze * self.steps):
            model.apply(disable_observer).apply(freeze_bn_stats)


def parameter_groups(model: nn.Module, learning_rate: float) -> list[dict[str, Any]]:
    """Groups for an optimizer such as Adam: learned scales have rates in proportion to themselves.

    Args:
        model: of prepare_qat with example inputs, whose scales have their first values.
        learning_rate: of all other parameters; `share` of a group is its part of it.
    """
    fakes = [part for part in model.modules() if isinstance(part, LearnableFakeQuantize)]
    scales = dict.fromkeys(fake.scale for fake in fakes)
    others = [one for one in model.parameters() if one not in scales]
    groups: list[dict[str, Any]] = [{"params": others, "lr": learning_rate, "share": 1.0}]
    for scale in scales:
        share = _SHARE * float(scale.detach().mean())
        groups.append({"params": [scale], "lr": learning_rate * share, "share": share})
    return groups


def finetune(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Loss,
    recipe: Recipe | None = None,
    held_apart: Iterable[Any] | None = None,
) -> list[float]:
    """Trains a prepared model by the recipe; it is ready for convert then, in eval mode.

    With batches held apart the model ends in the state whose mean loss on them was the lowest, the
    one that it came in included: what is deployed is never worse than the post-training result.

    Args:
        model: of prepare_qat, whose float weights were trained; changed in place.
        batches: a DataLoader, or a list; gone through as often as the steps ask for.
        loss: of the model and a batch; `distilling(float_model)` needs no labels.
        recipe: None: the default.
        held_apart: batches that are not trained on; None: the model ends in its last state.
    Returns:
        The loss of each step.
    Warns:
        UserWarning: no step was better than the state that the model came in.
    Raises:
        ModelError: prepare_qat did not make the model.
        CalibrationError: no batches, or none that are held apart.
    """
    chosen = recipe or Recipe()
    if not any(isinstance(part, FakeQuantize) for part in model.modules()):
        raise ModelError("finetune: nothing in the model rounds; give what prepare_qat returned.")
    optimizer = torch.optim.Adam(parameter_groups(model, chosen.learning_rate))
    best = None if held_apart is None else _Best(model, loss, list(held_apart))
    looks = {round(chosen.steps * (i + 1) / _LOOKS) for i in range(_LOOKS)}
    model.train()
    losses: list[Tensor] = []
    for step, batch in enumerate(itertools.islice(_again(batches), chosen.steps)):
        chosen.enter(model, step)
        for group in optimizer.param_groups:
            group["lr"] = chosen.rate(step) * group["share"]
        found = loss(model, batch)
        optimizer.zero_grad()
        found.backward()  # type: ignore[no-untyped-call]  # torch's own
        optimizer.step()
        losses.append(found.detach())  # a number would wait for the device
        if best is not None and step + 1 in looks:
            best.look(step + 1)
    if best is not None:
        best.restore()
    model.apply(disable_observer).eval()
    check_observed_values(model)
    return torch.stack(losses).tolist()


class _Best:
    """The state of a model with the lowest mean loss on batches that are not trained on."""

    def __init__(self, model: nn.Module, loss: Loss, batches: list[Any]) -> None:
        if not batches:
            raise CalibrationError(
                "finetune: held_apart has no batches. Give one or more, or None (an iterator is "
                "used up after one pass)."
            )
        self._model, self._loss, self._batches = model, loss, batches
        self._lowest, self._step = math.inf, 0
        self._state: dict[str, Tensor] = {}
        self.look(0)
        if not self._state:
            raise CalibrationError(
                "finetune: the mean loss on the batches held apart is not finite before the first "
                "step. Look for NaN or Inf in their inputs and targets, and in the loss."
            )
        self._start, self._of_start = self._state, self._lowest

    def look(self, step: int) -> None:
        """Keeps the state if it is the best so far."""
        found = mean_loss(self._model, self._loss, self._batches)
        if found < self._lowest:
            self._lowest, self._step = found, step
            self._state = {name: x.clone() for name, x in self._model.state_dict().items()}

    def restore(self) -> None:
        """Puts the model into the best state; into its first one where that is better converted."""
        if self._step and self._deployed(self._start) <= self._deployed(self._state):
            self._state, self._step, self._lowest = self._start, 0, self._of_start
        self._model.load_state_dict(self._state)
        if not self._step:
            warnings.warn(
                "finetune: no step was better than the start on the batches held apart (mean loss "
                f"{self._lowest:.4g}): the model is the post-training result that it came as. "
                "Train it longer, or at another rate.",
                stacklevel=3,
            )

    def _deployed(self, state: dict[str, Tensor]) -> float:
        """Mean loss of what is converted of that state, which rounds biases too."""
        self._model.load_state_dict(state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what never ran: the user's own convert says it
            made = convert_in_place(copy.deepcopy(self._model).eval())
        return mean_loss(made, self._loss, self._batches)


def mean_loss(model: nn.Module, loss: Loss, batches: Iterable[Any]) -> float:
    """Mean loss of a prepared model in eval mode; its observers rest."""
    fakes = [part for part in model.modules() if isinstance(part, FakeQuantize)]
    watching = [fake.observer_enabled for fake in fakes]
    try:
        with eval_mode(model.apply(disable_observer)), torch.no_grad():
            return float(torch.stack([loss(model, batch) for batch in batches]).mean())
    finally:
        for fake, is_watching in zip(fakes, watching, strict=True):
            fake.enable_observer(is_watching)


def _again(batches: Iterable[Any]) -> Iterable[Any]:
    """The batches over and over."""
    while True:
        count = 0
        for batch in batches:
            count += 1
            yield batch
        if not count:
            raise CalibrationError(
                "finetune: there are no batches (an iterator is used up after one pass; give a "
                "list or a DataLoader)."
            )


def distilling(teacher: nn.Module, temperature: float = 1.0) -> Loss:
    """The loss that keeps what the float model knows: T^2 KL(teacher / T || model / T).

    A batch is the inputs of forward: a tensor, a tuple, or a dict of keywords. Results are logits
    (..., classes), or what has them as `logits`: an attribute, or a key.

    Args:
        teacher: the float model; it is run in eval mode, without gradients.
        temperature: above 1 the small probabilities count for more.
    """
    if not temperature > 0:
        raise QConfigError(f"distilling: got temperature {temperature}; wanted a positive number.")
    teacher.eval()

    def loss(model: nn.Module, batch: Any) -> Tensor:
        with torch.no_grad():
            wanted = functional.log_softmax(_logits(teacher, batch) / temperature, -1)
        found = functional.log_softmax(_logits(model, batch) / temperature, -1)
        found, wanted = found.flatten(0, -2), wanted.flatten(0, -2)
        divergence = functional.kl_div(found, wanted, reduction="batchmean", log_target=True)
        return divergence * temperature**2

    return loss


def _logits(model: nn.Module, batch: Any) -> Tensor:
    if isinstance(batch, Mapping):
        result = model(**batch)
    else:
        result = model(*batch) if isinstance(batch, tuple | list) else model(batch)
    if isinstance(result, Mapping) and "logits" in result:
        result = result["logits"]
    found = getattr(result, "logits", result)
    if not isinstance(found, Tensor):
        raise ModelError(
            f"distilling: the model returns {kind_of(found)}; wanted a tensor, or a result with "
            "'logits'. Write a loss of the model and a batch that takes its tensor."
        )
    return found

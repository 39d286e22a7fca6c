"""FakeQuantize: rounds a tensor with the qparams that will be deployed, while the model is trained.

    x -> observer (while it is on) -> scale, zero_point
    x -> (clamp(rint(x / scale) + zero_point, quant_min, quant_max) - zero_point) * scale

The first line is onnxq.pytorch.numerics.observing, the second onnxq.pytorch.numerics.rounding_ops.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from onnxq.observers import MovingAverageMinMaxObserver, ObserverSpec
from onnxq.pytorch.numerics import rounding_ops
from onnxq.pytorch.numerics.integer_types import torch_dtype
from onnxq.pytorch.numerics.observing import Observing
from onnxq.pytorch.numerics.own_module import ModuleSpec, is_observer
from onnxq.pytorch.numerics.rounding import (
    IntegerRange,
    check,
    check_floats,
    learned_gradients,
    passed_inside,
    rounded,
)
from onnxq.qconfig import FakeQuantSpec, Part, ScaleRule
from onnxq.qparams import QParams

# --- Fake quantization with gradients, in the form that is quickest where it runs.
#
#     torch.export     torch.ops.onnxq.fake_quantize, whole: QuantizeLinear and DequantizeLinear
#     torch.compile    tensor operations, which inductor fuses into one loop there and one back
#     eager            the same behind one autograd node: a torch.library operator costs 100 us a
#                      step in dispatch alone, this 30 (benchmarks/training_step.py)
#
# All three give the same bits.


def fake_quantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    qmin: int,
    qmax: int,
    axis: int,
    rule: ScaleRule = ScaleRule.OBSERVED,
) -> Tensor:
    """The values of rounding_ops.fake_quantize, with gradients.

    That of x is 1 where rint(x / scale) + zero_point lies in [qmin, qmax], 0 elsewhere. That of a
    scale that is learned is LSQ's (Esser et al. 2020, eq. 3 and 5); else there is none.
    """
    if torch.compiler.is_exporting():
        return rounding_ops.fake_quantize(x, scale, zero_point, qmin, qmax, axis)
    check(x, scale)
    made: Tensor = _Rounding.apply(  # type: ignore[no-untyped-call]  # torch's
        x, scale, zero_point, IntegerRange(qmin, qmax, axis), rule
    )
    return made


class _Rounding(torch.autograd.Function):
    """A gradient for x, and for a scale that is learned."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        zero_point: Tensor,
        integers: IntegerRange,
        rule: ScaleRule,
    ) -> Tensor:
        ctx.integers, ctx.rule = integers, rule
        # copies: an observer that sees a second tensor in this step writes new ones in their place
        ctx.save_for_backward(x, scale.detach().clone(), zero_point.clone())
        return rounded(x, scale, zero_point, integers)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, zero_point = ctx.saved_tensors
        if ctx.rule is ScaleRule.LEARNED:
            return *learned_gradients(grad, x, scale, zero_point, ctx.integers), None, None, None
        return passed_inside(grad, x, scale, zero_point, ctx.integers), None, None, None, None


class FakeQuantize(Observing):
    """Observes what passes and returns it rounded, with a straight-through gradient.

    The gradient is 1 where the integer lies in [quant_min, quant_max], 0 where it was clamped. The
    observer and the rounding are both on at first, in train and eval mode alike. Under torch.export
    the observer rests.

    Args:
        observer: class or spec; finds scale and zero point.
        quant_min: smallest integer; None: the observer's.
        quant_max: largest integer.
        observer_kwargs: further arguments of the observer (dtype, qscheme, reduce_range, ...).
    Attributes:
        scale: buffer, float32, shape () or (channels,); (1,) before any data where per channel.
        zero_point: buffer, int32, same shape.
        observer: what finds them.
        has_observed: whether it has seen data.
        observer_enabled: whether it watches.
        fake_quant_enabled: whether values are rounded; False returns them as they are.
        left_out: buffer, int64 (): batches that held NaN or infinite values; qparams() raises.
    Raises:
        QConfigError: arguments that the observer does not take, or that do not fit together.
        UnsupportedError: a type or scheme that ONNX QuantizeLinear does not have.
    """

    has_own_forward: ClassVar[bool] = False
    """Whether a subclass, or a module in it, rounds in a forward of its own."""

    scale_rule: ClassVar[ScaleRule] = ScaleRule.OBSERVED
    FLAGS = ("observer_enabled", "fake_quant_enabled", "has_observed")
    fake_quant_enabled: bool = True

    def __init__(
        self,
        observer: object = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        **observer_kwargs: object,
    ) -> None:
        spec = self.with_args(observer, quant_min, quant_max, **observer_kwargs)
        super().__init__(spec.observer)
        self.spec = spec
        if self.scale_rule is ScaleRule.LEARNED:
            start = self.scale
            del self.scale
            self.scale = nn.Parameter(start)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.has_own_forward = cls.forward is not FakeQuantize.forward

    @classmethod
    def with_args(
        cls,
        observer: object = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        **observer_kwargs: object,
    ) -> FakeQuantSpec:
        """The value that a QConfig holds for such a module.

        Raises:
            QConfigError: an argument that the observer does not take.
        """
        limits = {"quant_min": quant_min, "quant_max": quant_max}
        given = {key: limit for key, limit in limits.items() if limit is not None}
        chosen: Any = observer  # FakeQuantSpec says what it may be
        spec = FakeQuantSpec(chosen).observer
        if "reduce_range" not in observer_kwargs and _is_reduced(spec, quant_min, quant_max):
            given["reduce_range"] = False
        return FakeQuantSpec(spec.with_args(**given, **observer_kwargs), cls.scale_rule)

    def forward(self, x: Tensor) -> Tensor:
        """x, rounded where fake_quant_enabled; its dtype and shape.

        Raises:
            ShapeError: x holds integers.
            CalibrationError: another number of channels; NaN or Inf, for a NumPy observer.
        """
        self.watch(x)
        return self.rounded(x) if self.fake_quant_enabled else x

    def watch(self, x: Tensor) -> None:
        """Observes x while observer_enabled, and finds the scale; under torch.export, nothing.

        Raises:
            ShapeError: x holds integers.
            CalibrationError: another number of channels; NaN or Inf, for a NumPy observer.
        """
        super().watch(x)
        if self.fake_quant_enabled:
            self._refresh()

    def rounded(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """The second half of forward: x rounded.

        Args:
            x: floating point, any shape.
            scale: in place of the one that was found; a bias may ask for a larger one.
        """
        found = self.scale if scale is None else scale
        integers = (self.quant_min, self.quant_max, self.ch_axis)
        return fake_quantize(x, found, self.zero_point, *integers, self.scale_rule)

    def integers(self, x: Tensor) -> Tensor:
        """The integers of x: integers of the dtype that stores them, in [quant_min, quant_max]."""
        self._refresh()
        stored = torch_dtype(self.dtype)
        zero_point = self.zero_point.to(stored)
        integers = rounding_ops.quantize_linear(x, self.scale.detach(), zero_point, self.ch_axis)
        limits = torch.iinfo(stored)
        if (self.quant_min, self.quant_max) == (limits.min, limits.max):
            return integers
        return integers.to(torch.int32).clamp_(self.quant_min, self.quant_max).to(stored)

    def fix(self, qparams: QParams) -> Self:
        """Takes scale and zero point as they are known without data; the observer rests."""
        return self.start_at(qparams).disable_observer()

    def start_at(self, qparams: QParams) -> Self:
        """Takes scale and zero point; the observer goes on from what it has seen."""
        self._hold(qparams)
        self.has_observed = True
        self._stale = False
        return self

    @property
    def activation_post_process(self) -> Self:
        """The observer, documented under this name: it watches, and knows the range of integers."""
        return self

    def enable_fake_quant(self, enabled: bool = True) -> Self:
        """Lets values be rounded (the documented signature)."""
        self.fake_quant_enabled = bool(enabled)
        return self

    def disable_fake_quant(self) -> Self:
        """Returns values as they are."""
        return self.enable_fake_quant(False)

    def extra_repr(self) -> str:
        """Settings that tell two modules apart."""
        return (
            f"{self._observer}, integers={self.quant_min}..{self.quant_max}, "
            f"observer_enabled={self.observer_enabled}, "
            f"fake_quant_enabled={self.fake_quant_enabled}, scale={self.scale}, "
            f"zero_point={self.zero_point}"
        )


def _is_reduced(spec: ObserverSpec, quant_min: int | None, quant_max: int | None) -> bool:
    """Whether those integers lie in the half that the observer's reduce_range leaves.

    They are meant as they are then: FakeQuantize(default_observer, 0, 127) has 128 integers.
    """
    if quant_min is None or quant_max is None or not spec.argument("reduce_range", False):
        return False
    half = spec()
    return half.quant_min <= quant_min and quant_max <= half.quant_max


class LearnableFakeQuantize(FakeQuantize):
    """Learned step size (LSQ, Esser et al. 2020): scale is a parameter that is trained.

    The first batch that is observed gives its first value, through the observer, which then turns
    itself off: observer_enabled is False until enable_observer() asks for a new start. With
    StepSizeObserver that is the paper's. The zero point stays where the observer put it. The
    gradient of a scale that n elements share is divided by sqrt(n quant_max), as in the paper.
    """

    scale_rule = ScaleRule.LEARNED

    def synchronize(self) -> None:
        """Nothing: the scale is a parameter, which DistributedDataParallel keeps equal."""

    def _refresh(self) -> None:
        if self._stale:
            super()._refresh()
            self.disable_observer()
        if not torch.compiler.is_exporting():
            # a step of the optimizer may have gone below; .data: what autograd saved stays as it is
            self.scale.data.clamp_(min=self._observer.range.eps)


class OwnFakeQuantize(FakeQuantize):
    """A user's module that rounds: values and gradients are those of its own forward."""

    def __init__(self, spec: ModuleSpec) -> None:
        Observing.__init__(self, spec)
        self.spec = FakeQuantSpec(spec)

    def forward(self, x: Tensor) -> Tensor:
        """Runs the module on x."""
        check_floats(x)
        if not self.fake_quant_enabled and not self.observer_enabled:
            return x
        made: Tensor = self.own(x)  # type: ignore[misc]  # a ModuleSpec's module
        if self.observer_enabled and x.numel() and not torch.compiler.is_exporting():
            self._note_seen()
        return made if self.fake_quant_enabled else x

    def rounded(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """Runs the module on x; at a scale that it has not found, plain rounding."""
        return self(x) if scale is None else super().rounded(x, scale)


def fake_quantize_module(part: Part) -> FakeQuantize:
    """The module for what a QConfig holds.

    Args:
        part: FakeQuantSpec: the module observes and rounds; ObserverSpec: it only observes.
    Raises:
        UnsupportedError: a type or scheme that ONNX QuantizeLinear does not have.
    """
    spec = part.observer if isinstance(part, FakeQuantSpec) else part
    if isinstance(spec, ModuleSpec) and isinstance(part, FakeQuantSpec):
        if issubclass(spec.kind, FakeQuantize):
            made: FakeQuantize = spec.module()
            return made
        if not is_observer(spec.kind):
            return OwnFakeQuantize(spec)
    if isinstance(part, FakeQuantSpec):
        learned = part.scale is ScaleRule.LEARNED
        return (LearnableFakeQuantize if learned else FakeQuantize)(part.observer)
    return FakeQuantize(part).disable_fake_quant()


def _switch(name: str, effect: str) -> Callable[[nn.Module], None]:
    """The function for model.apply that calls the method of that name of every FakeQuantize."""

    def switch(mod: nn.Module) -> None:
        if isinstance(mod, FakeQuantize):
            getattr(mod, name)()

    switch.__name__ = switch.__qualname__ = name
    switch.__doc__ = f"For model.apply: {effect}"
    return switch


enable_observer = _switch("enable_observer", "lets the observer of a FakeQuantize watch.")
disable_observer = _switch("disable_observer", "keeps scale and zero point as they are.")
enable_fake_quant = _switch("enable_fake_quant", "lets a FakeQuantize round.")
disable_fake_quant = _switch("disable_fake_quant", "lets a FakeQuantize return values as they are.")

"""TensorQuantizer: the module that calibrates, quantizes and trains one tensor by a descriptor.

quantizer = TensorQuantizer(QuantDescriptor(axis=0))
quantizer.enable_calib(); quantizer.disable_quant()
...                                                    # batches
quantizer.load_calib_amax(); quantizer.disable_calib(); quantizer.enable_quant()

It computes as ONNX does, rint(x / (amax / bound)), so that what is trained is what runs; and under
torch.export it becomes QuantizeLinear and DequantizeLinear.
"""

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch.numerics import rounding_ops
from onnxq.pytorch.numerics.rounding import spread
from onnxq.pytorch.tensor_quant import functions
from onnxq.pytorch.tensor_quant.calibrators import (
    Calibrator,
    HistogramCalibrator,
    MaxCalibrator,
    amax_of,
    kept_axes,
)
from onnxq.pytorch.tensor_quant.descriptor import (
    QuantDescriptor,
    QuantTypeError,
    QuantValueError,
    ScaledQuantDescriptor,
    as_num_bits,
    max_bound,
)


class Clip(nn.Module):
    """min(max(x, clip_value_min), clip_value_max).

    Gradient of x: passes where clip_value_min <= x <= clip_value_max. Of clip_value_min: the sum of
    those of the outputs that it replaced; of clip_value_max likewise.

    Args:
        clip_value_min: first lower bound.
        clip_value_max: first upper bound.
        learn_min: whether the lower bound is a parameter.
        learn_max: whether the upper bound is.
    """

    clip_value_min: Tensor
    clip_value_max: Tensor

    def __init__(
        self,
        clip_value_min: float,
        clip_value_max: float,
        learn_min: bool = False,
        learn_max: bool = False,
    ) -> None:
        super().__init__()
        bounds = {"clip_value_min": (clip_value_min, learn_min)}
        bounds["clip_value_max"] = (clip_value_max, learn_max)
        for name, (value, learned) in bounds.items():
            bound = torch.tensor(float(value))
            if learned:
                self.register_parameter(name, nn.Parameter(bound))
            else:
                self.register_buffer(name, bound)

    def forward(self, inputs: Tensor) -> Tensor:
        """The clipped inputs, of their shape and type."""
        if torch.compiler.is_exporting():  # the same values, as one node
            return torch.clamp(inputs, self.clip_value_min, self.clip_value_max)
        low, high = self.clip_value_min.to(inputs.dtype), self.clip_value_max.to(inputs.dtype)
        return torch.where(inputs < low, low, torch.where(inputs > high, high, inputs))


_BYTE = 8
_NOT_SEEN = (
    "{}: no amax. Calibrator returned None: it has seen no data. Run enable_calib(), batches, "
    "load_calib_amax()."
)


class TensorQuantizer(nn.Module):
    """Rounds a tensor with the qparams of its descriptor: values in, values (or integers) out.

        y = clip(rint(x / s), lowest, bound) * s,   s = scale_amax * amax / bound

    amax is the buffer `_amax` where there is one (from the descriptor, the calibrator or a
    checkpoint), else that of the very tensor; under learn_amax, what `clip` has learned. Where amax
    <= 2^-24 the result is 0. Gradient of x: 1 where |x| <= amax, else 0. Stages, in this order:
    calibration, clipping, quantization; each can be switched on and off. Only the buffer and clip's
    parameters are in the state_dict, under pytorch_quantization's names.

    Args:
        quant_desc: how to quantize.
        disabled: return every tensor as it is.
        if_quant: whether quantization is on.
        if_clip: whether clipping is on; needs learn_amax, which switches it on by itself.
        if_calib: whether calibration is on.
    Attributes:
        axis: the axes with scales of their own.
        calib_method: "max" or "histogram".
        fake_quant: whether the result is float.
        narrow_range: whether the smallest integer is -bound.
        unsigned: whether the integers begin at 0.
    Raises:
        QuantTypeError: quant_desc is no descriptor.
        QuantValueError: if_clip without learn_amax.
    """

    clip: Clip

    def __init__(
        self,
        quant_desc: ScaledQuantDescriptor = QuantDescriptor(),  # noqa: B008  # a value, read-only
        disabled: bool = False,
        if_quant: bool = True,
        if_clip: bool = False,
        if_calib: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(quant_desc, QuantDescriptor):
            raise QuantTypeError(f"quant_desc: got {quant_desc!r}; wanted a QuantDescriptor.")
        self._num_bits, self.unsigned = quant_desc.num_bits, quant_desc.unsigned
        self.narrow_range, self.axis = quant_desc.narrow_range, quant_desc.axis
        self.fake_quant, self._learn_amax = quant_desc.fake_quant, quant_desc.learn_amax
        self._scale_amax = quant_desc.scale_amax
        self._disabled, self._if_quant, self._if_calib = disabled, if_quant, if_calib
        self._if_clip = False
        self._scale: Tensor | None = None
        if quant_desc.amax is not None:
            self.register_buffer("_amax", torch.from_numpy(quant_desc.amax.copy()))
        if self._learn_amax:
            first = 1.0 if quant_desc.amax is None else float(quant_desc.amax.max())
            self.clip = Clip(-first, first, learn_min=True, learn_max=True)
        if self._learn_amax or if_clip:
            self.enable_clip()
        self.calib_method = quant_desc.calib_method
        histogram = quant_desc.calib_method == "histogram"
        kind = HistogramCalibrator if histogram else MaxCalibrator
        self._calibrator: Calibrator = kind(self._num_bits, self.axis, self.unsigned)

    @property
    def num_bits(self) -> int:
        """Number of bits of an integer."""
        return self._num_bits

    @num_bits.setter
    def num_bits(self, value: int) -> None:
        self._num_bits = as_num_bits(value)

    @property
    def amax(self) -> Tensor | None:
        """The buffer; None where every tensor gives its own. A learned one is `learned_amax()`."""
        return self._buffers.get("_amax")

    @amax.setter
    def amax(self, value: object) -> None:
        if value is None:
            raise QuantTypeError("amax: got None; `del quantizer._amax` makes it dynamic again.")
        given = value.detach() if isinstance(value, Tensor) else torch.as_tensor(value)
        given = given.to(torch.float32).clone()
        held = self.amax
        if held is None:
            self.register_buffer("_amax", given)
            return
        if held.shape != given.shape:
            raise QuantTypeError(
                f"amax: got shape {list(given.shape)}; it has {list(held.shape)}, which cannot be "
                "changed."
            )
        held.copy_(given)

    @property
    def scale(self) -> Tensor:
        """1 / step_size, by which integers are divided.

        Without an amax that of the last real integers.

        Raises:
            QuantValueError: there is neither.
        """
        if (step := self.step_size) is not None:
            return 1 / step
        if self._scale is None:
            raise QuantValueError("scale: nothing was quantized to real integers yet.")
        return self._scale

    @property
    def step_size(self) -> Tensor | None:
        """The scale: difference of two levels; None where every tensor gives its own."""
        if self.amax is None:
            return None
        return self.amax * (self._scale_amax or 1.0) / max_bound(self._num_bits, self.unsigned)

    def disable(self) -> None:
        """Every tensor is returned as it is."""
        self._disabled = True

    def enable(self) -> None:
        """The stages that are on work again."""
        self._disabled = False

    def disable_quant(self) -> None:
        """Quantization off."""
        self._if_quant = False

    def enable_quant(self) -> None:
        """Quantization on."""
        self._if_quant = True

    def disable_calib(self) -> None:
        """Calibration off."""
        self._if_calib = False

    def enable_calib(self) -> None:
        """Calibration on."""
        self._if_calib = True

    def disable_clip(self) -> None:
        """Clipping off; amax is no longer learned."""
        self._if_clip = False
        if self._learn_amax:
            self.clip.requires_grad_(False)

    def enable_clip(self) -> None:
        """Clipping on; amax is learned.

        Raises:
            QuantValueError: learn_amax is False.
        """
        if not self._learn_amax:
            raise QuantValueError("learn_amax is False: there is nothing to clip by. Set it.")
        self.clip.requires_grad_(True)
        self._if_clip = True

    def learned_amax(self) -> Tensor:
        """max(-clip_value_min, clip_value_max), float32, shape ().

        Raises:
            QuantValueError: learn_amax is False.
        """
        if not self._learn_amax:
            raise QuantValueError("learn_amax is False: no amax is learned.")
        return torch.maximum(-self.clip.clip_value_min, self.clip.clip_value_max).detach()

    def init_learn_amax(self) -> None:
        """Begins learning at the calibrated amax, the largest one of several.

        Raises:
            RuntimeError: learn_amax is False, or there is no amax (documented).
        """
        if not self._learn_amax or self.amax is None:
            missing = "learn_amax is False" if not self._learn_amax else "there is no amax"
            raise RuntimeError(f"init_learn_amax: {missing}.")
        with torch.no_grad():
            self.clip.clip_value_min.copy_(-self.amax.max())
            self.clip.clip_value_max.copy_(self.amax.max())

    def load_calib_amax(self, *args: Any, strict: bool = True, **kwargs: Any) -> None:
        """Takes over what the calibrator has found.

        Args:
            args: of the calibrator's compute_amax: of a histogram "percentile", "mse" or "entropy".
            strict: whether it is an error if it has seen no data; else amax becomes NaN, which
                every use refuses.
            kwargs: likewise.
        Raises:
            RuntimeError: it has seen no data (documented).
            QuantTypeError: amax has another shape than before.
        """
        found = self._calibrator.compute_amax(*args, **kwargs)
        if found is None:
            if strict:
                raise RuntimeError(
                    _NOT_SEEN.format("load_calib_amax") + " strict=False sets it to NaN instead."
                )
            warnings.warn(_NOT_SEEN.format("load_calib_amax"), stacklevel=2)
            found = torch.tensor(math.nan)
        self.amax = found

    def forward(self, inputs: Tensor) -> Tensor:
        """The quantized inputs, of their shape and type."""
        if self._disabled:
            return inputs
        if self._if_calib and not torch.compiler.is_exporting():
            self._calibrator.collect(inputs)
        outputs: Tensor = self.clip(inputs) if self._if_clip else inputs
        return self._quantized(outputs) if self._if_quant else outputs

    def _quantized(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            scale, axis = self.exported_scale(x)
            # integers around 128, as uint8: ONNX Runtime runs those in integers on every machine,
            # also where several nodes read them; constants become int8 again when the graph is
            # tidied
            shift = 0 if self.unsigned else 1 << (7 if self._num_bits <= _BYTE else 15)
            zero_point = torch.full_like(scale, shift, dtype=torch.int32)
            low, high = (q + shift for q in self.integer_range())
            return rounding_ops.fake_quantize(x, scale, zero_point, low, high, axis)
        amax = self._amax_for(x)
        if self.fake_quant:
            functions.check_inputs(x, self.unsigned)
            functions.check_amax(amax, x)
            return functions.onnx_fake_quant(x, amax, *self.integer_range())
        integers, self._scale = functions.tensor_quant(
            x, amax, self._num_bits, self.unsigned, self.narrow_range
        )
        return integers

    def integer_range(self) -> tuple[int, int]:
        """(lowest, largest) integer."""
        return functions.integer_range(self._num_bits, self.unsigned, self.narrow_range)

    def exported_scale(self, x: Tensor) -> tuple[Tensor, int]:
        """(scale float32 () or (channels,), axis) of the QuantizeLinear that this becomes for x."""
        if not self.fake_quant:
            raise UnsupportedError(
                "a TensorQuantizer with fake_quant=False gives integers as floats."
            )
        if self.amax is None and not self._learn_amax:
            raise UnsupportedError(_NOT_SEEN.format("a TensorQuantizer"))
        amax = self._amax_for(x)
        functions.check_amax(amax, x)
        long = [i - amax.dim() + x.dim() for i, size in enumerate(amax.shape) if size > 1]
        if len(long) > 1:
            raise UnsupportedError(
                f"a TensorQuantizer with amax of shape {list(amax.shape)}: QuantizeLinear has "
                "scales along one axis. Give one axis."
            )
        scale = functions.scale_of(amax, max_bound(self._num_bits, self.unsigned))
        if amax.numel() > 1:
            return scale.reshape(-1), long[0]
        axis = self.axis[0] if isinstance(self.axis, tuple) and self.axis else self.axis
        return scale.reshape(()), kept_axes(axis if isinstance(axis, int) else 0, x.dim())[0]

    def _amax_for(self, x: Tensor) -> Tensor:
        if self._learn_amax:
            amax = self.learned_amax()
        elif self.amax is None:
            amax = amax_of(x.detach().float(), self.axis)
        else:
            amax = self.amax
            if amax.dim() == 1 and amax.numel() != 1 and isinstance(self.axis, int):
                amax = spread(amax, x.dim(), kept_axes(self.axis, x.dim())[0])
        return amax if self._scale_amax is None else amax * self._scale_amax

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # a fresh quantizer has no buffer yet: the checkpoint's shape is the buffer's
        given = state_dict.get(prefix + "_amax")
        if given is not None and self.amax is None:
            self.register_buffer("_amax", torch.empty_like(given))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        """The descriptor, and which stages are on."""
        if self._disabled:
            return "disabled"
        stages = {"quant": self._if_quant, "clip": self._if_clip, "calib": self._if_calib}
        kind = "unsigned " if self.unsigned else "narrow " if self.narrow_range else ""
        held = "dynamic" if self.amax is None else str(self.amax.flatten().tolist()[:4])
        amax = f"learned {float(self.learned_amax()):.4g}" if self._learn_amax else held
        on = [name for name, is_on in stages.items() if is_on]
        return f"{kind}{self._num_bits} bits, axis={self.axis}, amax={amax}, {' '.join(on)}"

"""Fake-quantize modules of a prepared module, and whether they saw data: what convert reads."""

from torch import Tensor, nn

from onnxq.errors import CalibrationError
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize


def output_fake_quantize(mod: nn.Module) -> FakeQuantize | None:
    """The FakeQuantize of a module's output; None where the result stays in float."""
    if isinstance(mod, FakeQuantize):
        return mod
    found = getattr(mod, "activation_post_process", None)
    return found if isinstance(found, FakeQuantize) else None


def input_fake_quantize(mod: nn.Module) -> FakeQuantize:
    """The one that made the module's input: its scale is in that of the bias."""
    found = getattr(mod, "input_fake_quant", None)
    if isinstance(found, FakeQuantize):
        return found
    raise CalibrationError(
        f"{type(mod).__name__}: its input comes from no FakeQuantize, so that its bias has no "
        "scale (x_scale * w_scale). Either no data was seen: run the prepared model on some, or "
        "its input is float: put a QuantStub in front, or set its qconfig to None."
    )


def bind_input(mod: nn.Module, fake: FakeQuantize | None) -> None:
    """Notes which FakeQuantize made a layer's input; not as a submodule, nor in the state_dict."""
    mod.__dict__["input_fake_quant"] = fake  # setattr would make it a submodule


def check_observed(fake: FakeQuantize, owner: str) -> None:
    """Passes a FakeQuantize that has seen data."""
    if not fake.has_observed:
        raise CalibrationError(
            f"{owner}: no data was seen. Run the prepared model on representative data (or train "
            "it) before you convert it."
        )


def observe_output(module: nn.Module, args: object, result: Tensor) -> Tensor:  # noqa: ARG001  # a hook's signature
    """The hook: what a module returns goes through its activation_post_process."""
    processed: Tensor = module.activation_post_process(result)  # type: ignore[operator]  # a module
    return processed

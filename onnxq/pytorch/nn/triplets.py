"""Layers that differ in their number of spatial axes alone: Conv1d, Conv2d, Conv3d.

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
triplet(__name__, "ConvReLU", "Conv{n}d and ReLU.", Convolution, CONVS)
    -->  class ConvReLU1d(Convolution, nn.Conv1d): ..., ConvReLU2d, ConvReLU3d
"""

import inspect
from collections.abc import Callable
from typing import Any

Triplet = tuple[type[Any], type[Any], type[Any]]


REQUIRED = inspect.Parameter.empty
"""Default of a parameter that has none."""


def triplet(
    module: str,
    name: str,
    doc: str,
    *bases: type | tuple[type, ...],
    **attributes: Callable[[int], object],
) -> Triplet:
    """Makes three classes of a module, which it binds to {name}1d, {name}2d and {name}3d."""

    def made(n: int) -> type[Any]:
        own = tuple(base[n - 1] if isinstance(base, tuple) else base for base in bases)
        values = {key: value(n) for key, value in attributes.items()}
        return type(
            f"{name}{n}d", own, {"__module__": module, "__doc__": doc.format(n=n), **values}
        )

    return made(1), made(2), made(3)


def signature_of(kind: type, ahead_of: str, /, **more: object) -> inspect.Signature:
    """The signature of a layer of torch.nn, with further parameters ahead of one of its own.

    Args:
        kind: the layer.
        ahead_of: a parameter of it; "": the end.
        more: name -> default, in place of the layer's own of that name; REQUIRED: there is none.
    """
    own = [p for p in inspect.signature(kind).parameters.values() if p.name not in more]
    at = next((i for i, parameter in enumerate(own) if parameter.name == ahead_of), len(own))
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    added = [inspect.Parameter(name, place, default=value) for name, value in more.items()]
    return inspect.Signature([*own[:at], *added, *own[at:]])


def given(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a constructor by name, defaults included, as its class's __signature__ says."""
    bound: inspect.BoundArguments = type(layer).__signature__.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def names_of(*families: str) -> list[str]:
    """The names of these families' classes: Conv1d, Conv2d, Conv3d of "Conv"."""
    return [f"{family}{n}d" for family in families for n in (1, 2, 3)]

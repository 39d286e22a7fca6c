"""Types of a qconfig file: they check its form when it is read, and make its JSON Schema.

`qconfig.schema.json` beside this file is written from them (scripts/write_schema), for editors that
complete and check YAML:

    # yaml-language-server: $schema=<folder of onnxq>/qconfig/qconfig.schema.json

Names of op types, nodes and tensors are the model's, and names of observers may be of one's own:
both are checked later, with the nearest name in the message.
"""

import inspect
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from onnxq import dtypes, observers
from onnxq.errors import QConfigError
from onnxq.observers.spec_arguments import plain_kinds
from onnxq.qconfig._defaults import NAMED
from onnxq.qconfig._values import (
    BLOCK_SIZES,
    DYNAMIC_PRECISIONS,
    STATIC_PRECISIONS,
    Choice,
    ScaleRule,
)
from onnxq.qconfig.weight_bits import BY_BITS
from onnxq.qparams import QScheme

EXPONENT = re.compile(r"([+-]?\d+)(\.\d*)?[eE]([+-]?)(\d+)")
"""Numbers that YAML 1.1 reads as texts where they have no fraction, or no sign behind the e."""
FILE = Path(__file__).with_name("qconfig.schema.json")
_CHOICES = {
    "dtype": [*map(str, dtypes.all_qdtypes()), "quint8", "qint8", "qint32"],
    "qscheme": [scheme.value for scheme in QScheme],
}
"""Arguments of observers that are names."""
_NAMES = [name for name in observers.__all__ if name.endswith("Observer") and name != "Observer"]


def _observer_arguments() -> list[tuple[str, Any, Any]]:
    """(name, type, default) of every argument that an observer of onnxq takes."""
    found: dict[str, Any] = {}
    for name in _NAMES:
        for argument in inspect.signature(getattr(observers, name)).parameters.values():
            kinds = plain_kinds(argument.annotation)
            if argument.name in _CHOICES:
                found[argument.name] = Literal[tuple(_CHOICES[argument.name])]
            elif kinds:
                found[argument.name] = found.get(argument.name, kinds[0])
                for kind in kinds:
                    found[argument.name] |= kind
    return [(name, kind | UnsetType, UNSET) for name, kind in sorted(found.items())]


# An observer of one's own may have other arguments: more keys are taken here, and checked by its
# constructor.
Observer: Any = msgspec.defstruct(
    "Observer",
    [("observer", Annotated[str, Meta(examples=_NAMES)]), *_observer_arguments()],
    namespace={"__doc__": "Observer by its class name, and arguments of its constructor."},
)


class Part(Observer):  # type: ignore[misc]  # made above, from the observers
    """Observer, or {fake_quantize: observer, scale: observed or learned} for training."""

    observer: Annotated[str, Meta(examples=_NAMES)] | UnsetType = UNSET
    fake_quantize: str | Observer | UnsetType = UNSET
    scale: Literal[tuple(rule.value for rule in ScaleRule)] | UnsetType = UNSET  # type: ignore[valid-type]  # computed


class Dynamic(Struct, forbid_unknown_fields=True):
    """Weights quantized ahead of time, activations when the model runs."""

    weight: str | Part | UnsetType = UNSET
    precision: Literal[tuple(each.value for each in DYNAMIC_PRECISIONS)] | UnsetType | None = UNSET  # type: ignore[valid-type]  # computed
    block_size: Literal[BLOCK_SIZES] | UnsetType | None = UNSET  # type: ignore[valid-type]  # computed


class Settings(Struct, forbid_unknown_fields=True):
    """Static quantization: observers of activations and weights, precision; or dynamic alone."""

    activation: str | Part | UnsetType = UNSET
    weight: str | Part | UnsetType = UNSET
    precision: Literal[tuple(each.value for each in STATIC_PRECISIONS)] | UnsetType | None = UNSET  # type: ignore[valid-type]  # computed
    dynamic: Dynamic | UnsetType = UNSET


if TYPE_CHECKING:  # computed types, which mypy does not follow
    EntryForm = Any
    TensorForm = Any
    ChoiceForm = Any
else:
    EntryForm = Literal[("float", *NAMED)] | Settings | None
    TensorForm = str | Observer | None
    ChoiceForm = Literal[tuple(choice.value for choice in Choice)]


class QConfigFile(Struct, forbid_unknown_fields=True, rename={"overall": "global"}):
    """Choice of what to quantize and how; null and "float" leave something in float.

    Keys of nodes and tensors are names or globs (*, ?, [...]).
    """

    overall: EntryForm | UnsetType = UNSET
    op_types: dict[str, EntryForm] | None = None
    nodes: dict[str, EntryForm] | None = None
    tensors: dict[str, TensorForm] | None = None
    choice: ChoiceForm | UnsetType = UNSET
    improve: list[str] | UnsetType = UNSET
    weight_bits: Literal[tuple(BY_BITS)] | UnsetType = UNSET  # type: ignore[valid-type]  # computed


def check_form(data: object, kind: Any, where: str) -> None:
    """Refuses data whose values are of other types than `kind` says."""
    try:
        msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        message = str(error)
        if not message.startswith("Expected"):  # a key, or a name among several
            return
        text, _, place = message.replace("`", "").partition(" - at ")
        at = f"{place.removeprefix('$.')}: " if place else ""
        hint = _hint(data, place) if "float, got str" in text else ""
        raise QConfigError(
            f"{where}: {at}{text[0].lower()}{text[1:]}.{hint} "
            "docs/reference/qconfig.md has the forms."
        ) from error


def _hint(data: object, place: str) -> str:
    """Advice on a number that YAML has read as a text; empty where it is none."""
    for key in place.removeprefix("$.").split("."):
        data = data.get(key) if isinstance(data, Mapping) else None
    number = EXPONENT.fullmatch(str(data))
    if number is None:
        return ""
    if math.isinf(float(str(data))):
        return f" {data} is more than a float holds."
    whole, fraction, sign, exponent = number.groups()
    written = f"{whole}{fraction or '.0'}e{sign or '+'}{exponent}"
    return f" YAML takes {data} for a text: write {written}."


def json_schema() -> dict[str, Any]:
    """JSON Schema of a qconfig file."""
    (main,), parts = msgspec.json.schema_components([QConfigFile], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "onnxq qconfig",
        **_clean(main),
        "$defs": _clean(parts),
    }


def _clean(schema: Any) -> Any:
    """The schema, descriptions as `inspect.cleandoc` writes them: msgspec does so from 0.23."""
    if isinstance(schema, dict):
        return {
            key: inspect.cleandoc(of)
            if key == "description" and isinstance(of, str)
            else _clean(of)
            for key, of in schema.items()
        }
    return [_clean(part) for part in schema] if isinstance(schema, list) else schema


def to_text() -> str:
    """Text of `qconfig.schema.json`."""
    return json.dumps(json_schema(), indent=1) + "\n"

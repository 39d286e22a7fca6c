"""Plain data (of YAML, JSON or a qconfig_dict) to entries and back."""

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from onnxq.errors import QConfigError, nearest
from onnxq.observers import ObserverSpec
from onnxq.qconfig._defaults import NAMED, onnxq_default_dynamic_qconfig, onnxq_default_qconfig
from onnxq.qconfig._values import (
    Entry,
    FakeQuantSpec,
    Part,
    QConfig,
    QConfigDynamic,
    ScaleRule,
    as_dynamic,
    as_observer,
    as_scale_rule,
    as_static,
)
from onnxq.qconfig.file_form import check_form


def check_keys(got: Iterable[object], known: Iterable[str], where: str) -> None:
    """Raises QConfigError, with the nearest known key, if there is a key that is not known."""
    known = list(known)
    for key in got:
        if key not in known:
            raise QConfigError(
                f"{where}: key '{key}' is not known; known: {', '.join(known)}."
                f"{nearest(str(key), known)}"
            )


def observer_from(data: object, where: str) -> ObserverSpec:
    """The spec that {"observer": name, argument: value...}, a bare name, or a spec stands for."""
    if isinstance(data, str):
        data = {"observer": data}
    if not isinstance(data, dict):
        return as_observer(data, where)
    try:
        spec = ObserverSpec.from_dict(data)
        spec()  # its constructor checks the values
    except QConfigError as error:
        raise QConfigError(f"{where}: {error}") from error
    return spec


def part_from(data: object, where: str) -> Part:
    """Part of a QConfig: `observer_from`, or {"fake_quantize": {"observer": ...}, "scale": ...}."""
    if isinstance(data, FakeQuantSpec):
        return data
    if not isinstance(data, dict) or "fake_quantize" not in data:
        return observer_from(data, where)
    check_keys(data, ["fake_quantize", "scale"], where)
    observer = observer_from(data["fake_quantize"], f"{where}.fake_quantize")
    rule = as_scale_rule(data.get("scale", ScaleRule.OBSERVED), f"{where}.scale")
    return FakeQuantSpec(observer, rule)


def entry_from(data: object, where: str, base: QConfig) -> Entry:
    """The entry that plain data stands for.

    Args:
        data: None or "float"; a name; {"activation": ..., "weight": ..., "precision": ...};
            {"dynamic": {"weight": ..., "precision": ..., "block_size": ...}}, each of them
            optional; or an entry, which is returned as it is.
        where: where the data stands, for messages.
        base: gives the parts that an entry of other keys leaves out.
    """
    if data is None or data == "float":
        return None
    if isinstance(data, QConfig | QConfigDynamic):
        return data
    if isinstance(data, str):
        if data not in NAMED:
            names = ["float", *NAMED]
            raise QConfigError(
                f"{where}: qconfig '{data}' is not known; known: {', '.join(names)}."
                f"{nearest(data, names)}"
            )
        return NAMED[data]
    if not isinstance(data, dict) or not data:
        raise QConfigError(
            f"{where}: got {reprlib.repr(data)}; wanted null, a name ({', '.join(NAMED)}) or the "
            "keys 'activation', 'weight' and 'precision', or 'dynamic'."
        )
    if "dynamic" in data:
        return _dynamic_from(data, where)
    check_keys(data, ["activation", "weight", "precision", "dynamic"], where)
    precision = data.get("precision")
    return QConfig(
        part_from(data.get("activation", base.activation), f"{where}.activation"),
        part_from(data.get("weight", base.weight), f"{where}.weight"),
        None if precision is None else as_static(precision, f"{where}.precision"),
    )


def _dynamic_from(data: dict[object, object], where: str) -> QConfigDynamic:
    check_keys(data, ["dynamic"], where)
    inner = data["dynamic"]
    known = ["weight", "precision", "block_size"]
    if not isinstance(inner, dict) or not inner:
        raise QConfigError(
            f"{where}.dynamic: got {reprlib.repr(inner)}; wanted the key 'weight', 'precision' or "
            "'block_size'."
        )
    check_keys(inner, known, f"{where}.dynamic")
    weight = part_from(
        inner.get("weight", onnxq_default_dynamic_qconfig.weight), f"{where}.dynamic.weight"
    )
    precision = inner.get("precision")
    try:
        chosen = None if precision is None else as_dynamic(precision, "precision")
        return QConfigDynamic(weight, chosen, inner.get("block_size"))
    except QConfigError as error:
        raise QConfigError(f"{where}.dynamic: {error}") from error


def tensor_from(data: object, where: str) -> ObserverSpec | None:
    """Observer of a tensor, by `observer_from`; None for null and "float"."""
    return None if data is None or data == "float" else observer_from(data, where)


def base_of(entry: Entry) -> QConfig:
    """QConfig from which entries take the parts that they leave out."""
    return replace(entry, precision=None) if isinstance(entry, QConfig) else onnxq_default_qconfig


def plain_from(entry: Entry, base: QConfig) -> object:
    """The plain data that `entry_from` reads back to the entry; a name where it has one."""
    names = [name for name, known in NAMED.items() if known == entry]
    if names:
        return names[0]
    if (
        isinstance(entry, QConfig)
        and entry.precision is not None
        and base == replace(entry, precision=None)
    ):
        return {"precision": entry.precision.value}
    return None if entry is None else entry.to_dict()


def section_of(data: Mapping[str, object], key: str, where: str, form: Any) -> dict[str, object]:
    """The mapping under that key, {} without it."""
    section = data.get(key)
    if section is None:
        return {}
    if not isinstance(section, dict) or not all(isinstance(name, str) for name in section):
        raise QConfigError(
            f"{where}: {key}: got {reprlib.repr(section)}; wanted a mapping from names."
        )
    for name, value in section.items():
        check_form(value, form, f"{where}: {key} '{name}'")
    return section


def pairs_of(qconfig_dict: Mapping[str, object], key: str) -> list[tuple[str, object]]:
    """The documented list of (name, entry) under that key, [] without it."""
    pairs = qconfig_dict.get(key, [])
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in pairs
    ):
        raise QConfigError(
            f"qconfig_dict: '{key}': got {reprlib.repr(pairs)}; wanted a list of (name, entry) "
            "pairs, with names of ONNX op types or nodes, not classes."
        )
    return [(name, entry) for name, entry in pairs]

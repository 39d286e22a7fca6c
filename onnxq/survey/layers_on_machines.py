"""Layers of a quantized model on every machine, from its weights alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.checking.predict import predict
from onnxq.page.content import MachineColumn, Machines

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.checking.prediction import LayerPrediction, MachinePrediction

KNOWN_AT_RUN_TIME = "may differ: its weights are known at run time"


def layers_on_machines(target: ir.Model) -> Machines:
    """Layers whose integers can differ from exact ones, by machine.

    Raises:
        UnsupportedError: operators that are not known.
    """
    found = predict(target)
    risky = [layer.name for machine in found.machines for layer in machine.risky_layers]
    order = [layer.name for machine in found.machines[:1] for layer in machine.layers]
    names = sorted(dict.fromkeys(risky), key=lambda n: order.index(n) if n in order else len(order))
    columns = tuple(MachineColumn(m.targets, _cells(m, names)) for m in found.machines)
    said = (
        "The integers of every layer are the same on all machines, whatever the inputs: no sum of "
        "two products leaves 16 bits anywhere."
    )
    if names:
        said = (
            f"{len(names)} layer(s) add products in 16 bits on some machines, where they can "
            "saturate; which inputs do it, `onnxq predict` says with samples."
        )
    if found.floats:
        ops = ", ".join(f"{op} {count}" for op, count in found.floats.items())
        said += f" What is computed in floats may differ in last bits: {ops}."
    return Machines(tuple(names), columns, said)


def _cells(machine: MachinePrediction, names: list[str]) -> tuple[str, ...]:
    layers = {layer.name: layer for layer in machine.risky_layers}
    return tuple(_words(layers[name]) if name in layers else "" for name in names)


def _words(layer: LayerPrediction) -> str:
    if layer.possible is None:
        return KNOWN_AT_RUN_TIME
    return f"can differ: {layer.possible} pairs in {len(layer.channels)} channel(s)"

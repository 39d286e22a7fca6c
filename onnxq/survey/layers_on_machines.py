"""Layers of a quantized model on every machine, from its weights alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.checking.predict import predict
from onnxq.page.content import MachineColumn, MachineTable
from onnxq.page.wording import counting

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.checking.prediction import LayerPrediction, MachinePrediction

KNOWN_AT_RUN_TIME = "may differ: its weights are known at run time"


def layers_on_machines(target: ir.Model) -> MachineTable:
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
            f"{_layers_add(len(names))} products in 16 bits on some machines, where sums can "
            "saturate; “onnxq predict” with samples says which inputs do it."
        )
    if found.floats:
        ops = ", ".join(f"{op} {count}" for op, count in found.floats.items())
        said += f" What is computed in floats may differ in last bits: {ops}."
    return MachineTable(tuple(names), columns, said)


def _layers_add(count: int) -> str:
    return f"{counting(count, 'layer')} {'adds' if count == 1 else 'add'}"


def _cells(machine: MachinePrediction, names: list[str]) -> tuple[str, ...]:
    layers = {layer.name: layer for layer in machine.risky_layers}
    return tuple(_words(layers[name]) if name in layers else "" for name in names)


def _words(layer: LayerPrediction) -> str:
    if layer.possible is None:
        return KNOWN_AT_RUN_TIME
    pairs, channels = counting(layer.possible, "pair"), counting(len(layer.channels), "channel")
    return f"can differ: {pairs} in {channels}"

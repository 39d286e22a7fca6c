"""Tables of predictions and certificates for people. Renders values; computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq import targets
from onnxq.checking.differences import Unit
from onnxq.checking.prediction import WEIGHTS
from onnxq.errors import listed
from onnxq.ort.node_kinds import MATMUL_NBITS, rounding
from onnxq.report.tables import print_table
from onnxq.targets.reduce_range import ReduceRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from onnxq.checking.findings import Execution
    from onnxq.checking.prediction import (
        LayerPrediction,
        MachinePrediction,
        OutputPrediction,
        Prediction,
    )
    from onnxq.checking.prove import Certificate, MachineCertificate
    from onnxq.static.plan import Plan


MAX_NAMED = 3  # pairs of weights in a row of the table


def print_prediction(console: Console, prediction: Prediction) -> None:
    """A table of machines, then for each that differs (or can) its layers."""
    rows = [
        (", ".join(m.targets), m.saturation_mode, _verdict(m, prediction), *_numbers(m))
        for m in prediction.machines
    ]
    header = ("machines", "pairs of products", "integers", "outputs differ", "largest")
    print_table(console, "", header, rows, numbers=(3,))
    for machine in prediction.machines:
        _print_layers(console, machine, prediction.batches)
    if prediction.floats:
        _print_floats(console, prediction)
    source = f"batches: {prediction.batches}" if prediction.batches else "from the weights alone"
    console.print(f"{source}; model {prediction.model_hash[:12]}")


def _print_floats(console: Console, prediction: Prediction) -> None:
    """Prints what is claimed of a model with nodes that round floats, and what is not."""
    nodes = ", ".join(f"{count} {op_type}" for op_type, count in prediction.floats.items())
    console.print(f"in float on every machine; their last bits may differ: {nodes}")
    behind = prediction.behind_floats
    if behind:
        console.print(
            "integers computed from them may differ by one LSB, which is not predicted; integers "
            f"are compared for equal integers. {len(behind)} node(s) have such integers: "
            f"{listed(behind)}"
        )
        if prediction.batches:
            console.print(
                f"of {prediction.decided:,} integers that they decide on these samples, "
                f"{prediction.near_ties:,} lie so near to a tie that last bits may tip them"
            )
    else:
        console.print("no integers are computed from them")
    if prediction.float_outputs:
        console.print(f"outputs computed from them: {', '.join(prediction.float_outputs)}")
    if MATMUL_NBITS in prediction.floats:
        console.print(OWN_BLOCKS)


def _verdict(machine: MachinePrediction, prediction: Prediction) -> str:
    """Verdict on integers, in words; where floats decide integers, none is called exact."""
    if machine.differs:
        return "differ"
    if prediction.behind_floats:
        on = " on the samples" if prediction.batches else ""
        risky = f"equal where integers are{on}, can differ"
        return risky if machine.may_differ else _equal(prediction)
    if not machine.layers:
        return "no products or sums of integers"
    if not machine.may_differ:
        return "exact, whatever the input"
    return "exact on the samples, can differ" if prediction.batches else "can differ"


def _equal(prediction: Prediction) -> str:
    """Claim on integers behind floats: equal as long as the integers are."""
    if not prediction.batches:
        return "equal where integers are"
    return (
        f"equal where integers are; floats decide {prediction.decided:,}, of which "
        f"{prediction.near_ties:,} lie next to a tie"
    )


def _numbers(machine: MachinePrediction) -> tuple[str, str]:
    differing = [o for o in machine.outputs if o.differing]
    if not differing:
        return ("0" if machine.outputs else "-"), "-"
    worst = max(differing, key=lambda output: output.largest)
    elements = sum(o.elements for o in machine.outputs)
    return f"{sum(o.differing for o in differing)} of {elements}", _largest(worst)


def _largest(found: LayerPrediction | OutputPrediction) -> str:
    """In LSB; of floats that no scale was given for, as it is, beside the largest of them."""
    if found.unit is Unit.ULP:
        return f"{found.error:.3g} (numbers up to {found.size:.3g})"
    return f"{found.largest} {found.unit}"


def _print_layers(console: Console, machine: MachinePrediction, batches: int) -> None:
    layers = machine.differing_layers if batches else ()
    if layers:
        header = (
            "layer",
            "op",
            "sums that differ",
            "channels",
            "integers differ",
            "largest",
            "channel: places of weights (or integers), times",
        )
        rows = [
            (
                layer.name,
                layer.op_type,
                str(layer.overflows),
                str(len(layer.overflowing)),
                f"{layer.differing} of {layer.elements}",
                _largest(layer) if layer.differing else "-",
                _pairs(layer),
            )
            for layer in layers
        ]
        title = f"{', '.join(machine.targets)}: where sums differ"
        print_table(console, title, header, rows, numbers=(2, 3, 4))
    risky = [layer for layer in machine.risky_layers if layer not in layers]
    if risky:
        possible = [(layer.name, layer.op_type, *_possible(layer)) for layer in risky]
        title = f"{', '.join(machine.targets)}: where sums can differ"
        if layers:
            title = f"{', '.join(machine.targets)}: where others can, on other samples"
        names = ("layer", "op", "pairs of weights or integers", "channels")
        print_table(console, title, names, possible, numbers=(2, 3))


def _pairs(layer: LayerPrediction) -> str:
    named = [
        (
            f"{p.channel}: {p.first} {p.second}"
            if layer.pairs_of == WEIGHTS
            else f"{p.first} + {p.second}"
        )
        + f", {p.count}"
        for p in layer.pairs[:MAX_NAMED]
    ]
    return "; ".join(named) + (" ..." if len(layer.pairs) > MAX_NAMED else "")


def _possible(layer: LayerPrediction) -> tuple[str, str]:
    """Sums that can differ, and their channels."""
    if layer.possible is None:
        return "not constant", "-"
    return str(layer.possible), str(len(layer.channels))


# --- Sentences and rows on other machines than this one: one wording for text and JSON


OWN_BLOCKS = (
    "MatMulNBits with int8 activations cuts them into blocks of the machine's own: its results may "
    "differ by 3 % of the largest"
)


def on_other_machines(made: Plan, execution: Execution) -> list[str]:
    """Promises on results on other machines than this one, and what is not promised."""
    target = targets.find(made.target)
    notes = []
    if made.reduce_range is ReduceRange.OBSERVED and target.reduces_range:
        notes.append(
            "reduced range 'observed': no pair of products leaves int16 on the samples; on other "
            "inputs integers may differ on x86 without VNNI. 'worst-case' is exact for any input"
        )
    kinds = {
        "compute in float": rounding(execution.float_nodes, {}),
        "sum integers and scale them to float32": rounding({}, execution.integer_nodes),
    }
    if told := [_told(nodes, what) for what, nodes in kinds.items() if nodes]:
        notes.append(
            f"{'; '.join(told)}. Their last bits may differ between machines, and integers made of "
            "them by one LSB"
        )
    if MATMUL_NBITS in execution.integer_nodes:
        notes.append(OWN_BLOCKS)
    return notes


def _told(nodes: Mapping[str, int], what: str) -> str:
    """Which kernels do it, and how many of each, the most frequent first."""
    in_order = sorted(nodes.items(), key=lambda item: -item[1])
    named = ", ".join(f"{op} ({count})" for op, count in in_order)
    return f"kernels that {what}: {named}"


def reduced_rows(made: Plan) -> list[tuple[str, str, str, str]]:
    """(node, channels of reduced range, largest factor of a scale, mean) of each with such."""
    return [
        (name, f"{r.channels} of {r.of}", f"x {r.largest:.3f}", f"x {r.mean:.3f}")
        for name, r in made.reductions.items()
    ]


HEADER = ("node", "op", "worst sum", "of int32", "worst pair", "of int16", "for any input")


def print_certificate(console: Console, found: Certificate) -> None:
    """A line per group of machines, then a table of the nodes of each."""
    for machine in found.machines:
        console.print(f"{', '.join(machine.targets)}: {_in_a_line(machine)}")
    for machine in found.machines:
        rows = [
            (
                node.name,
                node.op_type,
                _number(node.accumulator),
                _share(node.accumulator_share),
                _number(node.pair),
                _share(node.pair_share),
                node.verdict,
            )
            for node in machine.nodes
        ]
        title = f"{', '.join(machine.targets)} ({machine.saturation_mode})"
        print_table(console, title, HEADER, rows, numbers=(2, 3, 4, 5))
    console.print(f"model {found.model_hash[:12]}")


def _in_a_line(machine: MachineCertificate) -> str:
    """Counts of verdicts, and the bound of each output."""
    counts: dict[str, int] = {}
    for node in machine.nodes:
        counts[node.verdict] = counts.get(node.verdict, 0) + 1
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    bounds = ", ".join(
        f"{output.name} {'no bound' if output.bound is None else f'{output.bound:g}'}"
        for output in machine.outputs
    )
    return f"{said or 'no sums of products'}; error of outputs beside exact integers: {bounds}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"

"""Plain values for `--json`: dicts, lists, strings and finite numbers."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence

from onnxq.checking.bench import Benchmark
from onnxq.checking.summary import Summary
from onnxq.core.saved import plain
from onnxq.shown import shown_json
from onnxq.targets import Target

JsonObject = dict[str, object]


def to_text(value: Mapping[str, object] | Sequence[object]) -> str:
    """JSON text; a NaN in it is an error of ours."""
    return shown_json(json.dumps(value, indent=1, allow_nan=False))


def summary(value: Summary) -> JsonObject:
    """Counts per op type, groups of one precision and reason, and every node."""
    return {
        "counts": {op: dataclasses.asdict(count) for op, count in value.counts.items()},
        "groups": [
            {
                "precision": g.precision.value,
                "why": g.why.words,
                "op_types": dict(g.op_types),
                "nodes": list(g.nodes),
            }
            for g in value.groups
        ],
        "nodes": [
            {
                "name": n.name,
                "op_type": n.op_type,
                "decision": n.decision,
                "precision": n.precision.value,
                "reason" if n.decision == "float" else "how": n.words,
            }
            for n in value.nodes
        ],
    }


def benchmark(value: Benchmark) -> JsonObject:
    """Times, sizes and what ONNX Runtime runs."""
    fields = {
        f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name != "execution"
    }
    return {**fields, "speedup": value.speedup, "execution": plain(value.execution)}


def targets(values: Iterable[Target]) -> list[object]:
    """One object per target."""
    return [
        {
            "name": t.name,
            "description": t.description,
            "weight_qmax": t.weight_qmax,
            "weight_qmax_saturating": t.weight_qmax_saturating,
            "saturation_mode": t.saturation_mode.value,
            "reduce_range": t.reduce_range.value,
            "pairs": [list(pair) for pair in t.pairs],
            "preferred": list(t.preferred),
            "throughput_gmacs": None if t.throughput is None else dataclasses.asdict(t.throughput),
            "proof": t.proof.value,
            "measurement": t.measurement,
            "caveat": t.caveat,
            "slow_in_integers": dict(t.slow_in_integers),
        }
        for t in values
    ]

"""Plans: JSON of a Plan or DynamicPlan with something else in it, loaded and carried out."""

from __future__ import annotations

import copy
import functools
import json
from typing import TYPE_CHECKING, Any

import onnx

import onnxq
from onnxq.dynamic.dynamic_decision import DynamicPlan
from onnxq.dynamic.rewrite_dynamic import rewrite_dynamic
from onnxq.graph.io import model_hash
from onnxq.pipeline import plan_dynamic
from onnxq.static.plan import Plan
from scripts._fuzz.case import Call, Case, Scratch
from scripts._fuzz.fields import mutated_bytes
from scripts._fuzz.seed_models import float_model, samples

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from onnxq.static.prepared import Prepared

NETS = ("cnn", "transformer", "recurrent")
VALUES: tuple[object, ...] = (
    None, True, False, -1, 0, 1, 7, 255, 2**40, 10**400, 0.5, -3.0, "nan", "inf", "", "x",
    "float", "int4", "uint8", "per_tensor", "int8", "weight_only_groupwise", [], [1], {}, {"a": 1},
)  # fmt: skip


def case(rng: np.random.Generator, scratch: Scratch) -> Case:
    """A plan with one to three things made wrong."""
    name, is_dynamic = str(rng.choice(NETS)), rng.random() < 0.4
    good = dynamic_part(name)[1] if is_dynamic else static_part(name)[1]
    path = scratch.inputs / "plan.json"
    if rng.random() < 0.15:
        data, words = mutated_bytes(good.encode(), rng)
        path.write_bytes(data)
    else:
        value, said = json.loads(good), []
        for _ in range(int(rng.integers(1, 4))):
            value, how = altered(value, rng)
            said.append(how)
        path.write_text(json.dumps(value))
        words = "; ".join(said)
    if is_dynamic:
        model, _ = dynamic_part(name)
        calls = [
            Call("DynamicPlan.load", lambda: DynamicPlan.load(path)),
            Call("rewrite_dynamic", lambda: rewrite_dynamic(model, DynamicPlan.load(path))),
        ]
    else:
        prepared, _ = static_part(name)
        form = str(rng.choice(["qdq", "qoperator"]))
        calls = [
            Call("Plan.load", lambda: Plan.load(path)),
            Call(f"rewrite {form}", lambda: onnxq.rewrite(prepared, Plan.load(path), form)),
        ]
    return Case(f"{name} {'dynamic' if is_dynamic else 'static'}: {words}", tuple(calls))


@functools.cache
def static_part(name: str) -> tuple[Prepared, str]:
    """(a prepared model, its plan as JSON)."""
    prepared = onnxq.prepare(onnx.load_from_string(float_model(name)))
    return prepared, onnxq.plan(prepared, onnxq.calibrate(prepared, dict(samples(name)))).to_json()


@functools.cache
def dynamic_part(name: str) -> tuple[ir.Model, str]:
    """(a canonical model, its dynamic plan as JSON)."""
    model, made = plan_dynamic(onnx.load_from_string(float_model(name)), objective="size")
    assert made.model_hash == model_hash(model)
    return model, made.to_json()


def altered(value: Any, rng: np.random.Generator) -> tuple[Any, str]:
    """(plain data with one entry gone, twice, another or elsewhere; what was done)."""
    made = copy.deepcopy(value)
    holders = list(_holders(made, ""))
    if not holders:
        return made, "nothing"
    where, holder = holders[rng.integers(len(holders))]
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = keys[rng.integers(len(keys))]
    place = f"{where}[{str(key)[:40]!r}]"
    how = int(rng.integers(5))
    if how == 0:
        del holder[key]
        return made, f"{place} gone"
    if how == 1 and isinstance(holder, list):
        holder.insert(key, holder[key])
        return made, f"{place} twice"
    if how == 1:
        holder[f"{key}x"] = holder.pop(key)
        return made, f"{place} renamed"
    if how == 2:
        _, source = holders[rng.integers(len(holders))]
        taken = list(source.values()) if isinstance(source, dict) else source
        holder[key] = copy.deepcopy(taken[rng.integers(len(taken))])
        return made, f"{place} from elsewhere"
    holder[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    return made, f"{place} = {str(holder[key])[:40]!r}"


def _holders(value: Any, where: str) -> Any:
    """(place, dict or list that is not empty) of all in the data."""
    if isinstance(value, dict) and value:
        yield where, value
        for key, inner in value.items():
            yield from _holders(inner, f"{where}.{str(key)[:30]}")
    elif isinstance(value, list) and value:
        yield where, value
        for number, inner in enumerate(value[:20]):
            yield from _holders(inner, f"{where}[{number}]")

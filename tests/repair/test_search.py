"""Models whose default collapses: quantize repairs them, within a budget."""

from __future__ import annotations

import contextlib
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx_ir as ir
import pytest

import onnxq
from onnxq.checking.static_job import StaticJob, carry_out
from onnxq.errors import ModelError, QConfigError, VerificationError
from onnxq.operator import Float
from onnxq.operator.reasons import LeftByRepair
from onnxq.ort import target_here
from onnxq.repair import search as repair
from onnxq.repair.search import carry_out_and_repair
from onnxq.samples import open_samples
from tests.dynamic_models import parsed
from tests.this_machine import TARGET

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from onnxq.checking.runnable import Made
    from onnxq.checking.static_job import Observe
    from onnxq.quantized.verdict import Verdict
    from onnxq.report.progress import Step
    from onnxq.samples.excerpt import Excerpt
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics
    from onnxq.tuning.tables import Milestone
    from onnxq.tuning.tuned import Tuned
    from tests.dynamic_models import F32

WIDTH, ROWS = 256, 64
LONG = onnxq.Repair(max_seconds=120)
"""Bound that a busy machine keeps, too."""


def samples(rows: int = ROWS) -> dict[str, F32]:
    """Numbers near 1000, which differ by 1."""
    rng = np.random.default_rng(2)
    return {"x": (1000 + rng.standard_normal((rows, WIDTH))).astype(np.float32)}


def collapsing() -> onnx.ModelProto:
    """Two linear layers; the first takes differences, for which its inputs are too coarse."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((WIDTH, WIDTH))
    first = ((w - w.mean(axis=0)) / 16).astype(np.float32)
    second = (rng.standard_normal((WIDTH, WIDTH)) / 16).astype(np.float32)
    text = f"""m (float[N,{WIDTH}] x) => (float[N,{WIDTH}] y) {{
        [first] a = MatMul(x, w) b = Relu(a) [second] y = MatMul(b, v) }}"""
    return parsed(text, {"w": first, "v": second})


def step(name: str, db: float, ratio: float) -> SimpleNamespace:
    score = SimpleNamespace(worst_db=db, time_ratio=ratio)
    return SimpleNamespace(changes=(name,), score=score, qconfig=name)


@pytest.mark.parametrize(
    ("ends_with", "tried"), [("mixed", ["mixed"]), ("stored", ["mixed", "stored"])]
)
def test_stored_weights_alone_are_tried_behind_what_is_faster_than_float(
    ends_with: str, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxq.tuning.tuned.is_all_float", lambda _: False)
    steps = [step("begun", 8.0, 0.5), step("mixed", 12.0, 0.6), step("stored", 14.0, 1.0)]
    found = cast("Tuned", SimpleNamespace(steps=steps, qconfig=ends_with))
    assert [each.changes[0] for each in repair._worth_trying(found)] == tried


def test_models_are_searched_on_a_sixteenth_of_the_samples_and_on_all_of_a_handful() -> None:
    prepared = onnxq.prepare(collapsing())
    for rows, looked_at in ((512, 32), (64, 16), (5, 5)):
        given = repair._searched_on(onnxq.Samples(samples(rows)), prepared)
        assert len(list(open_samples(given, prepared.inputs))) == looked_at


def test_what_cannot_be_quantized_anew_takes_no_other_repair_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps, calls = repair._worth_trying, 0

    def twice(found: Tuned) -> list[Milestone]:
        return [*steps(found)[:1], *steps(found)[:1]]

    def refused_at_last(job: StaticJob, observe: Observe) -> tuple[Made[Plan], Statistics]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise ModelError("refused")
        return carry_out(job, observe)

    monkeypatch.setattr(repair, "_worth_trying", twice)
    monkeypatch.setattr(repair, "carry_out", refused_at_last)
    beyond = onnxq.Check(repair=onnxq.Repair(1000, 120))
    made = onnxq.quantize(collapsing(), samples(), check=beyond)
    assert calls == 3
    assert made.verdict is not None
    assert any(note.startswith("repaired") for note in made.verdict.notes)


def worst_db(made: onnxq.QuantizedModel) -> float:
    assert made.verdict is not None
    return min(output.known_db for output in made.verdict.outputs)


def test_a_collapse_is_repaired_and_said() -> None:
    check = onnxq.Check(repair=None)
    with pytest.warns(UserWarning, match="keeps"):
        broken = onnxq.quantize(collapsing(), samples(), target="x86-avx2", check=check)
    assert worst_db(broken) < 15
    check = onnxq.Check(repair=LONG)
    made = onnxq.quantize(collapsing(), samples(), target="x86-avx2", check=check)
    assert worst_db(made) > 15
    assert made.verdict is not None
    note, *_, changes = made.verdict.notes
    assert re.fullmatch(r"repaired, \S+ dB -> \S+ dB: \d nodes in integers, \d before", note)
    assert changes.startswith("the repair: float: ")
    fresh = {"x": samples(2 * ROWS)["x"][ROWS:]}
    findings = onnxq.verify(collapsing(), made, fresh)
    assert findings.outputs[0].sqnr_db > 15
    integers = sum(findings.execution.integer_nodes.values())
    assert integers > 0, "not all of it is given up"


def narrow(
    bits: int | onnxq.SizeAim, wanted: onnxq.Repair = LONG
) -> tuple[onnxq.QuantizedModel, Verdict]:
    """Two linear layers of random weights, which 2 bits do not hold."""
    rng = np.random.default_rng(1)
    w, v = ((rng.standard_normal((WIDTH, WIDTH)) / 16).astype(np.float32) for _ in range(2))
    text = f"""m (float[N,{WIDTH}] x) => (float[N,{WIDTH}] y) {{
        [first] a = MatMul(x, w) b = Relu(a) [second] y = MatMul(b, v) }}"""
    rows = {"x": rng.standard_normal((128, WIDTH)).astype(np.float32)}
    check = onnxq.Check(repair=wanted)
    made = onnxq.quantize(
        parsed(text, {"w": w, "v": v}), rows, target=TARGET, weight_bits=bits, check=check
    )
    assert made.verdict is not None
    return made, made.verdict


def test_weights_of_too_few_bits_get_more_before_any_node_goes_to_float() -> None:
    made, verdict = narrow(2)
    (note,) = [note for note in verdict.notes if "repaired" in note]
    assert re.fullmatch(r"repaired, \d\.\d dB -> [12]\d\.\d dB: weights of 4 bits", note)
    assert verdict.likeness_db >= 15
    types = {value.dtype for value in made.graph.initializers.values()}
    assert ir.DataType.INT4 in types
    assert ir.DataType.INT2 not in types
    assert verdict.integer_nodes >= 2


@pytest.mark.filterwarnings("ignore:output")  # what is tried here
def test_no_time_for_another_model_leaves_the_bits_that_were_asked_for() -> None:
    made, verdict = narrow(2, onnxq.Repair(max_seconds=1e-3))
    assert any("more than is allowed" in note for note in verdict.notes)
    assert ir.DataType.INT2 in {value.dtype for value in made.graph.initializers.values()}


@pytest.mark.filterwarnings("ignore:output")  # what is tried here
def test_a_size_that_was_asked_for_is_kept_and_that_is_said() -> None:
    _, verdict = narrow(onnxq.SizeAim(size=0.09))
    assert "not repaired: the size that was asked for leaves no more bits" in verdict.notes
    assert verdict.likeness_db < 15


def test_nodes_that_repair_put_into_float_say_so() -> None:
    asked = onnxq.prepare(collapsing(), target="x86-avx2")
    found = onnxq.prepare(collapsing(), target="x86-avx2", exclude=["first"])
    made = repair._with_reasons(onnxq.plan(found, onnxq.calibrate(found, samples())), asked)
    assert made.decisions["first"] == Float(LeftByRepair())
    assert made.precisions["first"].reason == LeftByRepair()


def test_each_model_that_a_repair_tries_is_told() -> None:
    prepared, told = onnxq.prepare(collapsing(), target="x86-avx2"), list[tuple[str, int]]()
    job = StaticJob(prepared, "qdq", samples=onnxq.Samples(samples()))

    @contextlib.contextmanager
    def watching(what: str) -> Iterator[Step]:
        yield lambda done, _total: told.append((what, done))

    def observe(prepared: Prepared, excerpt: Excerpt) -> tuple[Statistics, Excerpt]:
        seen = excerpt.watching(open_samples(onnxq.Samples(samples()), prepared.inputs))
        return onnxq.calibrate(prepared, seen), excerpt

    carry_out_and_repair(onnxq.Repair(), collapsing(), job, observe, watching)
    assert told[0][0] == "repair"


def test_samples_that_come_once_are_not_repaired_and_that_is_said() -> None:
    batches = ({"x": row[None]} for row in samples()["x"])
    with pytest.warns(UserWarning, match="keeps"):
        made = onnxq.quantize(collapsing(), batches, target="x86-avx2")
    assert made.verdict is not None
    assert any("the samples come only once" in note for note in made.verdict.notes)


def test_a_bound_is_on_what_was_repaired() -> None:
    bound = onnxq.Check(min_sqnr_db=15, repair=LONG)
    assert worst_db(onnxq.quantize(collapsing(), samples(), target="x86-avx2", check=bound)) > 15
    strict = onnxq.Check(min_sqnr_db=150)
    with pytest.raises(VerificationError, match="bound of 150 dB"):
        onnxq.quantize(collapsing(), samples(), target="x86-avx2", check=strict)


@pytest.mark.parametrize(
    ("text", "floor", "seconds"), [("20dB", 20, None), ("30s", 15, 30), ("12.5db, 3s", 12.5, 3)]
)
def test_the_command_line_names_a_floor_and_a_time(
    text: str, floor: float, seconds: float | None
) -> None:
    assert onnxq.Repair.of(text) == onnxq.Repair(floor, seconds)


def test_off_is_none_and_other_words_are_refused() -> None:
    assert onnxq.Repair.of("off") is None
    for text in ("20", "of", "dB", "-3s"):
        with pytest.raises(QConfigError):
            onnxq.Repair.of(text)


def test_the_float_model_is_no_repair() -> None:
    """A repair of one linear layer would leave nothing else."""
    source = collapsing()
    del source.graph.node[1:]
    source.graph.node[0].output[0] = "y"
    del source.graph.initializer[1:]
    with pytest.warns(UserWarning, match="keeps"):
        made = onnxq.quantize(source, samples(), target="x86-avx2")
    assert made.verdict is not None
    assert made.verdict.integer_nodes
    assert any(note.startswith("not repaired: ") for note in made.verdict.notes)


def test_statistics_and_too_little_time_are_said() -> None:
    statistics = onnxq.calibrate(onnxq.prepare(collapsing(), target="x86-avx2"), samples())
    cases = ((statistics, onnxq.Check(samples()), "the samples themselves"),)
    for given, check, words in cases:
        with pytest.warns(UserWarning, match="keeps"):
            made = onnxq.quantize(collapsing(), given, target="x86-avx2", check=check)
        assert made.verdict is not None
        assert any(words in note for note in made.verdict.notes)
    hurried = onnxq.Check(repair=onnxq.Repair(max_seconds=1e-6))
    with pytest.warns(UserWarning, match="keeps"):
        made = onnxq.quantize(collapsing(), samples(), target="x86-avx2", check=hurried)
    assert made.verdict is not None
    assert any("more than is allowed" in note for note in made.verdict.notes)


def test_what_saturates_here_alone_is_judged_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_here, "target_here", lambda: onnxq.targets.find("x86-avx2"))
    with pytest.warns(UserWarning, match="keeps"):
        made = onnxq.quantize(collapsing(), samples(), target="x86-vnni")
    assert made.verdict is not None
    assert any("does not add as x86-vnni does" in note for note in made.verdict.notes)

from __future__ import annotations

import dataclasses
import pickle
import re
from pathlib import Path

import pytest

from benchmarks.harness.results import FOLDER, Results
from onnxq import targets
from onnxq.errors import QConfigError
from onnxq.targets import AS_FAST, UNPROVEN, DynamicSpeedup, Proof, Target
from onnxq.targets.accumulation import SaturationMode
from onnxq.targets.reduce_range import ReduceRange
from onnxq.targets.speedups import STORED

ROOT = Path(__file__).parents[2]
NAMES = [
    "portable",
    "x86-sse",
    "x86-avx2",
    "x86-avx512",
    "x86-avxvnni",
    "x86-vnni",
    "arm64",
    "arm64-dot",
    "arm64-i8mm",
    "wasm",
]


def test_all_designed_targets_are_there() -> None:
    assert [t.name for t in targets.all_targets()] == NAMES
    assert all(targets.find(name).name == name for name in NAMES)


@pytest.mark.parametrize(("alias", "name"), [("fbgemm", "x86-avx2"), ("qnnpack", "arm64")])
def test_torch_backends_are_aliases(alias: str, name: str) -> None:
    assert targets.find(alias) is targets.find(name)
    assert targets.aliases()[alias] == name


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(QConfigError, match=r"'x86vnni' is not known.*Did you mean 'x86-vnni'\?"):
        targets.find("x86vnni")


@pytest.mark.parametrize("target", targets.all_targets(), ids=str)
def test_pairs_of_products_fit_int16(target: Target) -> None:
    limit = target.weight_qmax_saturating
    if target.saturation_mode is SaturationMode.SATURATES:  # u8 by s8
        assert 255 * limit * 2 <= 2**15 - 1
        assert 255 * (limit + 1) * 2 > 2**15 - 1
    else:  # s8 by s8, where they wrap
        assert 128 * limit * 2 <= 2**15 - 1
    assert target.weight_qmax == 127


def test_portable_is_as_strict_as_the_strictest() -> None:
    portable = targets.find("portable")
    for target in targets.all_targets():
        assert portable.weight_qmax_saturating <= target.weight_qmax_saturating
        assert set(portable.pairs) <= set(target.pairs)


def test_default_is_portable_until_set() -> None:
    assert targets.get_default().name == "portable"
    try:
        assert targets.set_default("qnnpack").name == "arm64"
        assert targets.get_default() is targets.find("arm64")
        assert targets.set_default(targets.find("x86-vnni")) is targets.get_default()
        with pytest.raises(QConfigError):
            targets.set_default("nonsense")
        assert targets.get_default().name == "x86-vnni"
    finally:
        targets.set_default("portable")


def test_auto_is_one_of_the_targets() -> None:
    assert targets.find("auto") in targets.all_targets()
    assert targets.aliases()["auto"] == targets.find("auto").name


def test_targets_hash_and_pickle() -> None:
    assert len(set(targets.all_targets())) == len(NAMES)
    assert pickle.loads(pickle.dumps(targets.find("arm64"))) == targets.find("arm64")


def test_slow_operators_are_those_that_were_measured() -> None:
    slow = Results.load(FOLDER / "elementwise.json").tables["slow"]
    table = {row[0]: row[1] for row in slow.of()}
    assert table == targets.SLOW_IN_INTEGERS
    assert all(t.slow_in_integers == table for t in targets.all_targets())


def measured(*speedups: DynamicSpeedup) -> Target:
    return Target("mine", "", 127, dynamic_speedups=speedups)


def speedup(
    k: int, n: int, m: int, ratio: float, form: str = "integer", bits: int = 8
) -> DynamicSpeedup:
    return DynamicSpeedup("MatMul", form, bits, k, n, m, ratio)


def test_what_was_not_measured_has_no_dynamic_speedup() -> None:
    target = measured(speedup(8, 8, 1, 2.0))
    assert target.dynamic_speedup("MatMul", "integer", 8, 8, 8, 1) == 2.0
    assert target.dynamic_speedup("Gemm", "integer", 8, 8, 8, 1) is None
    assert target.dynamic_speedup("MatMul", "blocks", 8, 8, 8, 1) is None
    assert target.dynamic_speedup("MatMul", "integer", 4, 8, 8, 1) is None


def test_between_measured_shapes_the_least_of_those_around_counts() -> None:
    shapes = [(8, 8, 1.5), (8, 32, 0.75), (32, 8, 2.0), (32, 32, 3.0), (64, 64, 0.1)]
    target = measured(*(speedup(k, n, m, ratio + m / 8) for k, n, ratio in shapes for m in (1, 4)))
    assert target.dynamic_speedup("MatMul", "integer", 8, 8, 8, 2) == 1.625
    assert target.dynamic_speedup("MatMul", "integer", 8, 16, 8, 4) == 2.0
    assert target.dynamic_speedup("MatMul", "integer", 8, 16, 16, 4) == 1.25
    assert target.dynamic_speedup("MatMul", "integer", 8, 32, 1000, 1) == 3.125


@pytest.mark.parametrize(("k", "n", "m"), [(7, 8, 2), (8, 7, 2), (8, 8, 1)])
def test_nothing_gains_below_the_smallest_measured_shape(k: int, n: int, m: int) -> None:
    assert (
        measured(speedup(8, 8, 2, 2.0)).dynamic_speedup("MatMul", "integer", 8, k, n, m) == UNPROVEN
    )
    assert measured(speedup(8, 8, 2, 0.5)).dynamic_speedup("MatMul", "integer", 8, k, n, m) == 0.5
    assert UNPROVEN < STORED < AS_FAST


def test_unknown_rows_count_as_the_worst() -> None:
    target = measured(speedup(8, 8, 1, 2.0), speedup(8, 8, 128, 0.7), speedup(64, 64, 1, 0.1))
    assert target.dynamic_speedup("MatMul", "integer", 8, 8, 8, None) == 0.7
    assert target.dynamic_speedup("MatMul", "integer", 8, 8, 8, 2) == 0.7
    assert target.dynamic_speedup("MatMul", "integer", 8, 8, 8, 0) == 2.0  # an empty batch


def test_rows_that_are_known_to_be_many_leave_out_the_few() -> None:
    target = measured(speedup(8, 8, 1, 0.5), speedup(8, 8, 4, 1.5), speedup(8, 8, 16, 2.0))
    worst = {
        m: target.dynamic_speedup("MatMul", "integer", 8, 8, 8, None, m) for m in (1, 3, 4, 99)
    }
    assert worst == {1: 0.5, 3: 0.5, 4: 1.5, 99: 2.0}


def test_a_target_may_be_given_by_name_or_value_or_left_to_the_default() -> None:
    target = targets.find("x86-vnni")
    assert targets.resolve("x86-vnni") is targets.resolve(target) is target
    assert targets.resolve(None) is targets.get_default()


def test_what_is_no_target_is_told_what_is_wanted() -> None:
    for call in (targets.resolve, targets.set_default):
        with pytest.raises(QConfigError, match=r"target is an int \(5\); wanted a name"):
            call(5)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("target", targets.all_targets(), ids=str)
def test_every_target_says_how_it_is_known(target: Target) -> None:
    assert target.measurement
    assert (target.proof is Proof.PREDICTED) == ("measured once" in target.measurement)
    if target.throughput is not None:
        best = max(target.throughput.uint8_int8, target.throughput.uint8_uint8)
        assert target.throughput.uint8_int8 > best * 0.97  # what is preferred is not slower
        assert target.throughput.source


def test_emulated_cores_are_those_that_the_tests_run_on() -> None:
    script = (ROOT / "scripts" / "setup_isa").read_text("utf-8")
    unpacked = set(re.findall(r"^machine \w+ (cortex-a\d+|max)", script, re.MULTILINE))
    measurement = " ".join(
        t.measurement for t in targets.all_targets() if t.name.startswith("arm64")
    )
    assert {f"cortex-{n}" for n in re.findall(r"a\d+", measurement.lower())} | {"max"} == unpacked


def test_the_weights_follow_from_what_products_do() -> None:
    assert targets.find("x86-vnni").weights == "int8 within +-127"
    portable = targets.find("portable")
    assert portable.weights == "int8 within +-127, pairs within int16 for any input"
    observed = dataclasses.replace(portable, reduce_range=ReduceRange.OBSERVED)
    assert observed.weights.endswith("for the samples")
    halved = dataclasses.replace(portable, reduce_range=ReduceRange.EVERYWHERE)
    assert halved.weights == "int8 within +-64 where pairs are added"
    assert portable.activations == "uint8 (or int8)"

"""Integers in a file: whole records survive any end of the process, and nothing else does."""

from __future__ import annotations

import dataclasses
import errno
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import CalibrationError, OutputError
from onnxq.graph.canonical import canonicalize
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.quantized_weights_file import (
    ALIGNMENT,
    QuantizedWeightsFile,
    QuantizedWeightsHead,
    quantized_weights_head,
)
from onnxq.weights.weight_plan import WeightRequest
from scripts._decoder import Sizes, decoder

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array


HEAD = QuantizedWeightsHead("abc", "1", "gptq", "0")
ARRAYS: dict[str, Array] = {
    "integers": np.arange(21, dtype=np.uint8).reshape(3, 7),
    "scales": np.linspace(0, 1, 5, dtype=np.float32),
}


def written(path: Path, *keys: str) -> bytes:
    with QuantizedWeightsFile.open(path, HEAD) as integers:
        for key in keys:
            integers.append(key, ARRAYS)
    return path.read_bytes()


@pytest.mark.parametrize("name", [None, "integers"])
def test_arrays_come_back_as_they_were(tmp_path: Path, name: str | None) -> None:
    with QuantizedWeightsFile.open(name and tmp_path / name, HEAD) as integers:
        assert integers.find("a") is None
        made = integers.append("a", ARRAYS)
        assert integers.find("a") is made
        for key, array in ARRAYS.items():
            assert np.array_equal(made[key].numpy(), array)
            assert made[key].numpy().dtype == array.dtype


def test_arrays_begin_at_cache_lines(tmp_path: Path) -> None:
    data = written(tmp_path / "integers", "a", "b")
    assert len(data) % ALIGNMENT == 0
    assert data.find(ARRAYS["integers"].tobytes()) % ALIGNMENT == 0
    assert data.find(ARRAYS["scales"].tobytes()) % ALIGNMENT == 0


def test_a_file_cut_off_anywhere_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", "a", "b")
    first = len(written(tmp_path / "first", "a"))
    for length in (0, 5, 100, first - 1, first, first + 40, len(whole) - 1, len(whole)):
        torn = tmp_path / f"torn{length}"
        torn.write_bytes(whole[:length])
        with QuantizedWeightsFile.open(torn, HEAD) as integers:
            assert len(integers) == (length >= first) + (length == len(whole))
            for key in ("a", "b"):
                made = integers.find(key) or integers.append(key, ARRAYS)
                assert np.array_equal(made["integers"].numpy(), ARRAYS["integers"])
        assert torn.read_bytes() == whole


def test_a_record_with_another_byte_is_made_anew(tmp_path: Path) -> None:
    whole = written(tmp_path / "integers", "a")
    damaged = bytearray(whole)
    damaged[whole.find(ARRAYS["integers"].tobytes())] ^= 1
    (tmp_path / "integers").write_bytes(damaged)
    with QuantizedWeightsFile.open(tmp_path / "integers", HEAD) as integers:
        assert integers.find("a") is None


def test_integers_of_something_else_are_refused_with_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "integers"
    before = written(path, "a")
    with pytest.raises(CalibrationError, match="samples: 1, and now 2"):
        QuantizedWeightsFile.open(path, QuantizedWeightsHead("abc", "2", "gptq", "0"))
    assert path.read_bytes() == before


def test_another_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("my notes")
    with pytest.raises(CalibrationError, match="does not begin like a journal"):
        QuantizedWeightsFile.open(path, HEAD)
    assert path.read_text() == "my notes"


def test_other_options_are_said_in_words(tmp_path: Path) -> None:
    with QuantizedWeightsFile.open(tmp_path / "integers", HEAD):
        pass
    other = dataclasses.replace(HEAD, plan="another digest")
    with pytest.raises(
        CalibrationError, match="other bits, group size, scheme, method, or nodes"
    ) as e:
        QuantizedWeightsFile.open(tmp_path / "integers", other)
    assert "digest" not in str(e.value)


def test_a_file_in_use_is_refused(tmp_path: Path) -> None:
    with (
        QuantizedWeightsFile.open(tmp_path / "integers", HEAD),
        pytest.raises(OutputError, match="is in use"),
    ):
        QuantizedWeightsFile.open(tmp_path / "integers", HEAD)


def test_a_full_disk_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with QuantizedWeightsFile.open(tmp_path / "integers", HEAD) as integers:
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OutputError, match="cannot be written: No space left on device"):
            integers.append("a", ARRAYS)


SOURCE = canonicalize(decoder(Sizes(depth=1))).model
PLAN = plan_weights(SOURCE, WeightRequest(method=Method.RTN))


def test_another_model_plan_or_sample_is_another_head() -> None:
    batch: dict[str, Array] = {"x": np.zeros(3)}
    head = quantized_weights_head(SOURCE, PLAN, [batch])
    assert quantized_weights_head(SOURCE, PLAN, [batch]) == head
    other = canonicalize(decoder(Sizes(depth=1), seed=1)).model
    mixed = PLAN.with_specs({"MatMul_d0": GroupSpec(8)})
    found = [
        quantized_weights_head(other, PLAN, [batch]),
        quantized_weights_head(SOURCE, mixed, [batch]),
        quantized_weights_head(SOURCE, PLAN, [{"x": np.ones(3)}]),
    ]
    fields = [f.name for f in dataclasses.fields(head)]
    changed = [[f for f in fields if getattr(head, f) != getattr(each, f)] for each in found]
    assert changed == [["model_hash"], ["plan"], ["samples"]]
    assert quantized_weights_head(SOURCE, PLAN, ()).samples == ""

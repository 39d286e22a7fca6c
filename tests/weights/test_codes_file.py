"""Codes in a file: whole records survive any end of the process, and nothing else does."""

from __future__ import annotations

import dataclasses
import errno
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import CalibrationError, OutputError
from onnxq.graph.canonical import canonicalize
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.weights.codes_file import ALIGNMENT, CodesFile, CodesHead, codes_head
from onnxq.weights.plan_weights import WeightRequest, plan_weights
from scripts._decoder import Sizes, decoder

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array


HEAD = CodesHead("abc", "1", "gptq", "0")
ARRAYS: dict[str, Array] = {
    "codes": np.arange(21, dtype=np.uint8).reshape(3, 7),
    "scales": np.linspace(0, 1, 5, dtype=np.float32),
}


def written(path: Path, *keys: str) -> bytes:
    with CodesFile.open(path, HEAD) as codes:
        for key in keys:
            codes.append(key, ARRAYS)
    return path.read_bytes()


@pytest.mark.parametrize("name", [None, "codes"])
def test_arrays_come_back_as_they_were(tmp_path: Path, name: str | None) -> None:
    with CodesFile.open(name and tmp_path / name, HEAD) as codes:
        assert codes.find("a") is None
        made = codes.append("a", ARRAYS)
        assert codes.find("a") is made
        for key, array in ARRAYS.items():
            assert np.array_equal(made[key].numpy(), array)
            assert made[key].numpy().dtype == array.dtype


def test_arrays_begin_at_cache_lines(tmp_path: Path) -> None:
    data = written(tmp_path / "codes", "a", "b")
    assert len(data) % ALIGNMENT == 0
    assert data.find(ARRAYS["codes"].tobytes()) % ALIGNMENT == 0
    assert data.find(ARRAYS["scales"].tobytes()) % ALIGNMENT == 0


def test_a_file_cut_off_anywhere_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", "a", "b")
    first = len(written(tmp_path / "first", "a"))
    for length in (0, 5, 100, first - 1, first, first + 40, len(whole) - 1, len(whole)):
        torn = tmp_path / f"torn{length}"
        torn.write_bytes(whole[:length])
        with CodesFile.open(torn, HEAD) as codes:
            assert len(codes) == (length >= first) + (length == len(whole))
            for key in ("a", "b"):
                made = codes.find(key) or codes.append(key, ARRAYS)
                assert np.array_equal(made["codes"].numpy(), ARRAYS["codes"])
        assert torn.read_bytes() == whole


def test_a_record_with_another_byte_is_made_anew(tmp_path: Path) -> None:
    whole = written(tmp_path / "codes", "a")
    damaged = bytearray(whole)
    damaged[whole.find(ARRAYS["codes"].tobytes())] ^= 1
    (tmp_path / "codes").write_bytes(damaged)
    with CodesFile.open(tmp_path / "codes", HEAD) as codes:
        assert codes.find("a") is None


def test_codes_of_something_else_are_refused_with_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "codes"
    before = written(path, "a")
    with pytest.raises(CalibrationError, match="samples: 1, and now 2"):
        CodesFile.open(path, CodesHead("abc", "2", "gptq", "0"))
    assert path.read_bytes() == before


def test_another_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("my notes")
    with pytest.raises(CalibrationError, match="does not begin like a journal"):
        CodesFile.open(path, HEAD)
    assert path.read_text() == "my notes"


def test_other_options_are_said_in_words(tmp_path: Path) -> None:
    with CodesFile.open(tmp_path / "codes", HEAD):
        pass
    other = dataclasses.replace(HEAD, plan="another digest")
    with pytest.raises(
        CalibrationError, match="other bits, group size, scheme, method, or nodes"
    ) as e:
        CodesFile.open(tmp_path / "codes", other)
    assert "digest" not in str(e.value)


def test_a_file_in_use_is_refused(tmp_path: Path) -> None:
    with (
        CodesFile.open(tmp_path / "codes", HEAD),
        pytest.raises(OutputError, match="is in use"),
    ):
        CodesFile.open(tmp_path / "codes", HEAD)


def test_a_full_disk_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with CodesFile.open(tmp_path / "codes", HEAD) as codes:
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OutputError, match="cannot be written: No space left on device"):
            codes.append("a", ARRAYS)


SOURCE = canonicalize(decoder(Sizes(depth=1))).model
PLAN = plan_weights(SOURCE, WeightRequest(method=Method.RTN))


def test_another_model_plan_or_sample_is_another_head() -> None:
    batch: dict[str, Array] = {"x": np.zeros(3)}
    head = codes_head(SOURCE, PLAN, [batch])
    assert codes_head(SOURCE, PLAN, [batch]) == head
    other = canonicalize(decoder(Sizes(depth=1), seed=1)).model
    mixed = PLAN.with_specs({"MatMul_d0": GroupSpec(8)})
    found = [
        codes_head(other, PLAN, [batch]),
        codes_head(SOURCE, mixed, [batch]),
        codes_head(SOURCE, PLAN, [{"x": np.ones(3)}]),
    ]
    fields = [f.name for f in dataclasses.fields(head)]
    changed = [[f for f in fields if getattr(head, f) != getattr(each, f)] for each in found]
    assert changed == [["model_hash"], ["plan"], ["samples"]]
    assert codes_head(SOURCE, PLAN, ()).samples == ""

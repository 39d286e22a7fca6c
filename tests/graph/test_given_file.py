"""The file that a model came in: known through the canonical form, and never taken for another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

import onnxq
from onnxq.graph.given_file import given_file, given_size
from onnxq.graph.io import load
from tests.examples import network, save

if TYPE_CHECKING:
    from pathlib import Path


def test_the_canonical_model_knows_its_file_and_that_files_bytes(tmp_path: Path) -> None:
    path = save(network(), tmp_path / "m.onnx")
    model = onnxq.prepare(path).model
    assert given_file(model) == path
    assert given_size(model) == path.stat().st_size


def test_external_data_are_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(network(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    both = path.stat().st_size + (tmp_path / "w.bin").stat().st_size
    assert given_size(load(path)) == both


def test_a_file_that_was_written_anew_is_another(tmp_path: Path) -> None:
    path = save(network(), tmp_path / "m.onnx")
    model = load(path)
    path.write_bytes(path.read_bytes() + b"\0")
    assert given_file(model) is None
    path.unlink()
    assert given_file(model) is None


def test_a_model_of_no_file_has_the_size_that_it_would_have() -> None:
    model = ir.from_proto(network())
    assert given_file(model) is None
    assert given_size(model) > sum(len(t.raw_data) for t in network().graph.initializer)

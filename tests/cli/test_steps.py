from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest

from onnxq.cli.steps import claim, given, load_model, merged_files, prepare_model
from onnxq.errors import CalibrationError, OutputError, QConfigError
from onnxq.graph.io import load
from onnxq.qconfig import get_default_qconfig
from onnxq.static.calibrate import Shard, calibrate
from onnxq.static.prepare import prepare
from tests.examples import images, network, save


def test_paths_that_were_not_given_are_left_out() -> None:
    assert given(None, Path("a"), None) == [Path("a")]


def test_outputs_may_not_be_inputs_nor_each_other(tmp_path: Path) -> None:
    read = tmp_path / "read"
    read.write_bytes(b"kept")
    (tmp_path / "x").mkdir()
    claim([tmp_path / "a", tmp_path / "b"], [read])
    with pytest.raises(OutputError, match="also read by this command"):
        claim([read], [read])
    with pytest.raises(OutputError, match="written twice"):
        claim([tmp_path / "a", tmp_path / "x" / ".." / "a"], [])
    assert read.read_bytes() == b"kept"


def test_links_are_seen_through(tmp_path: Path) -> None:
    read = tmp_path / "read"
    read.write_bytes(b"kept")
    (tmp_path / "soft").symlink_to(read)
    os.link(read, tmp_path / "hard")
    for name in ("soft", "hard"):
        with pytest.raises(OutputError, match="also read by this command"):
            claim([tmp_path / name], [read])


def test_a_file_in_a_folder_that_is_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="also read"):
        claim([tmp_path / "new"], [tmp_path])


def test_an_output_may_not_be_the_models_weights(tmp_path: Path) -> None:
    path, data = tmp_path / "m.onnx", tmp_path / "m.data"
    onnx.save(network(), path, save_as_external_data=True, location=data.name, size_threshold=0)
    before = data.read_bytes()
    with pytest.raises(OutputError, match="also read"):
        load_model(path, [data])
    assert data.read_bytes() == before
    assert len(load_model(path, [tmp_path / "new.onnx"]).graph) == len(network().graph.node)


def test_names_are_checked_before_the_model_is(tmp_path: Path) -> None:
    model = load(save(network(), tmp_path / "m.onnx"))
    with pytest.raises(QConfigError, match="Did you mean 'x86-vnni'"):
        prepare_model(model, None, (), "x86-vni")
    prepared = prepare_model(model, None, ("node:conv1=float",), "x86-vnni")
    assert prepared.target.name == "x86-vnni"
    assert prepared.qconfig.for_node("conv1", "Conv") is None


@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
def test_exceptions_stand_on_the_backends_documented_qconfig(tmp_path: Path, backend: str) -> None:
    model = load(save(network(), tmp_path / "m.onnx"))
    file = tmp_path / "q.yaml"
    file.write_text("op_types: {Softmax: null}\n")
    wanted = get_default_qconfig(backend)
    for qconfig, overrides in ((None, ("op:Gemm=float",)), (file, ()), (file, ("op:Gemm=float",))):
        prepared = prepare_model(model, qconfig, overrides, backend)
        assert prepared.qconfig.for_node("conv1", "Conv") == wanted
        assert (prepared.qconfig.for_node("gemm", "Gemm") is None) == bool(overrides)


def test_statistics_of_shards_are_merged(tmp_path: Path) -> None:
    prepared = prepare(network())
    batches = [{"x": images(1, seed)} for seed in range(4)]
    files = tuple(tmp_path / f"{i}.stats" for i in range(2))
    for i, file in enumerate(files):
        calibrate(prepared, batches, shard=Shard(i, 2)).save(file)
    assert merged_files(files).batches == calibrate(prepared, batches).batches
    with pytest.raises(CalibrationError, match="is in both"):
        merged_files((files[0], files[0]))

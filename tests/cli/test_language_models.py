"""Commands for language models."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

import onnxq
from onnxq.graph.io import load
from onnxq.language.decoder import Decoder
from onnxq.metrics import as_samples
from tests.tiny_decoder import tiny_decoder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def test_a_folder_is_made_and_its_files_are_named(run: Run, tmp_path: Path) -> None:
    onnxq.save(tiny_decoder(), tmp_path / "m.onnx")
    result = run("genai-folder", tmp_path / "m.onnx", "-o", tmp_path / "made", "--context", 16)
    assert result.exit_code == 0, result.stderr
    assert "genai_config.json, model.onnx, tokenizer.json" in result.stdout
    assert '"context_length": 16' in (tmp_path / "made" / "genai_config.json").read_text("utf-8")


def test_a_context_that_is_too_long_is_refused(run: Run, tmp_path: Path) -> None:
    onnxq.save(tiny_decoder(), tmp_path / "m.onnx")
    result = run("genai-folder", tmp_path / "m.onnx", "-o", tmp_path / "made", "--context", 64)
    assert result.exit_code == 5
    assert "context is 64; wanted 1 to 32" in result.stderr
    assert not (tmp_path / "made").exists()


def test_a_cache_becomes_int8(run: Run, tmp_path: Path) -> None:
    source = tiny_decoder()
    onnxq.save(source, tmp_path / "m.onnx")
    texts: dict[str, Any] = dict(as_samples(source, np.arange(20).reshape(2, 10)))
    np.savez(tmp_path / "texts.npz", **texts)
    out = tmp_path / "out.onnx"
    result = run("quantize-cache", tmp_path / "m.onnx", tmp_path / "texts.npz", "-o", out)
    assert result.exit_code == 0, result.stderr
    assert {str(x.dtype) for x in Decoder.of(load(out)).empty(1).values()} == {"int8"}
    assert "beside the float cache, on 2 batches of the samples" in result.stdout
    assert "output 'logits': SQNR " in result.stdout


CHAINS = [
    *itertools.permutations(["quantize-weights", "quantize-cache"]),
    ("quantize-weights",),
    ("quantize-cache",),
    ("quantize-dynamic", "quantize-cache"),
]


@pytest.mark.parametrize("packed", [False, True], ids=["q, k, v", "one tensor"])
@pytest.mark.parametrize("chain", CHAINS, ids=" ".join)
def test_commands_for_decoders_read_each_others_files(
    chain: tuple[str, ...], packed: bool, run: Run, tmp_path: Path
) -> None:
    """The builder of onnxruntime-genai leaves the head's size of the cache open."""
    source = tiny_decoder()
    texts: dict[str, Any] = dict(as_samples(source, np.arange(20).reshape(2, 10)))
    np.savez(tmp_path / "texts.npz", **texts)
    with_open_heads(source, packed)
    path = tmp_path / "0.onnx"
    onnxq.save(source, path)
    for number, command in enumerate(chain, 1):
        samples = [tmp_path / "texts.npz"] if command == "quantize-cache" else []
        made = tmp_path / f"{number}.onnx"
        all_of_it = ["--objective", "size", "--repair", "off"]
        options = all_of_it if command == "quantize-dynamic" else []
        result = run(command, path, *samples, "-o", made, *options)
        assert result.exit_code == 0, result.stderr
        path = made
    result = run("genai-folder", path, "-o", tmp_path / "made", "--context", 16)
    assert result.exit_code == 0, result.stderr
    assert '"head_size": 16' in (tmp_path / "made" / "genai_config.json").read_text("utf-8")


def with_open_heads(model: ir.Model, packed: bool) -> None:
    """Writes the cache's last size as the builder does; queries, keys and values as one tensor."""
    for value in (*model.graph.inputs, *model.graph.outputs):
        if str(value.name).startswith(("past_key_values.", "present.")):
            assert value.shape is not None
            value.shape = ir.Shape([*value.shape[:3], "kv_cache_dim"])
    for node in list(model.graph) if packed else []:
        if node.op_type == "GroupQueryAttention":
            pack(model.graph, node)


def pack(graph: ir.Graph, node: ir.Node) -> None:
    """One MatMul for queries, keys and values, without rotary angles."""
    matmuls = [matmul_of(value) for value in node.inputs[:3]]
    weights = [matmul.inputs[1] for matmul in matmuls]
    arrays = [w.const_value.numpy() for w in weights if w is not None and w.const_value is not None]
    name = f"{node.name}_packed"
    weight = ir.Value(name=name, const_value=ir.tensor(np.concatenate(arrays, axis=1), name=name))
    graph.register_initializer(weight)
    made = ir.node("MatMul", [matmuls[0].inputs[0], weight], name=f"{name}_product")
    made.outputs[0].name = f"{name}_result"
    graph.insert_before(node, made)
    node.replace_input_with(0, made.outputs[0])
    node.replace_input_with(1, None)
    node.replace_input_with(2, None)


def matmul_of(value: ir.Value | None) -> ir.Node:
    """The MatMul that makes a tensor, behind its rotary angles."""
    assert value is not None
    node = value.producer()
    assert node is not None
    return node if node.op_type == "MatMul" else matmul_of(node.inputs[0])


def test_weights_are_written_beside_the_model_on_request(run: Run, tmp_path: Path) -> None:
    onnxq.save(tiny_decoder(), tmp_path / "m.onnx")
    out = tmp_path / "q.onnx"
    result = run("quantize-weights", tmp_path / "m.onnx", "-o", out, "--external-data")
    assert result.exit_code == 0, result.stderr
    (beside,) = tmp_path.glob("q.onnx.*.data")
    assert beside.stat().st_size > out.stat().st_size / 4
    assert run("genai-folder", out, "-o", tmp_path / "made").exit_code == 0

"""Models: small ones, mutated by protobuf field, by byte and by idea, given to every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from google.protobuf.message import DecodeError

import onnxq
from onnxq import reference
from scripts._fuzz import fields
from scripts._fuzz.case import Call, Case, Scratch, command
from scripts._fuzz.seed_models import (
    FLOAT,
    QUANTIZABLE,
    QUANTIZED,
    float_model,
    quantized_model,
    samples,
)
from scripts._fuzz.structures import STRUCTURES

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array

CALLS = 3  # of those that fit a case, by chance
SHARE_QUANTIZED = 0.25  # cases whose mutated model is a quantized one
SHARE_BYTES = 0.15  # cases that are mutated by byte


def case(rng: np.random.Generator, scratch: Scratch) -> Case:
    """A model with one to three things made wrong, a good one beside it, and samples."""
    is_float = rng.random() >= SHARE_QUANTIZED
    name = str(rng.choice(list(FLOAT) if is_float else QUANTIZABLE))
    form = str(rng.choice(QUANTIZED))
    good = float_model(name) if is_float else quantized_model(name, form)
    data, words = mutated(good, rng, scratch)
    path, sample_file = scratch.inputs / "m.onnx", scratch.inputs / "samples.npz"
    path.write_bytes(data)
    arrays = dict(samples(name))
    np.savez(sample_file, allow_pickle=False, **arrays)
    other = scratch.inputs / "other.onnx"
    if is_float:
        pair = name if name in QUANTIZABLE else "cnn"
        other.write_bytes(quantized_model(pair, form))
        calls = _float_calls(path, other, sample_file, scratch)
    else:
        other.write_bytes(float_model(name))
        calls = _quantized_calls(path, other, sample_file)
    chosen = rng.permutation(len(calls))[:CALLS]
    kind = name if is_float else f"{name} ({form})"
    return Case(f"{kind}: {words}", tuple(calls[i] for i in chosen), lambda: _alone(path, arrays))


def mutated(good: bytes, rng: np.random.Generator, scratch: Scratch) -> tuple[bytes, str]:
    """(the model with one to three things made wrong, what they are)."""
    if rng.random() < SHARE_BYTES:
        return fields.mutated_bytes(good, rng)
    model = onnx.load_from_string(good)
    words = []
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.5:
            words.append(fields.mutate(model, rng))
        else:
            structure = STRUCTURES[rng.integers(len(STRUCTURES))]
            words.append(structure(model, rng, scratch))
    return fields.as_bytes(model), "; ".join(words)


def _float_calls(path: Path, quantized: Path, sample_file: Path, scratch: Scratch) -> list[Call]:
    out = scratch.outputs
    return [
        command("inspect", path),
        command("quantize", path, sample_file, "-o", out / "q.onnx"),
        command("quantize", path, sample_file, "-o", out / "o.onnx", "--format", "qoperator"),
        command("calibrate", path, sample_file, "-o", out / "s.stats"),
        command("quantize-dynamic", path, "-o", out / "d.onnx", "--objective", "size"),
        command("verify", path, quantized, sample_file),
        command("cross-check", path, sample_file),
        command("bench", path, quantized, "--runs", 1),
        _on_proto("prepare(ModelProto)", path, lambda proto: onnxq.prepare(proto)),
        _on_proto(
            "quantize_dynamic(ModelProto)", path, lambda proto: onnxq.quantize_dynamic(proto)
        ),
        _on_proto("quantize_dynamic(Model)", path, lambda p: onnxq.quantize_dynamic(_as_ir(p))),
    ]


def _quantized_calls(path: Path, source: Path, sample_file: Path) -> list[Call]:
    return [
        command("inspect", path),
        command("verify", source, path, sample_file),
        command("cross-check", path, sample_file),
        command("predict", path, sample_file),
        command("predict", path),
        command("bench", source, path, "--runs", 1),
        _on_proto(
            "cross_check(ModelProto)", path, lambda p: onnxq.cross_check(p, str(sample_file))
        ),
        _on_proto("evaluator(Model)", path, lambda p: reference.evaluator(_as_ir(p))),
        Call("evaluator(path)", lambda: reference.evaluator(path)),
    ]


def _on_proto(name: str, path: Path, run: object) -> Call:
    """A call with the file as a ModelProto; nothing where protobuf cannot read it."""

    def parsed() -> object:
        proto = onnx.ModelProto()
        try:
            proto.ParseFromString(path.read_bytes())
        except DecodeError:
            return None
        assert callable(run)
        return run(proto)

    return Call(name, parsed)


class _NoModelError(onnxq.errors.ModelError):
    """onnx_ir itself does not take the protobuf; nothing of onnxq was run."""


def _as_ir(proto: onnx.ModelProto) -> ir.Model:
    try:
        return ir.from_proto(proto)
    except Exception as error:  # what onnx_ir says is not asked here
        raise _NoModelError(f"onnx_ir: {type(error).__name__}") from error


def _alone(path: Path, arrays: dict[str, Array]) -> None:
    """The file on ONNX Runtime, as onnxq opens it, on the samples."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    feeds = {value.name: arrays[value.name] for value in session.get_inputs()}
    session.run(None, feeds)

"""Samples: npz and npy files, and folders of them, with wrong arrays and headers, and odd files."""

from __future__ import annotations

import io
import os
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import onnx

import onnxq
from onnxq.core.regular import why_no_file
from onnxq.graph.io import load
from onnxq.samples import input_specs, open_samples
from scripts._fuzz.case import Call, Case, Scratch, command
from scripts._fuzz.fields import mutated_bytes
from scripts._fuzz.seed_models import QUANTIZABLE, float_model, quantized_model, samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onnxq.core.arrays import Array

CALLS = 2  # of those that take samples, by chance
SCALAR = """
    <ir_version: 9, opset_import: ["" : 17]>
    voice (float[N, 8] x, int64 rate) => (float[N, 8] y) {
        scale = Cast<to = 1>(rate)
        d = Div(x, scale)
        y = MatMul(d, w)
    }"""
"""A model with an input of rank 0, as voice detectors have one."""


def case(rng: np.random.Generator, scratch: Scratch) -> Case:
    """A model, and samples with one to three things made wrong."""
    name = "voice" if rng.random() < 0.2 else str(rng.choice(QUANTIZABLE))
    model, arrays = _model(name)
    path, quantized = scratch.inputs / "m.onnx", scratch.inputs / "q.onnx"
    path.write_bytes(model)
    quantized.write_bytes(model if name == "voice" else quantized_model(name, "qdq"))
    words = []
    for _ in range(int(rng.integers(0, 3))):
        change = _ARRAYS[rng.integers(len(_ARRAYS))]
        arrays = change(arrays, rng)
        words.append(change.__name__.strip("_"))
    form = _FORMS[rng.integers(len(_FORMS))]
    words.append(form.__name__.strip("_"))
    source = form(arrays, rng, scratch)
    if source.is_file() and source.stat().st_size and rng.random() < 0.4:
        data, how = mutated_bytes(source.read_bytes(), rng)
        source.write_bytes(data)
        words.append(how)
    elif source.is_dir() and rng.random() < 0.4:
        words.append(_odd_file(source, rng))
    calls = _calls(path, quantized, source, rng, scratch)
    chosen = rng.permutation(len(calls))[:CALLS]
    return Case(f"{name}: {', '.join(words)}", tuple(calls[i] for i in chosen))


def _model(name: str) -> tuple[bytes, dict[str, Array]]:
    if name != "voice":
        return float_model(name), dict(samples(name))
    model = onnx.parser.parse_model(SCALAR)
    weights = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    x = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    return model.SerializeToString(), {"x": x, "rate": np.array(16000)}


def _calls(
    path: Path, quantized: Path, source: Path, rng: np.random.Generator, scratch: Scratch
) -> list[Call]:
    out = scratch.outputs
    options: list[object] = []
    if rng.random() < 0.3:
        options += ["--batch-size", int(rng.choice([1, 2, 3, 1000, 10**9, 10**30]))]
    if rng.random() < 0.2:
        options += ["--ignore", str(rng.choice(["label", "x", "", "\n"]))]
    return [
        command("calibrate", path, source, "-o", out / "s.stats", *options),
        command("quantize", path, source, "-o", out / "q.onnx", *options),
        command("verify", path, quantized, source, *options),
        command("cross-check", quantized, source, *options),
        command("predict", quantized, source, *options),
        command("bench", path, quantized, source, "--runs", 1),
        Call("quantize(samples)", lambda: onnxq.quantize(path, _in_memory(source))),
        Call("open_samples", lambda: _read_all(path, source)),
    ]


def _in_memory(source: Path) -> Path | dict[str, Array]:
    """Arrays that NumPy reads of the file; the path where it reads none."""
    if why_no_file(source):
        return source
    try:
        with np.load(source, allow_pickle=False) as loaded:
            return dict(loaded)
    except Exception:  # whatever NumPy says: the path goes on
        return source


def _read_all(path: Path, source: Path) -> None:
    for _ in open_samples(source, input_specs(load(path))):
        pass


# --- wrong arrays


def _renamed(arrays: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    name = _any(arrays, rng)
    new = str(rng.choice(["y", "", "../x", "x.npy", "x\n", "[/red]", "x" * 300, "\0"]))
    return {new if n == name else n: x for n, x in arrays.items()}


def _left_out(arrays: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    name = _any(arrays, rng)
    return {n: x for n, x in arrays.items() if n != name}


def _added(arrays: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    return {**arrays, str(rng.choice(["label", "z", "header"])): np.arange(int(rng.integers(5)))}


def _of_another_type(arrays: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    kinds = ["f2", "f8", "i1", "i4", "u8", "?", "c8", "S3", "U3", "M8[s]", "m8[s]", "V4", "O"]
    return _changed(arrays, rng, lambda x: _cast(x, str(rng.choice(kinds))))


def _cast(x: Array, kind: str) -> Array:
    with np.errstate(all="ignore"):
        try:
            return x.astype(np.dtype(kind))
        except (TypeError, ValueError, OverflowError, RuntimeError):  # times of any year
            return np.zeros(x.shape, kind)


def _of_another_shape(arrays: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    shapes: list[Callable[[Array], Array]] = [
        lambda x: x[:0] if x.ndim else x,
        lambda x: x[None],
        lambda x: x.reshape(-1),
        lambda x: x[..., None],
        lambda x: np.asarray(x.reshape(-1)[:1].reshape(())) if x.size else x,
        lambda x: x[0] if x.ndim and len(x) else x,
        lambda x: np.repeat(x, 2, axis=-1) if x.ndim else x,
        lambda x: np.asfortranarray(x),
        lambda x: x[:1] if x.ndim else x,
    ]
    return _changed(arrays, rng, shapes[rng.integers(len(shapes))])


def _of_other_values(arrays: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    values = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 0.0, 255.0]

    def change(x: Array) -> Array:
        made = np.array(x)
        value = values[rng.integers(len(values))]
        if made.dtype.kind == "f" and made.size:
            made.reshape(-1)[rng.integers(made.size) :] = value
        elif made.dtype.kind in "iu":
            made[...] = -1 if made.dtype.kind == "i" else 255
        return made

    return _changed(arrays, rng, change)


def _of_another_size(arrays: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """Numbers near the ends of float32, whose squares overflow, or vanish."""
    factor = 10.0 ** float(rng.integers(-44, 38))

    def change(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return (x.astype(np.float64) * factor).astype(x.dtype) if x.dtype.kind == "f" else x

    return _changed(arrays, rng, change)


_ARRAYS = [
    _renamed,
    _left_out,
    _added,
    _of_another_type,
    _of_another_shape,
    _of_other_values,
    _of_another_size,
]


def _any(arrays: dict[str, Array], rng: np.random.Generator) -> str:
    return str(rng.choice(sorted(arrays))) if arrays else ""


def _changed(
    arrays: dict[str, Array], rng: np.random.Generator, change: Callable[[Array], Array]
) -> dict[str, Array]:
    name = _any(arrays, rng)
    return {n: change(x) if n == name else x for n, x in arrays.items()}


# --- forms of files


def _npz(arrays: dict[str, Array], rng: np.random.Generator, scratch: Scratch) -> Path:
    path = scratch.inputs / "x.npz"
    kinds = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    with zipfile.ZipFile(path, "w", kinds[rng.integers(len(kinds))]) as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(name.replace("\0", "") + ".npy"), _npy_bytes(array))
    return path


def _npz_with_odd_members(
    arrays: dict[str, Array], rng: np.random.Generator, scratch: Scratch
) -> Path:
    path = _npz(arrays, rng, scratch)
    with zipfile.ZipFile(path, "a") as archive:
        name = str(rng.choice(["../../evil.npy", "/evil.npy", "x", "folder/", "x.npy", ""]))
        archive.writestr(zipfile.ZipInfo(name), bytes(rng.bytes(int(rng.integers(200)))))
    return path


def _npy(arrays: dict[str, Array], rng: np.random.Generator, scratch: Scratch) -> Path:
    path = scratch.inputs / "x.npy"
    array = arrays.get(_any(arrays, rng), np.zeros(3))
    path.write_bytes(_npy_bytes(array))
    return path


def _npy_with_another_header(
    arrays: dict[str, Array], rng: np.random.Generator, scratch: Scratch
) -> Path:
    shapes = ["(120000000000,)", "(-1, 3)", "()", "(0, 9223372036854775807)", "(1,) * 9", "(True,)"]
    shapes += ["(" * 900, "None", "[4]", "(4, 8.0)", f"({'1,' * 70})", "(2, 3, 8, 8)"]
    kinds = ["<f4", "<f8", "|O", "<U9", "|V0", "<U0", "(2,)<f4", ">f4", "x", "<M8[s]", "<f4" * 99]
    header = (
        f"{{'descr': {str(rng.choice(kinds))!r}, "
        f"'fortran_order': {rng.choice(['True', 'False', '0', 'x'])}, "
        f"'shape': {rng.choice(shapes)}, }}"
    ).encode()
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    data += b"".join(np.ascontiguousarray(x).tobytes() for x in arrays.values() if x.dtype != "O")
    if rng.random() < 0.5:
        path = scratch.inputs / "x.npy"
        path.write_bytes(data)
        return path
    path = scratch.inputs / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in arrays:
            archive.writestr(zipfile.ZipInfo(name.replace("\0", "") + ".npy"), data)
    return path


def _bomb(arrays: dict[str, Array], rng: np.random.Generator, scratch: Scratch) -> Path:
    path = scratch.inputs / "x.npz"
    rows = 50_000_000  # of 200 MB, in 200 kB
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        name = _any(arrays, rng).replace("\0", "")
        with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": (rows,)}
            )
            block = bytes(1 << 22)
            for _ in range(4 * rows // len(block) + 1):
                file.write(block)
    return path


def _folder(arrays: dict[str, Array], _rng: np.random.Generator, scratch: Scratch) -> Path:
    folder = scratch.inputs / "folder"
    folder.mkdir()
    rows = max((len(x) for x in arrays.values() if x.ndim), default=0)
    for row in range(min(rows, 4)):
        one = {n: x[row % len(x)] if x.ndim and len(x) else x for n, x in arrays.items()}
        kept = {n.replace("\0", "").replace("/", "") or "_": x for n, x in one.items()}
        with zipfile.ZipFile(folder / f"{row}.npz", "w") as archive:
            for name, array in kept.items():
                archive.writestr(zipfile.ZipInfo(f"{name}.npy"), _npy_bytes(np.asarray(array)))
    return folder


def _no_file(_arrays: dict[str, Array], rng: np.random.Generator, scratch: Scratch) -> Path:
    path = scratch.inputs / "x.npz"
    odd = int(rng.integers(6))
    if odd == 0:
        os.mkfifo(path)
    elif odd == 1:
        path.symlink_to("nowhere")
    elif odd == 2:
        path.symlink_to("/dev/zero")
    elif odd == 3:
        path.symlink_to(path)
    elif odd == 4:
        path.write_bytes(b"")
    return path


_FORMS = [_npz, _folder, _npy, _npz_with_odd_members, _npy_with_another_header, _no_file] * 7
_FORMS.append(_bomb)  # which takes a second to write


def _odd_file(folder: Path, rng: np.random.Generator) -> str:
    path = folder / str(rng.choice(["1.npz", "z.npy", "a.npz"]))
    path.unlink(missing_ok=True)
    odd = str(rng.choice(["pipe", "dangling", "zero", "folder", "garbage", "cut", "empty"]))
    if odd == "pipe":
        os.mkfifo(path)
    elif odd in ("dangling", "zero"):
        path.symlink_to("nowhere" if odd == "dangling" else "/dev/zero")
    elif odd == "folder":
        path.mkdir()
    elif odd == "garbage":
        path.write_bytes(bytes(rng.bytes(300)))
    elif odd == "cut":
        data = _npy_bytes(np.ones((3, 8, 8), np.float32))
        path.write_bytes(data[: int(rng.integers(len(data)))])
    else:
        path.touch()
    return f"{odd} {path.name}"


def _npy_bytes(array: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)  # objects too: nobody may load them
    return file.getvalue()

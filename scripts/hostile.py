"""Hostile files by door, and a count of what must never happen.

    python scripts/hostile.py --output scripts/hostile.md

Every attempt is one call of the command line in a process of its own, which may take 60 seconds and
3 GB. A refusal with an error of onnxq/errors.py is right, and so is a result. Wrong are tracebacks,
a crash, a hang, and a file that is read or written outside: a secret beside the folder must not be
in an output, and no other file may change. Ends with 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from onnxq import catalog
from onnxq.cli import main as cli
from onnxq.errors import exit_codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS, BYTES = 60, 3 << 30
SECRET = b"the secret beside the folder"
Paths = dict[str, str]


def small_model(path: Path, external: str = "") -> Path:
    """A Conv of images and a MatMul; its weights in a file of that name."""
    random = np.random.default_rng(0)
    arrays = {"w": random.standard_normal((4, 3, 3, 3)), "v": random.standard_normal((4, 64))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("GlobalAveragePool", ["c"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "v"], ["y"], "fc"),
    ]
    tensors = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]
    if external:
        data = tensors[1].raw_data
        onnx.external_data_helper.set_external_data(tensors[1], external, 0, len(data))
        tensors[1].ClearField("raw_data")
        (path.parent / "good.data").write_bytes(data)
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", ends, outs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


def _link_to_fifo(path: Path) -> None:
    os.mkfifo(path.parent / "pipe")
    path.symlink_to("pipe")


def _socket(path: Path) -> None:
    socket.socket(socket.AF_UNIX).bind(str(path))


PLACES: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "socket": _socket,
    "folder": Path.mkdir,
    "empty file": Path.touch,
    "rubbish": lambda path: path.write_bytes(os.urandom(4096)),
    "link to itself": lambda path: path.symlink_to(path),
    "link to nothing": lambda path: path.symlink_to(path.parent / "nothing"),
    "link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "link to a FIFO": _link_to_fifo,
    "link to /proc/self/mem": lambda path: path.symlink_to("/proc/self/mem"),
}
NAMES = {"/dev/zero": "/dev/zero", "name of 5,000 letters": "n" * 5000, "zero byte": "a\0b"}

READ: dict[str, dict[str, tuple[str, ...]]] = {
    "model": {
        "inspect": ("inspect", "BAD"),
        "quantize": ("quantize", "BAD", "S", "-o", "O"),
        "quantize-dynamic": ("quantize-dynamic", "BAD", "-o", "O"),
        "quantize-weights": ("quantize-weights", "BAD", "-o", "O"),
        "calibrate": ("calibrate", "BAD", "S", "-o", "O"),
        "bench": ("bench", "M", "BAD"),
        "verify": ("verify", "M", "BAD", "S"),
        "cross-check": ("cross-check", "BAD", "S"),
        "genai-folder": ("genai-folder", "BAD", "-o", "O"),
        "hub-folder": ("hub-folder", "BAD", "-o", "O"),
    },
    "samples": {
        "quantize": ("quantize", "M", "BAD", "-o", "O"),
        "quantize-weights": ("quantize-weights", "M", "BAD", "-o", "O"),
        "verify": ("verify", "M", "M", "BAD"),
    },
    "qconfig": {"quantize": ("quantize", "M", "S", "-o", "O", "--qconfig", "BAD")},
    "statistics": {"quantize": ("quantize", "M", "-o", "O", "--stats", "BAD")},
    "checkpoint": {"calibrate": ("calibrate", "M", "S", "-o", "O", "--checkpoint", "BAD")},
    "metric": {"tune": ("tune", "M", "S", "-o", "O", "--metric", "BAD:f", "--time", "2")},
    "journal": {"tune": ("tune", "M", "S", "-o", "O", "--journal", "BAD", "--time", "2")},
    "tokenizer": {"genai-folder": ("genai-folder", "M", "-o", "O", "--tokenizer", "BAD")},
    "output": {
        "quantize": ("quantize", "M", "S", "-o", "BAD"),
        "quantize-dynamic": ("quantize-dynamic", "M", "-o", "BAD"),
        "quantize-weights": ("quantize-weights", "M", "-o", "BAD"),
        "calibrate": ("calibrate", "M", "S", "-o", "BAD"),
        "report": ("report", "M", "M", "S", "-o", "BAD"),
    },
}
"""Door -> command -> its words; BAD is the hostile path."""


def png(width: int, height: int, data: bytes) -> bytes:
    """A PNG that says these sizes and has these packed pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def _saved(kind: str) -> Callable[[Path], object]:
    return lambda path: Image.new("RGB", (9, 9)).save(path, format=kind)


def _changed(kind: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        _saved(kind)(path)
        path.write_bytes(change(path.read_bytes()))

    return make


IMAGES: dict[str, Callable[[Path], object]] = {
    "PNG of 10^10 pixels": lambda p: p.write_bytes(png(100_000, 100_000, zlib.compress(b"\0"))),
    "PNG of 10^8 packed pixels": lambda p: p.write_bytes(
        png(10_000, 10_000, zlib.compress(bytes(300_010_000), 9))
    ),
    "PNG of one line of 2^31": lambda p: p.write_bytes(png(2**31 - 1, 1, zlib.compress(b"\0"))),
    "PNG of no pixel": lambda p: p.write_bytes(png(0, 0, zlib.compress(b""))),
    "JPEG of 65,500 lines": _changed(
        "JPEG", lambda d: d.replace(b"\0\x09\0\x09", b"\xff\xdc\xff\xdc")
    ),
    "JPEG cut in half": _changed("JPEG", lambda d: d[: len(d) // 2]),
    "EPS": _saved("EPS"),
    "PDF": _saved("PDF"),
    "TIFF cut": _changed("TIFF", lambda d: d[:60]),
    "GIF of 65,535 lines": _changed("GIF", lambda d: d[:6] + b"\xff\xff\xff\xff" + d[10:]),
    "text in a PNG, packed": lambda p: p.write_bytes(
        png(9, 9, zlib.compress(bytes(252)))[:-12]
        + struct.pack(">I", 300_000)
        + b"zTXt"
        + (b"k\0\0" + zlib.compress(bytes(200_000_000), 9))[:300_000]
    ),
}

PLUGINS = {
    "is not there": ("nowhere_to_be_found", ""),
    "is a path": ("../evil", ""),
    "raises": ("evil_raises", "raise ValueError('no')"),
    "ends": ("evil_ends", "raise SystemExit(0)"),
    "is interrupted": ("evil_stops", "raise KeyboardInterrupt"),
    "is no Python": ("evil_text", "\0"),
}


def attempts(folder: Path) -> Iterator[tuple[str, str, tuple[str, ...], Paths]]:
    """(door, what it is, words of the command, hostile environment) of each attempt."""
    paths = {
        "M": str(small_model(folder / "m.onnx")),
        "S": str(folder / "s.npz"),
        "O": str(folder / "out" / "o.onnx"),
    }
    np.savez(folder / "s.npz", x=np.ones((4, 3, 8, 8), np.float32))

    def words(command: tuple[str, ...], bad: str) -> tuple[str, ...]:
        return tuple(paths.get(word, word.replace("BAD", bad)) for word in command)

    count = 0
    for door, commands in READ.items():
        for command, said in commands.items():
            for what, make in PLACES.items():
                count += 1
                place = folder / "out" / f"{count}"
                place.mkdir()
                make(place / "bad")
                yield door, f"{command}: {what}", words(said, str(place / "bad")), {}
            for what, name in NAMES.items():
                yield door, f"{command}: {what}", words(said, name), {}
    for what, make in IMAGES.items():
        count += 1
        place = folder / "out" / f"{count}"
        place.mkdir()
        make(place / "bad.png")
        said = ("quantize", "M", str(place), "-o", "O", "--no-verdict")
        yield "images", what, words(said, ""), {}
    for what, (name, source) in PLUGINS.items():
        (folder / f"{name.replace('/', '_')}.py").write_text(source)
        environment = {"ONNXQ_PLUGINS": name, "PLACE": str(folder)}
        yield "plug-in", what, words(("inspect", "M"), ""), environment
    yield from _external(folder, words)
    yield from _outputs(folder, words)


def _external(
    folder: Path, words: Callable[[tuple[str, ...], str], tuple[str, ...]]
) -> Iterator[tuple[str, str, tuple[str, ...], Paths]]:
    """Weights in a file elsewhere, or in one that is exchanged while it is read."""
    secret = folder / "secret"
    for command in (("quantize-weights", "BAD", "-o", "O"), ("quantize-dynamic", "BAD", "-o", "O")):
        for i, location in enumerate(
            ("../secret", str(secret), "link", "hard", "pipe", "good.data/")
        ):
            place = folder / "out" / f"external{i}{command[0]}"
            place.mkdir()
            model = small_model(place / "m.onnx", location)
            (place / "link").symlink_to(secret)
            os.link(secret, place / "hard")
            os.mkfifo(place / "pipe")
            yield "external data", f"{command[0]}: {location[-9:]}", words(command, str(model)), {}
        for i in range(10):
            place = folder / "out" / f"swap{i}{command[0]}"
            place.mkdir()
            model = small_model(place / "m.onnx", "w.data")
            environment = {"SWAP": str(place / "w.data")}
            yield "swap of external data", command[0], words(command, str(model)), environment


def _outputs(
    folder: Path, words: Callable[[tuple[str, ...], str], tuple[str, ...]]
) -> Iterator[tuple[str, str, tuple[str, ...], Paths]]:
    """Links to files that are read, or are another's."""
    for command in (
        ("quantize", "M", "S", "-o", "BAD"),
        ("quantize-dynamic", "M", "--check", "S", "-o", "BAD"),
    ):
        for target in ("m.onnx", "s.npz"):
            for kind in (os.symlink, os.link):
                place = folder / "out" / f"{command[0]}{target}{kind.__name__}"
                kind(folder / target, place)
                what = f"{command[0]}: {kind.__name__} to {target}"
                yield "output link", what, words(command, str(place)), {}


def _swapping(path: Path, secret: Path) -> None:
    """Exchanges a file for a link to the secret, and back, without end."""
    good = (path.parent / "good.data").read_bytes()
    beside = path.parent / "beside"
    while True:
        with contextlib.suppress(OSError):
            beside.write_bytes(good)
            beside.replace(path)
            beside.symlink_to(secret)
            beside.replace(path)


def call(words: tuple[str, ...], environment: Paths, log: Path, secret: Path) -> str:
    """Outcome of the command in a process of its own."""
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(stream, number)
        os.environ.update(environment)
        sys.path.append(environment.get("PLACE", "."))
        if swap := environment.get("SWAP"):
            threading.Thread(target=_swapping, args=(Path(swap), secret), daemon=True).start()
            time.sleep(0.05)
        sys.argv = ["onnxq", *words]
        code = 70
        try:
            cli(prog_name="onnxq")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        finally:
            sys.stdout.flush()
            os._exit(code)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return _outcome(os.waitstatus_to_exitcode(status), log.read_text("utf-8", "replace"))
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hang"


def _outcome(code: int, text: str) -> str:
    if code < 0:
        return "crash"
    if "fault of onnxq" in text or "Traceback" in text or code not in {0, 1, 2, *exit_codes()}:
        return "traceback"
    return "done" if code == 0 else "refused"


def outside(folder: Path, before: dict[Path, bytes]) -> bool:
    """Whether a file beside the outputs changed, or the secret is in an output."""
    if any(not path.is_file() or path.read_bytes() != data for path, data in before.items()):
        return True
    output = folder / "out" / "o.onnx"
    return output.is_file() and SECRET in output.read_bytes()


def main() -> None:
    """Tries all, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="write the table there, too")
    parser.add_argument("--doors", help="try these alone, with commas between them")
    parser.add_argument("--seconds", type=float, default=3600, help="begin none after so many")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    catalog.all_operators()  # once, and not in every process
    counts: dict[str, Counter[str]] = {}
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "out").mkdir()
        os.chdir(folder / "out")
        secret = folder / "secret"
        secret.write_bytes(SECRET * 100)
        for door, what, words, environment in attempts(folder):
            if arguments.doors and door not in arguments.doors.split(","):
                continue
            if time.monotonic() > end:
                break
            before = {p: p.read_bytes() for p in (secret, folder / "m.onnx", folder / "s.npz")}
            (folder / "out" / "o.onnx").unlink(missing_ok=True)
            outcome = call(words, environment, folder / "log", secret)
            if outside(folder, before):
                outcome = "outside"
            counts.setdefault(door, Counter())[outcome] += 1
            if outcome not in ("done", "refused"):
                wrong.append(f"{door}, {what}: {outcome}")
                said = (folder / "log").read_text("utf-8", "replace")[-300:]
                print(wrong[-1], said, sep="\n", file=sys.stderr, flush=True)
    columns = ("done", "refused", "traceback", "crash", "hang", "outside")
    total = sum(map(Counter.total, counts.values()))
    lines = [
        "# Hostile files, door by door\n",
        f"`python scripts/hostile.py`: {total} attempts, {len(wrong)} wrong.\n",
        f"| door | attempts | {' | '.join(columns)} |",
        "|---|---:|" + "---:|" * len(columns),
    ]
    for door, count in counts.items():
        cells = " | ".join(str(count[column]) for column in columns)
        lines.append(f"| {door} | {count.total()} | {cells} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.output:
        (Path(__file__).parent.parent / arguments.output).write_text(text, "utf-8")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

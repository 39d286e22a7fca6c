"""Kills quantize, calibrate and export at random moments, and looks at what they leave.

    scripts/kill --n 200 --seed 1

Each trial runs a command in a process of its own and sends KILL, TERM or INT: at a moment of its
run chosen at random, or while a temporary file of it is there. Then every output must be the old
file, or whole: byte for byte that of an undisturbed run. TERM and INT must leave nothing else, and
end with 143 and 130; KILL may leave one temporary file or folder, which names the process. The same
command is run once more where something was left (and now and then where nothing was): its outputs
must be those of the undisturbed run, and nothing else there.
Most trials fork a process that has imported onnxq; one in SPAWNED starts Python anew.

Ends with 1 where anything is wrong. What it printed is in scripts/kill.md. Linux only.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import numpy as np

from onnxq.core.atomic import Owner
from scripts._fuzz.seed_models import float_model
from scripts._tables import head, line, publish

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SPAWNED = 8
REPEATED = 0.2  # of the runs that left nothing to remove or to go on from
SHARES = {"quantize": 12, "calibrate": 12, "export": 1}  # an export takes as long as twenty others
IMPORTED = ("onnxq.cli", "onnxq.pipeline", "onnxq.report.console", "onnxq.checking.execution")
OLD = b"the file that was there"
EARLY = {signal.SIGTERM: -signal.SIGTERM, signal.SIGINT: -signal.SIGINT}
"""Exit status of a process that a signal met before Python could hear it."""
COUNTS = (
    "done before", "stopped", "wrong exit code", "partial outputs", "left by TERM or INT",
    "left by KILL", "more than one left", "not named", "resumed, other bytes", "left at the end",
)  # fmt: skip
WRONG = frozenset(COUNTS) - {"done before", "stopped", "left by KILL"}


@dataclass(frozen=True, slots=True)
class Command:
    """A command and what it writes.

    Attributes:
        name: for the table.
        args: of the command line; outputs are relative to the folder that it runs in.
        outputs: files that it writes.
        kept: further files that may be there after a kill: checkpoints.
        wanted: bytes of each output of an undisturbed run.
        seconds: that such a run takes, forked and spawned.
    """

    name: str
    args: tuple[str, ...]
    outputs: tuple[str, ...]
    kept: tuple[str, ...]
    wanted: dict[str, bytes]
    seconds: tuple[float, float]


def command(name: str, inputs: Path) -> Command:
    """The command of that name, run once without a signal."""
    model, samples = str(inputs / "m.onnx"), str(inputs / "samples.npz")
    args, outputs, kept = {
        "quantize": (
            [
                *(model, samples, "-o", "q.onnx", "--save-plan", "p.json"),
                *("--save-stats", "s.stats", "--repair", "off"),  # whatever a busy machine shows
            ],
            ["q.onnx", "p.json", "s.stats"],
            [],
        ),
        "calibrate": (
            [model, samples, "-o", "s.stats", "--checkpoint", "kept", "--checkpoint-every", "0"],
            ["s.stats"],
            ["kept"],
        ),
        "export": (
            ["scripts._kill_module:net", "--input", "input=float32[2,3,8,8]", "-o", "m.onnx"],
            ["m.onnx"],
            [],
        ),
    }[name]
    made = Command(name, (name, *args), tuple(outputs), tuple(kept), {}, (0.0, 0.0))
    times, wanted = [], {}
    for spawned in (False, True):
        with tempfile.TemporaryDirectory(prefix="onnxq-kill-") as folder:
            began = time.monotonic()
            status = _wait(_start(made, Path(folder), spawned))
            times.append(time.monotonic() - began)
            if status:
                raise SystemExit(f"{name} ends with {status} without any signal")
            wanted = {output: (Path(folder) / "out" / output).read_bytes() for output in outputs}
    return Command(name, made.args, made.outputs, made.kept, wanted, (times[0], times[1]))


def validation(command: Command, number: signal.Signals, rng: np.random.Generator) -> Counter[str]:
    """Counts of one kill: how often each of COUNTS came about."""
    found: Counter[str] = Counter()
    spawned = int(rng.integers(SPAWNED)) == 0
    with tempfile.TemporaryDirectory(prefix="onnxq-kill-") as name:
        folder = Path(name)
        out, tmp = folder / "out", folder / "tmp"
        out.mkdir()
        was_there = rng.random() < 0.5
        if was_there:
            for output in command.outputs:
                (out / output).write_bytes(OLD)
        pid = _start(command, folder, spawned)
        if rng.random() < 0.5:
            time.sleep(command.seconds[spawned] * rng.random())
        else:
            _wait_for_temporary(out, pid, command.seconds[spawned], rng)
        os.kill(pid, number)  # nobody else waits for it: the number is still its own
        status = _wait(pid)
        found["done before" if status == 0 else "stopped"] += 1
        heard = (128 + number, EARLY.get(number, -number))
        if status not in (0, *heard):
            found["wrong exit code"] += 1
            print(f"{command.name}, {number.name}: ended with {status}", file=sys.stderr)
        found["partial outputs"] += _partial(command, out, was_there)
        left = _left(command, out, tmp)
        if number is signal.SIGKILL:
            found["left by KILL"] += len(left)
            found["more than one left"] += len(left) > 1
            found["not named"] += any(_owner(path) != pid for path in left)
        else:
            found["left by TERM or INT"] += len(left)
        if status and (left or command.kept or rng.random() < REPEATED):
            again = _wait(_start(command, folder, spawned=False))
            same = all((out / n).read_bytes() == data for n, data in command.wanted.items())
            found["resumed, other bytes"] += bool(again) or not same
        found["left at the end"] += len(_left(command, out, tmp)) + any(
            (out / kept).exists() for kept in command.kept
        )
    return found


def _start(command: Command, folder: Path, spawned: bool) -> int:
    """Process number of the command, which runs in folder / "out"."""
    for name in ("out", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    root = str(Path(__file__).resolve().parent.parent)
    if spawned:
        environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": root}
        return subprocess.Popen(
            [sys.executable, "-m", "onnxq", *command.args],
            cwd=folder / "out",
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).pid
    pid = os.fork()
    if pid:
        return pid
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        os.chdir(folder / "out")
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
        sys.argv = ["onnxq", *command.args]
        importlib.import_module("onnxq.__main__").main()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 0)
    except KeyboardInterrupt:  # ahead of the command's own handler: ends as Python does then
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # nothing of the child may run what is the parent's
        os._exit(99)
    os._exit(98)


def _wait(pid: int) -> int:
    """Exit status of the process: its code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _wait_for_temporary(out: Path, pid: int, limit_s: float, rng: np.random.Generator) -> None:
    """Returns some milliseconds after a temporary file with bytes in it was seen, or at the end."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        for entry in os.scandir(out):
            try:
                seen = entry.name.endswith(".tmp") and entry.stat().st_size > 0
            except FileNotFoundError:
                continue
            if seen and rng.random() < 0.5:  # else: the next one, of another output
                time.sleep(0.003 * rng.random())
                return
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return


def _partial(command: Command, out: Path, was_there: bool) -> int:
    """Outputs that are neither what was there nor whole."""
    partial = 0
    for name, whole in command.wanted.items():
        path = out / name
        data = path.read_bytes() if path.exists() else None
        partial += data not in ((OLD, whole) if was_there else (None, whole))
    return partial


def _left(command: Command, out: Path, tmp: Path) -> list[Path]:
    """Files and folders that nobody asked for."""
    asked = {*command.outputs, *command.kept}
    return [path for path in (*out.iterdir(), *tmp.iterdir()) if path.name not in asked]


def _owner(path: Path) -> int | None:
    """Number of the process that a temporary file or folder names."""
    parts = path.name.removesuffix(".tmp").split(".")
    named = [owner for part in parts if (owner := Owner.parse(part.removeprefix("onnxq-")))]
    return named[0].pid if named else None


def main() -> int:
    """Runs what the command line asks for; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=200, help="kills, of all commands together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", default=",".join(SHARES), help="of " + ", ".join(SHARES))
    parser.add_argument("--output", type=Path, help="write the table there, too")
    args = parser.parse_args()
    names = args.commands.split(",")
    for module in IMPORTED + (("onnxq.pytorch",) if "export" in names else ()):
        importlib.import_module(module)  # ahead of all forks
    rows = []
    total: Counter[str] = Counter()
    for name, number, found in kill_all(names, args.n, args.seed):
        rows.append(line(name, number.name, _kills(found), *(found[column] for column in COUNTS)))
        print(rows[-1], file=sys.stderr)
        total += found
    text = [
        "# Killed at random moments",
        "",
        f"`scripts/kill --n {args.n} --seed {args.seed} --commands {args.commands}`:",
        f"{_kills(total)} kills.",
        "",
        head("command", "signal", "kills", *COUNTS),
        *rows,
        line("all", "", _kills(total), *(total[column] for column in COUNTS)),
    ]
    publish(text, args.output)
    return 1 if any(total[column] for column in WRONG) else 0


def kill_all(
    names: Sequence[str], count: int, seed: int
) -> Iterator[tuple[str, signal.Signals, Counter[str]]]:
    """(command, signal, counts) of so many kills, shared out among the commands by SHARES."""
    rng = np.random.default_rng(seed)
    parts = sum(SHARES[name] for name in names)
    with tempfile.TemporaryDirectory(prefix="onnxq-kill-") as folder:
        inputs = Path(folder)
        (inputs / "m.onnx").write_bytes(float_model("cnn"))
        images = np.random.default_rng(0).standard_normal((200, 3, 8, 8)).astype(np.float32)
        np.savez(inputs / "samples.npz", x=images)
        for made in [command(name, inputs) for name in names]:
            counts: dict[signal.Signals, Counter[str]] = {number: Counter() for number in SIGNALS}
            for i in range(-(-count * SHARES[made.name] // parts)):
                number = SIGNALS[i % len(SIGNALS)]
                counts[number] += validation(made, number, rng)
            for number, found in counts.items():
                yield made.name, number, found


def _kills(found: Counter[str]) -> int:
    return found["done before"] + found["stopped"]


if __name__ == "__main__":
    sys.exit(main())

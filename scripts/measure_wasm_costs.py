"""The table of costs of target wasm: every microbenchmark, timed on onnxruntime-web in Node.

    scripts/setup_wasm                                          # once
    python scripts/measure_wasm_costs.py -o onnxq/times/wasm.csv   # two passes

As `onnxq costs` for the machine that it runs on, but that V8 and its WebAssembly are the machine:
one thread, SIMD of 128 bits. A pass takes some ten minutes of CPU time. Links that onnxruntime-web
has no kernel for are named on the standard error and left out: layouts in blocks, which its builds
lack.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from onnxq.core.processor import processor_name
from onnxq.ort.runtime import Optimization
from onnxq.report.progress import progress_bar
from onnxq.times import Costs
from onnxq.times.microbenchmarks.here import links, measured, throughput_of
from scripts._graphs import proto_of
from scripts._models import ROOT
from tests.wasm.machine import find_modules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from onnxq.times.microbenchmarks.link import Link

LEVELS = {
    Optimization.NONE: "disabled",
    Optimization.BASIC: "basic",
    Optimization.EXTENDED: "extended",
    Optimization.ALL: "all",
}
"""onnxruntime-web's names of them."""


class NodeClock:
    """Clock of links in one process of Node, whose compiler has seen the kernels."""

    def __init__(self, modules: Path, folder: Path) -> None:
        self._folder = folder
        script = ROOT / "scripts" / "_wasm" / "time_links.mjs"
        self._process = subprocess.Popen(
            ["node", "--no-liftoff", str(script), str(modules)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        """The clock."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the process."""
        _pipe(self._process.stdin).close()
        self._process.wait()

    def __call__(self, link: Link, more: int, runs: int) -> tuple[float, float]:
        """Least CPU seconds of the shorter model and of the longer one, in turns.

        Raises:
            RuntimeError: onnxruntime-web does not run it.
        """
        few, many = self._seconds(link, [link.few, link.few + more], runs)
        return few, many

    def refusal(self, link: Link) -> str:
        """Words of onnxruntime-web that say why it does not run the link; empty where it does."""
        try:
            self._seconds(link, [link.few], 1)
        except RuntimeError as error:
            return str(error)
        return ""

    def _seconds(self, link: Link, counts: Sequence[int], runs: int) -> list[float]:
        files: list[Path] = []
        for count in counts:
            files.append(self._folder / f"{len(files)}.onnx")
            files[-1].write_bytes(proto_of(link.model(count)).SerializeToString())
        feeds = self._folder / "feeds.npz"
        np.savez(feeds, **{name: np.asarray(each) for name, each in link.inputs.items()})  # type: ignore[arg-type]  # numpy's allow_pickle
        asked = {
            "models": [str(file) for file in files],
            "feeds": str(feeds),
            "level": LEVELS[link.optimization],
            "runs": runs,
        }
        pipe = _pipe(self._process.stdin)
        pipe.write(f"{json.dumps(asked)}\n")
        pipe.flush()
        answer = json.loads(_pipe(self._process.stdout).readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return [float(each) for each in answer["seconds"]]


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None  # all are asked for
    return pipe


def runnable(clock: NodeClock) -> list[Link]:
    """The links that onnxruntime-web runs; says which others there are."""
    found, refused = [], dict[tuple[str, str, str], str]()
    for link in links():
        if why := clock.refusal(link):
            work = link.works[0]
            refused[work.operator, work.kind, link.precision.value] = why
        else:
            found.append(link)
    for key, why in refused.items():
        print(f"left out: {' '.join(key)}: {why[:200]}", file=sys.stderr)
    return found


def measure(passes: int) -> Costs:
    """The table."""
    modules = find_modules()
    package = modules / "node_modules" / "onnxruntime-web" / "package.json"
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clock = stack.enter_context(NodeClock(modules, folder))
        wanted = runnable(clock)
        progress = stack.enter_context(progress_bar("costs"))
        timings = measured(wanted, passes, progress, clock)
    return Costs(
        target="wasm",
        machine=f"Node {node.stdout.strip()} on {processor_name()}",
        instruction_sets="simd128",
        onnxruntime=f"onnxruntime-web {json.loads(package.read_text())['version']}",
        threads="1",
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        throughput=throughput_of(timings),
        timings=timings,
    )


def main() -> int:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--passes", type=int, default=2, help="the least time counts")
    parsed = parser.parse_args()
    measure(parsed.passes).save(parsed.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Models that abort, never end or take all memory end a child process, and not this one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxq
from onnxq.core.limits import Limits
from onnxq.errors import LimitError, ModelError, QConfigError
from onnxq.jobs import child
from onnxq.jobs.child_main import ChildRequest
from onnxq.ort import first_run
from onnxq.ort.runtime import open_session
from onnxq.ort.types_by_run import types_by_run
from tests.examples import ALL_INTEGERS, weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxq.core.arrays import Array

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="limits on memory and /proc")

ADD = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }
"""
ABORTING = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3] x, bool c) => (float[3, 2] y) <float s = {0.1}, uint8 z = {128}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        t = Transpose(d)
        y = If (c) <
            then_branch = a () => (float[3, 2] u) { u = Neg(t) },
            else_branch = b () => (float[3, 2] v) { v = Abs(t) }
        >
    }
"""
"""ONNX Runtime's QDQPropagationTransformer indexes beyond the inputs of the If."""
ENDLESS = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) <int64 n = {4611686018427387904}, bool c = {1}> {
        y = Loop (n, c, x) <
            body = b (int64 i, bool go, float[2] a) => (bool on, float[2] r) {
                on = Identity(go)
                r = Neg(a)
            }
        >
    }
"""
"""The Loop makes 2^62 steps."""
HUGE = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1] x, int64[1] n) => (float y) {
        big = Expand(x, n)
        y = ReduceSum <keepdims = 0> (big)
    }
"""
X: Array = np.ones((1, 2), np.float32)


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(text)


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_run, "_ran", set())


def pid() -> int:
    """Number of the child's process, which is started for that."""
    with open_session(model(ADD), threads=1) as session:
        session.run({"x": X})
    return child._children[0].process.pid


@POSIX
def test_a_model_that_aborts_is_refused_in_a_sentence() -> None:
    with pytest.raises(ModelError, match=r"^model 'g': ONNX Runtime .* dies of SIGABRT"):
        open_session(model(ABORTING))


@POSIX
def test_a_run_that_never_ends_is_refused_at_its_bound() -> None:
    with (
        onnxq.limits(seconds=1),
        open_session(model(ENDLESS), threads=1) as session,
        pytest.raises(LimitError, match=r"takes more than 1 seconds\. Raise .* --run-seconds"),
    ):
        session.run({"x": X[0]})


@LINUX
def test_a_run_that_takes_all_memory_is_refused_at_its_bound() -> None:
    feeds = {"x": np.ones(1, np.float32), "n": np.array([1 << 30])}
    with (
        onnxq.limits(memory_bytes=1 << 28),
        open_session(model(HUGE), threads=1) as session,
        pytest.raises(LimitError, match=r"gets no more memory: .*--run-memory"),
    ):
        session.run(feeds)


def test_types_that_a_run_cannot_tell_in_time_are_a_sentence() -> None:
    with onnxq.limits(seconds=1), pytest.raises(ModelError, match=r"by a run on .* takes more"):
        types_by_run(model(ENDLESS))


@POSIX
@pytest.mark.parametrize("delay_s", [0.0, 0.0005, 0.002, 0.01])
def test_a_child_that_others_kill_changes_no_result(delay_s: float) -> None:
    victim = pid()
    killer = threading.Timer(delay_s, os.kill, (victim, signal.SIGKILL))
    killer.start()
    for step in range(20):
        text = ADD.replace("2.0}", f"{step}.0}}")  # each is new
        with open_session(model(text), threads=1) as session:
            (y,) = session.run({"x": X})
        assert y.tolist() == [[2.0, 1.0 + step]]
    killer.join()


def test_a_session_is_opened_anew_where_the_child_died_before_its_run() -> None:
    with open_session(model(ADD), threads=1) as session:
        child.end()
        assert session.run({"x": X})[0].tolist() == [[2.0, 3.0]]


def test_sessions_that_wait_in_number_all_run() -> None:
    opened = [open_session(model(ADD), threads=1 + i % 2) for i in range(7)]
    assert [s.run({"x": X})[0].tolist() for s in opened] == [[[2.0, 3.0]]] * 7


def test_what_ran_once_is_not_asked_of_the_child_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pid()
    monkeypatch.setattr(child, "ask", lambda *_: pytest.fail("asked again"))
    with open_session(model(ADD), threads=1) as session:
        assert session.run({"x": X})[0].tolist() == [[2.0, 3.0]]


@POSIX
def test_ctrl_c_while_the_child_works_leaves_it_usable() -> None:
    main = threading.get_ident()  # which a terminal's Ctrl-C interrupts; a timer's thread it is not
    with open_session(model(ENDLESS), threads=1) as session:
        threading.Timer(1, signal.pthread_kill, (main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            session.run({"x": X[0]})
    assert pid()


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    child.end()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    yield
    child._is_refused.clear()


@pytest.mark.usefixtures("no_child")
def test_without_a_child_models_run_here_with_one_warning() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with open_session(model(ADD), threads=1) as session:
                assert session.run({"x": X})[0].tolist() == [[2.0, 3.0]]
    assert [str(w.message).split(" (")[0] for w in caught] == ["no child process can be started"]


def ended(process: int) -> bool:
    """Whether a process ends within 20 seconds."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{process}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


STARTS = (
    "from onnxq.jobs import child; child.begin(); print(child._children[0].process.pid, flush=True)"
)


@LINUX
@pytest.mark.parametrize("then", ["", "; import time; time.sleep(99)"], ids=["ends", "is killed"])
def test_the_child_ends_with_its_parent(then: str) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS + then], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        if then:
            parent.kill()
    assert ended(grandchild)


@LINUX
def test_a_fork_has_a_child_of_its_own() -> None:
    ours = pid()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this process has threads
        forked = os.fork()
    if not forked:
        try:
            first_run._ran.clear()
            os.write(writing, str(pid()).encode())
        finally:
            child.end()
            os._exit(0)
    os.waitpid(forked, 0)
    theirs = int(os.read(reading, 20))
    assert theirs != ours
    assert pid() == ours


def test_texts_and_whole_files_go_through_the_child(tmp_path: Path) -> None:
    texts = model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (string[N] x) => (string[N] y) { y = Identity(x) }
    """)
    ir.save(texts, tmp_path / "texts.onnx")
    with open_session(tmp_path / "texts.onnx") as session:
        (y,) = session.run({"x": np.array(["a", "b\n"], object)})
    assert list(y) == ["a", "b\n"]


@pytest.mark.parametrize("given", [{"seconds": 0}, {"seconds": "9"}, {"memory_bytes": 0.5}])
def test_a_bound_that_is_no_number_is_refused(given: dict[str, object]) -> None:
    bound: Callable[..., object] = onnxq.limits
    with pytest.raises(QConfigError, match="wanted a"), bound(**given):  # type: ignore[attr-defined]
        pytest.fail("taken")


def test_large_models_have_more_time() -> None:
    assert Limits(10).seconds_for(3_000_000_000) == 40


def test_a_request_that_the_child_does_not_know_is_an_error_in_its_reply() -> None:
    assert child.ask(ChildRequest("nonsense", 0, 5)).error == "'nonsense'"


AHEAD_OF_A_BODY = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 8, 16] x, bool c) => (float[] y) {
        a = Conv <pads = [1, 1]> (x, w)
        t = Transpose <perm = [2, 0, 1]> (a)
        y = If (c) <
            then_branch = p () => (float[] u) { u = Neg(t) },
            else_branch = q () => (float[] v) { v = Abs(t) }
        >
    }
"""


def conv_ahead_of_a_body() -> tuple[onnx.ModelProto, dict[str, Array]]:
    proto = onnx.parser.parse_model(AHEAD_OF_A_BODY)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights(0, 8, 8, 3), "w"))
    return proto, {"x": weights(1, 8, 1, 8, 16), "c": np.array([0, 1] * 4, bool)}


@POSIX
def test_nodes_of_which_onnx_runtime_aborts_go_to_float(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.static.rewrite.keep_loadable", lambda _model: None)
    source, samples = conv_ahead_of_a_body()
    with pytest.warns(UserWarning, match="nothing is quantized"):
        made = onnxq.quantize(source, samples, qconfig=ALL_INTEGERS, target="x86-vnni")
    assert made.verdict is not None
    assert made.verdict.left_in_float == ("Conv_a",)


@POSIX
def test_a_user_model_that_aborts_leaves_no_file(tmp_path: Path) -> None:
    ir.save(model(ABORTING), tmp_path / "float.onnx")
    words = ["bench", "float.onnx", "float.onnx"]
    done = subprocess.run(
        [sys.executable, "-m", "onnxq", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(onnxq.__file__).parent.parent)},
    )
    assert done.returncode == ModelError.exit_code
    assert re.fullmatch(r"Error: model 'float\.onnx': .* dies of SIGABRT\. .*\n", done.stderr)
    assert [file.name for file in tmp_path.iterdir()] == ["float.onnx"]


@POSIX
@pytest.mark.parametrize("seed", range(3))
def test_a_child_that_is_killed_at_any_moment_changes_no_file(seed: int) -> None:
    source, samples = conv_ahead_of_a_body()
    wanted = ir.to_proto(onnxq.quantize(source, samples, qconfig=ALL_INTEGERS, target="x86-vnni"))
    first_run._ran.clear()
    is_done, rng = threading.Event(), np.random.default_rng(seed)

    def kill_now_and_then() -> None:
        while not is_done.wait(rng.uniform(1, 4)):  # twice within one start is a sentence
            for each in list(child._children):
                os.kill(each.process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    try:
        made = onnxq.quantize(source, samples, qconfig=ALL_INTEGERS, target="x86-vnni")
    finally:
        is_done.set()
        killer.join()
    assert ir.to_proto(made).graph == wanted.graph


@LINUX
def test_a_limit_of_the_system_below_the_bound_is_kept() -> None:
    code = (
        "import resource, numpy as np, onnxq\n"
        "from tests.examples import images, network\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))\n"
        "assert onnxq.quantize(network(), {'x': images(4)}).verdict.outputs\n"
    )
    root = Path(onnxq.__file__).resolve().parent.parent
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)

"""cross_check in bodies of Loop: each step beside the kernels, whatever surrounds the body."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import catalog
from onnxq.checking.cross_check import cross_check
from onnxq.checking.cross_findings import CrossFindings, Unchecked
from onnxq.errors import VerificationError
from tests.dynamic_models import SIDE, normal, parsed, quantized

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Array
    from onnxq.operator import IntegerCall
    from onnxq.targets.accumulation import Accumulator

W = normal(SIDE, SIDE)
V = normal(SIDE, SIDE, seed=1)
STEPS = 3
CELL = "a = Gemm<transB = 1>(h, w) g = Tanh(a)"


def looped(body: str = CELL, keep: str = "k", head: str = "y = Identity(last)") -> str:
    """At most `count` steps, while `keep` holds."""
    return f"""m (float[N,{SIDE}] x, int64 count, bool c) => (float[N,{SIDE}] y) {{
      go = Constant<value = bool {{1}}>()
      two = Constant<value = int64 {{2}}>()
      last = Loop (count, go, x) <body = b (int64 i, bool k, float[N,{SIDE}] h)
        => (bool kk, float[N,{SIDE}] g) {{ {body} kk = Identity({keep}) }}>
      {head}
    }}"""


def found(
    text: str, count: int = STEPS, taken: bool = True, rows: int = 2
) -> tuple[CrossFindings, ir.Model]:
    made = quantized(parsed(text, {"w": W, "v": V}))
    feeds = {"x": normal(rows, SIDE, seed=2), "count": np.array(count), "c": np.array(taken)}
    return cross_check(made, [feeds]), made


def elements(findings: CrossFindings) -> dict[str, int]:
    return {n.op_type: n.elements for n in findings.nodes}


def test_each_step_is_compared() -> None:
    findings, _ = found(looped())
    findings.check()
    assert elements(findings)["DynamicQuantizeMatMul"] == STEPS * 2 * SIDE
    assert not findings.unchecked
    assert not findings.instrumented


def test_a_loop_without_a_step_has_not_reached_its_nodes() -> None:
    findings, _ = found(looped(), count=0)
    assert {n.reason.words for n in findings.unchecked} == {"no sample reached it"}
    findings.check(unchecked=Unchecked.ALLOWED)
    assert findings.outputs[0].differing == 0


def test_a_loop_whose_condition_fails_has_fewer_steps() -> None:
    findings, _ = found(looped(f"{CELL} early = Less(i, two)", "early"), count=9)
    findings.check()
    assert elements(findings)["DynamicQuantizeMatMul"] == 3 * 2 * SIDE


def test_a_wrong_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = catalog.find_integer("DynamicQuantizeMatMul", "com.microsoft")
    assert operator is not None
    kernel, calls = operator.kernel_on, []

    def once(call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        (y,) = kernel(call, accumulator)
        calls.append(y)
        return (np.negative(y, dtype=np.float32) if len(calls) == 2 else y,)

    monkeypatch.setattr(operator, "kernel_on", once)
    findings, _ = found(looped())
    differing = {n.op_type: n.differing for n in findings.nodes}
    assert differing["DynamicQuantizeMatMul"] == 2 * SIDE
    with pytest.raises(VerificationError):
        findings.check()


IN_BRANCH = f"""m (float[N,{SIDE}] x, int64 count, bool c) => (float[N,{SIDE}] y) {{
  go = Constant<value = bool {{1}}>()
  y = If (c) <
    then_branch = t () => (float[N,{SIDE}] last) {{
      last = Loop (count, go, x) <body = b (int64 i, bool k, float[N,{SIDE}] h)
        => (bool kk, float[N,{SIDE}] g) {{ {CELL} kk = Identity(k) }}>
    }},
    else_branch = e () => (float[N,{SIDE}] other) {{ other = MatMul(x, v) }}
  >
}}"""


@pytest.mark.parametrize("taken", [True, False])
def test_a_loop_in_a_branch_is_compared_when_the_branch_runs(taken: bool) -> None:
    findings, _ = found(IN_BRANCH, taken=taken)
    findings.check(unchecked=Unchecked.ALLOWED)
    steps = STEPS if taken else 1
    compared = [n.elements for n in findings.nodes if n.op_type == "DynamicQuantizeMatMul"]
    assert compared == [steps * 2 * SIDE]
    assert {n.reason.words for n in findings.unchecked} == {"no sample reached it"}


BRANCHES = f"""
  first = Less(i, two)
  p = If (first) <
    then_branch = t () => (float[N,{SIDE}] pw) {{ pw = MatMul(h, w) }},
    else_branch = e () => (float[N,{SIDE}] pv) {{ r = Relu(h) pv = MatMul(r, v) }}
  >
  g = Tanh(p)
"""


def test_branches_in_a_body_are_compared_in_the_steps_in_which_they_run() -> None:
    findings, _ = found(looped(BRANCHES), count=5)
    findings.check()
    compared = [n.elements for n in findings.nodes if n.op_type == "DynamicQuantizeMatMul"]
    assert sorted(compared) == [2 * 2 * SIDE, 3 * 2 * SIDE]


def test_a_branch_in_a_body_that_no_step_takes_is_unchecked() -> None:
    findings, _ = found(looped(BRANCHES), count=2)
    assert {n.reason.words for n in findings.unchecked} == {"no sample reached it"}
    compared = [n.elements for n in findings.nodes if n.op_type == "DynamicQuantizeMatMul"]
    assert compared == [2 * 2 * SIDE]


GROWING = f"""m (float[N,{SIDE}] x, int64 count, bool c) => (float[M,{SIDE}] y) {{
  go = Constant<value = bool {{1}}>()
  y = Loop (count, go, x) <body = b (int64 i, bool k, float[R,{SIDE}] h)
    => (bool kk, float[Q,{SIDE}] g) {{
      a = MatMul(h, w) g = Concat<axis = 0>(a, x) kk = Identity(k) }}>
}}"""


def test_a_state_that_grows_is_compared() -> None:
    findings, _ = found(GROWING)
    findings.check()
    assert elements(findings)["DynamicQuantizeMatMul"] == (2 + 4 + 6) * SIDE


NESTED = f"""
  on = Constant<value = bool {{1}}>()
  a = Loop (two, on, h) <body = inner (int64 j, bool q, float[N,{SIDE}] hh)
    => (bool qq, float[N,{SIDE}] gg) {{ gg = MatMul(hh, w) qq = Identity(q) }}>
  g = Tanh(a)
"""


def test_a_body_in_a_body_is_listed_with_the_reason() -> None:
    findings, _ = found(looped(NESTED))
    assert {n.reason.words for n in findings.unchecked} == {
        "it is in a body inside of another body"
    }
    assert findings.outputs[0].differing == 0
    with pytest.raises(VerificationError, match="inside of another body"):
        findings.check()
    findings.check(unchecked=Unchecked.ALLOWED)


def test_scan_outputs_of_the_loop_stay_what_they_are() -> None:
    text = f"""m (float[N,{SIDE}] x, int64 count, bool c)
      => (float[T,N,{SIDE}] y, float[N,{SIDE}] z) {{
      go = Constant<value = bool {{1}}>()
      z, y = Loop (count, go, x) <body = b (int64 i, bool k, float[N,{SIDE}] h)
        => (bool kk, float[N,{SIDE}] g, float[N,{SIDE}] a) {{ {CELL} kk = Identity(k) }}>
    }}"""
    findings, _ = found(text)
    assert {o.name: o.elements for o in findings.outputs} == {"y": 192, "z": 64}
    assert not findings.instrumented
    findings.check()


def test_an_early_opset_is_named() -> None:
    made = quantized(parsed(looped(), {"w": W, "v": V}, opset=12))
    made.opset_imports[""] = 12
    feeds = {"x": normal(2, SIDE), "count": np.array(STEPS), "c": np.array(True)}
    findings = cross_check(made, [feeds])
    assert {n.reason.words for n in findings.unchecked} == {
        "it is in the body of a Loop of an opset before 13"
    }

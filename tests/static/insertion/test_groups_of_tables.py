"""Groups whose numbers are those of a table: nothing observes them, whichever of them stays."""

from dataclasses import replace

import numpy as np

import onnxq
from onnxq.static.insertion.groups import with_stand_ins
from onnxq.static.plan import plan
from onnxq.static.planning.activation_qparams import tensor_qparams
from tests.dynamic_models import parsed

RNG = np.random.default_rng(0)
TABLE, LEFT, RIGHT = (
    RNG.normal(size=shape).astype(np.float32) for shape in ((16, 8), (8, 32), (32, 8))
)
TEXT = """g (int64[N, 4] i) => (float[4, N, 8] y) {
    [look] t = Gather(w, i) [turn] k = Transpose <perm=[1, 0, 2]> (t)
    [first] a = MatMul(k, u) b = Relu(a) [second] y = MatMul(b, v) }"""


def test_a_copy_of_a_table_has_its_range_where_the_lookup_is_float() -> None:
    model = parsed(TEXT, {"w": TABLE, "u": LEFT, "v": RIGHT})
    prepared = onnxq.prepare(model, target="x86-vnni")
    statistics = onnxq.calibrate(prepared, {"i": RNG.integers(0, 4, (16, 4))})
    (whole,) = (group for group in prepared.groups if "k" in group.members)
    assert "k" not in statistics.observers
    alone = replace(whole, members=("k",), sources=("k",), constants=())
    (known,) = with_stand_ins((alone,), statistics.observers, prepared.in_integers)
    assert (known.observed, known.constants) == ((), ("w",))
    tensors, unseen, _ = tensor_qparams(replace(prepared, groups=(alone,)), statistics)
    assert not unseen
    assert tensors["k"] == plan(prepared, statistics).tensors["k"]

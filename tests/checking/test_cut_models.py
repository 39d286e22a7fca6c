from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.checking.visible import cut_at, cuttable
from onnxq.ort.expose import expose
from onnxq.ort.runtime import open_session
from tests.survey.pair import BATCH, pair

if TYPE_CHECKING:
    from onnxq.core.arrays import Array, Singles


def test_what_reads_a_cut_tensor_gets_it_from_outside() -> None:
    source = pair().sides().source
    with open_session(expose(source, ["r1"]).model) as session:
        r1, y = session.run(BATCH, ["r1", "y"])
    cut = cut_at(source, {"r1": r1})
    with open_session(cut.model) as session:
        names = [cut.outputs["r1"], "y"]
        same = session.run({**BATCH, cut.given["r1"]: r1}, names)
        other = session.run({**BATCH, cut.given["r1"]: np.zeros_like(r1)}, names)
    np.testing.assert_array_equal(same[0], r1)
    assert np.allclose(as_floats(same[1]), as_floats(y), rtol=1e-5)
    np.testing.assert_array_equal(other[0], r1)  # it is still computed
    assert not np.allclose(as_floats(other[1]), as_floats(y))


def as_floats(x: Array) -> Singles:
    return x.astype(np.float32)


def test_results_and_inputs_of_the_main_graph_can_be_cut_at() -> None:
    assert {"x", "r1", "y"} <= cuttable(pair().sides().source)

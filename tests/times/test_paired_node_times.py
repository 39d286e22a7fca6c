from __future__ import annotations

from onnxq.survey.file_precisions import planned, precisions_in
from onnxq.times.attribution import paired_node_times
from tests.survey.pair import BATCH, pair


def test_times_of_nodes_and_of_none_make_up_whole_runs() -> None:
    made = pair()
    times = paired_node_times(
        made.sides().source, made.target, precisions_in(planned(made.plan)), BATCH
    )
    assert set(times.nodes) == {str(node.name) for node in made.sides().source.graph}
    median, low, high = times.speed
    assert 0 < low <= median <= high
    for side in (0, 1):
        every = (*times.nodes.values(), *times.others.values())
        # nodes are counted without what writing them down takes, which is an estimate
        assert 1 / 3 < sum(pair[side] for pair in every) / times.whole[side] < 3

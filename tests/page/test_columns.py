from __future__ import annotations

from onnxq.page.layering import columns_of

ENDS = [(-40.0, 40.0)] * 60


def test_columns_end_where_few_edges_cross() -> None:
    crossing = [5] * 60
    whole = columns_of(ENDS, crossing, 64.0, 1.6)
    least = whole.starts[1] - 3  # a layer that the first column may end at
    crossing[least] = 1
    assert columns_of(ENDS, crossing, 64.0, 1.6).starts[1] == least + 1


def test_columns_lie_beside_each_other() -> None:
    columns = columns_of(ENDS, [1] * 60, 64.0, 1.6)
    rights = [columns.point(start, 40.0)[0] for start in columns.starts]
    for right, left in zip(rights, columns.lefts[1:], strict=False):
        assert right < columns.gutter(columns.lefts.index(left)) < left


def test_few_layers_are_one_column() -> None:
    assert columns_of(ENDS[:8], [1] * 8, 64.0, 1.6).starts == (0,)

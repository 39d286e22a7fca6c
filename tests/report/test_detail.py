from __future__ import annotations

from onnxq.report.detail import Detail, is_quiet, is_whole, showing


def test_a_detail_holds_until_its_with_ends() -> None:
    with showing(Detail.WHOLE):
        with showing(Detail.QUIET):
            assert (is_quiet(), is_whole()) == (True, False)
        assert (is_quiet(), is_whole()) == (False, True)
    assert (is_quiet(), is_whole()) == (False, False)

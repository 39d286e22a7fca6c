from __future__ import annotations

from onnxq.qconfig import QConfigMapping, default_qconfig_mapping, get_default_qconfig
from onnxq.tuning.search.config_changes import PER_CHANNEL
from onnxq.tuning.search.whole_changes import changes_of_the_whole


def test_scales_per_channel_are_a_changes_where_weights_have_one_each() -> None:
    assert PER_CHANNEL not in changes_of_the_whole(default_qconfig_mapping(), ())
    assert PER_CHANNEL in changes_of_the_whole(QConfigMapping(get_default_qconfig("qnnpack")), ())
    assert changes_of_the_whole(QConfigMapping(None), ()) == []


def test_improvements_that_are_asked_for_already_are_no_changes() -> None:
    asked = default_qconfig_mapping().set_improve(("bias",))
    names = [change.name for change in changes_of_the_whole(asked, ("bias", "round"))]
    assert "improve: round" in names
    assert "improve: bias" not in names

"""Models that the default is measured on, each at a realistic size and at one for tests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from scripts._defaults import audio, encoders, hybrids, images, mobile
from scripts._defaults.demand import Demand

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scripts._architectures import Size
    from scripts._defaults.case import Case


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, and what is demanded of its default.

    Attributes:
        make: the case, with its file in the folder.
        demand: bounds at the realistic size.
    """

    make: Callable[[Size, Path], Case]
    demand: Demand


BERT = 1 / 3.2  # of float's time
SUBJECTS = {
    "transformer": Subject(images.transformer, Demand(0.80, sqnr_db=36)),
    "vit_stem": Subject(images.vit_stem, Demand(behind_db=0.5, behind_ratio=0.03)),
    "sentence_encoder": Subject(encoders.sentence_encoder, Demand(0.38, behind_db=0.2, size=0.30)),
    "bert_block": Subject(encoders.bert_block, Demand(BERT, dynamic_ratio=BERT)),
    "shufflenet": Subject(partial(mobile.architecture, "shufflenet"), Demand(0.95)),
    "mobilenetv3": Subject(partial(mobile.architecture, "mobilenetv3"), Demand()),
    "efficientnet": Subject(partial(mobile.architecture, "efficientnet"), Demand()),
    "lcnet": Subject(partial(mobile.architecture, "lcnet"), Demand()),
    "text_direction": Subject(partial(mobile.at_opset_11, "text_direction"), Demand()),
    "constant_q": Subject(audio.constant_q, Demand(lost_score=0.01)),
    "conformer": Subject(hybrids.conformer, Demand()),
    "query_detector": Subject(hybrids.query_detector, Demand()),
    "gated_vit": Subject(hybrids.gated_vit, Demand()),
}

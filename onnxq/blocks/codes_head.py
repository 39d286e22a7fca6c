"""Head of a job's codes: what has to be the same for a job to go on from a file."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import TYPE_CHECKING

from onnxq.blocks.codes_file import CodesHead
from onnxq.core.version import VERSION
from onnxq.graph.hashing import model_hash
from onnxq.samples.fingerprint import crc_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir

    from onnxq.blocks.plan_weights import WeightPlan
    from onnxq.samples.inputs import Batch


def codes_head(model: ir.Model, plan: WeightPlan, batches: Iterable[Batch]) -> CodesHead:
    """Head of the codes that a plan wants; every weight and every sample is read.

    Args:
        model: canonical float model.
        plan: of it; codes depend on the specs of all products ahead of theirs.
        batches: of samples that the methods see; none where they see none.
    """
    crc = 0
    for batch in batches:
        crc = crc_of(batch, crc)
    asked = repr(sorted((name, d.spec, d.method.value) for name, d in plan.quantized.items()))
    return CodesHead(
        model_hash(model),
        f"{crc:08x}" if crc else "",
        hashlib.blake2b(asked.encode(), digest_size=16).hexdigest(),
        f"onnxq {VERSION}, onnxruntime {version('onnxruntime')}",
    )

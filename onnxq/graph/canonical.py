"""The one form of a float model that all later stages rely on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx_ir as ir

from onnxq.core.collector import without_collector
from onnxq.errors import ModelError
from onnxq.graph import checks
from onnxq.graph.edit import use_short_domain
from onnxq.graph.passes.channel_shuffle import ShuffleToGather
from onnxq.graph.passes.einsum import EinsumToMatMul
from onnxq.graph.passes.float32 import ConvertToFloat32
from onnxq.graph.passes.fold_batch_norm import FoldBatchNorm
from onnxq.graph.passes.fold_constants import FoldConstants
from onnxq.graph.passes.fold_factors import FoldFactors
from onnxq.graph.passes.fold_factors_ahead import FoldFactorsAhead, FoldGemmFactors
from onnxq.graph.passes.fuse_activations import FuseGelu, FuseHardSwish, FuseMish
from onnxq.graph.passes.fuse_layer_normalization import FuseLayerNormalization, TakeSkipNormsApart
from onnxq.graph.passes.fuse_softmax import FuseSoftmax, GiveAttentionBias, TakeLogSumsApart
from onnxq.graph.passes.fused_conv import TakeFusedConvsApart
from onnxq.graph.passes.global_pool import MeanToGlobalPool, SpatialMaxToPool
from onnxq.graph.passes.inline import InlineFunctions
from onnxq.graph.passes.lift_constants import LiftConstants
from onnxq.graph.passes.names import UniqueNames
from onnxq.graph.passes.no_ops import RemoveNoOps
from onnxq.graph.passes.opset import QUANTIZABLE_OPSET, UpgradeOpset, upgrade_opset
from onnxq.graph.passes.resize_axes import WriteAxesOut
from onnxq.graph.passes.unused import RemoveInitializersFromInputs, RemoveUnused
from onnxq.graph.prequantized_weights import notes_on_stored
from onnxq.graph.skeleton import read_attributes
from onnxq.graph.types import RunCallable, infer_by_run, infer_types, untyped
from onnxq.graph.untrusted.check_model import refuse
from onnxq.graph.untrusted.ranks import check_ranks

__all__ = ["Canonical", "RunCallable", "canonicalize", "canonicalize_module", "upgrade_opset"]


OPTIONAL_INPUTS_IR_VERSION = 4  # before, every initializer had to be listed as an input


@dataclass(frozen=True)
class Canonical:
    """A canonical model, and what the user should know of how it came about.

    Attributes:
        model: functions inlined; names unique; weights are initializers of the graph that owns
            them; BatchNormalization and Gemm's factors folded; no Identity or Dropout, no x / 1;
            functions that were written out are one node (see the passes), a shuffle of one axis is
            a Gather; constant factors and summands beside a node with weights are in them, an
            Einsum is a MatMul and a maximum over space a MaxPool, but for modules (see
            `canonicalize_module`); a ReduceLogSum is a ReduceSum and a Log; opset >= 13; float32,
            but for inputs and outputs that are float16 (a Cast stands at each); com.microsoft
            Attention with a bias, and its skip normalizations taken apart; types and ranks known
            where they can be.
        notes: sentences for the report ("the model is float16 ...").
        trains: whether it is of a module that goes on training, whose nodes stay as they are.
    """

    model: ir.Model
    notes: tuple[str, ...] = ()
    trains: bool = False

    def copy(self) -> Canonical:
        """The same with nodes and values of its own; weights are shared."""
        return replace(self, model=_copy(self.model))


def canonicalize(model: ir.Model, run: RunCallable | None = None) -> Canonical:
    """The canonical form of a copy of the model; weights are shared, not copied or read whole.

    Args:
        model: as loaded; left as it is.
        run: one real run, asked only for types that inference does not find (see graph.types).
    Raises:
        ModelError: the model is not one that can be quantized (see graph.checks).
        UnsupportedError: its opset must be raised and cannot be.
    """
    checks.check_quantizable(model)
    with without_collector():
        found = _canonicalize(model, run)
        for then in (
            EinsumToMatMul(),
            FuseHardSwish(),
            FuseMish(),
            FoldFactors(),
            FoldBatchNorm(),  # behind a summand that was folded right now
            FoldFactorsAhead(),
            SpatialMaxToPool(),
            RemoveUnused(),
            UniqueNames(),
        ):
            then(found.model)
    return found


def canonicalize_module(model: ir.Model, run: RunCallable | None = None) -> Canonical:
    """The canonical form of an exported module whose own weights stay: they train, or are integers.

    As `canonicalize`, but that constant factors and summands behind a MatMul stay nodes: in the
    module they are no part of the weight. So does a hard swish that is written out: its integers
    would be of a tensor that the module does not have alone. Arguments and errors are the same.
    """
    checks.check_quantizable(model)
    with without_collector():
        return replace(_canonicalize(model, run), trains=True)


def _canonicalize(model: ir.Model, run: RunCallable | None) -> Canonical:
    copy = _copy(model)
    use_short_domain(copy)
    read_attributes(copy)
    notes: list[str] = []
    defaults = RemoveInitializersFromInputs()(copy).modified
    if defaults and model.ir_version >= OPTIONAL_INPUTS_IR_VERSION:
        notes.append("inputs that have a default value are constants in the quantized model.")
    opset = copy.opset_imports.get("", QUANTIZABLE_OPSET)
    for first in (InlineFunctions(), UniqueNames(), UpgradeOpset(), LiftConstants(), UniqueNames()):
        first(copy)
    if opset < QUANTIZABLE_OPSET:
        notes.append(
            f"the model has opset {opset}; it was converted to {QUANTIZABLE_OPSET}, the first that "
            "has a scale for each channel."
        )
    if ConvertToFloat32()(copy).modified:
        notes.append(
            "the model is float16 or bfloat16; it computes in float32 where it is not quantized, "
            "what stays float is stored in 16 bits as it was, and float16 inputs and outputs stay."
        )
    TakeSkipNormsApart()(copy)  # onnx infers no types of theirs
    TakeFusedConvsApart()(copy)
    if failure := infer_types(copy).failure:
        notes.append(f"onnx's shape inference fails, so that fewer types are known: {failure}.")
    GiveAttentionBias()(copy)
    if run is not None:
        notes.extend(_run_notes(copy, run))
    for folding in (RemoveNoOps(), FoldConstants()):  # from here on types and ranks are known
        folding(copy)
    refuse(check_ranks(copy), "what is computed of constants alone")
    for then in (  # what is constant is an initializer now
        RemoveNoOps(),  # whose constants were computed: the square root of a head's size 1
        WriteAxesOut(),
        FoldGemmFactors(),
        FoldBatchNorm(),  # into the Conv or Gemm right ahead of it
        RemoveUnused(),  # a dead reader would keep a part of a function from being fused
        TakeLogSumsApart(),
        FuseLayerNormalization(),
        FuseGelu(),
        ShuffleToGather(),
        FuseSoftmax(),
        MeanToGlobalPool(),  # of the means that are left
        RemoveUnused(),
        UniqueNames(),
    ):
        then(copy)
    notes += notes_on_stored(copy)
    return Canonical(copy, tuple(notes))


def _run_notes(model: ir.Model, run: RunCallable) -> list[str]:
    """Finds the rest of the types by a run; where that fails, says which tensors stay unknown."""
    try:
        infer_by_run(model, run)
    except ModelError as error:
        names = untyped(model)
        return [f"the types of {len(names)} tensors, like '{names[0]}', are not known: {error}"]
    return []


def _copy(model: ir.Model) -> ir.Model:
    """Nodes and values are new, tensors are shared."""
    try:
        copy = model.clone()
    except RuntimeError as error:
        raise ModelError(
            "the model's nodes are not in topological order. Call model.graph.sort() first."
        ) from error
    copy.meta.update(model.meta)
    return copy

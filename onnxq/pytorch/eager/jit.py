"""Graph mode: a ScriptModule becomes a quantized ONNX model.

Usage: onnxq.pytorch.quantize_jit(torch.jit.script(model), {"": qconfig}, calibrate, [loader])

TorchScript's own quantized operators are of number types that torch is removing, and no exporter
takes them; so the float ScriptModule is exported and onnxq quantizes the ONNX model.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import onnx_ir as ir
import torch
from torch import nn

from onnxq.errors import CalibrationError, QConfigError, UnsupportedError, kind_of, nearest
from onnxq.graph.canonical import canonicalize
from onnxq.graph.walk import node_name, walk
from onnxq.ort.runtime import Session, open_session
from onnxq.ort.types_by_run import types_by_run
from onnxq.pipeline import convert, quantize_dynamic
from onnxq.pytorch.exporting.script import bind_script, export_script
from onnxq.pytorch.modules.torch_qconfig import own_entry
from onnxq.qconfig import Choice, Entry, QConfig, QConfigDynamic, QConfigMapping
from onnxq.qdq.qoperator import check_format
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.static.prepare import prepare
from onnxq.static.prepared import Prepared
from onnxq.targets import Target


class QuantizedScript(QuantizedModel):
    """A quantized model that is called on tensors, as the ScriptModule that it was made of."""

    _session: Session | None = None

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """ONNX Runtime computes the results on the CPU; nested ones come flat."""
        if self._session is None:
            self._session = open_session(self)
        names = [str(value.name) for value in self.graph.inputs]
        if len(inputs) != len(names):
            raise CalibrationError(f"got {len(inputs)} inputs; wanted {', '.join(names)}.")
        arrays = (x.detach().cpu().numpy() for x in inputs)
        found = self._session.run(dict(zip(names, arrays, strict=True)))
        results = tuple(torch.from_numpy(array) for array in found)
        return results[0] if len(results) == 1 else results

    def eval(self) -> Self:
        """The model itself, which has no other mode."""
        return self


def _callable(model: QuantizedModel) -> QuantizedScript:
    made = QuantizedScript.of(model)
    if model.verdict is not None:
        made.attach(model.verdict)
    return made


def quantize_jit(
    model: torch.jit.ScriptModule,
    qconfig_dict: Mapping[str, object],
    run_fn: Callable[..., object],
    run_args: Sequence[Any],
    inplace: object = False,
    debug: object = False,
    *,
    target: str | Target | None = None,
    format: str = "qdq",
) -> QuantizedScript:
    """Post-training quantization of a ScriptModule.

    Args:
        model: scripted or traced, float; it is not changed, but put into eval mode.
        qconfig_dict: {"" for the whole model, or name of a submodule: QConfig, or None for float};
            an inner module's entry comes before that of one around it.
        run_fn: run_fn(observed, *run_args) calls observed on batches, as it would call the model.
        run_args: further arguments of run_fn.
        inplace: of torch's signature; must be False: the result is another thing than a module.
        debug: of torch's signature; must be False.
        target: the machine that the result is for; None: `targets.get_default()`.
        format: "qdq" or "qoperator".
    Raises:
        UnsupportedError: no ScriptModule, in place or debug, an operator without ONNX form.
        QConfigError: a name that the model does not have; a value that is no QConfig.
        CalibrationError: run_fn never called the model.
    """
    check_format(format)
    _check(model, inplace, debug)
    entries = _entries(model, qconfig_dict, QConfig)
    observed = ObservedScript(model.eval(), entries, target)
    run_fn(observed, *run_args)
    if observed.prepared is None:
        raise CalibrationError(
            "quantize_jit: run_fn did not call the model, so that no data was seen. Let it call "
            "its first argument on representative batches."
        )
    return _callable(convert(observed.prepared, format))


def quantize_dynamic_jit(
    model: torch.jit.ScriptModule,
    qconfig_dict: Mapping[str, object],
    inplace: object = False,
    debug: object = False,
    *,
    inputs: torch.Tensor | Sequence[torch.Tensor] = (),
    target: str | Target | None = None,
) -> QuantizedScript:
    """Dynamic quantization of a ScriptModule; its weights become integers, no data is needed.

    Args:
        model: as for quantize_jit.
        qconfig_dict: as for quantize_jit, with QConfigDynamic.
        inplace: of torch's signature; must be False.
        debug: of torch's signature; must be False.
        inputs: an example batch, which the exporter runs; not of torch's signature, but needed.
        target: the machine that the result is for; None: `targets.get_default()`.
    Raises:
        UnsupportedError: no ScriptModule, in place or debug, an operator without ONNX form.
        QConfigError: a name that the model does not have; a value that is no QConfigDynamic.
    """
    _check(model, inplace, debug)
    entries = _entries(model, qconfig_dict, QConfigDynamic)
    given = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    if not given:
        raise QConfigError("quantize_dynamic_jit: the exporter runs the module: give it inputs=.")
    exported = export_script(model.eval(), bind_script(model, given))
    return _callable(quantize_dynamic(exported, by_node(exported, entries), target=target))


class ObservedScript(nn.Module):
    """A stand-in for the float model that run_fn calls; its ONNX form observes the same batches."""

    def __init__(
        self, model: torch.jit.ScriptModule, entries: Mapping[str, Entry], target: object
    ) -> None:
        super().__init__()
        self.model = model
        self.entries = entries
        self.target: Any = target
        self.prepared: Prepared | None = None

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The float model's result."""
        bound = bind_script(self.model, inputs)
        if self.prepared is None:
            exported = export_script(self.model, bound)
            mapping = by_node(exported, self.entries)
            self.prepared = prepare(exported, qconfig=mapping, target=self.target)
        self.prepared.run(bound.arrays)
        with torch.no_grad():
            return self.model(*inputs)


def by_node(exported: ir.Model, entries: Mapping[str, Entry]) -> QConfigMapping:
    """The mapping of an exported model: a node belongs to the modules whose weights it reads."""
    mapping = QConfigMapping(entries.get(""), choice=Choice.ALL_INTEGERS)
    inner = {name: entry for name, entry in entries.items() if name}
    if not inner:
        return mapping
    canonical = canonicalize(exported, types_by_run).model
    for node, _ in walk(canonical.graph):
        read = [str(v.name) for v in node.inputs if v is not None and v.is_initializer()]
        owners = [n for n in inner if any(name.startswith(f"{n}.") for name in read)]
        if owners:
            mapping = mapping.set_node(node_name(node), inner[max(owners, key=len)])
    return mapping


def _check(model: object, inplace: object, debug: object) -> None:
    if not isinstance(model, torch.jit.ScriptModule):
        raise UnsupportedError(
            f"got {kind_of(model)}; wanted a ScriptModule, of torch.jit.script or trace. "
            "For other modules use onnxq.pytorch.quantize, or quantize_dynamic."
        )
    if inplace or debug:
        raise UnsupportedError(
            "inplace, debug: the result is an ONNX model, the module stays as it is. Leave them "
            "out; every integer of the result can be looked at with onnxq.verify."
        )


def _entries(
    model: torch.jit.ScriptModule, qconfig_dict: Mapping[str, object], wanted: type
) -> dict[str, Entry]:
    names = [name for name, _ in model.named_modules()]
    found: dict[str, Entry] = {}
    for name, value in qconfig_dict.items():
        if name not in names:
            raise QConfigError(
                f"qconfig_dict: the model has no module '{name}'.{nearest(str(name), names)}"
            )
        entry = own_entry(value, f"qconfig_dict['{name}']")
        if entry is not None and not isinstance(entry, wanted):
            raise QConfigError(
                f"qconfig_dict['{name}'] is {kind_of(entry)}; wanted a {wanted.__name__}."
            )
        found[name] = entry
    return found

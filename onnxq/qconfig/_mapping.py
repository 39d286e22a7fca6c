"""QConfigMapping: which entry each node and tensor of a model gets, and its plain-data forms.

global: default                        # a name, null (float), or activation and weight
op_types:
  Softmax: null                        # null leaves it in float
nodes:
  /layer1/*: fbgemm                    # glob over node names
  /head/Gemm: {weight: {observer: MinMaxObserver, dtype: qint8, qscheme: per_tensor_symmetric}}
  /encoder/*: dynamic_int8             # activations quantized at run time
  /decoder/*: {dynamic: {weight: {observer: NarrowRangeObserver, dtype: int4, quant_max: 7},
                         precision: weight_only_groupwise, block_size: 32}}
tensors:
  logits: null                         # glob over tensor names
  /stem/*: {observer: PercentileObserver}
choice: all_integers                   # of the precisions that no entry names; best without it
improve: [smooth, bias, round]         # PTQ algorithms of weights (docs/guides/improve.md)
weight_bits: 4                         # of weights whose observers say 8 bits
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnxq.core.brief import brief
from onnxq.dtypes import BYTE_BITS
from onnxq.errors import QConfigError, nearest
from onnxq.observers import ObserverSpec
from onnxq.page.card import card_of
from onnxq.qconfig._defaults import NAMED, get_default_qconfig, onnxq_default_qconfig
from onnxq.qconfig._plain_values import (
    base_of,
    check_keys,
    entry_from,
    pairs_of,
    plain_from,
    section_of,
    tensor_from,
)
from onnxq.qconfig._text import dump_yaml, parse_override, parse_yaml
from onnxq.qconfig._values import (
    Choice,
    Entry,
    QConfig,
    QConfigDynamic,
    as_choice,
    as_names,
    as_observer,
)
from onnxq.qconfig.file_form import EntryForm, TensorForm, check_form
from onnxq.qconfig.names import Entries, Value, check_patterns, pattern_for
from onnxq.qconfig.weight_bits import as_weight_bits, narrowed


class NotSet(enum.Enum):
    """The type of NOT_SET, which None cannot stand for: None leaves a tensor in float."""

    NOT_SET = "not set"


NOT_SET = NotSet.NOT_SET


@dataclass(frozen=True, slots=True)
class QConfigMapping:
    """Requests of the user, node by node.

    For a node: its exact name, else the glob that matches it with the most characters that are no
    wildcards (in alphabetical order if equal), else its op type, else the global entry. For a
    tensor: the same, without op type and global. The order of the entries never matters.

    Attributes:
        global_qconfig: for every node that nothing else names; None leaves them in float.
        op_types: ONNX op type -> entry.
        nodes: node name or glob (*, ?, [...]) -> entry.
        tensors: tensor name or glob -> observer; None leaves the tensor in float.
        choice: precisions of the nodes for which no entry names one.
        improve: names of the PTQ algorithms that are carried out (onnxq.weights); None: those of
            the workflow, which are "auto" where `quantize` has samples, and none elsewhere.
        weight_bits: 2, 4 or 8, of the weights of nodes whose entry says 8 (see `weight_observer`).
    Raises:
        QConfigError: a value is no QConfig, observer or None, the choice is none, or `improve` is
            no sequence of different names.
    """

    global_qconfig: Entry = None
    op_types: Mapping[str, Entry] = field(default_factory=dict, hash=False)
    nodes: Mapping[str, Entry] = field(default_factory=dict, hash=False)
    tensors: Mapping[str, ObserverSpec | None] = field(default_factory=dict, hash=False)
    choice: Choice = Choice.BEST
    improve: tuple[str, ...] | None = None
    weight_bits: int = 8

    __repr__ = brief
    _repr_html_ = card_of

    def __post_init__(self) -> None:
        _check_entry(self.global_qconfig, "global")
        for kind, entries in (("op_types", self.op_types), ("nodes", self.nodes)):
            for name, entry in entries.items():
                _check_entry(entry, f"{kind} '{name}'")
            object.__setattr__(self, kind, Entries(entries))
        tensors = {
            name: None if spec is None else as_observer(spec, f"tensors '{name}'")
            for name, spec in self.tensors.items()
        }
        object.__setattr__(self, "tensors", Entries(tensors))
        object.__setattr__(self, "choice", as_choice(self.choice, "QConfigMapping"))
        if self.improve is not None:
            object.__setattr__(self, "improve", as_names(self.improve, "QConfigMapping"))
        as_weight_bits(self.weight_bits, "QConfigMapping")

    def set_global(self, entry: Entry | str) -> QConfigMapping:
        """A mapping with another global entry, or the one of a name, as in YAML: "default"."""
        return replace(self, global_qconfig=_named(entry, "global"))

    def set_op_type(self, op_type: str, entry: Entry | str) -> QConfigMapping:
        """A mapping in which nodes of that ONNX op type have this entry, or the one of a name."""
        named = _named(entry, f"op_types '{op_type}'")
        return replace(self, op_types={**self.op_types, op_type: named})

    def set_node(self, pattern: str, entry: Entry | str) -> QConfigMapping:
        """A mapping in which nodes of that name or glob have this entry, or the one of a name."""
        named = _named(entry, f"nodes '{pattern}'")
        return replace(self, nodes={**self.nodes, pattern: named})

    def set_tensor(self, pattern: str, spec: ObserverSpec | None) -> QConfigMapping:
        """A mapping in which tensors of that name, or that match that glob, have this observer."""
        return replace(self, tensors={**self.tensors, pattern: spec})

    def set_choice(self, choice: Choice) -> QConfigMapping:
        """A mapping with that choice of the precisions that no entry names."""
        return replace(self, choice=choice)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Names of the PTQ algorithms; none where it leaves them to the workflow."""
        return self.improve or ()

    def set_improve(self, names: Sequence[str]) -> QConfigMapping:
        """A mapping with these PTQ algorithms, in place of those that it had; () is none at all.

        Raises:
            QConfigError: it is no list of names, or one stands in it twice.
        """
        return replace(self, improve=as_names(names, "QConfigMapping"))

    def set_weight_bits(self, bits: int) -> QConfigMapping:
        """A mapping with weights of so many bits: 2, 4 or 8.

        Raises:
            QConfigError: it is another number.
        """
        return replace(self, weight_bits=bits)

    def without_precisions(self) -> QConfigMapping:
        """The mapping without the static precisions that it names: what could be chosen instead.

        An entry that then says no more than the global one does is left out: its node counts as
        one that nobody named.
        """
        overall = _without_precision(self.global_qconfig)
        kept = {
            name: _without_precision(entry)
            for name, entry in self.nodes.items()
            if _without_precision(entry) is entry or _without_precision(entry) != overall
        }
        op_types = {name: _without_precision(entry) for name, entry in self.op_types.items()}
        return replace(self, global_qconfig=overall, op_types=op_types, nodes=kept)

    def all_open(self) -> QConfigMapping:
        """The mapping without static precisions and PTQ algorithms: the best are to be chosen."""
        return replace(self.without_precisions(), choice=Choice.BEST, improve=None)

    def entry_for_node(self, name: str, op_type: str) -> Entry:
        """The entry that applies to the node, static or dynamic; None leaves it in float."""
        entry = _match(self.nodes, name)
        if entry is not NOT_SET:
            return entry
        return self.op_types.get(op_type, self.global_qconfig)

    def for_node(self, name: str, op_type: str) -> QConfig | None:
        """The static QConfig that applies to the node.

        None leaves it in float, as far as static quantization is concerned: a QConfigDynamic may
        apply (see `entry_for_node`).
        """
        entry = self.entry_for_node(name, op_type)
        return None if isinstance(entry, QConfigDynamic) else entry

    @property
    def has_dynamic(self) -> bool:
        """Whether a QConfigDynamic applies to some nodes."""
        entries = (self.global_qconfig, *self.op_types.values(), *self.nodes.values())
        return any(isinstance(entry, QConfigDynamic) for entry in entries)

    def explicit_for_node(self, name: str, op_type: str) -> bool:
        """Whether the user named this node or its op type, not merely every node."""
        return _match(self.nodes, name) is not NOT_SET or op_type in self.op_types

    def for_tensor(self, name: str) -> ObserverSpec | NotSet | None:
        """The observer that the user named for the tensor; None leaves it in float."""
        return _match(self.tensors, name)

    def weight_observer(
        self, tensor: str, elements: int, entry: QConfig | QConfigDynamic
    ) -> ObserverSpec:
        """Observer of a weight: the one named for the tensor, else the entry's at `weight_bits`.

        Weights of fewer than 1024 elements stay at 8 bits.

        Args:
            tensor: name of the weight.
            elements: of the weight.
            entry: of a node that reads it.
        """
        named = self.for_tensor(tensor)
        if isinstance(named, ObserverSpec):
            return named
        return narrowed(entry.weight_observer, self.weight_bits, elements)

    def check(
        self, op_types: Iterable[str], node_names: Iterable[str], tensor_names: Iterable[str]
    ) -> None:
        """Compares every name with those of a model.

        An op type of the ONNX standard need not occur: one file may serve several models.

        Raises:
            QConfigError: a name or glob fits nothing; the message suggests the nearest.
        """
        known_ops = set(op_types)
        for op_type in self.op_types:
            if op_type not in known_ops and not _is_onnx_op(op_type):
                raise QConfigError(
                    f"qconfig: op type '{op_type}' is not in the model and not known to ONNX; "
                    f"the model has {', '.join(sorted(known_ops))}.{nearest(op_type, known_ops)}"
                )
        nodes, tensors = set(node_names), set(tensor_names)
        check_patterns(self.nodes, nodes, "node", known_ops, tensors)
        check_patterns(self.tensors, tensors, "tensor")

    def with_overrides(self, overrides: Iterable[str]) -> QConfigMapping:
        """A mapping with settings from a command line on top, later ones last.

        Each is `global=VALUE`, `op:TYPE=VALUE`, `node:GLOB=VALUE` or `tensor:GLOB=VALUE`. VALUE is
        `float`, a name (default, fbgemm, qnnpack, default_qconfig, ...), or YAML in one line:
        `op:Conv={weight: {observer: PerChannelMinMaxObserver, dtype: qint8}}`. For a tensor it is
        `float`, an observer's name or `{observer: ..., ...}`.

        Raises:
            QConfigError: another form, an unknown name or argument.
        """
        mapping = self
        for text in overrides:
            kind, pattern, data = parse_override(text)
            check_form(data, TensorForm if kind == "tensor" else EntryForm, f"override '{text}'")
            mapping = mapping._overridden(kind, pattern, data, f"override '{text}'")
        return mapping

    def _overridden(self, kind: str, pattern: str, data: object, where: str) -> QConfigMapping:
        if kind == "tensor":
            return self.set_tensor(pattern, tensor_from(data, where))
        entry = entry_from(data, where, base_of(self.global_qconfig))
        if kind == "global":
            return self.set_global(entry)
        return self.set_op_type(pattern, entry) if kind == "op" else self.set_node(pattern, entry)

    def to_yaml(self) -> str:
        """YAML text that `from_yaml` reads back to an equal mapping."""
        base = base_of(self.global_qconfig)
        choice = {} if self.choice is Choice.BEST else {"choice": self.choice.value}
        improve = {} if self.improve is None else {"improve": list(self.improve)}
        bits = {} if self.weight_bits == BYTE_BITS else {"weight_bits": self.weight_bits}
        return dump_yaml(
            {
                "global": plain_from(self.global_qconfig, onnxq_default_qconfig),
                "op_types": {k: plain_from(v, base) for k, v in self.op_types.items()},
                "nodes": {k: plain_from(v, base) for k, v in self.nodes.items()},
                "tensors": {k: None if v is None else v.to_dict() for k, v in self.tensors.items()},
                **choice,
                **improve,
                **bits,
            }
        )

    @staticmethod
    def from_yaml(
        source: str | Path,
        default: QConfig | QConfigDynamic = onnxq_default_qconfig,
        choice: Choice = Choice.BEST,
    ) -> QConfigMapping:
        """The mapping that YAML describes (see the head of this module).

        Without the key `global`, that is `default`: a file may hold exceptions only. An entry
        with `activation` or `weight` alone takes the other one from the global entry.

        Args:
            source: a Path is read; a str is the YAML itself.
            default: of a backend, for its target; else onnxq's own; for dynamic quantization, a
                QConfigDynamic.
            choice: without the key `choice`.
        Raises:
            QConfigError: unreadable, no YAML, unknown or repeated keys, unknown names.
        """
        where = str(source) if isinstance(source, Path) else "qconfig"
        data = parse_yaml(source)
        known = ["global", "op_types", "nodes", "tensors", "choice", "improve", "weight_bits"]
        check_keys(data, known, where)
        if "global" in data:
            check_form(data["global"], EntryForm, f"{where}: global")
        overall = entry_from(data.get("global", default), f"{where}: global", base_of(default))
        base = base_of(overall)
        op_types, nodes = (
            {
                name: entry_from(entry, f"{where}: {key} '{name}'", base)
                for name, entry in section_of(data, key, where, EntryForm).items()
            }
            for key in ("op_types", "nodes")
        )
        tensors = section_of(data, "tensors", where, TensorForm)
        return QConfigMapping(
            overall,
            op_types,
            nodes,
            {k: tensor_from(v, f"{where}: tensors '{k}'") for k, v in tensors.items()},
            as_choice(data.get("choice", choice), where),
            as_names(data["improve"], where) if "improve" in data else None,
            as_weight_bits(data.get("weight_bits", BYTE_BITS), where),
        )

    @staticmethod
    def from_dict(qconfig_dict: Mapping[str, object]) -> QConfigMapping:
        """The mapping that the documented qconfig_dict describes.

        {"": global entry, node name or glob: entry, "object_type": [(ONNX op type, entry)],
        "module_name": [(node name or glob, entry)]}. Without the key "" what is not named stays in
        float, as documented; what is named runs in integers (Choice.ALL_INTEGERS), as documented
        too.

        Raises:
            QConfigError: a regular expression, a class for a type, an entry that is no QConfig.
        """
        if "module_name_regex" in qconfig_dict:
            raise QConfigError(
                "qconfig_dict: 'module_name_regex' is not supported; write a glob, such as "
                "'/layer1/*', as a key."
            )
        overall = entry_from(qconfig_dict.get(""), "qconfig_dict ''", onnxq_default_qconfig)
        base = base_of(overall)
        special = ("", "object_type", "module_name")
        nodes = [(k, v) for k, v in qconfig_dict.items() if k not in special]
        nodes += pairs_of(qconfig_dict, "module_name")
        return QConfigMapping(
            overall,
            {
                k: entry_from(v, f"qconfig_dict '{k}'", base)
                for k, v in pairs_of(qconfig_dict, "object_type")
            },
            {k: entry_from(v, f"qconfig_dict '{k}'", base) for k, v in nodes},
            choice=Choice.ALL_INTEGERS,
        )


def default_qconfig_mapping(backend: str = "") -> QConfigMapping:
    """One QConfig for every node: onnxq's default, or a backend's.

    A backend's runs every node in integers that can, as PyTorch documents it.

    Raises:
        QConfigError: the backend is not known.
    """
    return QConfigMapping(get_default_qconfig(backend), choice=default_choice(backend))


def default_choice(backend: str = "") -> Choice:
    """BEST; ALL_INTEGERS for the backends, whose QConfigs PyTorch documents as such."""
    return Choice.ALL_INTEGERS if backend else Choice.BEST


def _match(entries: Mapping[str, Value], name: str) -> Value | NotSet:
    """The value of the entry that applies to the name."""
    pattern = pattern_for(entries, name)
    return NOT_SET if pattern is None else entries[pattern]


def _is_onnx_op(op_type: str) -> bool:
    import onnx  # not at the top: a mapping can be made without loading it

    return any(onnx.defs.has(op_type, domain) for domain in ("", "ai.onnx.ml"))


def _without_precision(entry: Entry) -> Entry:
    """The entry, its precision open; itself where it is."""
    if isinstance(entry, QConfig) and entry.precision is not None:
        return replace(entry, precision=None)
    return entry


def _named(entry: Entry | str, where: str) -> Entry:
    """The entry that a name of YAML and of --set stands for; another entry as it is."""
    if not isinstance(entry, str):
        return entry
    return entry_from(entry, where, onnxq_default_qconfig)


def _check_entry(entry: object, where: str) -> None:
    if entry is not None and not isinstance(entry, QConfig | QConfigDynamic):
        raise QConfigError(
            f"{where}: got {entry!r}; wanted a QConfig, a QConfigDynamic or None (float). "
            "get_default_qconfig() makes a QConfig; set_op_type, set_node and set_global take "
            f"names, too: {', '.join(['float', *NAMED])}."
        )

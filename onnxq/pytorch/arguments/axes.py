"""Which axes of the inputs are dynamic, from either way of saying it.

{"x": {1: "batch"}, "hidden_0": {1: "batch"}}         by names of the model's inputs
{"x": {1: "batch"}, "hidden": {1: "batch"}}           by parameter: every tensor in it
{"x": {1: Dim("batch")}, "hidden": ({1: b}, {1: b})}  torch.export's dynamic_shapes

A name "past + tokens" is a size that is the sum of two others: an attention mask's is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch.export import Dim

from onnxq.errors import QConfigError, UnsupportedError, nearest
from onnxq.pytorch.arguments.bound_inputs import BoundInputs, Slot
from onnxq.pytorch.arguments.nesting import Path, children, leaves, shown

BATCH = "batch"
UNBOUNDED = 2**31  # more rows than any check makes

DynamicAxes = Mapping[str, object] | Sequence[object]
"""{input or parameter: {axis: name of its size}, nested as the parameter is; None: fixed}."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The dynamic axes.

    Attributes:
        of: input name -> {axis >= 0: name of its size}.
        ranges: name of a size -> (least, largest), where a torch.export.Dim says so.
    """

    of: dict[str, dict[int, str]]
    ranges: dict[str, tuple[int, int]]

    @property
    def labels(self) -> list[str]:
        """The names of the sizes, in order."""
        return list(dict.fromkeys(size for of in self.of.values() for size in of.values()))

    @property
    def batch(self) -> str | None:
        """The name of the batch: "batch", else that of the first axis 0, if there is one."""
        if BATCH in self.labels:
            return BATCH
        return next((of[0] for of in self.of.values() if 0 in of), None)

    def called(self, label: str) -> dict[str, tuple[int, ...]]:
        """Input name -> its axes of that size."""
        found = {
            name: tuple(axis for axis, size in of.items() if size == label)
            for name, of in self.of.items()
        }
        return {name: axes for name, axes in found.items() if axes}

    def terms(self, label: str) -> list[str]:
        """The sizes that a size called "a + b" is the sum of; none: it stands for itself."""
        terms = [term.strip() for term in label.split("+")]
        known = {*self.labels} - {label}
        return terms if len(terms) > 1 and known.issuperset(terms) else []

    def resized(self, bound: BoundInputs, label: str, size: int) -> BoundInputs:
        """The same inputs with another length of what is called so, and of the sums it is in."""
        return self.with_sums(bound.resized(self.called(label), size))

    def with_sums(self, bound: BoundInputs) -> BoundInputs:
        """The same inputs, each size that is a sum as long as its terms."""
        for label in self.labels:
            if terms := self.terms(label):
                total = sum(self.length(bound, term) for term in terms)
                bound = bound.resized(self.called(label), total)
        return bound

    def length(self, bound: BoundInputs, label: str) -> int:
        """The largest length of the axes of that name."""
        called = self.called(label)
        return max(bound.tensors[name].shape[axis] for name, of in called.items() for axis in of)

    def allows(self, label: str, size: int) -> bool:
        """Whether an axis may be that long."""
        least, largest = self.ranges.get(label, (1, UNBOUNDED))
        return least <= size <= largest


def resolved(axes: DynamicAxes, bound: BoundInputs) -> Axes:
    """The axes that the caller names."""
    reading = _Reading(bound)
    if not isinstance(axes, Mapping):
        known = list(bound.call.arguments)
        if len(axes) != len(known):
            raise QConfigError(
                f"dynamic_axes: {len(axes)} entries; forward is given {len(known)} arguments "
                f"({', '.join(known)})."
            )
        axes = dict(zip(known, axes, strict=True))
    for name, value in axes.items():
        reading.named(name, value)
    return Axes(reading.of, reading.ranges)


class _Reading:
    """Axes that have been read so far."""

    def __init__(self, bound: BoundInputs) -> None:
        self.of: dict[str, dict[int, str]] = {}
        self.ranges: dict[str, tuple[int, int]] = {}
        self._bound = bound

    def named(self, name: str, value: object) -> None:
        """One entry: the name is that of an input or of a parameter."""
        arguments = self._bound.call.arguments
        if name in self._bound.tensors:
            self._tensor(name, value)
            return
        if name not in arguments:
            known = list(dict.fromkeys([*self._bound.tensors, *arguments]))
            raise QConfigError(
                f"dynamic_axes: no input '{name}'; inputs: {', '.join(known)}."
                f"{nearest(name, known)}"
            )
        self._nested(arguments[name], value, (name,))

    def _nested(self, template: object, value: object, path: Path) -> None:
        if value is None:
            return
        if isinstance(template, Slot):
            self._tensor(template.name, value)
            return
        parts = children(template)
        if parts is None:
            raise QConfigError(
                f"dynamic_axes: '{shown(path)}' is the constant {template!r}, which has no axes. "
                "Give None for it."
            )
        if _are_axes(value):
            for _, slot in leaves(template):
                if isinstance(slot, Slot):
                    self._tensor(slot.name, value)
            return
        inner, keys = _entries(value), [key for key, _ in parts]
        if inner is None or (len(inner) != len(parts) and not {*inner} <= {*keys}):
            raise QConfigError(
                f"dynamic_axes: '{shown(path)}' has the parts {', '.join(map(str, keys))}; got "
                f"{value!r}. Give an entry for each, None where nothing is dynamic, or one "
                "{axis: name} for all."
            )
        for position, (key, part) in enumerate(parts):
            entry = inner.get(key, inner.get(position))
            self._nested(part, entry, (*path, key))

    def _tensor(self, name: str, value: object) -> None:
        rank = self._bound.tensors[name].ndim
        if value is None:
            return
        sizes: Mapping[object, object] | None = None
        if isinstance(value, Mapping):
            sizes = value
        elif isinstance(value, Sequence) and not isinstance(value, str):
            if len(value) != rank:
                raise QConfigError(
                    f"dynamic_axes: input '{name}' has rank {rank}; got {len(value)} sizes."
                )
            sizes = dict(enumerate(value))
        if sizes is None:
            raise QConfigError(
                f"dynamic_axes: input '{name}': got {value!r}; wanted {{axis: name of its size}}."
            )
        of_input = self.of.setdefault(name, {})
        for axis, size in sizes.items():
            if not isinstance(axis, int) or not -rank <= axis < rank:
                raise QConfigError(f"dynamic_axes: input '{name}' has rank {rank}, no axis {axis}.")
            label = self._label(name, axis % rank, size)
            if label is not None:
                of_input[axis % rank] = label

    def _label(self, name: str, axis: int, size: object) -> str | None:
        """The name of a size; None: it is fixed."""
        if size is None:
            return None
        if isinstance(size, int):
            length = self._bound.tensors[name].shape[axis]
            if isinstance(size, bool) or size != length:
                raise QConfigError(
                    f"dynamic_axes: input '{name}', axis {axis} is {length} long; got {size!r}. "
                    "Give a name for its size where it is dynamic, None where it is fixed."
                )
            return None
        if isinstance(size, str):
            return size
        if isinstance(size, type(Dim.DYNAMIC)):
            label, hint = f"{name}_{axis}", getattr(size, "type", None)
            if hint == Dim.STATIC.type:
                return None
        elif type(size) is Dim:
            label = size.__name__
        else:
            raise UnsupportedError(
                f"dynamic_axes: input '{name}', axis {axis}: {size!r} is no name, Dim or None "
                "(sizes that are computed from another one are not supported). Give it a name of "
                "its own."
            )
        largest = UNBOUNDED if size.max is None else int(min(size.max, UNBOUNDED))
        self.ranges[label] = (max(1, size.min or 1), largest)
        return label


def _are_axes(value: object) -> bool:
    """Whether it is {axis: size}, for every tensor of an argument."""
    if not isinstance(value, Mapping) or not value:
        return False
    sizes = value.values()
    plain = all(size is None or isinstance(size, str | int) or _is_dim(size) for size in sizes)
    return plain and all(isinstance(key, int) for key in value)


def _is_dim(size: object) -> bool:
    return isinstance(size, Dim | type(Dim.DYNAMIC))


def _entries(value: object) -> dict[str | int, object] | None:
    """The parts of an entry by key; None: it has none."""
    parts = children(value)
    return None if parts is None or _is_dim(value) else dict(parts)

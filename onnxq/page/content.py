"""Content of a report: plain values, gathered once, in the order in which they are shown.

Places in `Page.nodes`, `Page.tensors` and `Page.weights` are what parts name each other by.
Figures that are not known, or have no meaning for a part, are None.
"""

from dataclasses import dataclass

Edge = tuple[int, int]
"""(place of the node that gives a tensor, place of one that reads it)."""


@dataclass(frozen=True, slots=True)
class NamedText:
    """A name and what is said of it."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that stands out."""

    name: str
    value: str
    beside: str = ""


@dataclass(frozen=True, slots=True)
class CheckedBound:
    """A bound that was asked for."""

    words: str
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Head:
    """Head of a report."""

    title: str
    verdict: str
    warning: str = ""
    bounds: tuple[CheckedBound, ...] = ()
    figures: tuple[Figure, ...] = ()
    origin: tuple[NamedText, ...] = ()
    command: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of a tensor's float values in bins of equal width."""

    low: float
    high: float
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorQParams:
    """Quantization parameters of a tensor."""

    dtype: str
    scale: float
    zero_point: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class TensorPart:
    """A tensor of the float model beside that of the quantized one.

    Attributes:
        error_db: SQNR on all samples: local and accumulated errors together.
        local_db: SQNR of the node alone, both models given the same inputs.
        accumulated_db: SQNR of what came in with the inputs.
        saturated_share: of its float values, beyond what its integers reach.
        sampled_db: SQNR on the few samples that local and accumulated errors are of.
        channel_share: of the range of its integers that the median channel reaches.
    """

    name: str
    node: int | None
    error_db: float
    local_db: float | None = None
    accumulated_db: float | None = None
    max_lsb: float | None = None
    saturated_share: float | None = None
    qparams: TensorQParams | None = None
    histogram: Histogram | None = None
    is_output: bool = False
    sampled_db: float | None = None
    channel_share: float | None = None


@dataclass(frozen=True, slots=True)
class WeightPart:
    """A weight that is stored as integers.

    Attributes:
        lows, highs: smallest and largest real of each channel.
        abs_max: largest real of the integers' range, per channel.
    """

    name: str
    node: int | None
    dtype: str
    granularity: str
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    abs_max: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NodePart:
    """A node of the float model.

    Attributes:
        precision: that it has in the quantized model: a Precision's value, or "inside" of another
            node.
        quantized_us: likewise in the quantized one, with conversions that it needs.
        revert: option that leaves it in float; empty: it is.
    """

    name: str
    op_type: str
    precision: str
    reason: str
    float_us: float | None = None
    quantized_us: float | None = None
    tensors: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    revert: str = ""


@dataclass(frozen=True, slots=True)
class MachineColumn:
    """Machines whose integers are alike.

    Attributes:
        cells: of each layer of `MachineTable.layers`: what it does there, in words; empty: exact.
    """

    names: tuple[str, ...]
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MachineTable:
    """Layers whose integers depend on the machine."""

    layers: tuple[str, ...]
    columns: tuple[MachineColumn, ...]
    said: str


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A model that a search measured."""

    name: str
    metric: float
    db: float
    time_ratio: float | None
    size: str
    changes: str
    is_front: bool
    is_chosen: bool


@dataclass(frozen=True)
class Page:
    """Everything that a report shows.

    Attributes:
        tensors: that were compared, in graph order; outputs among them.
        unassigned: microseconds of both models that belong to no node, by operator: (name, float,
            quantized).
        missing: section -> why it is not there.
        goal_db: least SQNR that a search was asked for; None: none was.
    """

    head: Head
    nodes: tuple[NodePart, ...] = ()
    tensors: tuple[TensorPart, ...] = ()
    weights: tuple[WeightPart, ...] = ()
    edges: tuple[Edge, ...] = ()
    unmatched: tuple[NamedText, ...] = ()
    unassigned: tuple[tuple[str, float, float], ...] = ()
    whole_us: tuple[float, float] | None = None
    machines: MachineTable | None = None
    front: tuple[FrontPoint, ...] = ()
    missing: tuple[NamedText, ...] = ()
    goal_db: float | None = None

"""Finds operators: each in the file of onnxq.operators that has its name, or in plugins.

A file is imported when an operator of its name is looked for: a model has few of them.
"""

import functools
import importlib
import pkgutil

import onnx_ir as ir

from onnxq import operators
from onnxq.core import plugins
from onnxq.core.collector import without_collector
from onnxq.operator import IntegerOperator, OpCategory, Operator, Rule, integer_registry, registry
from onnxq.operator.nodes import ONNX_DOMAINS
from onnxq.operators import _foreign
from onnxq.operators._plain_on_integers import PlainOnIntegers

INTEGERS_DOMAINS = ("", "com.microsoft")
"""Domains of operators on integers."""
ALIASES = dict.fromkeys(ONNX_DOMAINS, "")


def find(op_type: str, domain: str = "") -> Operator | None:
    """The operator of that name, or None where onnxq has no integer form of it."""
    _load_named(op_type)
    return registry.get((ALIASES.get(domain, domain), op_type))


def rule_of(node: ir.Node) -> Rule | None:
    """The rule that the operator has for the node; None: the node stays in float."""
    operator = find(node.op_type, node.domain)
    rule = None if operator is None else operator.rule(node)
    return rule if isinstance(rule, Rule) else None


def all_operators() -> tuple[Operator, ...]:
    """Every known operator, sorted by domain and name."""
    _load()
    return tuple(registry[key] for key in sorted(registry))


def find_integer(op_type: str, domain: str = "") -> IntegerOperator | None:
    """The operator on integers of that name, or None where onnxq has no kernel for it.

    What the float model has under the same name, and ONNX Runtime runs on integers as it is
    (MaxPool, Clip), is found too.
    """
    _load_named(op_type)
    key = (ALIASES.get(domain, domain), op_type)
    if key in integer_registry:
        return integer_registry[key]
    operator = registry.get(key)
    return None if operator is None else PlainOnIntegers.of(operator)


def all_integer_operators() -> tuple[IntegerOperator, ...]:
    """Every operator that exists on integers only, sorted by name; each once."""
    _load()
    return tuple(sorted(set(integer_registry.values()), key=lambda op: op.op_type))


def is_on_integers(node: ir.Node) -> bool:
    """Whether a node computes with integers, or makes or reads them: its model is quantized."""
    _load_named(node.op_type)
    if ALIASES.get(node.domain, node.domain) not in INTEGERS_DOMAINS:
        return False
    named = node.op_type in _foreign.NAMES or node.op_type.startswith(_foreign.PREFIXES)
    return named or any((d, node.op_type) in integer_registry for d in INTEGERS_DOMAINS)


@functools.cache
def _load() -> None:
    """Imports every operator file once; private files come along with those that need them."""
    with without_collector():
        for module in _files().values():
            importlib.import_module(module)
        plugins.load()


@functools.cache
def _load_named(op_type: str) -> None:
    """Imports the files that may define operators of that name, in any domain.

    With plugins, every file, before them: a plugin that defines an operator that is there already
    is then the one that is refused.
    """
    if plugins.are_there():
        _load()
    for module in files_of(op_type):
        importlib.import_module(module)


def files_of(op_type: str) -> tuple[str, ...]:
    """Modules that may define operators of that name: those of ai.onnx, and of Microsoft's."""
    names = (f"{prefix}{op_type}".lower() for prefix in ("", "microsoft"))
    return tuple(_files()[name] for name in names if name in _files())


@functools.cache
def _files() -> dict[str, str]:
    """{name of the file without underscores: module}."""
    names = (module.name for module in pkgutil.iter_modules(operators.__path__))
    public = (name for name in names if not name.startswith("_"))
    return {name.replace("_", ""): f"{operators.__name__}.{name}" for name in public}


def has_dynamic_quantization(node: ir.Node) -> bool:
    """Whether its operator has a dynamic rule; the rule may still leave this node in float."""
    operator = find(node.op_type, node.domain)
    return operator is not None and operator.has_dynamic_rule()


def moves_data(node: ir.Node) -> bool:
    """Whether its results are elements of its first input, and constants at most."""
    rule = rule_of(node)
    if rule is None or rule.category is not OpCategory.MOVEMENT:
        return False
    return rule.activations == (0,) and not rule.selects

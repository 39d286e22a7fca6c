"""Reader of .pt2 files: torch.export.load, behind a check that no part of the file can run code.

torch unpickles records, evaluates expressions, looks operators up by name, imports modules of
tree specs, writes names into Python source, and loads compiled libraries. So each record of the
archive, and each string of its graph, must be what torch.export.save writes of a plain module.
torch reads the very bytes that were checked, with the reader that the check used.
"""

import ast
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.pt2_archive._package import load_pt2

from onnxq.core.regular import why_no_file
from onnxq.errors import ModelError

_ADVICE = (
    "Write one with torch.export.save(torch.export.export(model, inputs), path), or give the "
    "module."
)
_TRUST = "If you trust the file, give the program itself: torch.export.load(path)."

_GRAPH = "models/model.json"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_PICKLED = ("data/sample_inputs/model.pt", "data/weights/model.pt", "data/constants/model.pt")
_RECORDS = re.compile(
    r"archive_format|archive_version|byteorder|\.data/\w+|\.format_version|\.storage_alignment"
    r"|extra/.*|data/weights/weight_\d+|data/constants/tensor_\d+",
    re.ASCII,
)

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PATH = re.compile(r"[\w.\-+:/@ ]*", re.ASCII)  # of a module: no quote, bracket, or line's end
_NAMES = frozenset(["name", "as_name", "forward_arg_names"])  # torch writes them into source
_FREE = frozenset(  # torch shows them, or gives them to operators as strings
    ["metadata", "as_string", "as_strings", "guards_code", "torch_version", "verifiers"]
)

_NAMESPACES = frozenset(
    ["aten", "prims", "quantized", "quantized_decomposed", "onnxq", "torchao", "torchvision"]
)
_FILES = frozenset(["from_file", "save"])  # of aten: they open a file whose name the graph gives
_BRANCHES = (
    r"cond|while_loop|scan|map|map_impl|associative_scan|auto_functionalized(_v2)?"
    r"|wrap_with_set_grad_enabled|wrap_with_autocast"
)
_PLAIN = re.compile(
    r"_operator\.(eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_|not_"
    r"|lshift|rshift|getitem)"
    r"|math\.(trunc|ceil|floor|sqrt)"
    r"|torch\.(sym_(not|int|float|ite|max|min|sqrt|sum)|_sym_\w+)"
    rf"|torch\.ops\.higher_order\.({_BRANCHES})",
    re.ASCII,
)

_NUMBERS = frozenset(["Integer", "Float", "Rational", "Symbol"])
_POWERS = frozenset(["Pow", "PowByNatural", "FloatPow", "LShift"])
_FUNCTIONS = {
    *_NUMBERS, *_POWERS,
    "Add", "Mul", "Max", "Min", "Mod", "Abs", "floor", "ceiling", "Equality", "Unequality",
    "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", "Eq", "Ne", "Lt", "Le", "Gt",
    "Ge", "And", "Or", "Not", "Piecewise", "ExprCondPair", "FloorDiv", "ModularIndexing", "Where",
    "PythonMod", "CleanDiv", "CeilToInt", "FloorToInt", "CeilDiv", "RShift", "FloatTrueDiv",
    "IntTrueDiv", "IsNonOverlappingAndDenseIndicator", "TruncToFloat", "TruncToInt", "RoundToInt",
    "RoundDecimal", "ToFloat", "Identity",
}  # fmt: skip
_EXPRESSION = (
    ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword, ast.Tuple, ast.BinOp,
    ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
_LONGEST = 10_000  # characters of an expression
_EXPONENT = 64  # of all powers in an expression, multiplied
_BITS = 256  # of a Float
_SYMBOLS = 6  # digits of a symbol's number: torch counts up to it


def read_program(path: Path) -> ExportedProgram:
    """Program of torch.export in a file."""
    if why := why_no_file(path):
        raise ModelError(f"'{path}' cannot be read: {why}; wanted a .pt2 file. {_ADVICE}")
    data = path.read_bytes()
    try:
        problem = next(_problems(data), "")
        made = None if problem else load_pt2(io.BytesIO(data)).exported_programs["model"]
    except Exception as error:  # of torch, json or zip; a wrong file raises any of them
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(
            f"'{path}' holds no program of torch.export ({reason}). {_ADVICE}"
        ) from error
    if made is None:
        raise ModelError(f"'{path}' is not loaded: {problem}. {_TRUST}")
    return made


def _problems(data: bytes) -> Iterator[str]:
    """Parts of the archive that torch.export.save does not write of a plain module."""
    reader = torch._C.PyTorchFileReader(io.BytesIO(data))  # noqa: SLF001  # that load_pt2 uses
    records = reader.get_all_records()
    if len(set(records)) < len(records):
        yield "two of its records have one name"
    if sum(map(reader.get_record_size, records)) > len(data):
        yield "its records are compressed, or overlap"
    for record in records:
        if record in _PICKLED:
            yield from _pickled(record, reader.get_record(record))
        elif record == _GRAPH:
            yield from _strings("", json.loads(reader.get_record(record)))
        elif record in _CONFIGS:
            yield from _config(record, json.loads(reader.get_record(record)))
        elif not _RECORDS.fullmatch(record):
            yield f"record {record!r} is none of a plain program's"


def _pickled(record: str, data: bytes) -> Iterator[str]:
    if not data:
        return
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:  # of pickle, zip or torch
        reason = str(error).splitlines()[0][:150] if str(error) else type(error).__name__
        yield f"record {record!r} holds more than tensors and plain values ({reason})"


def _config(record: str, config: Any) -> Iterator[str]:
    for name, entry in config["config"].items():
        if entry["use_pickle"] or not re.fullmatch(r"(weight|tensor)_\d+", entry["path_name"]):
            yield f"{record!r} has '{name}' as a pickled object, which is no plain tensor"


def _strings(key: str, value: Any) -> Iterator[str]:
    """Strings of the graph that torch could run, found by the fields that hold them."""
    if key in _FREE:
        return
    if isinstance(value, list):
        for item in value:
            yield from _strings(key, item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if key == "range_constraints" and len(re.sub(r"\D", "", name)) > _SYMBOLS:
                yield f"symbol {name!r} has too large a number"
            yield from _strings(name, item)
    elif isinstance(value, str) and value and (problem := _string(key, value)):
        yield problem


def _string(key: str, value: str) -> str:
    shown = repr(value[:80])
    if key == "expr_str":
        return "" if _is_expression(value) else f"{shown} is no expression of sizes"
    if key in {"target", "as_operator"} and not _is_operator(value):
        return f"{shown} is no operator that a program may call"
    if key in {"in_spec", "out_spec"}:
        _, tree = json.loads(value)
        keywords = tree["children_spec"][1]["context"] if key == "in_spec" else "[]"
        if not all(map(_IDENTIFIER.fullmatch, _parsed(keywords))):
            return f"{shown} has an argument whose name is no name"
        return _tree(tree)
    pattern = _IDENTIFIER if key in _NAMES else _PATH
    return "" if pattern.fullmatch(value) else f"{shown} is no name, under '{key}'"


def _is_operator(target: str) -> bool:
    if _PLAIN.fullmatch(target):
        return True
    names = target.split(".")
    if len(names) != 5 or names[:2] != ["torch", "ops"] or names[2] not in _NAMESPACES:
        return False
    _, _, namespace, name, overload = names
    if not _IDENTIFIER.fullmatch(name) or name in _FILES or overload.startswith("_"):
        return False
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return isinstance(getattr(packet, overload, None), torch._ops.OpOverload)  # noqa: SLF001  # torch has no public name


def _tree(node: Any) -> str:
    """Problem of a tree spec: torch imports the modules of enums and of default factories."""
    kind, context = node["type"], node["context"]
    if kind == "collections.defaultdict":
        return "it takes or gives a collections.defaultdict"
    if isinstance(context, str) and "__enum__" in json.dumps(_parsed(context)):
        return f"an enum is a key of {kind}"
    if kind == "builtins.dict" and not all(isinstance(k, str | int) for k in _parsed(context)):
        return "a key of a dict is no string"
    return next((why for part in node["children_spec"] if (why := _tree(part))), "")


def _parsed(context: str) -> Any:
    """Context of a tree's node; its text, where it is no JSON."""
    try:
        return json.loads(context)
    except ValueError:
        return context


def _is_expression(text: str) -> bool:
    """Whether the text holds only numbers, symbols, and functions that torch writes."""
    if len(text) > _LONGEST or not text.isascii():
        return False
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    exponent = 1
    for node in nodes:
        if not isinstance(node, _EXPRESSION) or isinstance(node, ast.LShift):
            return False
        if isinstance(node, ast.Call) and not _is_call(node):
            return False
        if isinstance(node, ast.Constant) and not _is_constant(node.value):
            return False
        if isinstance(node, ast.keyword) and not _is_assumption(node):
            return False
        if isinstance(node, ast.Name) and id(node) not in called and "__" in node.id:
            return False
        exponent *= _exponent(node)
    return exponent <= _EXPONENT


def _is_call(node: ast.Call) -> bool:
    """Whether the call is of a known function; only numbers and symbols take strings."""
    if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
        return False
    strings = any(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in node.args)
    return not strings or node.func.id in _NUMBERS


def _is_constant(value: object) -> bool:
    if isinstance(value, str):
        return bool(
            re.fullmatch(r"[A-Za-z]\w{0,40}|-?[\d.]{1,40}(e[+-]?\d{1,3})?", value, re.ASCII)
        )
    return isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**64)


def _is_assumption(node: ast.keyword) -> bool:
    """Whether the keyword is one of Symbol, or the precision of Float in bits."""
    value = node.value.value if isinstance(node.value, ast.Constant) else None
    return isinstance(value, bool) or (isinstance(value, int) and value <= _BITS)


def _exponent(node: ast.AST) -> int:
    """Exponent of a power; 1 of everything else, and more than is allowed of one unknown."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        power = node.right
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _POWERS:
        power = node.args[1] if len(node.args) > 1 else node
    else:
        return 1
    while isinstance(power, ast.UnaryOp) or (
        isinstance(power, ast.Call) and isinstance(power.func, ast.Name) and len(power.args) == 1
    ):
        power = power.operand if isinstance(power, ast.UnaryOp) else power.args[0]
    if isinstance(power, ast.Call) and getattr(power.func, "id", "") == "Rational":
        power = power.args[0]
    if isinstance(power, ast.Constant) and isinstance(power.value, int):
        return max(1, abs(power.value))
    return _EXPONENT + 1

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from onnxq.errors import QConfigError
from onnxq.observers import Observer
from onnxq.qconfig import QConfigMapping, _mapping, file_form
from onnxq.qconfig._defaults import NAMED

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "qconfig.md"


def test_the_shipped_schema_is_that_of_the_types() -> None:
    assert file_form.FILE.read_text("utf-8") == file_form.to_text(), "run scripts/write_schema"


def test_the_schema_names_the_entries_and_every_argument_of_an_observer() -> None:
    parts = json.loads(file_form.FILE.read_text("utf-8"))["$defs"]
    names = parts["QConfigFile"]["properties"]["global"]["anyOf"][0]["enum"]
    assert set(names) == {"float", *NAMED}
    arguments = parts["Part"]["properties"]
    assert {"bins", "percentile", "averaging_constant", "ch_axis", "dtype"} <= arguments.keys()
    assert parts["Settings"]["additionalProperties"] is False
    assert "additionalProperties" not in parts["Observer"]  # one's own may have others


def test_the_docstring_is_read_as_it_stands() -> None:
    assert _mapping.__doc__ is not None
    mapping = QConfigMapping.from_yaml(_mapping.__doc__.partition("\n")[2])
    assert len(mapping.nodes) == 4
    assert mapping.weight_bits == 4


def test_the_page_is_read_as_it_stands() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        QConfigMapping.from_yaml(block)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("global: 5", "global: expected str | object | null, got int"),
        ("global: {activation: {observer: HistogramObserver, bins: x}}", "bins: expected int, got"),
        ("global: {activation: {observer: MinMaxObserver, eps: 1e-6}}", "write 1.0e-6"),
        ("global: {activation: {observer: MinMaxObserver, eps: 1e400}}", "more than a float holds"),
        ("global: {activation: {observer: MinMaxObserver, eps: 2.5e3}}", "write 2.5e+3"),
        ("global: {activation: {observer: MinMaxObserver, eps: x}}", "float, got str. docs"),
        ("global: {activation: {observer: MinMaxObserver, self: 1}}", "got argument 'self'"),
        ("global: {activation: {observer: MinMaxObserver, bin: 1}}", "got argument 'bin'"),
        ("global: {activation: {observer: MinMaxObserver, quant_min: 1}}", "give both or none"),
        ("op_types: [Conv]", "op_types: got ['Conv']; wanted a mapping"),
        ("nodes: {1: null}", "nodes: got {1: None}; wanted a mapping from names"),
        ("nodes: {a: defalt}", "Did you mean 'default'?"),
        ("globl: default", "Did you mean 'global'?"),
        ("global: {dynamic: {precision: weight_onl}}", "Did you mean 'weight_only'?"),
        ("global: 2021-99-99", "is not YAML: month must be"),
        (f"global: {'1' * 5000}", "is not YAML: Exceeds the limit"),
        ("global: !!int x", "is not YAML: invalid literal"),
        ("global: !!bool x", "is not YAML"),
        ("global: !!timestamp x", "is not YAML"),
        ("? !!set {a} : 1", "is repeated or no name"),
        ("? [a] : 1", "is repeated or no name"),
        (f"global: {'[' * 3000}", "nested too deeply"),
        ("global: !!python/object:os.system {}", "is not YAML"),
    ],
)
def test_what_has_no_right_form_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(QConfigError, match=re.escape(message)):
        QConfigMapping.from_yaml(text)


def test_repeated_key_is_told_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("global: default\nnodes: {a: null,\n  a: default}\n")
    with pytest.raises(QConfigError, match=r"mine\.yaml: line 3: key 'a' is repeated"):
        QConfigMapping.from_yaml(file)


def test_messages_stay_short_however_much_an_alias_stands_for() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
    )
    with pytest.raises(QConfigError) as caught:
        QConfigMapping.from_yaml(f"{bomb}global: *a29")
    assert len(str(caught.value)) < 2000


def test_an_override_is_checked_like_a_file() -> None:
    with pytest.raises(QConfigError, match="override 'op:Conv=5': expected str"):
        QConfigMapping().with_overrides(["op:Conv=5"])


def test_the_schema_knows_every_observer_of_onnxq() -> None:
    known = {kind.__name__ for kind in Observer.__subclasses__() if kind.__module__[:6] == "onnxq."}
    assert known <= set(file_form.Observer.__struct_fields__) | set(file_form._NAMES)

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from onnxq.errors import OutputError
from onnxq.page.content import Head, NodePart, Page
from onnxq.page.render import FIRST_ROWS, html_of, write_page
from onnxq.shown import shown
from tests.page.example_page import HOSTILE, example_page

if TYPE_CHECKING:
    from pathlib import Path


class _Elements(HTMLParser):
    """Start tags with their attributes, and the text in them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def text() -> str:
    return html_of(example_page())


def test_hostile_names_stay_text(text: str) -> None:
    found = _Elements(text)
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert [tag for tag, _ in found.tags].count("script") == 2
    assert "{{ 7" in text  # no template of ours
    titles = [attrs["title"] for tag, attrs in found.tags if tag == "button" and "title" in attrs]
    assert shown(HOSTILE) in titles
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert json.loads(data)["nodes"][1]["name"] == HOSTILE


def test_the_policy_lets_in_the_pages_own_style_and_script_alone(text: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    policy = html.unescape(policy)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for element in ("style", "script"):
        (body,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy


def test_nothing_is_loaded_from_anywhere(text: str) -> None:
    for tag, attrs in _Elements(text).tags:
        assert "src" not in attrs
        assert tag != "link"
        assert not any(name.startswith("on") or name == "style" for name in attrs)
        assert (attrs.get("href") or "#").startswith("#")
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_every_section_and_bound_is_there(text: str) -> None:
    for section in ("accuracy", "time", "graph", "decisions", "machines", "front", "origin"):
        assert f'<section id="{section}"' in text
    assert '<li class="kept">' in text
    assert '<li class="broken">' in text
    assert "onnxq report m.onnx q.onnx x.npz -o report.html" in text


def test_rows_beyond_the_first_wait_for_a_button() -> None:
    text = html_of(example_page(40))
    assert text.count('class="more"') == 40 + 1 - FIRST_ROWS + 2 * (40 - FIRST_ROWS)
    assert "Show all 41 tensors" in text


def test_the_worst_tensor_is_first() -> None:
    tensors = re.findall(
        r'<th scope="row"><button[^>]*data-tensor="(\d+)"', html_of(example_page(20))
    )
    assert tensors[0] == "20"


def test_losses_come_first_then_gains_and_what_is_even_is_folded() -> None:
    def node(name: str, before: float, after: float) -> NodePart:
        return NodePart(name, "Conv", "int8", "", before, after)

    nodes = (node("even", 5, 5), node("gains", 9, 5), node("loses", 1, 2), node("fused", 0, 0))
    table = html_of(Page(Head("", ""), nodes)).split('<table id="times">')[1].split("</tbody>")[0]
    assert re.findall(r'title="(\w+)">', table) == ["loses", "gains", "even"]
    assert table.count('<tr class="more">') == 1


def test_a_part_without_time_has_a_dash() -> None:
    text = html_of(Page(Head("", ""), (NodePart("n", "Relu", "inside", "", 3.0, 0.0),)))
    assert '<td class="n" data-v="0.0">–</td>' in text


def test_the_command_that_wrote_the_report_is_there(text: str) -> None:
    assert "This command wrote the report, and writes it again" in text


def test_unlike_channels_are_named_with_what_makes_them_alike(text: str) -> None:
    (warning,) = re.findall(r'<p class="warning"><strong>Unlike channels.*?</p>', text)
    assert "in 1 tensor," in warning
    assert "2.00% of the range" in warning
    assert "--improve smooth" in warning


def test_a_page_without_anything_says_so() -> None:
    text = html_of(Page(Head("a → b", "Nothing is known.")))
    assert text.count('class="empty"') == 6


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page(example_page(), path)
    assert path.read_text("utf-8").startswith("<!doctype html>")
    with pytest.raises(OutputError):
        write_page(example_page(), tmp_path / "missing" / "report.html")

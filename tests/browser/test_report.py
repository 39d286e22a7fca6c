"""The report in a real browser, opened from the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onnxq.page.render import write_page
from tests.browser.chromium import Browser, needs_chromium, open_browser
from tests.page.example_page import HOSTILE, example_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    """A report of 40 nodes, just opened."""
    write_page(example_page(40), tmp_path / "report.html")
    browser.requested(), browser.complaints()
    browser.open(tmp_path / "report.html")
    return browser


def column(browser: Browser, table: str, cell: int) -> list[str]:
    """Texts of a column's rows that can be seen."""
    found: list[str] = browser.run(
        "return [...document.getElementById(arguments[0]).tBodies[0].rows]"
        ".filter(row => row.offsetParent !== null).map(row => row.cells[arguments[1]].innerText)",
        table,
        cell,
    )
    return found


def test_it_opens_asks_nobody_and_a_click_on_a_node_shows_its_histogram(page: Browser) -> None:
    (asked,) = page.requested()
    assert asked.endswith("/report.html")  # the page itself
    page.run("""
        const node = document.querySelector('#drawing [data-node="1"]');
        node.dispatchEvent(new MouseEvent("click", {bubbles: true}));
    """)
    panel = page.run("""
        const panel = document.getElementById("panel");
        return [panel.hidden, panel.querySelector("h2").textContent,
                panel.querySelectorAll("svg.chart path.bars").length,
                panel.querySelectorAll("img").length];
    """)
    assert panel == [False, HOSTILE, 2, 0]  # its tensor and its weight; the name is text
    assert page.complaints() == []


@pytest.mark.nightly
def test_nothing_else_is_asked_for_by_any_click(page: Browser) -> None:
    page.run("document.querySelectorAll('button').forEach(button => button.click())")
    page.run("document.querySelectorAll('input[type=radio]').forEach(input => input.click())")
    assert len(page.requested()) == 1  # the page itself
    assert page.complaints() == []


@pytest.mark.nightly
def test_a_page_cannot_reach_the_network_even_if_it_tried(page: Browser) -> None:
    failed = page.driver.execute_async_script("""
        const done = arguments[0];
        fetch("http://127.0.0.1:9/").then(() => done("reached"), error => done(String(error)));
    """)
    assert "Failed to fetch" in failed
    assert any("Content Security Policy" in said for said in page.complaints())


@pytest.mark.nightly
def test_a_click_on_a_heading_sorts_and_another_turns_it_round(page: Browser) -> None:
    def sort(words: str) -> None:
        page.run(
            "[...document.querySelectorAll('#tensors thead button')]"
            ".find(button => button.textContent === arguments[0]).click()",
            words,
        )

    page.run("document.querySelector('[data-all=tensors]').click()")
    errors = [float(text.split()[0]) for text in column(page, "tensors", 1)]
    assert len(errors) == 41
    assert errors == sorted(errors)
    sort("SQNR")
    turned = [float(text.split()[0]) for text in column(page, "tensors", 1)]
    assert turned == sorted(errors, reverse=True)
    sort("Tensor")
    names = column(page, "tensors", 0)
    assert names[:3] == ["t0", "t1", "t2"]  # numbers in names count as numbers


@pytest.mark.nightly
def test_a_filter_finds_rows_that_are_not_shown_at_first(page: Browser) -> None:
    assert len(column(page, "nodes", 0)) == 25
    page.run("""
        const input = document.querySelector('[data-filter=nodes]');
        input.value = "NODE_39";
        input.dispatchEvent(new Event("input"));
    """)
    assert column(page, "nodes", 0) == ["node_39"]
    assert page.run("return document.querySelector('[data-count=nodes]').textContent") == "1 of 40"


@pytest.mark.nightly
def test_forms_can_be_left_out(page: Browser) -> None:
    page.run("document.querySelector('[data-chip=int8]').click()")
    assert column(page, "nodes", 0) == []


@pytest.mark.nightly
def test_colours_follow_the_choice_and_are_explained(page: Browser) -> None:
    colours = []
    for value in ("error", "time", "precision"):
        page.run("document.querySelector(`input[value=${arguments[0]}]`).click()", value)
        colours.append(
            page.run("""
                const rect = document.querySelector('#drawing [data-node="5"] rect');
                const legends = [...document.querySelectorAll(".legend")];
                return [getComputedStyle(rect).fill,
                        legends.filter(legend => legend.offsetParent !== null).length];
            """)
        )
    assert len({colour for colour, _ in colours}) == 3
    assert [legends for _, legends in colours] == [1, 1, 1]


@pytest.mark.nightly
def test_a_node_without_a_time_of_its_own_has_the_colour_of_its_error(page: Browser) -> None:
    fills = page.run("""
        const node = document.querySelector('#drawing [data-node="5"]');
        const fill = () => getComputedStyle(node.querySelector("rect")).fill;
        const before = fill();
        node.setAttribute("class", node.getAttribute("class").replace(/ t-?\\d/, " t-none"));
        return [before, fill(), node.classList.contains("t-none")];
    """)
    assert fills[2]
    assert fills[0] == fills[1]


@pytest.mark.nightly
def test_keys_walk_through_the_graph_open_a_node_and_close_it(page: Browser) -> None:
    def press(key: str) -> None:
        page.run(
            "document.activeElement.dispatchEvent("
            "new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))",
            key,
        )

    page.run("document.getElementById('drawing').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "Enter"):
        press(key)
    assert page.run("return document.getElementById('panel-title').textContent") == "node_1"
    press("Escape")
    assert page.run("return document.getElementById('panel').hidden")
    assert page.run("return document.activeElement.id") == "drawing"


@pytest.mark.nightly
def test_2000_nodes_open_and_answer_in_seconds(browser: Browser, tmp_path: Path) -> None:
    write_page(example_page(2000), tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    took = browser.run("""
        const begun = performance.now();
        document.querySelector('[data-zoom=in]').click();
        document.querySelector('[data-all=nodes]').click();
        document.querySelector('#drawing [data-node="1999"]')
            .dispatchEvent(new MouseEvent("click", {bubbles: true}));
        document.body.getBoundingClientRect();
        const loaded = performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd;
        return [loaded, performance.now() - begun];
    """)
    assert took[0] < 10_000
    assert took[1] < 5_000
    assert browser.run("return document.getElementById('panel-title').textContent") == "node_1998"


@pytest.mark.nightly
def test_the_page_is_readable_in_the_dark_and_on_paper(page: Browser) -> None:
    for media, scheme in (("screen", "light"), ("screen", "dark"), ("print", "dark")):
        page.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        for what in ("body", ".lead", "#tensors tbody button", "#tensors td", "nav a"):
            assert page.run(CONTRAST, what) >= 4.5, (media, scheme, what)  # WCAG 2.1, AA


CONTRAST = """
const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const numbers = text => text.match(/[\\d.]+/g).map(Number);
const element = document.querySelector(arguments[0]);
let behind = element, ground = [0, 0, 0, 0];
while (behind && ground[3] === 0) {
    const found = numbers(getComputedStyle(behind).backgroundColor);
    ground = found.length === 3 ? [...found, 1] : found;
    behind = behind.parentElement;
}
const colour = light(numbers(getComputedStyle(element).color));
const [a, b] = [colour, light(ground)].sort((x, y) => y - x);
return (a + 0.05) / (b + 0.05);
"""
"""Contrast between the text of an element and what is behind it."""

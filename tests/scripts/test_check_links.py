from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.check_links import anchors, dead_links

if TYPE_CHECKING:
    from pathlib import Path


def test_files_and_headings_that_are_not_there_are_dead(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Two words, `code`!\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Top\n[a](other.md) [b](other.md#two-words-code) [c](#top) [d](https://example.org/x)\n"
        "[e](gone.md) [f](other.md#gone) [g](#gone) `[h](code.md)`\n```\n[i](code.md)\n```\n"
    )
    assert list(dead_links(page)) == ["gone.md", "other.md#gone", "#gone"]


def test_a_comment_in_a_integer_block_is_no_heading() -> None:
    assert anchors("# One\n```\n# two\n```\n## Three\n") == {"one", "three"}

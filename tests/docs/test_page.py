"""A page as steps: what runs, what is compared, what it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts._pages.page import Block, Page, PythonBlock, commands
from scripts._pages.session import Shown, run
from scripts.run_pages import FAULT, faults, pages, written

TEXT = """# Title

<!-- given: a.onnx, b.onnx -->

```python
print(1 + 1)
```
```output
2
```

```yaml
# here.yaml
global: null
```

```console
$ cat \\
      here.yaml
# here.yaml
global: null
$ false
```

```text
read only
```
"""


def page(text: str = TEXT) -> Page:
    return Page(Path("page.md"), text)


def test_steps_are_python_files_and_consoles_in_order() -> None:
    code, file, console = page().steps()
    assert isinstance(code, PythonBlock)
    assert code.output is not None
    assert code.output.text == "2\n"
    assert isinstance(file, Block)
    assert file.file == "here.yaml"
    assert isinstance(console, Block)
    assert [each.line for each in commands(console)] == ["cat here.yaml", "false"]


def test_given_files_are_named() -> None:
    assert page().given == ["a.onnx", "b.onnx"]


def test_a_console_without_a_prompt_is_an_error() -> None:
    with pytest.raises(ValueError, match="begins with"):
        commands(Block("console", "ls\n", 0, is_timed=False))


class Repository(Page):
    """A page that stands nowhere."""

    @property
    def name(self) -> str:
        return "page.md"


def outputs(text: str, folder: Path) -> list[Shown]:
    return list(run(Repository(Path("page.md"), text), folder))


def test_what_is_printed_is_compared_with_what_stands_there(tmp_path: Path) -> None:
    found = outputs(TEXT, tmp_path)
    assert [each.agrees for each in found] == [True, True, False]
    assert found[2].came == "exit code 1\n"


def test_writing_the_outputs_makes_the_page_true(tmp_path: Path) -> None:
    text = TEXT.replace("```output\n2\n```\n", "").replace("# here.yaml\nglobal: null\n$", "$")
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    mended = written(text, [each for each in outputs(text, tmp_path / "first") if not each.agrees])
    assert mended == TEXT.replace("$ false\n", "$ false\nexit code 1\n")
    assert all(each.agrees for each in outputs(mended, tmp_path / "second"))


def test_a_fault_of_onnxq_is_found_and_another_error_is_none() -> None:
    texts = (
        "Error: 'm.onnx' is not there.\n",
        "Error: KeyError: 'm'. This is a fault of onnxq: x.\n",
    )
    shown = [Shown("", text, 0, is_timed=False, is_fenced=False) for text in texts]
    assert faults(shown) == shown[1:]


def test_no_page_shows_a_fault_of_onnxq() -> None:
    assert not [page.name for page in pages() if FAULT in page.text]

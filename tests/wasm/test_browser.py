"""The page of examples/browser in Chromium, served as its README says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.isa.machines import ROOT
from tests.wasm.machine import REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.nightly, pytest.mark.oracle]  # torch exports the model

NO_CHROMIUM = "there is no chromium: `apt-get install chromium`"
# no sandbox for root, no file of the user's, no host but this one; time is not waited for
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=100000")
NO_OTHER_HOST = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
TIME_LIMIT_S = 300


@pytest.fixture(scope="module")
def browser() -> str:
    found = shutil.which("chromium")
    if found is None and os.environ.get(REQUIRED):
        pytest.fail(f"{NO_CHROMIUM} ({REQUIRED} is set)", pytrace=False)
    if found is None:
        pytest.skip(NO_CHROMIUM)
    return found


@pytest.fixture(scope="module")
def page(browser: str, modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, where there is a browser to open it."""
    assert browser
    folder = tmp_path_factory.mktemp("browser") / "page"
    script = ROOT / "examples" / "browser" / "make_page.py"
    command = [sys.executable, str(script), str(folder), "--modules", str(modules / "node_modules")]
    subprocess.run(command, check=True, timeout=TIME_LIMIT_S)
    return folder


@pytest.fixture
def address(page: Path) -> Iterator[str]:
    """Address of the folder, served by `python -m http.server`."""
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    with subprocess.Popen(
        [*command, "--directory", str(page)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdout is not None
        port = re.search(r"port (\d+)", server.stdout.readline())
        assert port is not None
        yield f"http://127.0.0.1:{port[1]}/"
        server.terminate()


def opened(browser: str, address: str, profile: Path) -> str:
    """HTML of the page when its script has ended."""
    own = f"--user-data-dir={profile}"
    done = subprocess.run(
        [browser, *FLAGS, NO_OTHER_HOST, own, "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=True,
    )
    return done.stdout


def test_every_logit_of_every_image_is_python_s(browser: str, address: str, tmp_path: Path) -> None:
    shown = opened(browser, address, tmp_path)
    summary = re.search(r'<p id="summary"[^>]*>([^<]*)</p>', shown)
    assert summary is not None
    assert "the logits of 100 are Python's, bit for bit" in summary[1]
    assert shown.count("<canvas") == 100
    right = re.match(r"(\d+) of 100 classes are right", summary[1])
    assert right is not None
    assert int(right[1]) > 80


def test_a_missing_file_is_said_on_the_page(
    browser: str, page: Path, address: str, tmp_path: Path
) -> None:
    model = page / "model.int8.onnx"
    moved = model.rename(page / "elsewhere.onnx")
    try:
        shown = opened(browser, address, tmp_path)
    finally:
        moved.rename(model)
    assert "Failed: model.int8.onnx: 404" in shown

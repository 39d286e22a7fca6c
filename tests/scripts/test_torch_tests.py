"""The page of PyTorch's own tests says why a file did not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts._torch_tests.outcomes import Kind, read
from scripts._torch_tests.suites import SUITES

if TYPE_CHECKING:
    from pathlib import Path

REPORT = """<testsuites><testsuite><testcase classname="" name="tests.quant_conv_test">
<error message="collection failure">quant_conv_test.py:1: in &lt;module&gt;
    from absl import flags
E   ModuleNotFoundError: No module named 'absl'</error></testcase></testsuite></testsuites>"""


def test_a_file_that_cannot_be_collected_says_why_and_what_it_wants_installed(
    tmp_path: Path,
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    # a file whose failures have a known cause, which this one is not
    suite = next(each for each in SUITES if each.path.endswith("quant_conv_test.py"))
    (outcome,) = read(report, suite)
    assert outcome.kind is Kind.FAIL
    assert outcome.cause == (
        "none of its tests ran: ModuleNotFoundError: No module named 'absl'; pip install absl-py"
    )

"""The command line: one command per stage. Heavy imports are inside the commands: --help is quick.

Results go to stdout: tables, or JSON with --json; progress, warnings and errors to stderr. Errors
end with the exit code that errors.py draws; --debug, before or behind the command, shows where an
error arose. Every output path is checked before the work begins.
"""

import click

from onnxq.cli.calibrating import calibrate
from onnxq.cli.commands import Commands
from onnxq.cli.common_options import common_options
from onnxq.cli.exporting import export
from onnxq.cli.hubs import hub_folder
from onnxq.cli.importing import half, import_qdq
from onnxq.cli.language_models import genai_folder, quantize_cache
from onnxq.cli.looking import doctor, inspect, targets
from onnxq.cli.making import quantize, quantize_dynamic
from onnxq.cli.making_weights import quantize_weights
from onnxq.cli.measuring import bench, costs
from onnxq.cli.reporting import report
from onnxq.cli.searching import tune
from onnxq.cli.verifying import cross_check, predict, verify
from onnxq.errors import exit_codes

__all__ = ["main"]


EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code:<3}  {t}" for code, t in exit_codes().items()
)

TERMS = "Terms that onnxq alone has: docs/reference/glossary.md, beside those of other tools."


@common_options
@click.group(cls=Commands, epilog=f"{EXIT_CODES}\n\n{TERMS}")
@click.version_option(package_name="onnxq", message="onnxq %(version)s")
def main() -> None:
    """Quantize ONNX models, run them on ONNX Runtime, and check every integer."""


COMMANDS = (
    export,
    inspect,
    calibrate,
    quantize,
    quantize_dynamic,
    quantize_weights,
    quantize_cache,
    import_qdq,
    half,
    tune,
    verify,
    report,
    cross_check,
    predict,
    bench,
    costs,
    genai_folder,
    hub_folder,
    targets,
    doctor,
)
for command in COMMANDS:
    main.add_command(common_options(command))

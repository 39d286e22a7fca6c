"""The command `onnxq`, and `python -m onnxq`: hears signals first, then imports the rest."""

import os
import sys

from onnxq.core import signals


def main() -> None:
    """Runs the command line, and ends the process with its exit code."""
    code: int | str | None = 0
    try:
        signals.hear()
        _open_streams()
        try:
            from onnxq.cli import main as commands

            commands(prog_name="onnxq")
        except SystemExit as end:
            code = end.code
        signals.ignore()  # the work is done
    except KeyboardInterrupt:  # while the command line was imported, or between two lines here
        code = None
        signals.ignore()  # and taken back
    _clean()
    # An interrupt inside an exec of text, as dataclasses do it, leaves a note that it was not
    # handled, though it was; `python -m` then ends with Ctrl-C's code. The next exec takes it back.
    exec("")
    sys.exit(signals.exit_code() or code)


def _open_streams() -> None:
    """Opens a closed stdin, stdout or stderr on nothing: the next file would take its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _clean() -> None:
    """Removes temporary files; what stdout does not take is lost here, and not at Python's exit."""
    if "onnxq.core.atomic" in sys.modules:
        from onnxq.core.atomic import remove_temporary

        remove_temporary()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    main()

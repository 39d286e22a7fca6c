from __future__ import annotations

import inspect

from onnxq.cli.searching import tune as command
from onnxq.samples.excerpt import EVERY
from onnxq.tuning.defaults import IMPROVE, MOST_RUNS
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.tune import tune


def test_python_and_the_command_line_have_the_same_defaults() -> None:
    options = {option.name: option for option in command.params}
    parameters = inspect.signature(tune).parameters
    assert options["max_runs"].default == Goal().max_runs == MOST_RUNS
    assert options["improve"].default == ",".join(IMPROVE)
    assert Goal().improve == IMPROVE
    assert parameters["check"].default.hold_apart == EVERY
    assert f"default: {EVERY}" in str(options["hold_apart"].to_info_dict()["help"])

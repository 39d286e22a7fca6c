"""ONNX Runtime's telemetry, which a tool that reads private models declines.

ONNX Runtime's official wheels collect events and send them to Microsoft unless they are told not to
(its Privacy.md). The first event comes with its import: only the variable stops that one.
"""

import os
import sys
import warnings

VARIABLE = "ORT_DISABLE_TELEMETRY"
"""Environment variable that ONNX Runtime reads when it is imported; "1" means: none."""
_READER = "onnxruntime"


def decline() -> None:
    """Telemetry is off for this process and its children, unless the user has set VARIABLE himself.

    Warns where onnxruntime was imported earlier: what it had sent by then is not undone.
    """
    if VARIABLE in os.environ:
        return
    os.environ[VARIABLE] = "1"
    if _READER not in sys.modules:
        return
    sys.modules[_READER].disable_telemetry_events()
    warnings.warn(
        f"onnxruntime was imported before onnxq, with its telemetry on; it is off from here on. "
        f"Import onnxq first, or set {VARIABLE}=1 (0 keeps it on) to decide yourself.",
        stacklevel=3,
    )

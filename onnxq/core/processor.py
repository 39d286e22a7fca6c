"""Name of this machine's processor."""

import platform
import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def processor_name() -> str:
    """Name of the processor, as Linux tells it; elsewhere as Python does; empty: nobody does."""
    text = CPUINFO.read_text(errors="replace") if CPUINFO.is_file() else ""
    named = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return named[1].strip() if named else platform.processor()

"""Clones of the repository on systems without symbolic links, such as Windows.

There the link onnxq/operators is a text file that names the folder operators/ beside onnxq/.
"""

from pathlib import Path


def more_paths(package: Path) -> list[str]:
    """Folders in which modules of the package are found, too: none where the link is one."""
    return [str(package.parent)] if (package / "operators").is_file() else []

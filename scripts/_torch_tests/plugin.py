"""pytest plugin of the child processes of torch_tests.py: installs the redirected packages."""

from __future__ import annotations

from scripts._torch_tests import nvidia, redirected

redirected.install()
nvidia.install()

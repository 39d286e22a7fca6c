"""Server that forks workers, started so that Ctrl-C while it imports prints nothing.

`multiprocessing` ignores Ctrl-C in its server only behind the imports of what is preloaded, which
take seconds. Until then, two things print a traceback on the user's terminal. One is SIGINT in the
midst of an import. The other is a worker that was asked for and is forked when its parent is gone:
it finds the pool's semaphores gone.
"""

from __future__ import annotations

import signal
from multiprocessing import forkserver, resource_tracker
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import ForkServerContext

LAST_IMPORT = "onnxq.jobs.after_imports"
"""Module that takes the block of Ctrl-C away: other processes of that server answer it as usual."""


def wait_for_server(context: ForkServerContext, preload: Sequence[str]) -> None:
    """Returns once the server forks: its imports are done, and a worker takes no time to begin.

    The process that tells so shares nothing with this one. So nothing fails where this one ends
    ahead of it.

    Args:
        context: of the server, one for the whole process; it may run already.
        preload: modules that it imports, unless it runs already.
    """
    context.set_forkserver_preload([*preload, LAST_IMPORT])
    _start_deaf()
    first = context.Process(target=int, daemon=True)
    first.start()
    first.kill()  # it would import the program's main module only to do nothing
    first.join()


def _start_deaf() -> None:
    resource_tracker.ensure_running()  # as it starts, it lets SIGINT in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()  # inherits the mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

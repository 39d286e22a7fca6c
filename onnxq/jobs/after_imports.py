"""Last import of the server that forks workers: takes the block of Ctrl-C away that it began with.

A Ctrl-C that came meanwhile is dropped, as the server drops all from here on. Processes of another
pool, which that server forks too, answer Ctrl-C as they would without onnxq.
"""

import signal

_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops the one that waits
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
signal.signal(signal.SIGINT, _handler)

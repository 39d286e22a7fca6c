"""The canonical passes: idempotent, and they visit the bodies of If, Loop and Scan."""

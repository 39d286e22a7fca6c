"""The canonical passes: one file each, each idempotent, each visiting the bodies of If, Loop and Scan."""

"""The command line as a process of its own, which starts as lightly as it can.

``evenhand``, or ``python -m evenhand.cli`` where the command is not installed.
"""

from __future__ import annotations

import gc

from evenhand.cli import main

__all__ = ["run"]


def run() -> None:
    """Run a command and exit."""
    # Imports and tracing make many objects that stay: to look through them again and again for
    # cycles takes a tenth of a short command's time.
    gc.set_threshold(100_000, 50, 100)
    main()


if __name__ == "__main__":
    run()

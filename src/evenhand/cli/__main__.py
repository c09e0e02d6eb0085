"""``python -m evenhand.cli``, where the command is not installed."""

from __future__ import annotations

import sys

from evenhand.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())

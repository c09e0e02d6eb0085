"""The command line as a process of its own, which starts as lightly as it can.

``evenhand``, or ``python -m evenhand.cli`` where the command is not installed.
"""

from __future__ import annotations

import gc
import sys

from evenhand.cli import main

__all__ = ["run"]


class _NoPandasForArrow:
    """Finds no pandas for pyarrow, which asks for it with the first array that it makes.

    It then does without, as where pandas is not installed: no command reads or makes a data frame,
    and pandas takes a quarter of a second to import. Whoever else asks for it gets it.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuse pandas to compiled code, which leaves no frame after evenhand's own."""
        if name != "pandas":
            return
        asks = sys._getframe(1)
        while asks is not None and "importlib" in asks.f_code.co_filename:
            asks = asks.f_back
        if asks is not None and asks.f_globals.get("__name__", "").split(".")[0] in (
            "evenhand",
            "pyarrow",
        ):
            raise ModuleNotFoundError("no command needs pandas", name=name)


def run() -> None:
    """Run a command and exit."""
    # Imports and tracing make many objects that stay: to look through them again and again for
    # cycles takes a tenth of a short command's time.
    gc.set_threshold(100_000, 50, 100)
    sys.meta_path.insert(0, _NoPandasForArrow)
    main()


if __name__ == "__main__":
    run()

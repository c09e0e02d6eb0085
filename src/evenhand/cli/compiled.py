"""What JAX compiled for one command, kept for the next: half of a short command's time."""

from __future__ import annotations

import os
import platform
import warnings

__all__ = ["keep_compiled"]

#: What JAX is told, where the user says nothing else.
KEPT = {
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(1 << 28),  # bytes; what was used least goes first
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def keep_compiled() -> None:
    """Tell JAX, which is not imported yet, to keep what it compiles in the user's cache folder.

    By machine, since compiled code is of one processor. A user who names a folder of his own
    (``JAX_COMPILATION_CACHE_DIR``) is left alone; where none can be written, nothing is kept.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    from platformdirs import user_cache_path

    folder = user_cache_path("evenhand") / (platform.node() or "here")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(folder, os.W_OK):
        return
    # An entry that a killed process left half written costs a compilation, and is no news.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    for name, value in KEPT.items():
        os.environ.setdefault(name, value)

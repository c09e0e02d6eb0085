"""The pool of a large study as it was numbered, so that the next command need not number it anew.

::

    study/.pool-3f9c2a71d0b84e65/
        pool.json         systems, depth, notes
        queries.arrow     ids
        documents.arrow
        query.npy ...     the arrays of `evenhand.estimands.pools.Pool`, mapped into memory

It is a convenience and no part of the study: made from the study's files, named by their names,
sizes and times, so that after any change it is another's, and left aside where it cannot be
written. To delete it costs a minute.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from evenhand.errors import StudyError
from evenhand.estimands.pools import Pool
from evenhand.studies.round_files import appearing

__all__ = ["keep", "recall"]

#: Entries from which on a pool is kept; fewer are numbered in less than a second.
LARGE = 1 << 21

_ARRAYS = ("query", "document", "start", "system", "rank", "score")
_IDS = ("queries", "documents")


def keep(folder: Path, files: Sequence[Path], cells: Pool) -> None:
    """Write the pool that was made from some files of a study; where that fails, do without."""
    if len(cells.system) < LARGE:
        return
    place = _place(folder, files)
    for old in folder.glob(".pool-*"):
        shutil.rmtree(old, ignore_errors=True)  # another process may be removing it, too
    with suppress(OSError, StudyError), appearing(place, "another process keeps it") as work:
        about = {"systems": cells.systems, "depth": cells.depth, "notes": cells.notes}
        (work / "pool.json").write_text(json.dumps(about), encoding="utf-8")
        for name in _IDS:
            table = pa.table({"id": getattr(cells, name)})
            with pa.OSFile(str(work / f"{name}.arrow"), "wb") as out:
                with pa.ipc.new_file(out, table.schema) as writer:
                    writer.write_table(table)
        for name in _ARRAYS:
            np.save(work / f"{name}.npy", getattr(cells, name))


def recall(folder: Path, files: Sequence[Path]) -> Pool | None:
    """The pool that was made from these files, None where none is kept or it is damaged."""
    place = _place(folder, files)
    if not place.is_dir():
        return None
    try:
        about = json.loads((place / "pool.json").read_text(encoding="utf-8"))
        arrays = {name: np.load(place / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
        ids = {}
        for name in _IDS:
            source = pa.memory_map(str(place / f"{name}.arrow"))
            (ids[name],) = pa.ipc.open_file(source).read_all()["id"].chunks
    except (OSError, ValueError, LookupError):
        return None
    return Pool(
        systems=tuple(about["systems"]),
        depth=about["depth"],
        notes=tuple(about["notes"]),
        **ids,
        **arrays,
    )


def _place(folder: Path, files: Sequence[Path]) -> Path:
    """Folder of the pool of some files as they are now."""
    digest = hashlib.sha256()
    for file in (folder / "queries.txt", *files):
        about = file.stat()
        digest.update(f"{file.name} {about.st_size} {about.st_mtime_ns}\n".encode())
    return folder / f".pool-{digest.hexdigest()[:16]}"

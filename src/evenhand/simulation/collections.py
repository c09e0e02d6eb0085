"""Synthetic collections: runs and complete judgments, to try a study on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["SYSTEMS", "make_collection"]

#: Names of the systems.
SYSTEMS = ("bm25", "bm25-stem", "dense-s", "dense-l", "fusion", "rerank-s", "rerank-l")
_SKILL = (0.55, 0.62, 0.60, 0.85, 0.95, 1.15, 1.2)


def make_collection(
    folder: Path, *, seed: int, n_queries: int = 50, n_documents: int = 400
) -> None:
    """Write runs of seven systems (``runs/``) and judgments of all pairs (``qrels.txt``), 0 to 2.

    Each query has documents of normal merit, the best of which are relevant; each system sees the
    merit through noise of its own, shared in part with its kin, and returns the first 100.

    Parameters
    ----------
    folder
        Must exist, and have no ``runs/``.
    seed
        Of all random numbers.
    n_queries, n_documents
        Number of queries, and of documents of each.
    """
    rng = np.random.default_rng(seed)
    (folder / "runs").mkdir()
    merit = rng.normal(size=(n_queries, n_documents))
    bar = rng.normal(1.7, 0.35, size=(n_queries, 1))
    grade = (merit > bar).astype(int) + (merit > bar + 0.6)
    lines = [
        f"{q} 0 d{q}-{d} {grade[q, d]}\n" for q in range(n_queries) for d in range(n_documents)
    ]
    (folder / "qrels.txt").write_text("".join(lines), encoding="utf-8")
    kin = {name.split("-")[0]: rng.normal(size=merit.shape) for name in SYSTEMS}
    for name, skill in zip(SYSTEMS, _SKILL, strict=True):
        noise = 0.8 * kin[name.split("-")[0]] + 0.6 * rng.normal(size=merit.shape)
        score = skill * merit + noise
        first = np.argsort(-score, axis=1)[:, :100]
        rows = [
            f"{q} Q0 d{q}-{d} {rank} {score[q, d]:.6f} {name}\n"
            for q in range(n_queries)
            for rank, d in enumerate(first[q], 1)
        ]
        (folder / "runs" / f"{name}.txt").write_text("".join(rows), encoding="utf-8")

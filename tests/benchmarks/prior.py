"""Fits and predictions of the learned prior on the CPU, against plain NumPy.

    python tests/benchmarks/prior.py [--judgments 2000 20000 1000000] [--cells 10000000]
    [--json FILE]

Fifty queries, twenty systems, seven features. The first call compiles; the best of the later ones
is run time. NumPy does Newton's method for a logistic model with the same terms, its scales fixed
at 1 and its Hessian written by hand, and predicts by the moderated logistic of a normal logit. Both
take their rows from the same table, inside the time. Memory is what the process grows by beyond the
pool and its features.
"""

from __future__ import annotations

import argparse
import itertools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from made import made_pool

from evenhand.priors.features import FeatureTable, feature_table
from evenhand.priors.prior import NumPyroPrior
from evenhand.sampling.labels import Labels

CHUNK = 1 << 14


def made_table(n_cells: int) -> FeatureTable:
    """Features of a made pool."""
    return feature_table(made_pool(n_cells, 20, 50))


def made_labels(table: FeatureTable, n: int) -> Labels:
    """Judgments of random cells that follow the votes and the query."""
    rng = np.random.default_rng(1)
    cells = np.sort(rng.permutation(len(table.pool))[:n])
    of_query = rng.normal(size=len(table.pool.queries))
    eta = 1.2 * table.values[cells, 0] + of_query[table.pool.query[cells]] - 2
    return Labels(cells, (eta + rng.logistic(size=n) > 0).astype(float))


def design(table: FeatureTable, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of the plain model without the queries' intercepts, and the queries."""
    rows = table.rows(cells)
    return np.column_stack([np.ones(len(cells)), rows.values, rows.votes]), rows.query


def plain_fit(table: FeatureTable, labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Mode and covariance by Newton's method with step halving, in chunks."""
    n_queries, wide = len(table.pool.queries), 1 + table.values.shape[1] + len(table.seen)
    theta = np.zeros(wide + n_queries)
    precision = np.ones(len(theta))
    precision[0], precision[1 : 1 + table.values.shape[1]] = 0.25, 1 / 2.25
    centre = np.zeros(len(theta))
    centre[0] = -1.5
    x, query = design(table, labels.cells)
    y = labels.utility

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        eta = x @ theta[:wide] + theta[wide:][query]
        prior = 0.5 * precision @ (theta - centre) ** 2
        return np.logaddexp(0, eta).sum() - y @ eta + prior, eta

    now, eta = value(theta)
    for _ in range(50):
        p = 1 / (1 + np.exp(-eta))
        residual, weight = p - y, p * (1 - p)
        gradient = precision * (theta - centre)
        gradient[:wide] += x.T @ residual
        gradient[wide:] += np.bincount(query, residual, n_queries)
        hessian = np.diag(precision)
        for first in range(0, len(y), CHUNK):
            part = slice(first, first + CHUNK)
            weighted = x[part] * weight[part, None]
            hessian[:wide, :wide] += weighted.T @ x[part]
            cross = np.stack([np.bincount(query[part], column, n_queries) for column in weighted.T])
            hessian[:wide, wide:] += cross
            hessian[wide:, :wide] += cross.T
        hessian[wide:, wide:] += np.diag(np.bincount(query, weight, n_queries))
        move = np.linalg.solve(hessian, gradient)
        if gradient @ move < 1e-14:
            break
        length = 1.0
        while value(theta - length * move)[0] > now + 1e-12 * abs(now) and length > 1e-6:
            length /= 2
        theta = theta - length * move
        now, eta = value(theta)
    return theta, np.linalg.inv(hessian)


def plain_predict(
    table: FeatureTable, fitted: tuple[np.ndarray, np.ndarray], cells: np.ndarray
) -> np.ndarray:
    """Logistic of the normal logit, moderated (MacKay 1992), in chunks."""
    theta, covariance = fitted
    mean = np.empty(len(cells))
    for first in range(0, len(cells), CHUNK):
        x, query = design(table, cells[first : first + CHUNK])
        wide = x.shape[1]
        eta = x @ theta[:wide] + theta[wide:][query]
        spread = np.einsum("ij,ij->i", x @ covariance[:wide, :wide], x)
        spread += 2 * np.einsum("ij,ij->i", x, covariance[:wide, wide:].T[query])
        spread += np.diag(covariance)[wide:][query]
        mean[first : first + CHUNK] = 1 / (1 + np.exp(-eta / np.sqrt(1 + np.pi / 8 * spread)))
    return mean


def resident() -> float:
    """Megabytes that the process holds; 0 where the system does not tell."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0.0
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def timed(function: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Seconds of the first call, the best of some more, and megabytes above what there was."""
    before, stop, most = resident(), threading.Event(), [0.0]

    def watch() -> None:
        while not stop.wait(0.01):
            most[0] = max(most[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    times = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    stop.set()
    watcher.join()
    return times[0], min(times[1:]), max(most[0] - before, 0.0)


def row(step: str, ours: Callable[[], object], theirs: Callable[[], object], repeats: int) -> dict:
    """Time both, and print one line of the table."""
    mine, plain = timed(ours, repeats), timed(theirs, repeats)
    found = {
        "step": step,
        "first_s": mine[0],
        "best_s": mine[1],
        "peak_mb": mine[2],
        "numpy_s": plain[1],
        "numpy_peak_mb": plain[2],
        "ratio": plain[1] / mine[1],
    }
    print(
        f"{step:<32}{mine[0]:>9.3f}{mine[1]:>9.3f}{mine[2]:>9.0f}"
        f"{plain[1]:>9.3f}{plain[2]:>9.0f}{found['ratio']:>7.1f}x",
        flush=True,
    )
    return found


def crossed(labels: Labels) -> list[Labels]:
    """The sets of four folds: each left out, and each couple."""
    fold = np.arange(len(labels)) % 4
    left_out = [*((f,) for f in range(4)), *itertools.combinations(range(4), 2)]
    return [labels.only(~np.isin(fold, out)) for out in left_out]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judgments", type=int, nargs="+", default=[2000, 20_000, 1_000_000])
    parser.add_argument("--cells", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path, help="where to write the rows, too")
    options = parser.parse_args()
    print(f"device {jax.devices()[0].device_kind}, jax {jax.__version__}")
    print(
        f"{'step':<32}{'first s':>9}{'best s':>9}{'peak MB':>9}"
        f"{'NumPy s':>9}{'peak MB':>9}{'ratio':>8}"
    )
    rows = []
    for n in options.judgments:
        table = made_table(max(30_000, 2 * n))
        labels, prior = made_labels(table, n), NumPyroPrior(table)
        rows.append(
            row(
                f"fit {n:,}",
                lambda prior=prior, labels=labels: prior.fit([labels]),
                lambda table=table, labels=labels: plain_fit(table, labels),
                5 if n <= 100_000 else 1,
            )
        )
    table = made_table(30_000)
    prior, sets = NumPyroPrior(table), crossed(made_labels(table, 1000))
    rows.append(
        row(
            "cross-fit 1,000 (10 fits)",
            lambda: prior.fit(sets),
            lambda: [plain_fit(table, some) for some in sets],
            5,
        )
    )
    table = made_table(options.cells)
    labels, cells = made_labels(table, 2000), np.arange(options.cells)
    posterior, plain = NumPyroPrior(table).fit([labels])[0], plain_fit(table, labels)
    rows.append(
        row(
            f"predict {options.cells:,}",
            lambda: posterior.predict(cells),
            lambda: plain_predict(table, plain, cells),
            2,
        )
    )
    some = np.arange(0, options.cells, max(options.cells // 10_000, 1))
    apart = np.abs(posterior.predict(some).mean - plain_predict(table, plain, some))
    print(f"predictions differ by {apart.mean():.4f} on average")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

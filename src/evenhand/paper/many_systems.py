"""Tables 5 to 7 and the three figures: comparing systems, naively and with Q*."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np

from evenhand.paper.dense_cells import DESIGNS, Question, variances
from evenhand.paper.replication import replicate
from evenhand.paper.reproduction import Curve, Row

__all__ = ["KINDS", "agreement", "curves", "variance_rows"]

#: Place of each kind of question in the paper, and what its figure shows.
KINDS: dict[str, tuple[str, str, str]] = {
    "pair": ("Table 5", "Figure 1", "pairwise accuracy"),
    "baseline": ("Table 6", "Figure 2", "accuracy against the baseline"),
    "rank": ("Table 7", "Figure 3", "Kendall's tau-a"),
}


def variance_rows(
    asked: Sequence[Question],
    n_queries: int,
    *,
    paper: Sequence[float] | None = None,
    expected: Sequence[Question] | None = None,
    tolerance: float = 0.006,
    system: str = "",
    mark: str = "",
) -> list[Row]:
    """Exact variance x n / |X| of the four designs, and how many times naive is Q*.

    Parameters
    ----------
    asked
        Questions of one kind; variances are means over them and their contrasts.
    n_queries
        |X|.
    paper
        The paper's four numbers, where they are of these questions.
    expected
        The same questions of expected data, where there are such.
    tolerance
        Relative, around what is expected.
    system, mark
        For the rows.
    """
    kind = asked[0].kind
    ours = variances(asked).mean(0) / n_queries
    exact = None if expected is None else variances(expected).mean(0) / n_queries
    rows = []
    for i, (design, utility) in enumerate(DESIGNS):
        aim = None if exact is None else float(exact[i])
        rows.append(
            Row(
                KINDS[kind][0],
                f"variance, {design}, {utility}",
                system,
                None if paper is None else paper[i],
                aim,
                float(ours[i]),
                None if aim is None else tolerance * aim,
                mark,
            )
        )
    for i in (0, 2):
        ratio = None if paper is None else paper[i] / paper[i + 1]
        aim = None if exact is None else float(exact[i] / exact[i + 1])
        rows.append(
            Row(
                KINDS[kind][0],
                f"naive / Q*, {DESIGNS[i][1]}",
                system,
                ratio,
                aim,
                float(ours[i] / ours[i + 1]),
                None if aim is None else 2 * tolerance * aim,
                mark,
            )
        )
    return rows


def agreement(kind: str, estimate: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """How far estimated contrasts agree with true ones.

    Parameters
    ----------
    kind
        For ``rank``, Kendall's tau-a of the order (a tie counts for neither); else the share of
        contrasts with the right sign, of those that are not 0.
    estimate
        Shape (..., contrasts).
    truth
        Shape (contrasts,).

    Returns
    -------
    numpy.ndarray
        Shape (...).
    """
    if kind == "rank":
        first, second = np.triu_indices(len(truth), 1)
        sign = np.sign(estimate[..., first] - estimate[..., second])
        return (sign * np.sign(truth[first] - truth[second])).mean(-1)
    differs = truth != 0
    return (estimate[..., differs] * truth[differs] > 0).mean(-1)


def curves(
    key: jax.Array,
    asked: Sequence[Question],
    n_queries: int,
    *,
    per_query: tuple[float, ...],
    trials: int,
    expected: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    told: Callable[[], None] = lambda: None,
) -> list[Curve]:
    """Replicate studies of every question, naively and with Q* (both with u~).

    Parameters
    ----------
    key
        Typed key.
    asked
        Questions of one kind.
    n_queries
        |X|.
    per_query
        Judgments a query, ascending.
    trials
        Studies of each question.
    expected
        For naive and Q*.
    told
        Called after each design of each question.
    """
    kind = asked[0].kind
    _, figure, quantity = KINDS[kind]
    budgets = tuple(round(share * n_queries) for share in per_query)
    mean, square = np.zeros((2, 2, len(budgets)))
    for number, question in enumerate(asked):
        masses, a = question.masses(), question.contrasts()
        for i in range(2):
            studies = replicate(
                jax.random.fold_in(jax.random.fold_in(key, number), i),
                masses[i],
                a,
                question.cells.utility,
                budgets=budgets,
                trials=trials,
            )
            right = agreement(kind, studies.estimate, question.truth)
            mean[i] += right.mean(0) / len(asked)
            square[i] += right.var(0, ddof=1) / trials / len(asked) ** 2
            told()
    return [
        Curve(
            figure,
            kind,
            quantity,
            DESIGNS[i][0],
            per_query,
            mean[i],
            np.sqrt(square[i]),
            None if expected is None else expected[i],
        )
        for i in range(2)
    ]

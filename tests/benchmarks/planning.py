"""Half-widths that `plan` foresees, and those that studies then come to.

    python tests/benchmarks/planning.py [--studies 10] [--first 500] [--share 0.6]
                                        [--measures DCG@100 P@10]

On TREC-8, 20 of 71 runs, another sample for each study. A first round is drawn and judged, and
`Study.plan` is asked for what brings the mean half-width of the contrasts down to a share of what
it is. As many pairs are drawn, by a design that learns if that is what was foreseen, and judged.
Told are the judgments that `plan` asked for, and the half-width that came of them by that wanted.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from evenhand import Estimate, Qrels, Runs, Study
from evenhand.designs.utilities import judged_utility
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "trec8-adhoc"


def half_width(found: Estimate) -> float:
    """Mean over the contrasts."""
    return float((found.contrast_high - found.contrast_low).mean() / 2)


def judge(study: Study, qrels: Qrels) -> None:
    """Judge all that was drawn; what the qrels do not name is not relevant."""
    utility = np.nan_to_num(judged_utility(study.pool, qrels, study.measure))
    judged: dict[str, dict[str, int]] = {}
    for query, document, grade in zip(
        *study.pool.names(np.arange(len(study.pool))), utility.astype(int).tolist(), strict=True
    ):
        judged.setdefault(query, {})[document] = grade
    study.judge(judged)


def realised(
    runs: Runs, qrels: Qrels, measure: str, seed: int, first: int, share: float
) -> tuple[int | None, float, float]:
    """What `plan` asked for in one study, the width wanted, and that which came of it."""
    with tempfile.TemporaryDirectory() as folder:
        study = Study.create(
            Path(folder) / "study", runs, measure=measure, queries=qrels.queries.to_pylist()
        )
        study.draw(first, seed=seed)
        judge(study, qrels)
        before = study.estimate()
        wanted = share * half_width(before)
        planned = study.plan(half_width=wanted)
        if planned.needed is None:
            return None, wanted, np.nan
        learns = before.estimator != "importance"
        study.draw(planned.needed, utility="learned" if learns else "rank", seed=seed)
        judge(study, qrels)
        return planned.needed, wanted, half_width(study.estimate())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=10)
    parser.add_argument("--first", type=int, default=500, help="judgments of the first round")
    parser.add_argument("--share", type=float, default=0.6, help="of the half-width after it")
    parser.add_argument("--measures", nargs="+", default=["DCG@100", "P@10"])
    options = parser.parse_args()
    qrels = read_qrels(DATA / "qrels.trec8.adhoc.gz")
    everything = read_runs(DATA / "runs-top100")
    names = (DATA / "judged-runs.txt").read_text().split()
    print(f"{'measure':<10}{'study':>6}{'asked for':>11}{'wanted':>10}{'realised':>10}{'ratio':>7}")
    for measure in options.measures:
        ratios = []
        for seed in range(options.studies):
            chosen = np.random.default_rng(seed).choice(names, 20, replace=False)
            runs = everything.select(sorted(chosen))
            needed, wanted, found = realised(
                runs, qrels, measure, seed, options.first, options.share
            )
            ratios.append(found / wanted)
            print(
                f"{measure:<10}{seed:>6}{needed or 'never':>11}{wanted:>10.4f}{found:>10.4f}"
                f"{ratios[-1]:>7.2f}",
                flush=True,
            )
        print(f"{measure}: from {min(ratios):.2f} to {max(ratios):.2f}, mean {np.mean(ratios):.3f}")


if __name__ == "__main__":
    main()

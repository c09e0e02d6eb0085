"""Assessors disagree. What does it do to an interval, and does it pay to know who is strict?

``--judgments`` names a table with the columns ``qid docid assessor grade``, several assessors a
pair: the systems are then made by ranking these documents more or less well. ``--fast`` makes it
smaller.
"""

# %% The judgments: your own, or of a made crowd, kind or strict, careful or careless.
import argparse
from dataclasses import replace

import jax
import numpy as np
import pandas as pd

import evenhand as eh

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--judgments", help="a table of qid, docid, assessor, grade, with tabs")
parser.add_argument("-n", "--budget", type=int, default=400, help="pairs to draw")
parser.add_argument("--each", type=int, default=2, help="judgments a pair")
parser.add_argument("--studies", type=int, default=40, help="replications")
parser.add_argument("--fast", action="store_true", help="a smaller crowd, few studies")
given = parser.parse_args()
rng = np.random.default_rng(0)

if given.judgments is None:
    n_queries, n_documents, n_assessors = (12, 40, 12) if given.fast else (50, 60, 40)
    worth = rng.normal(size=(n_queries, n_documents)) - 1.0
    kind, careful = rng.normal(0, 1.0, n_assessors), rng.lognormal(0.5, 0.3, n_assessors)
    rows = [
        (f"q{q}", f"d{d}", f"a{a}", float(rng.random() < 1 / (1 + np.exp(-x))))
        for q in range(n_queries)
        for d in range(n_documents)
        for a in rng.choice(n_assessors, 5, replace=False)
        for x in [careful[a] * (worth[q, d] + kind[a])]
    ]
    said = pd.DataFrame(rows, columns=["qid", "docid", "assessor", "grade"])
else:
    said = pd.read_csv(given.judgments, sep="\t", dtype={"qid": str, "docid": str, "assessor": str})
budget, studies = (60, 3) if given.fast else (given.budget, given.studies)

# %% The systems: each ranks the documents of a query by what the crowd says, and noise of its own.
worth = said.groupby(["qid", "docid"], as_index=False)["grade"].mean()
noise = np.linspace(0.3, 1.5, 8) * worth.grade.std()
runs = {
    f"s{j}": worth.assign(score=worth.grade + rng.normal(0, x, len(worth)))
    .groupby("qid")
    .apply(lambda part: dict(zip(part.docid, part.score, strict=True)), include_groups=False)
    .to_dict()
    for j, x in enumerate(noise)
}
pool = eh.pool(eh.read_runs(runs), depth=20)
goal = eh.rank(eh.target(pool, "DCG@20"))

# %% The truth: the utility of a pair is what assessors say of it on average.
cell = pool.find(said.qid.tolist(), said.docid.tolist())
crowd = said.assign(cell=cell, who=pd.factorize(said.assessor)[0])[cell >= 0]
utility = crowd.groupby("cell").grade.mean().reindex(range(len(pool)), fill_value=0.0).to_numpy()
truth = goal.matrix @ goal.target.values(utility)

# %% Studies: draw pairs, ask a few assessors each, estimate in four ways.
prior = eh.NumPyroPrior(eh.feature_table(pool))
design = eh.design(goal, eh.rank_utility(pool))
ways = ("as if they agreed", "disagreement counted", "a model", "a model that knows assessors")
found = {way: [] for way in ways}
for study in range(studies):
    sample = eh.draw(jax.random.key(study), design, budget)
    asked = crowd[crowd.cell.isin(sample.draws)].sample(frac=1, random_state=study)
    asked = asked[asked.groupby("cell").cumcount() < given.each]
    heard = eh.Labels(
        asked.cell.to_numpy(), asked.grade.to_numpy(float), asked.who.to_numpy(np.int32)
    )
    mean = heard.averaged()
    r = mean.utility[np.searchsorted(mean.cells, sample.draws)]
    deaf = eh.Round(sample, r)
    hears = replace(deaf, individual=heard)
    found[ways[0]].append(eh.estimate(goal, [deaf]))
    found[ways[1]].append(eh.estimate(goal, [hears]))
    for way, learns_from in ((ways[2], deaf), (ways[3], hears)):
        controls = eh.control_variates(prior, goal, [learns_from])
        found[way].append(eh.estimate(goal, [hears], controls=controls))

# %% What came of it: width and coverage of the 95 % intervals, and the error.
rows = []
for way, estimates in found.items():
    low, high = (
        np.array([getattr(e, f"contrast_{end}") for e in estimates]) for end in ("low", "high")
    )
    error = np.array([e.contrast for e in estimates]) - truth
    rows.append(
        {
            "estimate": way,
            "rmse": np.sqrt((error**2).mean()),
            "width": (high - low).mean(),
            "coverage": ((low <= truth) & (truth <= high)).mean(),
            "bias z": np.abs(error.mean(0) / (error.std(0, ddof=1) / np.sqrt(studies))).max(),
        }
    )
print(f"{budget} of {len(pool):,} pairs, {given.each} judgments each, {studies} studies")
print(pd.DataFrame(rows).to_string(index=False, float_format="{:.3f}".format))

"""A NumPyro model of your own steers a study; that it may be wrong costs width, never validity.

``--runs``, ``--qrels`` and ``-m`` name your own data; by default it is made. ``--fast`` makes it
smaller.
"""

# %% The data.
import argparse
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import evenhand as eh
from evenhand.priors.models import continuous_response
from evenhand.simulation import make_collection

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--runs", help="a folder of runs")
parser.add_argument("--qrels", help="their judgments")
parser.add_argument("-m", "--measure", default="DCG@20")
parser.add_argument("--fast", action="store_true", help="a smaller collection")
given = parser.parse_args()

folder = Path(tempfile.mkdtemp())
if given.runs is None:
    make_collection(folder, seed=0, n_queries=15 if given.fast else 50)
    given.runs, given.qrels = folder / "runs", folder / "qrels.txt"


# %% The model: utilities are normal around a line in the features. Ten lines.
def a_line(features, judged=None, *, levels):
    n_features = features.values.shape[1]
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 1.0))
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 0.5).expand([n_features]).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    zero_and_one = jnp.array([0.0, 1.0])  # utilities as they are
    continuous_response(intercept + features.values @ slopes, judged, zero_and_one, noise)


# %% Two rounds: the first from ranks, the second from what this model made of the first.
study = eh.Study.create(folder / "study", given.runs, measure=given.measure)
study.draw(100, seed=1)
study.judge(given.qrels)
print(study.draw(100, utility="learned", model=a_line, seed=2))
study.judge(given.qrels)

# %% Cross-fitted with this model, with the library's own, and without any: all are unbiased.
for name, options in {
    "a line": {"model": a_line},
    "the library's": {},
    "none": {"estimator": "importance"},
}.items():
    answer = study.estimate(**options)
    print(f"{name}: mean half-width {(answer.contrast_high - answer.contrast_low).mean() / 2:.3f}")

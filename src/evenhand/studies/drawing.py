"""Drawing the next round of a study: designed from what is known, drawn, and written down.

What keeps estimates exactly unbiased is recorded here: which earlier rounds had a judgment when a
round was drawn, and which pairs were left out since they were known.

**Looks.** A budget can be drawn as several rounds at once, by one design and independently, so that
there is something to look at whenever one of them is judged. They were all fixed before the first
judgment, and count as one round with E the sum of theirs (`evenhand.sampling.rounds.stages`),
however many of them are judged by then. That is also why a budget is split only before the first
judgment: what is drawn after looking counts each by itself, with a weight that was fixed for a
whole round.
"""

from __future__ import annotations

import importlib.metadata
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from evenhand.designs.proposals import Design
from evenhand.errors import EvenhandError, StudyError
from evenhand.estimands.targets import Target
from evenhand.priors.features import read_signals
from evenhand.sampling.rounds import default_plan, planned_weights
from evenhand.sampling.samplers import SAMPLERS, draw
from evenhand.sampling.samples import Sample
from evenhand.studies import round_files
from evenhand.studies.options import DrawOptions
from evenhand.studies.receipts import Drawn
from evenhand.studies.round_files import Record, Stored
from evenhand.studies.snapshots import Snapshot

if TYPE_CHECKING:
    from evenhand.studies.proposing import Proposal

__all__ = ["draw_rounds"]

_VERSIONS = ("evenhand", "jax", "numpy", "numpyro")


def draw_rounds(
    at: Snapshot, again: Callable[[], Snapshot], budget: int, options: DrawOptions
) -> Drawn:
    """Design the next round, draw it, and write it.

    Parameters
    ----------
    at
        The study.
    again
        Gives the same rounds with the judgments that there are by then.
    budget
        Number of draws, of all looks together.
    options
        As of `evenhand.study.Study.draw`.

    Raises
    ------
    EvenhandError
        If an argument cannot be used; then nothing is written.
    """
    from evenhand.nonlinear.kinds import kind_of
    from evenhand.studies.proposing import propose

    earlier, pool, of = at.ledger.files, at.goal.target.pool, kind_of(at.goal.target.measure)
    joined = max((r.record.cells for r in earlier), default=0)
    _check(at, budget, joined, options)
    of.check_draws(at.goal, budget + sum(r.record.budget for r in earlier))
    signals = read_signals(pool, options.signals)
    first = joined if options.top_up else 0
    cells = np.arange(len(pool))
    known = np.flatnonzero(
        np.isfinite(at.ledger.utility()) & (cells >= first) & (not options.rejudge)
    )
    left_out = np.isin(cells, known) | (cells < first) if len(known) or first else None
    seed = secrets.randbits(32) if options.seed is None else options.seed
    proposal = propose(at, options, left_out=left_out, signals=signals)
    budgets = {
        len(earlier) + look: budget // options.looks + (look <= budget % options.looks)
        for look in range(1, options.looks + 1)
    }
    samples = {
        number: draw(
            jax.random.fold_in(jax.random.key(seed), number),
            proposal.design,
            n,
            sampler=options.sampler,
            in_pairs=of.in_pairs,
        )
        for number, n in budgets.items()
    }
    # Read last: a judgment that came in meanwhile counts as seen, which is the safe side.
    ledger, notes = again().ledger, proposal.notes
    judged = ledger.judged()
    if judged.any() and at.settings.plan is None and not first:
        notes = [*notes, *_small(budget, [r.record for r in earlier])]
    common = {
        "seed": seed,
        "depends_on": tuple(r.record.name for r in earlier if judged[r.sample.draws].any()),
        "known": len(known),
        "signals": tuple(signals),
        "mark": ledger.mark,
        "first": first,
    }
    stored = [
        Stored(
            _record(at, number, budgets[number], sample, proposal, options, **common),
            sample,
            known,
            signals,
        )
        for number, sample in samples.items()
    ]
    waits = np.isnan(ledger.utility()) | options.rejudge
    drawn = _written(at, stored, waits, proposal)
    notes = _notes(notes, proposal.design, at.goal.target)
    return replace(drawn[0], later=tuple(drawn[1:]), notes=notes)


def _record(
    at: Snapshot,
    number: int,
    budget: int,
    sample: Sample,
    proposal: Proposal,
    options: DrawOptions,
    **common: Any,
) -> Record:
    """What a round's folder says of how it was drawn."""
    pool, gap = at.goal.target.pool, proposal.design.gap
    return Record(
        name=round_files.named(number),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={p: importlib.metadata.version(p) for p in _VERSIONS},
        budget=budget,
        sampler=options.sampler,
        design=proposal.design.name,
        floor=options.floor,
        cells=len(pool),
        pool=round_files.fingerprint(pool),
        gap=None if gap is None else gap.relative,
        folds=sample.n_folds,
        scattered=sample.scattered,
        systems=pool.systems,
        rejudge=options.rejudge,
        **common,
    )


def _written(
    at: Snapshot, rounds: Sequence[Stored], waits: np.ndarray, proposal: Proposal
) -> list[Drawn]:
    """Write rounds that were drawn; `waits` says which cells are still to be judged."""
    save_posterior, drawn, waits = None, [], waits.copy()
    if proposal.posterior is not None:
        from evenhand.priors.diagnostics import save

        save_posterior = partial(save, proposal.posterior)
    for one in rounds:
        record, sample = one.record, one.sample
        todo = sample.cells[waits[sample.cells]]
        waits[todo] = False  # what an earlier look asks for is asked for
        path = round_files.save(
            at.folder, one, proposal.design.q, at.goal.target.pool, todo, save_posterior
        )
        drawn.append(
            Drawn(
                name=record.name,
                to_judge=path,
                n_draws=len(sample),
                n_distinct=len(sample.cells),
                n_new=len(todo),
                design=record.design,
                sampler=record.sampler,
                seed=record.seed,
            )
        )
    return drawn


def _check(at: Snapshot, budget: int, joined: int, options: DrawOptions) -> None:
    """Refuse what cannot be drawn.

    `joined` is the number of cells that there were when a round was last drawn.
    """
    earlier, plan, n_cells = at.ledger.files, at.settings.plan, len(at.goal.target.pool)
    looks, sampler, top_up = options.looks, options.sampler, options.top_up
    if top_up and not 0 < joined < n_cells:
        raise StudyError(
            "there is nothing to top up: "
            + ("every pair could have been drawn before" if earlier else "no round was drawn"),
            hint="add a system first, or draw a round of all pairs (without --top-up)",
        )
    once = sampler in SAMPLERS and not SAMPLERS[sampler].repeats
    if top_up and once and budget > n_cells - joined:
        raise StudyError(
            f"cannot top up by {budget:,} distinct pairs: {n_cells - joined:,} joined "
            "since the last round",
            hint=f"--budget {n_cells - joined} judges all of them",
        )
    if not 1 <= looks <= max(budget, 1):
        raise EvenhandError(
            f"cannot look {looks:,} times at {budget:,} draws", hint="--looks 4, or leave it out"
        )
    if looks > 1 and (options.rejudge or top_up):
        raise EvenhandError(
            "a round that is judged again or tops up is drawn as one",
            hint="leave out --looks",
        )
    if looks > 1 and at.ledger.judged().any():
        raise EvenhandError(
            "a budget is split for several looks only before the first judgment: what is drawn "
            "later counts each by itself, and a part of it less than it tells",
            hint="leave out --looks; the rounds judged so far are there to look at",
        )
    ordinary = at.ledger.n_ordinary
    if plan is not None and not top_up and ordinary + looks > len(plan):
        left = len(plan) - ordinary
        raise StudyError(
            f"the plan of {at.folder} names {len(plan)} rounds, and "
            + (f"{left} are left for {looks} looks" if left else "all are drawn"),
            hint="a plan cannot be changed after the first judgment: start a new study",
        )


def _small(budget: int, earlier: Sequence[Record]) -> list[str]:
    """That a round counts by its number and not by its size, where it is far smaller than others.

    Sizes that were not planned may depend on what was seen, and must not enter weights.
    """
    rounds = [one for one in earlier if not one.first]
    later = sum(bool(one.depends_on) for one in rounds)
    weight = planned_weights(default_plan(later + 1 + (later < len(rounds))))[-1]
    if not rounds or 4 * budget >= max(one.budget for one in rounds):
        return []
    return [
        f"this round will count {weight:.0%} of the estimate, since no plan says otherwise: of "
        f"{budget:,} draws intervals may get wider; draw more, or name the rounds' sizes when a "
        "study is made (`--plan`)"
    ]


def _notes(notes: Sequence[str], made: Design, target: Target) -> tuple[str, ...]:
    """What the user should know of a design, beside what is known already."""
    more = []
    if made.gap is not None:
        more.append(str(made.gap))
    if made.goal.kind != "absolute" and any(
        len(group) == len(target.systems) for group in target.identical()
    ):
        more.append(
            "all systems return the same rankings: every difference is exactly 0, and these "
            "judgments can only tell the systems' own values"
        )
    return (*notes, *more)

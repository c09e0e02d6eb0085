"""Judged preferences: unbiased to rounding, with a plain loop over pairs for the truth."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from scipy import stats

from evenhand.errors import EvenhandError, FormatError, MissingJudgments, StudyError, SupportError
from evenhand.estimands import goals, targets
from evenhand.estimands.evaluation import evaluate
from evenhand.estimands.pools import pool
from evenhand.formats.preferences import read_preferences
from evenhand.formats.runs import read_runs
from evenhand.nonlinear import judged_preferences
from evenhand.nonlinear.judged_preferences import PairRound, estimate_preferences, judge_pairs
from evenhand.sampling.document_pairs import (
    PairSample,
    draw_pairs,
    pair_design,
    shares,
    write_pairs,
)

#: Query q3 has one document, and no pair; y misses d and q2, z has q1 only; w is x's twin.
RUNS = {
    "w": {"q1": {"a": 8.0, "b": 6.0, "c": 4.0, "d": 2.0}, "q2": {"e": 2.0, "f": 1.0}, "q3": {}},
    "x": {
        "q1": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0},
        "q2": {"e": 2.0, "f": 1.0},
        "q3": {"g": 1.0},
    },
    "y": {"q1": {"c": 4.0, "b": 3.0, "a": 1.0}, "q3": {"g": 1.0}},
    "z": {"q1": {"d": 2.0, "b": 1.5, "a": 1.0}},
}
RUNS["w"].pop("q3")
HEAD = "qid\tdocA\tdocB\tpreferred\n"
#: A circle (a before b before c before a), a tie, and one that two assessors judged differently.
SAID = """\
qid\tdocA\tdocB\tpreferred\tassessor
q1\ta\tb\ta\tann
q1\tc\tb\tb\tann
q1\ta\tc\tc\tann
q1\ta\td\td\tann
q1\td\ta\ta\tbob
q1\ta\td\td\tcy
q1\tb\td\t=\tann
q1\td\tc\tc\tann
q2\te\tf\tf\tann
"""
#: Share of the judgments of a pair that say that the first is better; in lines, not a line each.
BETTER = {
    "ab": 1.0, "ba": 0.0, "bc": 1.0, "cb": 0.0, "ca": 1.0, "ac": 0.0, "da": 2 / 3, "ad": 1 / 3,
    "bd": 0.0, "db": 0.0, "cd": 1.0, "dc": 0.0, "fe": 1.0, "ef": 0.0,
}  # fmt: skip
GRADES = {"q1": {"a": 1, "b": 3, "c": 0, "d": 1}, "q2": {"e": 0, "f": 2}, "q3": {"g": 1}}


def asked(name: str, kind: str = "rank", runs=RUNS) -> goals.Goal:
    return goals.goal(targets.target(pool(read_runs(runs)), name), kind)


def truth(name: str, better, runs=RUNS) -> np.ndarray:
    """Equation (1) by a loop; `better` is of a query and two documents."""
    queries = {query for found in runs.values() for query in found}
    cutoff = int(name.partition("@")[2] or 1000)
    values = []
    for system in sorted(runs):
        total = 0.0
        for query, found in runs[system].items():
            order = sorted(found, key=found.get, reverse=True)[:cutoff]
            ranked = list(enumerate(order, 1))
            for (s, upper), (t, lower) in itertools.combinations(ranked, 2):
                weight = 1 / (s * t) if name.startswith("w") else 1.0
                total += weight * better(query, lower, upper) / (len(order) * (len(order) - 1) / 2)
        values.append(total / len(queries))
    return np.array(values)


def said(query: str, one: str, other: str) -> float:
    return BETTER[one + other]


def graded(query: str, one: str, other: str) -> float:
    return float(GRADES[query][one] > GRADES[query][other])


def by_cell(goal: goals.Goal, better) -> np.ndarray:
    """Share of judgments that say that cell i is better than k: shape (cells, cells)."""
    n = len(goal.target.pool)
    names = list(zip(*goal.target.pool.names(np.arange(n)), strict=True))
    table = np.zeros((n, n))
    for i, k in itertools.permutations(range(n), 2):
        if names[i][0] == names[k][0]:
            table[i, k] = better(names[i][0], names[i][1], names[k][1])
    return table


def judged(sample: PairSample, table: np.ndarray, depends_on=()) -> PairRound:
    a, b = sample.first, sample.second
    return PairRound(sample, table[a, b], table[b, a], depends_on, "one" if not depends_on else "")


def outcomes(made, n: int):
    """Every sample of n draws and its probability; which document is shown first alternates."""
    query = made.target.pool.query
    both = [p for p in itertools.combinations(range(len(query)), 2) if len({*query[[*p]]}) == 1]
    chance = made.probability(*np.array(both).T)
    assert abs(chance.sum() - 1) < 1e-12
    able = np.flatnonzero(chance)
    for number, draws in enumerate(itertools.product(able, repeat=n)):
        first, second = np.array([both[d] for d in draws]).T
        if number % 2:
            first, second = second, first
        yield np.prod(chance[list(draws)]), PairSample(made, first, second)


def check(goal, value, found) -> None:
    """Means of estimates and of their covariances are the truth, and they are no constants."""
    chance = np.array([p for p, _ in found])
    assert abs(chance.sum() - 1) < 1e-12
    spread = np.ptp([e.value for _, e in found], axis=0)
    assert spread.max() > 0.1
    for values, covariances, true in (
        ([e.value for _, e in found], [e.covariance for _, e in found], value),
        (
            [e.contrast for _, e in found],
            [e.contrast_covariance for _, e in found],
            goal.matrix @ value,
        ),
    ):
        values = np.array(values)
        np.testing.assert_allclose(chance @ values, true, rtol=0, atol=1e-12)
        off = values - true
        covariance = np.einsum("p,pi,pj->ij", chance, off, off)
        mean = np.tensordot(chance, np.array(covariances), 1)
        np.testing.assert_allclose(mean, covariance, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["Swaps", "wSwaps", "Swaps@3", "wSwaps@2"])
def test_enumerated_estimates_are_unbiased(name):
    goal = asked(name)
    table = by_cell(goal, said)
    made = pair_design(goal.target)
    found = [
        (p, estimate_preferences(goal, [judged(sample, table)])) for p, sample in outcomes(made, 2)
    ]
    check(goal, truth(name, said), found)


@pytest.mark.parametrize("name", ["Swaps", "wSwaps@3"])
def test_preferences_that_follow_from_grades_are_the_measure_of_these(name):
    """`evaluate` knows only grades."""
    goal = asked(name, "absolute")
    value = evaluate(read_runs(RUNS), GRADES, [name]).value[0]
    np.testing.assert_allclose(truth(name, graded), value, rtol=0, atol=1e-12)
    table = by_cell(goal, graded)
    made = pair_design(goal.target, share=np.array([1.0, 4.0, 2.0, 3.0, 1.0, 2.0, 9.0]))
    found = [
        (p, estimate_preferences(goal, [judged(sample, table)])) for p, sample in outcomes(made, 2)
    ]
    check(goal, value, found)


@pytest.fixture
def few_ahead(monkeypatch):
    """Few draws for equation (4), on which neither estimates nor covariances depend."""
    monkeypatch.setattr(judged_preferences, "AHEAD", 1024)


#: Without the queries that have one pair, or none.
ONE = {name: {"q1": found["q1"]} for name, found in RUNS.items() if name != "w"}


def two_rounds(depends_on):
    """Estimates of two rounds, of which the second's design follows what was said in the first."""
    goal = asked("wSwaps", "rank", ONE)
    table = by_cell(goal, said)
    found = []
    for chance, sample in outcomes(pair_design(goal.target), 2):
        first = judged(sample, table)
        learned = np.bincount(sample.first, first.first_better, minlength=4)
        learned += np.bincount(sample.second, first.second_better, minlength=4)
        later = pair_design(goal.target, share=learned, floor=0.2)
        for then, second in outcomes(later, 2):
            rounds = [first, judged(second, table, depends_on)]
            found.append((chance * then, estimate_preferences(goal, rounds, planned=[1, 1])))
    return goal, found


def test_enumerated_second_round_that_learned_is_unbiased(few_ahead):
    goal, found = two_rounds(("one",))
    check(goal, truth("wSwaps", said, ONE), found)
    np.testing.assert_allclose(found[0][1].weights, [1 / (1 + 2**0.5), 2**0.5 / (1 + 2**0.5)])


@pytest.mark.slow
def test_a_round_that_learned_is_biased_where_it_is_taken_as_fixed(few_ahead):
    _, found = two_rounds(())
    mean = sum(p * e.value for p, e in found)
    assert np.abs(mean - truth("wSwaps", said, ONE)).max() > 0.005


def test_enumerated_rounds_fixed_in_advance_are_one_stage(few_ahead):
    goal = asked("Swaps", "rank", ONE)
    table = by_cell(goal, said)
    one, other = pair_design(goal.target), pair_design(goal.target, share=np.arange(4.0))
    found = [
        (p * r, estimate_preferences(goal, [judged(s, table), judged(t, table)]))
        for p, s in outcomes(one, 2)
        for r, t in outcomes(other, 2)
    ]
    check(goal, truth("Swaps", said, ONE), found)
    assert found[0][1].weights.tolist() == [1.0]


def test_two_halves_of_a_round_are_the_round():
    """Rounds that are fixed beforehand are as one; of a single one Student's interval is known."""
    goal = asked("wSwaps", "rank")
    table = by_cell(goal, said)
    sample = draw_pairs(jax.random.key(0), pair_design(goal.target), 40)
    whole = estimate_preferences(goal, [judged(sample, table)])
    parts = [
        PairSample(sample.design, sample.first[i], sample.second[i])
        for i in (slice(0, 15), slice(15, None))
    ]
    both = estimate_preferences(goal, [judged(part, table) for part in parts])
    np.testing.assert_allclose(both.value, whole.value, rtol=0, atol=1e-15)
    np.testing.assert_allclose(both.contrast, whole.contrast, rtol=0, atol=1e-15)
    assert both.degrees.max() <= 38
    with pytest.raises(EvenhandError, match="unknown interval 'wide'"):
        estimate_preferences(goal, [judged(sample, table)], interval="wide")
    with pytest.raises(SupportError, match="not for judged preferences"):
        estimate_preferences(goal, [judged(sample, table)], interval="betting")
    with pytest.raises(EvenhandError, match="moderated intervals are for documents"):
        estimate_preferences(goal, [judged(sample, table)], interval="moderated")
    student = estimate_preferences(goal, [judged(sample, table)], interval="student")
    half = stats.t.ppf(0.975, 39) * whole.std_error
    np.testing.assert_allclose(student.high - student.value, half, rtol=1e-12)
    np.testing.assert_allclose(whole.degrees, [39.0] * 4, rtol=1e-13)


def test_events_ahead_are_sums_over_all_pairs():
    """Equation (4) by a loop. A sum is off by 5 of its standard errors once in 2e6.

    These are below 3.3 % of the sums: one that is off by a third is found, all but once in 1e6.
    """
    goal = asked("wSwaps", "rank")
    made = pair_design(goal.target)
    given = shares(goal.target)
    sample = draw_pairs(jax.random.key(0), made, 7)
    one = judged(sample, by_cell(goal, said))
    found = judged_preferences._events_ahead(goal, given, 0.6, [one], one)
    exact, square = np.zeros((4, 8)), np.zeros((4, 8))
    n = len(goal.target.pool)
    cells = [
        p for p in itertools.combinations(range(n), 2) if p[1] < 6 and (p[0] < 4) == (p[1] < 4)
    ]
    names = goal.target.pool.documents.to_pylist()
    for i, k in cells:
        chance = made.probability(np.array([i]), np.array([k]))[0]
        parts = np.zeros((4, 8))
        for better in ((names[i], names[k]), (names[k], names[i])):
            worth = truth("wSwaps", lambda x, a, b, wins=better: float((a, b) == wins))
            a = 0.6 * np.concatenate([worth, goal.matrix @ worth]) / (7 * chance)
            parts += np.stack([a**2, a**3, np.abs(a) ** 3, a**4])
        exact += 7 * chance * parts
        square += 7**2 * chance * parts**2
    error = np.sqrt((square - exact**2) / judged_preferences.AHEAD)
    assert (np.abs(found - exact) < 5 * error + 1e-12).all()
    assert (error[[0, 2, 3]] < 0.033 * exact[[0, 2, 3]]).all()


def test_identical_systems_differ_by_exactly_0():
    goal = asked("wSwaps@3", "rank")
    everyone = goals.pairs(goal.target)
    table = by_cell(goal, said)
    sample = draw_pairs(jax.random.key(3), pair_design(goal.target), 31)
    found = estimate_preferences(everyone, [judged(sample, table)])
    at = found.names.index("w - x")
    assert found.contrast[at] == found.contrast_std_error[at] == 0.0
    assert found.contrast_low[at] == found.contrast_high[at] == 0.0
    assert (found.contrast_std_error > 0).sum() == 5
    ranked = estimate_preferences(goal, [judged(sample, table)])
    assert ranked.contrast[0] == ranked.contrast[1]


def test_which_document_is_shown_first_changes_nothing():
    goal = asked("Swaps")
    table = by_cell(goal, said)
    sample = draw_pairs(jax.random.key(3), pair_design(goal.target), 31)
    turned = PairSample(sample.design, sample.second, sample.first)
    one, other = (estimate_preferences(goal, [judged(s, table)]) for s in (sample, turned))
    assert one.value.tolist() == other.value.tolist()
    assert one.n_judged == other.n_judged


@pytest.mark.slow
@pytest.mark.parametrize(("kept", "n"), [(1.0, 400), (0.1, 150)])
def test_intervals_cover(kept, n):
    """200 studies of 12 queries of about 35 documents, 4 systems; swapped pairs abound, or are few.

    The coverage of the 4 systems and 4 contrasts is a mean over 200 independent studies: of .93
    each, it is below .85 with a chance below 1e-4 even if all of a study are covered together, and
    so is one of .78 above .85. The error of a mean is 1/14 of a deviation: a bias of .75 deviations
    fails but for 1 in 5,000, and none fails once in 1e11.
    """
    rng = np.random.default_rng(2)
    hidden = rng.normal(size=(12, 45))
    runs: dict[str, dict[str, dict[str, float]]] = {}
    for j in range(4):
        score = hidden + (0.3 + 0.4 * j) * rng.normal(size=hidden.shape)
        runs[f"s{j}"] = {
            f"q{x}": {f"d{d}": float(score[x, d]) for d in np.argsort(-score[x])[:20]}
            for x in range(12)
        }
    goal = asked("wSwaps@20", "rank", runs)
    cells = goal.target.pool
    document = np.array([int(name[1:]) for name in cells.documents.to_pylist()])[cells.document]
    worth = hidden[cells.query, document]
    # Preferences with noise of their own, so that they are not transitive; the others are ties.
    noisy = worth[:, None] - worth + np.triu(rng.normal(size=(len(cells),) * 2), 1)
    told = rng.random((len(cells),) * 2) < kept
    table = np.triu((noisy > 0.2) & told, 1) * 1.0
    table += np.triu((noisy < -0.2) & told, 1).T * 1.0
    names = {two: i for i, two in enumerate(zip(*cells.names(np.arange(len(cells))), strict=True))}
    value = truth("wSwaps@20", lambda x, a, b: table[names[x, a], names[x, b]], runs)
    everything = np.concatenate([value, goal.matrix @ value])
    made = pair_design(goal.target)
    estimates, covered, by_student = [], [], []
    for key in jax.random.split(jax.random.key(1), 200):
        found = estimate_preferences(goal, [judged(draw_pairs(key, made, n), table)])
        estimates.append(np.concatenate([found.value, found.contrast]))
        low = np.concatenate([found.low, found.contrast_low])
        high = np.concatenate([found.high, found.contrast_high])
        covered.append((low <= everything) & (everything <= high))
        half = stats.t.ppf(0.975, n - 1) * found.std_error
        by_student.append(np.abs(found.value - value) <= half)
    spread = np.std(estimates, 0)
    assert (np.abs(np.mean(estimates, 0) - everything) < 0.5 * spread).all()
    assert np.mean(covered) > 0.85
    if kept < 1:
        assert np.mean(by_student) < 0.85


def test_a_table_of_pairs_is_written_judged_and_read(tmp_path):
    goal = asked("Swaps")
    sample = draw_pairs(jax.random.key(0), pair_design(goal.target), 60)
    path = tmp_path / "pairs.tsv"
    write_pairs(sample, path)
    head, *rows = path.read_text().splitlines()
    assert head == "qid\tdocA\tdocB\tpreferred"
    asked_of = [tuple(row.split("\t")) for row in rows]
    assert len({(x, *sorted((a, b))) for x, a, b, _ in asked_of}) == len(rows) == 7
    with pytest.raises(StudyError, match="exists, and may hold judgments"):
        write_pairs(sample, path)
    waiting = read_preferences(path)
    assert (len(waiting), waiting.blank) == (0, 7)
    assert waiting.notes == ("7 rows are not judged yet.",)
    unjudged = judge_pairs(sample, waiting)
    assert np.isnan(unjudged.first_better).all()
    with pytest.raises(MissingJudgments, match="round 1: 7 of 7 pairs are not judged yet"):
        estimate_preferences(goal, [unjudged])
    answers = [
        (x, a, b, "=" if BETTER[a + b] == BETTER[b + a] else a if BETTER[a + b] > 0.5 else b)
        for x, a, b, _ in asked_of
    ]
    path.write_text("\n".join([head, *("\t".join(row) for row in answers)]))
    one = judge_pairs(sample, read_preferences(path))
    whole = {two: float(share > 0.5) for two, share in BETTER.items()}
    table = by_cell(goal, lambda x, a, b: whole[a + b])
    other = judged(sample, table)
    np.testing.assert_array_equal(one.first_better, other.first_better)
    np.testing.assert_array_equal(one.second_better, other.second_better)
    found = estimate_preferences(goal, [one])
    assert found.n_judged == 7
    assert '"n_draws": 60' in found.to_json()
    assert "7 pairs of documents judged, 60 draws, 1 round" in str(found)
    assert "Contrasts of the goal 'rank'" in str(found)


def test_judgments_of_several_assessors_are_shares(tmp_path):
    goal = asked("wSwaps")
    path = tmp_path / "said.tsv"
    path.write_text(SAID)
    table = read_preferences(path)
    assert repr(table) == "Preferences(9 judgments of pairs, 0 blank)"
    sample = draw_pairs(jax.random.key(0), pair_design(goal.target), 60)
    one, other = judge_pairs(sample, table), judged(sample, by_cell(goal, said))
    np.testing.assert_allclose(one.first_better, other.first_better, rtol=0, atol=1e-15)
    np.testing.assert_allclose(one.second_better, other.second_better, rtol=0, atol=1e-15)
    # Assessors by file, and rows of one assessor that are the same or in the other order.
    import pandas as pd

    ann = pd.DataFrame(
        {"qid": ["q1"] * 2, "docA": ["a", "d"], "docB": ["d", "a"], "preferred": ["d", "d"]}
    )
    bob = ann[:1].assign(preferred="a")
    found = read_preferences({"ann": ann, "bob": bob, "cy": ann[:1]})
    assert len(found) == 3
    assert found.notes == ("1 row was given twice, merged.",)
    first = found.documents.to_pylist()[found.first[0]]
    assert (first, sorted(found.better.tolist())) == ("a", [-1, -1, 1])


def test_pairs_that_count_for_no_system_need_no_judgment():
    runs = {"x": {"q": {"a": 2.0, "b": 1.0}}, "y": {"q": {"c": 2.0, "d": 1.0}}}
    goal = asked("Swaps", "pair", runs)
    sample = draw_pairs(jax.random.key(0), pair_design(goal.target), 50)
    said_of = [("q", "b", "a", "b"), ("q", "d", "c", "c"), ("other", "d", "c", "c")]
    import pandas as pd

    table = pd.DataFrame(said_of, columns=["qid", "docA", "docB", "preferred"])
    one = judge_pairs(sample, read_preferences(table))
    assert np.isnan(one.first_better).any()
    found = estimate_preferences(goal, [one])
    assert found.n_judged == 2
    assert found.value[1] == 0.0
    assert found.notes[0].startswith("no judged pair of y is swapped")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (HEAD + "q\ta\tb\tc\n", r'p.tsv:2: .*nor "b" nor "=", got "c"\n.*better'),
        ("qid,docA,docB,preferred\n\n# note\nq,a,b,1\n", r'p.tsv:4: .*"a" nor "b" .*, got "1"'),
        (HEAD + "q\ta\ta\ta\n", 'p.tsv:2: "a" is paired with itself\nhint: drop'),
        (HEAD + "q\ta\t=\ta\n", 'p.tsv:2: a document is named "="\nhint: '),
        (HEAD + "q\ta\t\ta\n", "p.tsv:2: docB is empty\nhint: fill or drop"),
        (HEAD + "q\ta\tb\ta\tz\tz\n", "p.tsv:2: expected 4 fields"),
        (HEAD, "p.tsv: no rows"),
        ("", "p.tsv: expected the columns qid docA docB preferred"),
        # What trec_eval calls prefs: query, subquery, assessor, document and level.
        ("q 0 0 a 1\nq 0 0 b 0\n", "p.tsv: expected the columns qid docA docB preferred, got"),
        # Quotes as the message has them, which the formatter would change.
        ("qid\tdocA\tdocB\nq\ta\tb\n", "preferred, got \"qid docA docB\"\nhint: head a table"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_told(tmp_path, rows, words):
    path = tmp_path / "p.tsv"
    path.write_text(rows)
    with pytest.raises(FormatError, match=words):
        read_preferences(path)


def test_faults_of_several_files_name_their_lines(tmp_path):
    head = "qid\tdocA\tdocB\tpreferred\n"
    (tmp_path / "one.tsv").write_text(head + "q\ta\tb\ta\n")
    (tmp_path / "two.tsv").write_text(head + "q\ta\tb\t=\nq\ta\tb\tx\n" + "q\ta\tb\ty\n" * 3)
    with pytest.raises(FormatError, match=r"two.tsv:3: .*\n.*two.tsv:4: .*\n.*5: .*\n... 4 in all"):
        read_preferences(tmp_path / "one.tsv", tmp_path / "two.tsv")
    with pytest.raises(FormatError, match="a mapping holds no pairs"):
        read_preferences({"q": {"a": 1}})
    with pytest.raises(FormatError, match="no such file"):
        read_preferences(tmp_path / "three.tsv")


def test_ids_that_would_not_be_read_again_are_not_written(tmp_path):
    runs = {"x": {"q": {"=": 2.0, "b\tc": 1.0, "#d": 0.5}}}
    goal = goals.absolute(targets.target(pool(read_runs(runs)), "Swaps"))
    sample = draw_pairs(jax.random.key(0), pair_design(goal.target), 50)
    path = tmp_path / "pairs.tsv"
    with pytest.raises(EvenhandError, match=r"cannot hold: '#d', '=', 'b.tc'"):
        write_pairs(sample, path)
    assert not path.exists()
    fine = draw_pairs(jax.random.key(0), pair_design(asked("Swaps").target), 5)
    with pytest.raises(StudyError, match="cannot write"):
        write_pairs(fine, tmp_path / "none" / "pairs.tsv")


def test_wrong_use_is_refused():
    goal = asked("Swaps")
    table = by_cell(goal, said)
    one = judged(draw_pairs(jax.random.key(0), pair_design(goal.target), 5), table)
    for act, words in (
        (lambda: estimate_preferences(asked("DCG@3"), [one]), "not of DCG@3"),
        (lambda: estimate_preferences(goal, []), "no round was given"),
        (lambda: estimate_preferences(asked("Swaps", runs=ONE), [one]), "from a pool of 7"),
        (lambda: estimate_preferences(goal, [one], level=95), "between 0 and 1, got 95"),
        (lambda: estimate_preferences(goal, [one], planned=[]), "names 0 stages, there are 1"),
        (
            lambda: estimate_preferences(
                goal, [PairRound(one.sample, one.first_better[:3], one.second_better[:3])]
            ),
            "5 draws and 3 judgments",
        ),
    ):
        with pytest.raises(EvenhandError, match=words):
            act()
    # A design for the first ranks draws none of the documents below.
    alike = {name: RUNS[name] for name in ("w", "x")}
    goal, above = (asked(name, runs=alike) for name in ("Swaps", "Swaps@2"))
    deep, shallow = (
        judged(draw_pairs(jax.random.key(0), pair_design(of.target), 5), table)
        for of in (goal, above)
    )
    with pytest.raises(SupportError, match=r"w, x has pairs for Swaps that a round could not"):
        estimate_preferences(goal, [shallow])
    # Rounds that were fixed together cover what one of them does; a later one stands alone.
    together = estimate_preferences(goal, [deep, shallow])
    assert together.n_draws == 10
    with pytest.raises(SupportError, match="could not draw"):
        estimate_preferences(goal, [deep, judged(shallow.sample, table, ("one",))])

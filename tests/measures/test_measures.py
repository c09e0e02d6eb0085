"""Measures: spellings, weights, utilities, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand import measures
from evenhand.errors import EvenhandError
from evenhand.measures import grammar


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("P@10", "P@10"),
        ("P_10", "P@10"),
        ("P.10", "P@10"),
        ("precision@10", "P@10"),
        ("Precision@10", "P@10"),
        ("precision@10-l2", "P(rel=2)@10"),
        (" P( rel = 2 )@5 ", "P(rel=2)@5"),
        ("DCG", "DCG"),
        ("DCG@100", "DCG@100"),
        ("dcg@10", "DCG@10"),
        ("dcg_cut_10", "DCG@10"),
        ("dcg_burges@10", "DCG(gains='exp')@10"),
        ("DCG(log='e')@100", "DCG(log='e')@100"),
        ("DCG(log=10)", "DCG(log=10)"),
        ("DCG(gains='exp')@10", "DCG(gains='exp')@10"),
        ("DCG(gains={2:3,0:0,1:1})@10", "DCG(gains={0:0,1:1,2:3})@10"),
        ("Gain@10", "Gain@10"),
        ("RBP", "RBP(p=0.8)"),
        ("RBP(p=0.95)", "RBP(p=0.95)"),
        ("RBP(p=0.5,rel=2)@20", "RBP(p=0.5,rel=2)@20"),
        ("rbp.80", "RBP(p=0.8)"),
        ("rbp.95", "RBP(p=0.95)"),
        ("nDCG", "nDCG"),
        ("ndcg", "nDCG"),
        ("nDCG@10", "nDCG@10"),
        ("NDCG@10", "nDCG@10"),
        ("ndcg@10", "nDCG@10"),
        ("ndcg_cut_10", "nDCG@10"),
        ("ndcg_cut.10", "nDCG@10"),
        ("ndcg_burges@10", "nDCG(dcg='exp-log2')@10"),
        ("nDCG(gains='exp')@10", "nDCG(dcg='exp-log2')@10"),
        ("nDCG(dcg='exp-log2')@10", "nDCG(dcg='exp-log2')@10"),
        ("nDCG(dcg='log2')@10", "nDCG@10"),
        ("nDCG(gains={2:3,0:0,1:1})@10", "nDCG(gains={0:0,1:1,2:3})@10"),
        ("AP", "AP"),
        ("MAP", "AP"),
        ("map", "AP"),
        ("AP@100", "AP@100"),
        ("map_cut_100", "AP@100"),
        ("map@100", "AP@100"),
        ("map@100-l2", "AP(rel=2)@100"),
        ("AP(rel=2)", "AP(rel=2)"),
        ("R@100", "R@100"),
        ("Recall@100", "R@100"),
        ("recall_100", "R@100"),
        ("recall@100", "R@100"),
        ("R(rel=0.5)@5", "R(rel=0.5)@5"),
        ("Rprec", "Rprec"),
        ("RPrec", "Rprec"),
        ("r-precision", "Rprec"),
        ("r-precision-l2", "Rprec(rel=2)"),
        ("Judged", "Judged"),
        ("Judged@10", "Judged@10"),
        ("P(judged_only=True)@10", "P(judged_only=True)@10"),
        ("P(judged_only=True, rel=2)@10", "P(rel=2,judged_only=True)@10"),
        ("P(judged_only=False)@10", "P@10"),
        ("MAE", "MAE"),
        ("MAE@10", "MAE@10"),
        ("MSE", "MSE"),
        ("Swaps", "Swaps"),
        ("swaps@10", "Swaps@10"),
        ("wSwaps", "wSwaps"),
    ],
)
def test_spellings_print_canonically_and_parse_back(written, canonical):
    measure = grammar.measure(written)
    assert str(measure) == canonical
    assert grammar.measure(canonical) == measure
    assert hash(grammar.measure(canonical)) == hash(measure)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("P", "needs a cutoff"),
        ("Gain", "needs a cutoff"),
        ("P@0", "whole number from 1"),
        ("P@x", "must be a whole number"),
        ("P(rel='a')@5", "must be a number"),
        ("P(p=0.8)@5", "has no option 'p'"),
        ("P(2)@5", "cannot read the options"),
        ("P(rel=)@5", "cannot read the options"),
        ("RBP(p=1)", "between 0 and 1"),
        ("DCG(log=1)", "log base"),
        ("DCG(gains='cubic')@5", "gains of DCG"),
        ("DCG(gains={0:0,1:-1})@5", "gains of DCG"),
        ("R", "needs a cutoff"),
        ("nDCG@0", "whole number from 1"),
        ("AP(rel=True)", "must be a number"),
        ("P(rel=1e999)@5", "must be a number"),
        (f"P(rel=1{'0' * 400})@5", "must be a number"),
        ("DCG(log=1e999)@5", "log base"),
        ("P@\u00b2", "must be a whole number"),
        ("P(rel=1)+g(x=2)@5", "cannot read the options"),
        ("DCG(gains={[1]:2})@5", "cannot read the options"),
        ("Rprec@10", "takes no cutoff"),
        ("MAE(rel=2)", "has no option 'rel'"),
        ("nDCG(rel=2)@10", "has no option 'rel'"),
        ("nDCG(gains='cubic')@10", "gains of nDCG"),
        ("nDCG(dcg='exp')@10", "'exp-log2' without gains"),
        ("nDCG(dcg='exp-log2',gains={0:0})@10", "'exp-log2' without gains"),
        ("P(judged_only=1)@10", "must be True or False"),
        ("AP(judged_only=True)", "has no option 'judged_only'"),
        ("ndcg_cut", "unknown measure"),
        ("MRR", "cannot be estimated without bias"),
        ("bpref", "cannot be estimated without bias"),
        ("success@10", "cannot be estimated without bias"),
        ("ERR@20", "cannot be estimated without bias"),
        ("nERR@10", "cannot be estimated without bias"),
        ("success_5", "cannot be estimated without bias"),
        ("quality@10", "unknown measure"),
        ("@@", "cannot read the measure"),
        ("", "cannot read the measure"),
    ],
)
def test_refusals_say_why(written, says):
    with pytest.raises(EvenhandError, match=says):
        grammar.measure(written)


def test_what_is_no_measure_is_refused():
    with pytest.raises(EvenhandError, match="expected a measure"):
        grammar.measure(10)


@pytest.mark.parametrize(
    ("written", "reason", "instead"),
    [
        ("nDCG@10", "a ratio", "DCG@10"),
        ("nDCG(dcg='exp-log2')", "a ratio", "DCG(gains='exp')"),
        ("AP", "a ratio", "P@10"),
        ("R(rel=2)@5", "a ratio", "P(rel=2)@5"),
        ("Rprec", "a ratio", "P@10"),
        ("MAE", "errors, which depend on the system's own score", ""),
        ("wSwaps@10", "pairs of documents", ""),
        ("Judged@10", "a count of judgments", ""),
        ("P(judged_only=True)@5", "one over those that are judged", "P@5"),
    ],
)
def test_what_sampled_pairs_cannot_estimate_is_refused_with_the_reason(written, reason, instead):
    with pytest.raises(EvenhandError) as error:
        grammar.linear(written)
    assert error.value.message.startswith(f"{grammar.measure(written)} is not a sum over documents")
    assert reason in error.value.message
    other = f", or take {instead}" if instead else ""
    assert error.value.hint == f"evaluate it with complete judgments (`evenhand evaluate`){other}"
    if instead:
        assert str(grammar.linear(instead)) == instead


def test_samples_estimate_sums_and_ratios():
    for name in ("P@10", "nDCG@10", "AP", "R@5", "Rprec", "MAE", "MSE@5", "Swaps", "wSwaps@5"):
        assert str(grammar.sampled(name)) == name
    for name in ("Judged@5", "P(judged_only=True)@5"):
        with pytest.raises(EvenhandError, match="cannot be estimated from sampled pairs"):
            grammar.sampled(name)


def test_what_is_linear_is_given_back():
    assert grammar.linear("P_10") == measures.P(cutoff=10)
    for name in ("P@10", "DCG", "Gain@3", "RBP"):
        assert isinstance(grammar.linear(name), measures.Linear)
        assert not isinstance(grammar.linear(name), measures.Listwise)


def test_weights_of_errors_and_swaps_by_hand():
    rank, length = np.array([1, 2, 3]), np.array([3, 3, 3])
    np.testing.assert_allclose(measures.MAE().weight(rank, length), [1 / 3] * 3)
    np.testing.assert_allclose(measures.MSE(cutoff=2).weight(rank, length), [0.5, 0.5, 0])
    np.testing.assert_allclose(measures.MAE().error(np.array([-1.0]), np.array([2.0])), 3)
    np.testing.assert_allclose(measures.MSE().error(np.array([-1.0]), np.array([2.0])), 9)
    first, second = np.array([1, 1, 2]), np.array([2, 3, 3])
    for measure, weights in (
        (measures.Swaps(), [1 / 3] * 3),
        (measures.Swaps(cutoff=2), [1, 0, 0]),
        (measures.wSwaps(), [1 / 6, 1 / 9, 1 / 18]),
    ):
        both = measure.share(first, length) * measure.share(second, length)
        np.testing.assert_allclose(both, weights)
    np.testing.assert_allclose(measures.Swaps().weight(rank, length), [1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(measures.wSwaps().weight(rank, length), [1 / 3, 1 / 4, 11 / 54])
    assert measures.Swaps().share(np.ones(1), np.ones(1)).tolist() == [0.0]
    np.testing.assert_array_equal(
        measures.Swaps().swapped(np.array([0, 1, 2]), np.array([1, 1, 1])), [1, 0, 0]
    )


def test_weights_by_hand():
    rank = np.array([1, 2, 3, 4])
    np.testing.assert_allclose(grammar.measure("P@2").weight(rank), [0.5, 0.5, 0, 0])
    np.testing.assert_allclose(grammar.measure("Gain@4").weight(rank), [0.25] * 4)
    np.testing.assert_allclose(
        grammar.measure("DCG@3").weight(rank), [1, 0.6309297535714575, 0.5, 0], rtol=1e-15
    )
    np.testing.assert_allclose(
        grammar.measure("DCG(log='e')").weight(rank)[:2], [1.4426950408889634, 0.9102392266268373]
    )
    np.testing.assert_allclose(
        grammar.measure("DCG(log=10)").weight(np.array([9, 99])), [1, 0.5], rtol=1e-14
    )
    np.testing.assert_allclose(
        grammar.measure("RBP(p=0.5)").weight(rank), [0.5, 0.25, 0.125, 0.0625]
    )
    np.testing.assert_allclose(grammar.measure("RBP(p=0.5)@2").weight(rank), [0.5, 0.25, 0, 0])


def test_utilities_by_hand():
    grade = np.array([0.0, 1.0, 1.5, 3.0])
    np.testing.assert_array_equal(grammar.measure("P@2").utility(grade), [0, 1, 1, 1])
    np.testing.assert_array_equal(grammar.measure("P(rel=2)@2").utility(grade), [0, 0, 0, 1])
    np.testing.assert_array_equal(grammar.measure("DCG").utility(grade), grade)
    np.testing.assert_allclose(
        grammar.measure("DCG(gains='exp')").utility(grade), [0, 1, 2**1.5 - 1, 7]
    )
    mapped = grammar.measure("Gain(gains={0:0,1:1,3:9})@5")
    np.testing.assert_array_equal(mapped.utility(np.array([3.0, 0.0, 1.0])), [9, 0, 1])
    with pytest.raises(EvenhandError, match=r"no gain for grade 1\.5"):
        mapped.utility(grade)


def test_top_utility_is_known_where_it_can_be():
    assert grammar.measure("P@5").top_utility == 1
    assert grammar.measure("RBP").top_utility == 1
    assert grammar.measure("DCG").top_utility is None
    assert grammar.measure("DCG(gains={0:0,2:7})").top_utility == 7


@pytest.mark.parametrize(
    "make",
    [
        lambda: measures.P(cutoff="abc"),
        lambda: measures.P(cutoff=float("nan")),
        lambda: measures.P(cutoff=[1]),
        lambda: measures.P(cutoff=5, rel="2"),
        lambda: measures.R(cutoff=5, rel=None),
        lambda: measures.AP(rel=float("nan")),
        lambda: measures.RBP(p="a"),
    ],
)
def test_values_that_are_refused(make):
    with pytest.raises(EvenhandError, match="must be a"):
        make()

"""A verdict says how many cases agree, how likely that is by chance, and who cannot tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from undertow.errors import BadData, BadValue
from undertow.studies.claims import (
    FITTED,
    CaseVerdict,
    Claim,
    ClaimVerdict,
    each_seed,
    network_votes,
    one_answer,
    paired_difference,
    sign_test,
)
from undertow.studies.findings import Findings
from undertow.studies.recipe import Case, Study
from undertow.training.config import TrainConfig

CASES = ("MLP 0.4", "MLP 0.8", "untrained")


def cases(agree, of, unknown=0):
    known = [CaseVerdict(f"case {place}", place < agree, "words") for place in range(of)]
    return [*known, *(CaseVerdict("odd", None, "no labels") for _ in range(unknown))]


@pytest.mark.parametrize(("agree", "of"), [(0, 4), (3, 4), (7, 8), (8, 8), (13, 20)])
def test_the_sign_test_is_scipys(agree, of):
    assert sign_test(agree, of) == pytest.approx(
        stats.binomtest(agree, of, 0.5, alternative="greater").pvalue
    )


@pytest.mark.parametrize("size", [2, 5, 8])
def test_the_paired_test_is_scipys_permutation_test(size):
    differences = np.random.default_rng(size).normal(0.3, 1, size)

    def p(side):
        return stats.permutation_test(
            (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative=side
        ).pvalue

    found = paired_difference(differences.tolist())
    assert found.p_above == pytest.approx(p("greater"))
    assert found.p_below == pytest.approx(p("less"))
    assert found.mean == pytest.approx(differences.mean())


def test_ties_in_the_paired_test_count_on_both_sides():
    found = paired_difference([0.0, 0.0, 0.0])
    assert (found.p_above, found.p_below) == (1, 1)
    assert ClaimVerdict.of_paired([0.0, 0.0]).holds is None


def test_five_seeds_decide_and_four_do_not():
    assert ClaimVerdict.of_paired([0.1, 0.2, 0.1, 0.3, 0.1]).holds is True
    assert ClaimVerdict.of_paired([-0.1, -0.2, -0.1, -0.3, -0.1]).holds is False
    assert ClaimVerdict.of_paired([0.1, 0.2, 0.1, 0.3]).holds is None


def test_differences_that_are_none_are_refused():
    with pytest.raises(BadValue, match="1 to 16"):
        paired_difference([])
    with pytest.raises(BadData, match="wanted numbers"):
        paired_difference([0.1, float("nan")])


@pytest.mark.parametrize(
    ("share", "agree", "of", "holds"),
    [
        ("every", 8, 8, True), ("every", 7, 8, False), ("some", 1, 8, True), ("some", 0, 8, False),
        ("most", 7, 8, True), ("most", 6, 8, None), ("most", 4, 8, None), ("most", 3, 3, None), ("most", 1, 8, False),
        ("most", 0, 4, None), ("most", 0, 5, False), ("most", 5, 5, True), ("many", 3, 9, True), ("many", 2, 9, False),
    ],
)  # fmt: skip
def test_how_many_must_agree_is_what_the_paper_says(share, agree, of, holds):
    verdict = ClaimVerdict.of_cases(cases(agree, of), share)
    assert (verdict.holds, verdict.agree, verdict.of) == (holds, agree, of)
    assert verdict.numbers.startswith(f"{agree} of {of} cases")
    assert (verdict.p is None) == (share != "most")


def test_cuts_of_one_network_have_one_vote_together():
    """Three cuts of four networks agree: twelve cases would decide, four networks cannot."""
    judged = [
        CaseVerdict(f"net {net}, cut {cut}", True, "words", f"net {net}")
        for net in range(4)
        for cut in range(3)
    ]
    verdict = ClaimVerdict.of_cases(judged, "most")
    assert (verdict.holds, verdict.agree, verdict.of) == (None, 4, 4)
    assert verdict.numbers.startswith("12 of 12 cases, most in 4 of 4 networks (sign test, p = 0.0625)")
    assert network_votes([*judged[:3], judged[3], judged[4]._replace(holds=False)]) == [
        True
    ]  # a tie has no vote


def test_every_seed_is_a_network_of_its_own():
    def check(own):
        return ClaimVerdict.of_cases(
            CaseVerdict(f"{case}, cut", own.mean(case, "score") > 0.5, "words", case) for case in own.cases
        )

    verdict = each_seed(check, before="score, ")(found())
    assert (verdict.agree, verdict.of) == (6, 6)  # three cases, two seeds
    assert "score, MLP 0.4, cut, seed 0: words; " in verdict.numbers

    nothing = replace(found(), rows=pd.DataFrame())  # as where no task of a study is done yet
    assert each_seed(check)(nothing).word == "cannot tell"

    def silent(_own):
        raise BadData("no row has it")

    assert each_seed(silent)(found()).numbers == "seed 0: no row has it; seed 1: no row has it"


def test_one_answer_is_that_of_most_cases():
    """Fifteen corruptions of one network: fourteen speak for it."""

    def check(_own):
        return ClaimVerdict.of_cases(CaseVerdict(f"blur {at}", at > 0, "words", "net") for at in range(15))

    verdict = one_answer(check)(found())
    assert (verdict.holds, verdict.agree, verdict.of) == (True, 1, 1)
    assert "net: 14 of 15: blur 0: words, blur 1: words" in verdict.numbers
    assert each_seed(one_answer(check), "every")(found()).of == 2


def test_every_case_wants_half_of_them_told():
    """One of eight that could tell once said "holds in every case"."""
    assert ClaimVerdict.of_cases([*cases(1, 1), *cases(0, 0, unknown=2)]).holds is None
    told = ClaimVerdict.of_cases(cases(2, 2))
    assert told.beside([CaseVerdict(f"net {at}", None, "not fitted") for at in range(3)]).holds is None
    assert told.beside(
        [CaseVerdict(f"net 0 (seed {at})", None, "not fitted", "net 0") for at in range(3)]
    ).holds
    assert ClaimVerdict.of_cases([*cases(0, 1), *cases(0, 0, unknown=2)]).holds is False


def test_a_case_that_cannot_tell_is_named_and_not_counted():
    verdict = ClaimVerdict.of_cases(cases(8, 8, unknown=1))
    assert (verdict.holds, verdict.of) == (True, 8)
    assert "odd: no labels" in verdict.numbers
    assert ClaimVerdict.of_cases(cases(0, 0, unknown=2)).word == "cannot tell"
    assert ClaimVerdict.of_cases(()).word == "cannot tell"


def found(*fits):
    """A score for each case and seed, and a fit for those that have one."""
    lines = [
        {"case": case, "seed": seed, "measure": "score", "value": 1.0} for case in CASES for seed in (0, 1)
    ]
    lines += [
        {"case": case, "seed": seed, "measure": "train_fit", "value": value} for case, seed, value in fits
    ]
    study = Study(
        name="test/claims", title="A test", source="nowhere", measure="tests:nothing", claims=(), figure=lambda _: None,
        cases=(*(Case(name, TrainConfig()) for name in CASES[:2]), Case(CASES[2])),
    )  # fmt: skip
    return Findings(study, pd.DataFrame(lines))


CLAIM = Claim(
    "scores are high",
    lambda own: ClaimVerdict.of_cases(
        CaseVerdict(case, own.mean(case, "score") > 0.5, f"{own.seen(case, 'score').seeds} seeds")
        for case in own.cases
    ),
    presupposes=FITTED,
)


def test_what_never_fitted_says_nothing_of_a_claim_that_presupposes_it():
    fits = [("MLP 0.4", 0, 1.0), ("MLP 0.4", 1, 0.99), ("MLP 0.8", 0, 0.34), ("MLP 0.8", 1, 0.4)]
    verdict = CLAIM.judge(found(*fits))
    assert (verdict.holds, verdict.of) == (True, 2)  # a case that trains nothing has nothing to fit
    assert "cannot tell of MLP 0.8: fits 34 % of its training labels, wanted 95 %" in verdict.numbers
    assert replace(CLAIM, presupposes=None).judge(found(*fits)).of == 3


def test_one_seed_that_did_not_get_there_is_left_out_alone():
    fits = [("MLP 0.4", 0, 1.0), ("MLP 0.4", 1, 0.5), ("MLP 0.8", 0, 1.0), ("MLP 0.8", 1, 1.0)]
    verdict = CLAIM.judge(found(*fits))
    assert "MLP 0.4: 1 seeds; MLP 0.8: 2 seeds" in verdict.numbers
    assert "MLP 0.4 (seed 1): fits 50 %" in verdict.numbers


def test_a_fit_that_nobody_recorded_is_no_fit():
    verdict = CLAIM.judge(found())
    assert verdict.of == 1
    assert "MLP 0.4: no train_fit was recorded" in verdict.numbers


def test_a_claim_without_its_numbers_cannot_be_told():
    missing = Claim("x", lambda own: ClaimVerdict(own.mean("MLP 0.4", "nothing") > 0, "never"))
    verdict = missing.judge(found())
    assert verdict.word == "cannot tell"
    assert "no row has nothing of 'MLP 0.4'" in verdict.numbers
    unmet = replace(missing, presupposes=FITTED).judge(found(("MLP 0.4", 0, 0.1), ("MLP 0.4", 1, 0.1)))
    assert "cannot tell of MLP 0.4: fits 10 %" in unmet.numbers

"""The rules by what defines them: within the bound, and nothing simpler is."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.errors import refused

from protodask.selection.results import Rule, Trial, best_trial, choose, simplicity

LOSSES = st.one_of(st.floats(0, 3), st.sampled_from([0.25, 0.5, math.nan, math.inf]))


@st.composite
def trial_lists(draw: st.DrawFn) -> list[Trial]:
    folds = draw(st.integers(1, 5))
    trials = st.builds(
        Trial,
        stage=st.just(1),
        lambda_v=st.sampled_from([1e-5, 1e-3, 1e-1]),
        lambda_w=st.sampled_from([1e-9, 1e-6]),
        n_batches=st.integers(1, 3),
        fold_losses=st.lists(LOSSES, min_size=folds, max_size=folds).map(tuple),
    )
    found = draw(st.lists(trials, min_size=1, max_size=12))
    assume(any(all(math.isfinite(loss) for loss in trial.fold_losses) for trial in found))
    return found


def simpler(one: Trial, other: Trial) -> bool:
    """Written out once more: larger lambda_v, then fewer batches, then larger lambda_w, then smaller mean."""
    if one.lambda_v != other.lambda_v:
        return one.lambda_v > other.lambda_v
    if one.n_batches != other.n_batches:
        return one.n_batches < other.n_batches
    if one.lambda_w != other.lambda_w:
        return one.lambda_w > other.lambda_w
    return one.mean < other.mean


def is_finite(trial: Trial) -> bool:
    return all(math.isfinite(loss) for loss in trial.fold_losses)


RULES: tuple[tuple[Rule, float], ...] = (("one standard error", 1.0), ("half a standard error", 0.5))


@given(trial_lists(), st.sampled_from(RULES))
def test_choose__takes_the_simplest_within_so_many_standard_errors(
    trials: list[Trial], said: tuple[Rule, float]
) -> None:
    rule, errors = said
    chosen = trials[choose(trials, rule)]
    finite = [trial for trial in trials if is_finite(trial)]
    smallest = min(trial.mean for trial in finite)
    best = trials[choose(trials, "best")]
    assert best.mean == smallest
    assert not any(simpler(trial, best) for trial in finite if trial.mean == smallest)
    bound = smallest + errors * best.standard_error
    assert is_finite(chosen)
    assert chosen.mean <= bound
    assert not any(simpler(trial, chosen) for trial in finite if trial.mean <= bound)


@given(trial_lists(), st.randoms(use_true_random=False), st.sampled_from(["best", *dict(RULES)]))
def test_choose__does_not_depend_on_the_order(trials: list[Trial], random: object, rule: Rule) -> None:
    shuffled = list(trials)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = trials[choose(trials, rule)], shuffled[choose(shuffled, rule)]
    assert simplicity(one) == simplicity(other)


def trial(lambda_v: float, losses: tuple[float, ...], n_batches: int = 1) -> Trial:
    return Trial(1, lambda_v, 1e-8, n_batches, losses)


def test_choose__by_hand() -> None:
    # The best has mean 0.5 and standard error 0.1 / sqrt(3), that is 0.0577.
    trials = [
        trial(1e-5, (0.4, 0.5, 0.6)),
        trial(1e-4, (0.55, 0.55, 0.56), n_batches=3),
        trial(1e-4, (0.55, 0.55, 0.57), n_batches=2),
        trial(1e-3, (0.55, 0.55, 0.56)),
        trial(1e-2, (0.56, 0.56, 0.56)),
    ]
    assert choose(trials, "best") == 0
    assert choose(trials, "one standard error") == 3
    assert choose(trials[:3], "one standard error") == 2
    assert choose(trials) == 0
    bounds: list[tuple[Rule, float]] = [("one standard error", 0.5577), ("half a standard error", 0.5288)]
    for rule, last in bounds:
        assert choose([*trials[:1], trial(1e-1, (last,) * 3)], rule) == 1
        assert choose([*trials[:1], trial(1e-1, (last + 1e-4,) * 3)], rule) == 0


@pytest.mark.parametrize("rule", ["best", *dict(RULES)])
def test_choose__of_equals_but_for_lambda_w_takes_the_largest(rule: Rule) -> None:
    trials = [Trial(1, 1e-3, lambda_w, 2, (0.5, 0.6)) for lambda_w in (1e-8, 1e-6, 1e-9)]
    assert choose(trials, rule) == 1


def test_choose__takes_fewer_batches_rather_than_a_larger_lambda_w() -> None:
    losses = (0.5, 0.6)
    of_two, of_one = Trial(1, 1e-3, 1e-6, 2, losses), Trial(1, 1e-3, 1e-9, 1, losses)
    assert choose([of_two, of_one]) == 1
    assert choose([of_one, of_two]) == 0
    assert choose([of_one, Trial(1, 1e-1, 1e-9, 3, losses)]) == 1, "lambda_v comes before either"


def test_choose__with_a_single_fold_takes_the_best() -> None:
    assert choose([trial(1e-1, (0.5,)), trial(1e-5, (0.4999,))]) == 1


@pytest.mark.parametrize("rule", ["best", *dict(RULES)])
def test_choose__never_takes_what_failed_in_a_fold(rule: Rule) -> None:
    failed = [trial(1.0, (0.0, math.nan)), trial(1.0, (math.inf, 0.0)), trial(1.0, (-math.inf, 0.0)), trial(1.0, ())]
    assert choose([*failed, trial(1e-5, (2.0, 2.0))], rule) == 4
    with refused("no-convergence", 4, "larger penalties"):
        choose(failed, rule)


def test_choose__refuses_no_trials_and_other_rules() -> None:
    with refused("too-few", "no trials"):
        best_trial([])
    with refused("unknown-name", "'worst'", *map(repr, ("half a standard error", "one standard error", "best"))):
        choose([trial(1e-1, (0.5,))], "worst")  # type: ignore[arg-type]

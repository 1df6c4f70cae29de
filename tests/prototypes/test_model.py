"""What a model computes, against the oracle."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import classifier as oracle
from support.errors import refused

from protodask.engine import Block
from protodask.prototypes.fitted import familiarity, probabilities
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.scoring import add_round_block, predict_block, predict_features, score_block
from protodask.prototypes.splines import SplineCalibration

Floats = NDArray[np.float64]
MakeModel = Callable[..., PrototypeSet]


def reference_scores(model: PrototypeSet, x: Floats, n_batches: int) -> Floats:
    """The oracle's unscaled probabilities: its models have one centre, so a batch at a time."""
    q = np.tile(model.marginals, (len(x), 1))
    for batch in model.batches[:n_batches]:
        selected = (x[:, batch.feature_index] - batch.center) / batch.scale
        prototypes = (batch.prototypes - batch.center) / batch.scale
        plain = oracle.Batch(batch.feature_weight, prototypes, batch.prototype_class, batch.prototype_weight, batch.row)
        q = q + oracle.batch_mass(plain, selected, model.n_classes)
    return q


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("seed", range(4))
def test_scores__are_the_oracles_for_every_number_of_batches(
    make_model: MakeModel, precision: str, tolerance: float, seed: int
) -> None:
    model = make_model(seed, n_batches=4, n_classes=3 + seed, precision=precision)
    x = np.random.default_rng(seed).normal(size=(30, 4))
    for count, scores in enumerate(model.scores(x, range(5))):
        np.testing.assert_allclose(scores, reference_scores(model, x, count), rtol=tolerance)


def test_scores__of_several_numbers_in_any_order(make_model: MakeModel) -> None:
    model, x = make_model(1, n_batches=3), np.random.default_rng(0).normal(size=(7, 4))
    several = model.scores(x, [3, 0, 2, 3])
    assert len(several) == 4
    for count, scores in zip([3, 0, 2, 3], several, strict=True):
        np.testing.assert_array_equal(scores, model.scores(x, [count])[0])
        np.testing.assert_array_equal(scores, replace(model, batches=model.batches[:count]).scores(x, [count])[0])


def test_scores__of_no_rows_or_no_numbers(make_model: MakeModel) -> None:
    model = make_model(1)
    assert model.scores(np.zeros((0, 4)), [2])[0].shape == (0, 3)
    assert model.scores(np.zeros((2, 4)), []) == []


def test_scores__far_from_all_prototypes_are_the_marginals(make_model: MakeModel) -> None:
    model = make_model(2, n_batches=3)
    (scores,) = model.scores(np.full((2, 4), 1e6), [3])
    np.testing.assert_allclose(probabilities(scores), np.tile(model.marginals, (2, 1)), rtol=1e-12)
    np.testing.assert_allclose(familiarity(scores), 0, atol=1e-12)


def test_probabilities__and_familiarity_by_hand() -> None:
    scores = np.array([[1.0, 3.0], [0.25, 0.75]])
    np.testing.assert_array_equal(probabilities(scores), [[0.25, 0.75], [0.25, 0.75]])
    np.testing.assert_array_equal(familiarity(scores), [3, 0])


def test_batch_counts__of_one_several_or_all(make_model: MakeModel) -> None:
    model = make_model(0, n_batches=3)
    assert model.batch_counts(None) == (3,)
    assert model.batch_counts(0) == (0,)
    assert model.batch_counts(np.int64(2)) == (2,)  # type: ignore[arg-type]
    assert model.batch_counts([3, 1, 1]) == (3, 1, 1)


@pytest.mark.parametrize("wrong", [4, -1, [0, 4], 1.5, [1.0], True, "2"])
def test_batch_counts__refuses_what_is_no_number_of_batches(make_model: MakeModel, wrong: Any) -> None:
    with refused("bad-setting", "n_batches", "3 batches", "from 0"):
        make_model(0, n_batches=3).batch_counts(wrong)


def test_batch_counts__take_those_that_were_trained_together_as_one(make_model: MakeModel) -> None:
    model = make_model(0, n_batches=4, rounds=(1, 3))
    assert model.round_ends == (0, 1, 4)
    assert model.batch_counts(None) == (4,)
    assert model.batch_counts([2, 0, 1]) == (4, 0, 1)
    for wrong in (3, [1, 4]):
        with refused("bad-setting", "n_batches", "2 batches", "together", "from 0"):
            model.batch_counts(wrong)


def test_with_round__knows_which_batches_came_together(make_model: MakeModel) -> None:
    model = make_model(0, n_batches=3)
    one, two, three = model.batches
    grown = replace(model, batches=()).with_round([one])
    assert (grown.rounds, grown.n_rounds, grown.last_round) == (None, 1, (one,))
    grown = grown.with_round([two, three])
    assert (grown.rounds, grown.n_rounds, grown.last_round) == ((1, 2), 2, (two, three))
    grown = grown.with_round([one])
    assert (grown.rounds, grown.n_rounds, grown.last_round) == ((1, 2, 1), 3, (one,))
    assert replace(model, batches=()).last_round == ()


def test_label_of__is_the_class_of_all_prototypes(make_model: MakeModel) -> None:
    model = make_model(0, n_batches=3)
    batch = model.batches[0]
    assert len(set(batch.prototype_class.tolist())) > 1
    assert model.label_of(batch) is None
    assert model.label_of(model.batches[1]) is None, "it has no prototypes"
    assert model.label_of(replace(batch, prototype_class=np.full(5, 2))) == "class 2"


def test_active_features__are_those_of_any_batch(make_model: MakeModel) -> None:
    model = make_model(0, n_batches=3)
    expected = sorted(set(model.batches[0].feature_index.tolist()) | set(model.batches[2].feature_index.tolist()))
    assert model.active_features.tolist() == expected
    assert replace(model, batches=()).active_features.tolist() == []
    assert replace(model, batches=model.batches[1:2]).active_features.tolist() == []
    assert model.n_prototypes == 5 + 0 + 7


def test_scoring__batch_by_batch_adds_up_to_the_same_bits(make_model: MakeModel) -> None:
    model, x = make_model(3, n_batches=3), np.random.default_rng(4).normal(size=(20, 4))
    block = Block(0, 0, {"features": x})
    scores = score_block(block, replace(model, batches=model.batches[:1]))["scores"]
    for count in (2, 3):
        shorter = replace(model, batches=model.batches[:count])
        before = scores.copy()
        scores = add_round_block(Block(0, 0, {"features": x, "scores": scores}), shorter)["scores"]
        assert count == 2 or not np.array_equal(before, scores)
        np.testing.assert_array_equal(scores, score_block(block, shorter)["scores"])


def test_scoring__round_by_round_adds_up_to_the_same_bits(make_model: MakeModel) -> None:
    model, x = make_model(3, n_batches=4, rounds=(1, 3)), np.random.default_rng(4).normal(size=(20, 4))
    first = score_block(Block(0, 0, {"features": x}), replace(model, batches=model.batches[:1], rounds=None))
    found = add_round_block(Block(0, 0, {"features": x, **first}), model)["scores"]
    np.testing.assert_array_equal(found, score_block(Block(0, 0, {"features": x}), model)["scores"])


def test_predict_block__takes_the_first_of_equally_probable_classes(make_model: MakeModel) -> None:
    model = replace(make_model(0), marginals=np.array([0.2, 0.4, 0.4]))
    found = predict_block(Block(0, 0, {"features": np.zeros((2, 4))}), model, 0)
    assert found["predicted"].tolist() == [1, 1]
    assert found["predicted"].dtype == np.int32
    np.testing.assert_allclose(found["probability"], [[0.2, 0.4, 0.4]] * 2, rtol=1e-15)
    assert found["familiarity"].tolist() == pytest.approx([0, 0], abs=1e-15)


def test_predict_features__is_probabilities_and_familiarity(make_model: MakeModel) -> None:
    model, x = make_model(5), np.random.default_rng(1).normal(size=(6, 4))
    ((p1, f1), (p2, f2)) = predict_features(x, model, [1, 2])
    for count, p, f in ((1, p1, f1), (2, p2, f2)):
        q = reference_scores(model, x, count)
        np.testing.assert_allclose(p, q / q.sum(axis=1, keepdims=True), rtol=1e-12)
        np.testing.assert_allclose(f, q.sum(axis=1) - 1, rtol=1e-11, atol=1e-13)


def test_with_round__leaves_a_calibration_behind(
    make_model: MakeModel, make_calibration: Callable[..., SplineCalibration]
) -> None:
    model = replace(make_model(0), calibration=make_calibration(0))
    assert model.with_round(model.batches[:1]).calibration is None
    assert model.calibrated_batches() == 2
    assert model.calibrated_batches(2) == 2
    joint = replace(make_model(0, n_batches=3), calibration=model.calibration, rounds=(2, 1))
    assert joint.calibrated_batches(1) == 2
    with refused("bad-setting", "a calibration of 1 of its batches, and 2 are"):
        joint.calibrated_batches(2)
    with refused("bad-setting", "n_batches is 7", "2 batches"):
        model.calibrated_batches(7)
    assert model.scored_batches() == model.n_batches
    assert model.scored_batches(1) == 1
    assert model.scored_batches(calibrated=True) == 2


def test_repr__says_what_it_is_in_a_line(make_model: Callable[..., PrototypeSet]) -> None:
    text = repr(make_model(2, n_batches=2))
    assert "2 batches" in text
    assert "11 prototypes" in text
    assert "\n" not in text
    single = make_model(2, n_batches=1)
    assert ", 1 batch, " in repr(single)
    with refused("bad-setting", "n_batches is 2", "The model has 1 batch: give"):
        single.predict_proba(np.zeros((1, single.n_features)), n_batches=2)


def test_pickle__of_the_time_when_batches_were_in_the_module_of_the_model(make_model: MakeModel) -> None:
    model = make_model(1)
    content = pickle.dumps(model, protocol=0)
    earlier = content.replace(b"protodask.prototypes.batches\nBatch", b"protodask.prototypes.model\nBatch")
    assert earlier != content
    x = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_array_equal(pickle.loads(earlier).predict_proba(x), model.predict_proba(x))

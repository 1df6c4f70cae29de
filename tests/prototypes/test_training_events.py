"""What a fit tells while it runs."""

import numpy as np

from protodask import PrototypeSetClassifier
from protodask.prototypes import BatchDone, BatchStarted, FitEvent, IterationDone


def test_fit__tells_the_number_of_batches_from_the_first_on() -> None:
    events: list[FitEvent] = []
    rng = np.random.default_rng(5)
    X = rng.uniform(size=(120, 2))
    y = X[:, 0] > X[:, 1]
    classifier = PrototypeSetClassifier(
        n_batches=1, n_candidates=20, recipe="source", warm_start=True, callbacks=[events.append]
    )
    classifier.fit(X, y)
    classifier.set_params(n_batches=3).fit(X, y)
    assert [(event.batch, event.n_batches) for event in events if isinstance(event, BatchStarted)] == [
        (1, 1),
        (2, 3),
        (3, 3),
    ]
    assert [event.record.batch for event in events if isinstance(event, BatchDone)] == [1, 2, 3]
    assert all(event.candidates <= 24 for event in events if isinstance(event, IterationDone))

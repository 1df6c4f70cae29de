"""The warning of a fit that ended early, apart from the fits: only who is warned waits for scikit-learn's import."""

from __future__ import annotations

import sklearn.exceptions


class ConvergenceWarning(sklearn.exceptions.ConvergenceWarning):  # type: ignore[misc]
    """A batch or a plane ended before the solver was satisfied."""

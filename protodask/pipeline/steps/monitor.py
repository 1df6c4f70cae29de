"""The step `monitor`: rows as a model sees them, and what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from protodask.errors import InputError, count
from protodask.pipeline.steps.base import Answering, Argument, Option, Overwrite, Panel, Read, Written
from protodask.pipeline.steps.rows import Batches, KnownRows, Model
from protodask.pipeline.telling.result import Pairs, Piece, Result, Table, plain, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.data import Label
    from protodask.engine import Engine
    from protodask.evaluation.stream_changes import StreamChanges
    from protodask.evaluation.stream_profile import StreamProfile
    from protodask.prototypes.model import PrototypeSet


MOST_SHOWN = 10
"""Features that a person is told of."""

MOST_WORST = 20
"""Features with the largest change that the results list; the profile has all of them."""

SHIFTED = {
    "labels": "the shares of the classes",
    "predictions": "those of the predicted classes",
    "familiarity": "the familiarity",
    "calibration": "the calibration",
}
"""What changed where the figure `shift` of a section is not 0."""

TOLD = {
    "drift": ("largest", "features"),
    "labels": ("shift",),
    "predictions": ("shift",),
    "familiarity": ("rare", "shift", "p50"),
    "calibration": ("shift", "error"),
    "log_loss": ("increase", "value"),
}
"""Figures that a person is told, by section; limits call them by both names."""


@dataclass(frozen=True)
class RowsMonitored(Result):
    """A description of rows lies at `path`."""

    path: str
    model: str
    data: str
    reference: str | None
    profile: StreamProfile
    before: StreamProfile | None
    """Of the reference."""
    changes: StreamChanges | None

    def summary(self) -> str:
        rows = f"{count(self.profile.rows, 'row')} of {shorten(self.data)}"
        if self.changes is None:
            return f"This is what {rows} look like to the model. There is nothing to compare them with."
        found = self.describe()
        changed = []
        if features := found["drift"]["features"]:
            changed.append(f"{count(features, 'feature')} (largest index {found['drift']['largest']:.3g})")
        shifts = {what: found[section]["shift"] for section, what in SHIFTED.items()}
        changed += [f"{what} (by {shift:.3g})" for what, shift in shifts.items() if shift]
        if increase := found["log_loss"]["increase"]:
            changed.append(f"the log-loss (up by {increase:.3g})")
        if not changed:
            return f"Nothing changed in {rows} beyond what may be chance."
        return f"In {rows} changed: {', '.join(changed)}."

    def told(self) -> Iterator[Piece]:
        found = self.describe()
        yield self.summary()
        yield ""
        figures = {f"{section}.{name}": found[section][name] for section, names in TOLD.items() for name in names}
        yield Pairs([(name, "not measured" if value is None else f"{value:.6g}") for name, value in figures.items()])
        if worst := found["drift"]["worst"][:MOST_SHOWN]:
            yield ""
            yield "Features, those that changed most first"
            rows = [
                (
                    entry["name"],
                    f"{entry['index']:.4f}",
                    f"{entry['p_value']:.1e}",
                    f"{entry['mean_before']:.5g}",
                    f"{entry['mean']:.5g}",
                    "changed" if entry["significant"] else "",
                )
                for entry in worst
            ]
            yield Table(["feature", "stability index", "p-value", "mean before", "mean now", ""], rows)
        if self.changes is not None:
            yield ""
            least = f"{self.changes.noticeable:.0%}"
            yield f"From {least} on, a change of a share from one half would be noticed in so many rows."
        yield ""
        yield f"The description is in {shorten(self.path)}; `reference` takes it for later rows."

    def file_content(self) -> dict[str, Any]:
        """What the file holds: the figures, and the profile that later rows are compared with."""
        from protodask.evaluation.stream_profile import profile_record

        return {**self.describe(), "profile": profile_record(self.profile)}

    def describe(self) -> dict[str, Any]:
        """The figures as plain values; one that could not be measured is null."""
        from protodask.evaluation.stream import CORRECT

        profile = self.profile
        return {
            "kind": "monitor",
            "model": mask(self.model),
            "data": mask(self.data),
            "reference": plain(self.reference),
            "rows": profile.rows,
            "weight": profile.weight,
            "effective_rows": profile.effective_rows,
            **_of(self.changes, "significance", "noticeable"),
            "drift": self._drift(),
            "labels": self._labels(),
            "predictions": self._predictions(),
            "familiarity": self._familiarity(),
            "calibration": self._calibration(),
            "log_loss": self._log_loss(),
            "accuracy": None if profile.outcomes is None else float(profile.outcomes.mean[CORRECT]),
        }

    def _drift(self) -> dict[str, Any]:
        if self.changes is None:
            return {"largest": None, "features": None, "worst": []}
        drifted = self.changes.drifted
        return {
            "largest": max((feature.index for feature in drifted), default=0.0),
            "features": len(drifted),
            "worst": [
                {
                    **_of(feature, "name", "index", "p_value", "mean_before"),
                    "mean": feature.mean_after,
                    **_of(feature, "deviation_before", "significant"),
                }
                for feature in self.changes.features[:MOST_WORST]
            ],
        }

    def _labels(self) -> dict[str, Any]:
        found = None if self.changes is None else self.changes.labels
        outcomes, profile = self.profile.outcomes, self.profile
        unknown, shares = None, []
        if outcomes is not None:
            part = outcomes.labels.shares.tolist()
            unknown = sum(part[len(profile.classes) :], 0.0)
            shares = _by_label((*profile.classes, *profile.unknown), share=part)
        if found is not None:
            shares = _by_label(found.labels, before=found.before, share=found.after)
        return {**_of(found, "shift", "index", "p_value"), "unknown": unknown, "classes": shares}

    def _predictions(self) -> dict[str, Any]:
        found, profile = None if self.changes is None else self.changes.predictions, self.profile
        shares = _by_label(
            profile.classes,
            share=profile.predicted.shares.tolist(),
            mean_probability=profile.probability.tolist(),
            **({} if found is None else {"before": found.before}),
        )
        return {**_of(found, "shift", "index", "p_value"), "classes": shares}

    def _familiarity(self) -> dict[str, Any]:
        found = None if self.changes is None else self.changes.familiarity
        return {
            **_of(found, "rare", "shift", "index", "p_value", "below_1_percent", "below_5_percent"),
            **self.profile.quantiles,
            "before": None if self.before is None else dict(self.before.quantiles),
        }

    def _calibration(self) -> dict[str, Any]:
        from protodask.evaluation.stream_changes import calibration_error, calibration_table

        found, outcomes = None if self.changes is None else self.changes.outcomes, self.profile.outcomes
        error = None if outcomes is None else calibration_error(outcomes)
        before = None if self.before is None or self.before.outcomes is None else self.before.outcomes
        return {
            "shift": None if found is None else found.calibration_shift,
            "error": None if error is None else error.value,
            "error_standard_error": None if error is None else error.standard_error,
            "error_before": None if before is None else calibration_error(before).value,
            "residuals": []
            if found is None
            else _by_label(
                self.profile.classes, before=found.residual_before, mean=found.residual_after, p_value=found.p_values
            ),
            "table": [] if outcomes is None else calibration_table(outcomes, self.profile.classes),
        }

    def _log_loss(self) -> dict[str, Any]:
        found = None if self.changes is None else self.changes.outcomes
        return {
            "value": self.profile.log_loss,
            "before": None if self.before is None else self.before.log_loss,
            **_of(found, "increase", "difference", "standard_error", "p_value", prefix="loss_"),
        }


def _of(found: object, *names: str, prefix: str = "") -> dict[str, Any]:
    """Fields of what was compared, by name; null where it was not."""
    return {name: None if found is None else getattr(found, f"{prefix}{name}") for name in names}


def _by_label(labels: Sequence[Label], **columns: Sequence[float]) -> list[dict[str, Any]]:
    """An entry for each label, with its value in each of the columns."""
    return [dict(zip(("label", *columns), entry, strict=True)) for entry in zip(labels, *columns.values(), strict=True)]


@dataclass(frozen=True)
class MonitorStep(KnownRows, Answering):
    """Describe rows as a model sees them: features, familiarity, classes, calibration, loss.

    With a reference, say what changed since then, by figures that allow for noise: see `protodask gate`.
    """

    command = "monitor"
    panel = Panel.WATCH
    about = "{model} on {data} into {out}"

    model: Model
    data: Annotated[Read, Argument("Rows, of known classes or not: a dataset, or raw tables or arrays.", "DATA")]
    out: Annotated[Written, Option("JSON file to write; itself a reference for later.", "FILE")]
    reference: Annotated[
        Read | None,
        Option("What `monitor` wrote for this model and earlier rows, best rows that it was not trained on.", "FILE"),
    ] = None
    batches: Batches = None
    significance: Annotated[
        float,
        Option("A change counts where chance makes it with less than this probability, for each kind of figure.", "P"),
    ] = 5e-5
    overwrite: Overwrite = False

    def check(self) -> None:
        from protodask.evaluation.interval import is_share

        if not is_share(self.significance):
            raise InputError(
                "bad-setting",
                f"significance is {self.significance}.",
                "Give the chance of a false alarm, between 0 and 1, such as 5e-5.",
            )

    def answer(self, engine: Engine) -> RowsMonitored:
        from protodask.evaluation.stream import Watch, learn_bins, watch_stream
        from protodask.evaluation.stream_changes import compare_profiles
        from protodask.evaluation.stream_profile import make_profile, read_profile
        from protodask.pipeline.work.limits import read_results
        from protodask.prototypes.model import load_model
        from protodask.prototypes.persistence import model_fingerprint

        model = load_model(self.model)
        fingerprint = model_fingerprint(model)
        (n_batches,) = model.batch_counts(self.batches)
        before = None
        if self.reference is not None:
            before = read_profile(read_results(self.reference), mask(self.reference))
            _check_reference(before, self.reference, model, fingerprint, n_batches)
        source, classes = self.any_rows(self.data, model, model.classes, engine)
        if before is None:
            features, familiarity = learn_bins(engine, source, model, n_batches)
        else:
            features, familiarity = tuple(feature.bins for feature in before.features), before.familiarity
        watch = Watch(model, n_batches, features, familiarity).labelled(classes)
        seen = watch_stream(engine, source, watch)
        engine.forget(source)
        profile = make_profile(seen, watch, fingerprint)
        changes = None if before is None else compare_profiles(before, profile, self.significance)
        return RowsMonitored(self.out, self.model, self.data, self.reference, profile, before, changes)


def _check_reference(before: StreamProfile, path: str, model: PrototypeSet, fingerprint: str, n_batches: int) -> None:
    what = f"The reference {mask(path)} describes rows"
    if before.model != fingerprint:
        raise InputError(
            "other-run",
            f"{what} as another model sees them.",
            "Give a description that this model made, best of held-out rows.",
        )
    if before.n_batches != n_batches:
        raise InputError(
            "settings-conflict",
            f"{what} as {count(before.n_batches, 'batch of the model sees', 'batches of the model see')} them, and "
            f"{n_batches} are asked for.",
            "Use the same number for both.",
        )
    if tuple(feature.name for feature in before.features) != tuple(model.feature_names):
        raise InputError("columns-differ", f"{what} with other features.", "Make it again with this model.")
    if before.classes != model.classes:
        raise InputError("columns-differ", f"{what} of other classes.", "Make it again with this model.")

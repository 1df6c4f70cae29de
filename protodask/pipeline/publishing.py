"""Adding a model to a registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protodask.data.bounded import MAX_JSON_BYTES, parse_json
from protodask.data.locations import locate
from protodask.data.references import follow
from protodask.data.registry_state import check_name
from protodask.errors import InputError
from protodask.pipeline.registry_results import ModelPublished
from protodask.pipeline.steps import PublishStep
from protodask.places import mask
from protodask.registry.copying import read_file
from protodask.registry.registry import Registry, check_keep


def check_publishing(step: PublishStep) -> None:
    """Refuse names that cannot be."""
    check_name(step.alias, "an alias")
    for name in step.files:
        check_name(name, "a file")
    if step.retain is not None:
        check_keep(step.retain)


def publish_model(step: PublishStep) -> ModelPublished:
    """Add the model to the registry, which is made where there is none."""
    check_publishing(step)
    metrics = None if step.metrics is None else read_metrics(step.metrics)
    registry = Registry(locate(step.registry))
    published = registry.publish(
        step.model, alias=step.alias, metrics=metrics, files=step.files, note=step.note, retain=step.retain
    )
    return ModelPublished(registry.path, published)


def read_metrics(path: str) -> Mapping[str, Any]:
    """The results in a JSON file."""
    content = follow(path, read_file)
    try:
        if len(content) > MAX_JSON_BYTES:
            raise ValueError(f"it has more than {MAX_JSON_BYTES} bytes")
        value = parse_json(content)
    except ValueError as error:
        raise InputError(
            "unreadable", f"The file {mask(path)} is no JSON ({error}).", "Give a file of `protodask evaluate`."
        ) from error
    if not isinstance(value, dict):
        raise InputError(
            "wrong-kind",
            f"The file {mask(path)} does not hold names and values.",
            "Give a file of `protodask evaluate`.",
        )
    return value

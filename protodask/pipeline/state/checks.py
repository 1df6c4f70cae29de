"""What can be refused of a step before it is begun because of the places it names.

Light to import: a command that only refuses need not wait for what would do the work.
"""

from __future__ import annotations

import glob
import os

from protodask.data.places.locations import is_url, locate
from protodask.data.places.references import split_reference
from protodask.data.tables.source_files import check_present
from protodask.pipeline.file.places import settings_of_places
from protodask.pipeline.steps.base import Place, Step
from protodask.pipeline.steps.training import Training

READ_BY_ALL = ("data", "model", "sources", "predictions", "start")
"""Settings of places that must be there; a champion or a reference may not have come yet."""


def check_there(step: Step) -> None:
    """Refuse what is certain: nothing to read at a place of this machine, or something in the way of what is written.

    Training may go on from its record though its model is there, and what grows, or is divided again, may be there.
    """
    from protodask.data.places.storage import check_file_free, check_free, sweep

    for setting in READ_BY_ALL:
        found = getattr(step, setting, None)
        for place in (found,) if isinstance(found, str) else found or ():
            if split_reference(place) is None and not glob.has_magic(place):
                check_present(place)
    if step.may_be_there():
        return
    if isinstance(step, Training):
        from protodask.pipeline.work.settings import run_directory

        record = locate(run_directory(step.out, step.run_dir))
        if os.path.exists(record):
            return
        sweep(record)  # what was killed while it removed the record of a training that was done
    for setting in settings_of_places(type(step), Place.WRITTEN):
        place = getattr(step, setting)
        if place is None or is_url(locate(place)):
            continue
        if setting in ("table", "plot") or step.writes_files:
            check_file_free(place, False)
        else:
            check_free(locate(place), False)

"""What a report costs, and whether it is smooth: a large model on many rows.

A made-up model of 5,000 prototypes and 100 features, and a dataset on disk of a million rows. `report` is the whole
work of the command, from opening the dataset to the file. Then the page in Chromium, if it and its driver are
installed: how long it takes until it is shown, to sort and to search the prototypes, and the times between frames while
it scrolls.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from protodask.data import Dataset, sample_data
from protodask.data.tables.synthetic import synthetic_source
from protodask.engine import thread_engine
from protodask.pipeline.steps.report import ReportStep, ReportWritten
from protodask.prototypes.batches import Batch
from protodask.prototypes.model import PrototypeSet

if TYPE_CHECKING:
    from benchmarks import _common as common
else:
    import _common as common

MOST_SECONDS = 60.0
MOST_MB = 10.0
MOST_RESPONSE_MS = 100.0
MOST_FRAME_MS = 50.0
"""95 per cent of the frames: 20 a second, without a graphics processor."""
SCROLL_SECONDS = 4
WAIT_SECONDS = 60


@dataclass(frozen=True)
class Report:
    """The command's work."""

    what: str
    rows: int
    prototypes: int
    features: int
    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Browsing:
    """The page in a browser; milliseconds."""

    what: str
    shown: float
    """From the start of loading to the first tab on the screen."""
    sort: float
    sort_by_value: float
    search: float
    frame_median: float
    frame_95: float
    frame_worst: float
    frames: int


def make_model(data: Dataset, n_prototypes: int, n_batches: int) -> PrototypeSet:
    """Prototypes from rows of the same distribution as the data, every feature in use."""
    n_features, n_classes = data.n_features, len(data.classes)
    rows = synthetic_source("blobs", n_prototypes, n_features=n_features, n_classes=n_classes, seed=1).rows(
        0, n_prototypes
    )
    rng = np.random.default_rng(0)
    model = PrototypeSet(
        marginals=np.full(n_classes, 1 / n_classes),
        classes=data.classes,
        feature_names=data.feature_names,
        columns=data.columns,
        target_name=data.target_name,
    )
    for chosen in np.array_split(np.arange(n_prototypes), n_batches):
        order = chosen[np.argsort(rows["target"][chosen], kind="stable")]
        batch = Batch(
            feature_index=np.arange(n_features),
            feature_weight=rng.uniform(0.02, 0.3, n_features),
            center=data.summary.mean,
            scale=data.summary.scale,
            prototypes=rows["features"][order].astype(np.float64),
            prototype_class=rows["target"][order].astype(np.int64),
            prototype_weight=rng.exponential(size=len(order)),
            row=np.sort(rng.choice(10 * n_prototypes, len(order), replace=False)),
        )
        model = model.with_round([batch])
    return model


def measure_report(settings: argparse.Namespace, folder: str) -> Report:
    """Make the data and the model, then time the report."""
    with thread_engine(settings.threads, common.GIB) as engine:
        data = sample_data(
            "blobs", settings.rows, os.path.join(folder, "data.zarr"), n_features=settings.features,
            n_classes=settings.classes, engine=engine,
        )  # fmt: skip
        make_model(data, settings.prototypes, settings.batches).save(os.path.join(folder, "model.zarr"))
        step = ReportStep(os.path.join(folder, "model.zarr"), data.path, os.path.join(folder, "report.html"))
        began = time.perf_counter()
        written = step.perform(engine)
        seconds = time.perf_counter() - began
    if not isinstance(written, ReportWritten):
        raise TypeError("the step wrote no report")
    return Report("report", settings.rows, settings.prototypes, settings.features, seconds, written.size / 1e6)


TIMED = """
const [id, value, kind] = arguments;
const control = document.getElementById(id);
const began = performance.now();
control.value = value;
control.dispatchEvent(new Event(kind, { bubbles: true }));
document.body.offsetHeight;
return performance.now() - began;
"""

SCROLL = """
const [seconds, done] = arguments;
const frames = [];
let last = null, began = null, down = true;
const step = (now) => {
  if (last === null) began = now;
  else frames.push(now - last);
  last = now;
  const end = document.documentElement.scrollHeight - innerHeight;
  if (scrollY >= end - 1) down = false;
  if (scrollY <= 0) down = true;
  scrollBy({ top: down ? 40 : -40, behavior: "instant" });
  if (now - began < 1000 * seconds) requestAnimationFrame(step);
  else done(frames);
};
requestAnimationFrame(step);
"""

SHOWN = "return performance.getEntriesByType('navigation')[0].domComplete"


def browse(page: str) -> list[Browsing]:
    """Time the page in a browser; nothing where there is none."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        print("\nNo chromium or no chromedriver on the PATH: the page is not measured in a browser.")
        return []
    webdriver = common.peer("selenium.webdriver")
    options: Any = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--disable-dev-shm-usage", "--force-prefers-reduced-motion"):
        options.add_argument(argument)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        browser.set_page_load_timeout(WAIT_SECONDS)
        browser.set_script_timeout(WAIT_SECONDS)
        browser.set_window_size(1280, 900)
        browser.get(Path(page).as_uri() + "#prototypes")
        shown = browser.execute_script(SHOWN)
        sort = browser.execute_script(TIMED, "sort", "row", "change")
        by_value = browser.execute_script(TIMED, "sort", "f0", "change")
        search = browser.execute_script(TIMED, "find", "1", "input")
        browser.execute_script(TIMED, "find", "", "input")
        frames = np.array(browser.execute_async_script(SCROLL, SCROLL_SECONDS))
    finally:
        browser.quit()
    middle, most = np.quantile(frames, (0.5, 0.95))
    worst = float(frames.max())
    return [Browsing("page", shown, sort, by_value, search, float(middle), float(most), worst, len(frames))]


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--rows", type=common.positive, default=1_000_000, help="rows")
    parser.add_argument("--features", type=common.positive, default=100, help="features")
    parser.add_argument("--classes", type=common.positive, default=2, help="classes")
    parser.add_argument("--prototypes", type=common.positive, default=5_000, help="prototypes")
    parser.add_argument("--batches", type=common.positive, default=2, help="batches they are in")
    parser.add_argument("--threads", type=common.positive, default=2, help="threads")
    parser.add_argument("--folder", help="where the dataset is made; by default, the system's temporary folder")
    settings = parser.parse_args()
    measured_on = common.start("report")
    with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
        report = measure_report(settings, folder)
        table = common.Table("the command", ("what", "rows", "prototypes", "features", "seconds", "MB"))
        table.row(report.what, report.rows, report.prototypes, report.features, report.seconds, report.megabytes)
        pages = browse(os.path.join(folder, "report.html"))
    checks = [
        common.Check("seconds of a report", report.seconds, "<=", MOST_SECONDS),
        common.Check("megabytes of its file", report.megabytes, "<=", MOST_MB),
    ]
    if pages:
        table = common.Table(
            "in Chromium, ms", ("what", "shown", "sort", "by value", "search", "frame", "95 %", "worst", "frames")
        )
        for page in pages:
            table.row(
                page.what, page.shown, page.sort, page.sort_by_value, page.search, page.frame_median, page.frame_95,
                page.frame_worst, page.frames,
            )  # fmt: skip
            slowest = max(page.sort, page.sort_by_value, page.search)
            checks.append(common.Check("ms to sort or search the prototypes", slowest, "<=", MOST_RESPONSE_MS))
            checks.append(common.Check("ms between 95 % of the frames", page.frame_95, "<=", MOST_FRAME_MS))
    common.finish("report", settings, measured_on, [report, *pages], checks)


if __name__ == "__main__":
    main()

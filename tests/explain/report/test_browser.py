"""The page in a real browser, opened from disk: it works, loads nothing, and fits screens from 400 pixels on.

Skipped where Chromium or its driver is not installed; neither is ever downloaded.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protodask.prototypes.model import PrototypeSet

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="needs Chromium and chromedriver on the PATH: install both to run it"
    ),
]

SECONDS = 30
"""What any one thing may take."""

WIDTHS = (400, 1280, 1920)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless browser without a network to speak of."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install 'protodask[browser]'")
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(CHROMIUM)
    profile = tmp_path_factory.mktemp("profile")
    for argument in (
        "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
        "--force-prefers-reduced-motion",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(argument)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's sandbox refuses to work for root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        driver.set_page_load_timeout(SECONDS)
        driver.set_script_timeout(SECONDS)
        yield driver
    finally:
        driver.quit()


def opened(browser: Any, page_file: Path, width: int = 1280, fragment: str = "") -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get(page_file.as_uri() + fragment)


def run(browser: Any, script: str, *arguments: Any) -> Any:
    return browser.execute_script(script, *arguments)


def tabs(browser: Any) -> list[Any]:
    found: list[Any] = browser.find_elements("css selector", "[role=tab]")
    assert len(found) == 7
    return found


def shown(browser: Any) -> list[str]:
    found: list[str] = run(
        browser, "return [...document.querySelectorAll('.panel')].filter((p) => p.offsetHeight).map((p) => p.id)"
    )
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_page__opens_from_disk_without_errors_and_requests_and_fits_its_width(
    width: int, browser: Any, page_file: Path
) -> None:
    browser.get("about:blank")  # the page that a browser shows at first has requests of its own
    browser.get_log("browser")
    browser.get_log("performance")
    opened(browser, page_file, width)
    for tab in tabs(browser):
        tab.click()
        assert shown(browser) == [tab.get_attribute("aria-controls")]
        wide = run(browser, "return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, tab.get_attribute("id")
    assert browser.get_log("browser") == []
    requests = [
        entry["message"]
        for entry in browser.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    # Images inside figures are data, part of the file.
    strange = [entry for entry in requests if page_file.as_uri() not in entry and '"url":"data:' not in entry]
    assert [entry for entry in strange if "about:blank" not in entry] == []


def test_page__names_run_nothing_and_are_read_as_they_are(
    browser: Any, page_file: Path, hostile_model: PrototypeSet
) -> None:
    opened(browser, page_file)
    assert run(browser, "return window.broken === undefined")
    assert run(browser, "return document.querySelectorAll('main script, img, main style, b').length") == 0
    read = run(browser, "return document.getElementById('overview').textContent")
    assert str(hostile_model.classes[0]) in read
    assert str(hostile_model.classes[1]) in read
    cards = run(browser, "return [...document.querySelectorAll('#cards h4')].map((card) => card.textContent)")
    assert set(cards) & set(map(str, hostile_model.classes))
    texts = run(browser, "return [...document.querySelectorAll('svg.figure text')].map((text) => text.textContent)")
    assert any(text.startswith("<script>") for text in texts)


def test_tabs__by_keyboard_and_by_address(browser: Any, page_file: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, page_file, fragment="#drift")
    assert shown(browser) == ["drift"]
    tabs(browser)[5].send_keys(Keys.ARROW_RIGHT)
    assert shown(browser) == ["training"]
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert shown(browser) == ["overview"]
    browser.switch_to.active_element.send_keys(Keys.END)
    assert shown(browser) == ["training"]
    assert [tab.get_attribute("aria-selected") for tab in tabs(browser)] == ["false"] * 6 + ["true"]
    assert [tab.get_attribute("tabindex") for tab in tabs(browser)] == ["-1"] * 6 + ["0"]


@pytest.mark.parametrize("width", WIDTHS[:2])
@pytest.mark.parametrize("scripts", [True, False])
def test_tabs__do_not_lie_over_the_headline_of_what_an_address_names(
    scripts: bool, width: int, browser: Any, page_file: Path
) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    try:
        opened(browser, page_file, width, "#errors")
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    edges = (
        "return [document.querySelector('#errors h2').getBoundingClientRect().top,"
        " document.querySelector('.tabs').getBoundingClientRect().bottom, scrollY]"
    )
    headline, below_tabs, scrolled = run(browser, edges)
    assert scrolled > 0
    assert headline >= below_tabs


def test_tables__sort_by_their_headers(browser: Any, page_file: Path) -> None:
    opened(browser, page_file, fragment="#features")
    column = (
        "return [...document.querySelectorAll('#features tbody tr')].map((row) => Number(row.cells[1].dataset.sort))"
    )
    (head,) = browser.find_elements("css selector", "#features thead th:nth-child(2)")
    head.find_element("tag name", "button").click()
    assert head.get_attribute("aria-sort") == "descending"
    found = run(browser, column)
    assert found == sorted(found, reverse=True)
    assert len(set(found)) > 1
    head.find_element("tag name", "button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert run(browser, column) == sorted(found)


def test_prototypes__are_searched_sorted_and_turned_over(
    browser: Any, page_file: Path, hostile_model: PrototypeSet
) -> None:
    from selenium.webdriver.support.select import Select

    opened(browser, page_file, fragment="#prototypes")
    weights = sorted(
        (float(weight) for batch in hostile_model.batches for weight in batch.prototype_weight), reverse=True
    )
    read = "return [...document.querySelectorAll('#cards .weight span')].map((span) => Number(span.textContent))"
    assert run(browser, read) == pytest.approx(weights[:24], rel=1e-3)
    browser.find_element("id", "after").click()
    assert run(browser, read) == pytest.approx(weights[24:], rel=1e-3)
    row = int(hostile_model.batches[0].row[3])
    browser.find_element("id", "find").send_keys(f"row {row}")
    heads = run(
        browser, "return [...document.querySelectorAll('#cards header .muted')].map((head) => head.textContent)"
    )
    assert heads
    assert all(head.replace(",", "").startswith(f"row {row}") for head in heads)
    browser.find_element("id", "find").clear()
    browser.find_element("id", "find").send_keys("no such thing")
    assert "No prototype fits" in run(browser, "return document.getElementById('cards').textContent")
    run(browser, "document.getElementById('find').value = ''")
    Select(browser.find_element("id", "sort")).select_by_value("row")
    rows = run(browser, "return [...document.querySelectorAll('#cards header .muted')].map((head) => head.textContent)")
    numbers = [int(head.split("·")[0].replace("row", "").replace(",", "")) for head in rows]
    assert numbers == sorted(int(row) for batch in hostile_model.batches for row in batch.row)[:24]
    Select(browser.find_element("id", "of-class")).select_by_index(1)
    chosen = run(browser, "return document.querySelector('#of-class option:checked').textContent")
    names = run(browser, "return [...document.querySelectorAll('#cards h4')].map((card) => card.textContent)")
    assert set(names) <= {chosen}


def test_colours__follow_the_system_and_the_button(browser: Any, page_file: Path) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    figure = "return getComputedStyle(document.querySelector('svg.figure text')).fill"
    found = {}
    for theme in ("light", "dark"):
        features = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
        opened(browser, page_file)
        found[theme] = (run(browser, background), run(browser, figure))
    assert found["light"][0] != found["dark"][0]
    assert found["light"][1] != found["dark"][1]
    browser.find_element("id", "theme").click()
    assert (run(browser, background), run(browser, figure)) == found["light"]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_print__shows_all_sections_on_white(browser: Any, page_file: Path) -> None:
    opened(browser, page_file)
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    assert len(shown(browser)) == 7
    assert run(browser, "return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert run(browser, "return document.querySelector('.tabs').offsetHeight") == 0
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") >= 7


def test_page__is_readable_without_scripts(browser: Any, page_file: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened(browser, page_file)
        text = browser.find_element("tag name", "main").text
        for heading in ("Overview", "Errors", "Features", "Prototypes", "Confidence", "Drift", "Training"):
            assert heading in text
        assert len(browser.find_elements("css selector", "#cards .card")) == 24
        assert not browser.find_element("id", "find").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

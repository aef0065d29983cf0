"""Fixtures: a furnished library and journal, the console over it in memory, and the same in a real Chromium."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from console.many_runs import BUNDLED, write_many_runs
from console.sites import ConsoleClient, OpenConsole, OpenWindow, Served, ServeSite, Site, Window
from console.story import furnish_library
from support.npm import install
from workflowlookup.app import make_catalog

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Made once, and only looked at."""
    return Site(tmp_path_factory.mktemp("a-directory-with-a-name-that-is-longer-than-a-phone-is-wide"))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """For a test that changes something."""
    made = Site(tmp_path)
    yield made
    made.runs.close()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Site]:
    """Without documents of its own and without runs."""
    made = Site(tmp_path, is_furnished=False)
    yield made
    made.runs.close()


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """With 2,000 runs over four weeks; made once, and only looked at."""
    made = Site(tmp_path_factory.mktemp("busy"), is_furnished=False)
    furnish_library(made.library)
    bundled = [make_catalog(made.settings).get(one) for one in BUNDLED]
    made.named = write_many_runs(made.library.parent / "runs.sqlite", time.time_ns() // 1_000_000, bundled)
    return made


@pytest.fixture
def visit() -> Iterator[OpenConsole]:
    """Opens the console in memory for a viewer; all of it runs on one thread."""
    with contextlib.ExitStack() as opened:

        def open_console(site: Site, viewer: str = "mira", **options: Any) -> ConsoleClient:
            client = ConsoleClient(site.console(**options), viewer)
            opened.enter_context(client)
            return client

        yield open_console


# ── a real browser ──────────────────────────────────────────────────────────────────────────────────────────────

ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run --disable-quic"
).split()
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FOLDER = Path(__file__).parent / "axe"


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """The system's Chromium, driven by Playwright: no longer than a module, since it runs an event loop meanwhile."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("Chromium is not installed (`make test` installs it where it may): the browser tests were not run")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, as the lock file pins it."""
    install(FOLDER, "the check of the console's accessibility")
    return (FOLDER / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


@pytest.fixture
def serve() -> Iterator[ServeSite]:
    """Serves sites until the test is over."""
    running: list[Served] = []

    def start(site: Site, host: str = "127.0.0.1") -> Served:
        running.append(Served(site, host))
        return running[-1]

    yield start
    for served in running:
        served.stop()


@pytest.fixture
def window(chromium: "Browser") -> Iterator[OpenWindow]:
    """Opens windows, each with a visitor of its own; none may have complained."""
    windows: list[Window] = []

    def open_window(served: Served, viewer: str = "mira", **options: Any) -> Window:
        windows.append(Window(chromium, served, viewer, **options))
        return windows[-1]

    yield open_window
    for one in windows:
        one.context.close()
    assert [complaint for one in windows for complaint in one.complaints] == []

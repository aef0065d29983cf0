"""Sites for tests: a furnished library and journal on the disk, who looks at them, and windows of a real browser."""

import re
import socket
import threading
import time
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from story import furnish_journal, furnish_library

from workflowlookup.app import make_catalog, make_runs
from workflowlookup.console.app import make_routes
from workflowlookup.console.house import House, Provider
from workflowlookup.console.streams import Streams
from workflowlookup.console.viewer import Viewer
from workflowlookup.settings import Settings, read_settings
from workflowlookup.tools import BUILTIN_TOOLS

VIEWERS = {
    "mira": Viewer(name="mira", scopes=frozenset({"admin"}), session="s-mira"),
    "reader": Viewer(name="reader", scopes=frozenset({"read"}), session="s-reader"),
    "judge": Viewer(name="judge", scopes=frozenset({"confirm"}), session="s-judge"),
    "runner": Viewer(name="runner", scopes=frozenset({"run"}), session="s-runner"),
    "stranger": Viewer(name="stranger", scopes=frozenset({"run", "confirm"}), workflows=("other-*",), session="s-str"),
    "nothing": Viewer(name="nothing", scopes=frozenset()),
}


def known(request) -> Viewer | None:
    return VIEWERS.get(request.cookies.get("viewer", ""))


class Site:
    """A library and a journal on the disk, and consoles over them."""

    def __init__(self, directory: Path, *, is_furnished: bool = True) -> None:
        self.library = directory / "library"
        self.library.mkdir()
        self.named: dict[str, str] = {}
        self.settings: Settings = read_settings(
            {"directories": str(self.library), "journal": str(directory / "runs.sqlite"), "project": "false"},
            {},
            directory=str(directory),
        )
        if is_furnished:
            furnish_library(self.library)
            bundled = make_catalog(self.settings).get("bug-investigation")
            self.named = furnish_journal(directory / "runs.sqlite", time.time_ns() // 1_000_000, bundled)
        self.runs = make_runs(self.settings)
        """Those of another process, as far as the console can tell."""

    def house(self, **options) -> House:
        runs, catalog = make_runs(self.settings), make_catalog(self.settings)
        return House(
            catalog=catalog,
            runs=runs,
            streams=Streams(runs, **options),
            viewer=known,
            providers=lambda: (
                Provider(name="library", kind="documents", state="ready", workflows=3),
                Provider(name="builds", kind="http", state="away", detail="It did not answer within 5 s."),
            ),
            resolve=catalog.get,
            tools=lambda: tuple(BUILTIN_TOOLS.values()),
            secret=b"a secret of the tests",
            journal=self.settings.journal,
        )


def token(page: str) -> str:
    """What the forms of a page carry."""
    found = re.search(r'name="token" value="([^"]+)"', page)
    assert found is not None, page
    return found[1]


# ── a real browser ──────────────────────────────────────────────────────────────────────────────────────────


class Served:
    """The console of a site on a port of this machine."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.house = site.house()
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        app = Starlette(routes=make_routes(self.house))
        self._server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self.house.streams.close()
        self._thread.join(20)
        assert not self._thread.is_alive()


class Window:
    """A page of a browser, and everything that it complained of."""

    def __init__(self, browser, served: Served, viewer: str = "mira", **options) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        self.context.add_cookies([{"name": "viewer", "value": viewer, "url": served.address}])
        self.context.set_default_timeout(15_000)
        self.address = served.address
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))

    def _note(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: str):
        self.page.goto(self.address + path)
        return self.page

"""Sites for tests: a library and a journal on the disk, visitors, and windows of a real browser."""

import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from console.story import furnish_journal, furnish_library
from workflowlookup.access import Access
from workflowlookup.app import make_catalog, make_runs, make_services
from workflowlookup.auth.backends import CallerBackends, SharedBackend
from workflowlookup.console.app import make_routes
from workflowlookup.console.request import Visit
from workflowlookup.console.streams import Streams
from workflowlookup.providers.config import Plan, ProviderConfig
from workflowlookup.providers.discovery import ProviderListing
from workflowlookup.settings import Settings, read_settings
from workflowlookup.tools.dynamic import DynamicTools

if TYPE_CHECKING:  # the tests in memory do without Playwright
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page


def viewer(name: str, *scopes: str, workflows: tuple[str, ...] = ("*",)) -> Access:
    return Access(name=name, kind="person", scopes=frozenset(scopes), workflows=workflows)


VIEWERS = {
    "mira": viewer("mira", "admin"),
    "reader": viewer("reader", "read"),
    "judge": viewer("judge", "confirm"),
    "runner": viewer("runner", "run"),
    "stranger": viewer("stranger", "run", "confirm", workflows=("other-*",)),
    "nothing": viewer("nothing"),
}


def session_of(name: str) -> str:
    return f"the session of {name}"


class Console:
    """The console of a server that has a provider which does not answer, for those who name themselves in a cookie."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        services = make_services(settings)
        away = ProviderListing(is_away=True, cause="It did not answer within 5 s.")
        plan = Plan(providers={"builds": ProviderConfig(name="builds", kind="http")})
        tools = DynamicTools(services, plan, discovered=lambda: {"builds": away})
        services = msgspec.structs.replace(services, open_workflows=lambda: tools)
        backend = SharedBackend(lambda: services, lambda: None)
        self.runs = services.runs
        self.backends = CallerBackends(backend)
        self.streams = Streams(**options)
        self.journal = settings.journal
        self.app = Starlette(routes=make_routes(self.identify))

    def identify(self, request: Request) -> Visit | None:
        name = request.cookies.get("viewer", "")
        if name not in VIEWERS:
            return None
        backend = self.backends.of(VIEWERS[name])
        return Visit(request, backend, self.streams, session=session_of(name), journal=self.journal)


class Site:
    """A library and a journal on the disk, and consoles over them."""

    def __init__(self, directory: Path, *, is_furnished: bool = True, config: Path | None = None) -> None:
        """`config`: the user's configuration directory; without one, there is none."""
        self.library = directory / "library"
        self.library.mkdir()
        self.named: dict[str, str] = {}
        self.settings: Settings = read_settings(
            {"directories": str(self.library), "journal": str(directory / "runs.sqlite"), "project": "false"},
            {"XDG_CONFIG_HOME": str(config)} if config else {},
            directory=str(directory),
        )
        if is_furnished:
            furnish_library(self.library)
            bundled = make_catalog(self.settings).get("incident-review")
            self.named = furnish_journal(directory / "runs.sqlite", time.time_ns() // 1_000_000, bundled)
        self.runs = make_runs(self.settings)
        """Those of another process, as far as the console can tell."""

    def console(self, **options: Any) -> Console:
        return Console(self.settings, **options)


class ConsoleClient(TestClient):
    """A browser without scripts, in memory: its visitor is in a cookie, and it follows no redirect."""

    def __init__(self, console: Console, viewer: str) -> None:
        super().__init__(console.app, base_url="http://localhost:8000", follow_redirects=False)
        self.console = console
        self.headers["origin"] = "http://localhost:8000"
        self.cookies.set("viewer", viewer)


OpenConsole = Callable[..., ConsoleClient]
"""The fixture `visit`: opens the console of a site for a viewer."""


def token(page: str) -> str:
    """What the forms of a page carry."""
    found = re.search(r'name="token" value="([^"]+)"', page)
    assert found is not None, page
    return found[1]


# ── a real browser ──────────────────────────────────────────────────────────────────────────────────────────


class Served:
    """The console of a site on a port of this machine."""

    def __init__(self, site: Site, host: str = "127.0.0.1") -> None:
        self.site = site
        self.console = site.console()
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://{host}:{listening.getsockname()[1]}"
        self._server = uvicorn.Server(
            uvicorn.Config(self.console.app, log_config=None, access_log=False, lifespan="off")
        )
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self.console.streams.close()
        self._thread.join(20)
        assert not self._thread.is_alive()


class Window:
    """A page of a browser, and everything that it complained of."""

    def __init__(self, browser: "Browser", served: Served, viewer: str = "mira", **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        self.context.add_cookies([{"name": "viewer", "value": viewer, "url": served.address}])
        self.context.set_default_timeout(15_000)
        self.address = served.address
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._dismiss)

    def _dismiss(self, dialog: "Dialog") -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def _note(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: str) -> "Page":
        self.page.goto(self.address + path)
        return self.page


ServeSite = Callable[..., Served]
"""The fixture `serve`."""
OpenWindow = Callable[..., Window]
"""The fixture `window`: opens a window on what is served, for a viewer."""

"""What a caller may not see is on no page: each is the same as that of a server on which it never was."""

import asyncio
import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from auth.secretive import HIDDEN, OPEN, Deployment, caller
from support.json_values import JsonObject
from workflowlookup.access import LOCAL, LOOPBACK, Access
from workflowlookup.console.app import ACTIONS, PAGES, make_routes
from workflowlookup.console.request import Visit, form_token
from workflowlookup.console.streams import Streams

KINDS = [
    caller(*scopes, kind=kind, workflows=workflows)
    for kind in ("agent", "person")
    for scopes in (("read",), ("run",), ("confirm",), ("run", "confirm"), ("admin",))
    for workflows in [("docs-*",)]
]
KINDS += [caller("run", workflows=("nothing-*",)), caller("admin", workflows=()), caller("run", workflows=("*-guide",))]


def label(access: Access) -> str:
    return "+".join((access.kind, *sorted(access.scopes), *access.workflows))


CHANCE = re.compile(
    r'(?<=name="new" value=")[0-9a-f]{12}|\b[0-9a-f]{16}\b|(?<="hash":")[0-9a-f]{64}(?=","length)|(?<="challenge":")[\w-]{43}'
)
"""Ids that are another one each time, and the hashes of events that have one."""
QUERIES = (
    "q=canary",
    "q=docs",
    "category=workflow",
    "state=person",
    "workflow=secret-plan",
    "since=24h",
    "notice=again",
)


def named(path: str, workflow: str = "docs-guide", run: str = "of-docs-guide") -> str:
    return re.sub(r"\{(\w+)\}", lambda found: {"workflow": workflow, "run": run}.get(found[1], "2"), path)


PATHS = [
    *(named(path) for path, _ in PAGES if path != "/events"),
    *(f"{named(path)}?{query}" for path in ("/library", "/runs", "/statistics") for query in QUERIES),
    *(named(path, workflow) for path, _ in PAGES if "{workflow}" in path for workflow in (*HIDDEN, "docs-broken")),
    *(named(path, run=f"held-{one}") for path, _ in PAGES if "{run}" in path for one in (*OPEN, *HIDDEN)),
    *(f"/events?run=of-{one}" for one in HIDDEN),
    "/library/secret-broken",
]


class Browser:
    """One caller before the console of a deployment."""

    def __init__(self, deployment: Deployment, access: Access) -> None:
        self.deployment = deployment
        self.name = access.name or "console"
        backend, streams = deployment.backends.of(access), Streams()
        self._app = Starlette(
            routes=make_routes(lambda request: Visit(request, backend, streams, session="s", journal="the journal"))
        )

    async def _ask(self, method: str, path: str, body: bytes) -> tuple[int, list[bytes], str]:
        received, sent = [{"type": "http.request", "body": body, "more_body": False}], []
        path, _, query = path.partition("?")
        headers = {"host": "here", "origin": "http://here", "content-type": "application/x-www-form-urlencoded"}
        scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "root_path": ""}
        scope |= {"headers": [(name.encode(), value.encode()) for name, value in headers.items()], "scheme": "http"}

        async def receive() -> JsonObject:
            return received.pop() if received else {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        location = [value for name, value in sent[0]["headers"] if name == b"location"]
        return sent[0]["status"], location, b"".join(one.get("body", b"") for one in sent[1:]).decode()

    def ask(self, method: str, path: str, body: str = "") -> tuple[int, list[bytes], str]:
        status, location, text = asyncio.run(self._ask(method, path, body.encode()))
        return status, location, CHANCE.sub("", text).replace(str(self.deployment.library), "LIBRARY")


@pytest.fixture
def deployments(tmp_path: Path) -> Iterator[list[Deployment]]:
    made = [Deployment(tmp_path / "full"), Deployment(tmp_path / "open", hidden=False)]
    yield made
    for deployment in made:
        deployment.close()


def action_replies(browser: Browser, run: str, with_question: set[str]) -> Iterator[tuple[int, list[bytes], str]]:
    """Every action on a run, each by a form of the one who sends it."""
    token = form_token("s", browser.name)
    held = browser.deployment.runs.get(run).question_id if run in with_question else "q"
    for path, _ in ACTIONS:
        fields = f"token={token}&step=write&question={held}&new=0123456789ab&note=x&shown=y"
        yield browser.ask("POST", named(path, run=run), fields)


@pytest.mark.parametrize("access", KINDS, ids=label)
def test_no_page_and_no_action_reveals_what_is_hidden(deployments: list[Deployment], access: Access) -> None:
    full, never = (Browser(deployment, access) for deployment in deployments)
    known_to_full, known_to_never = (
        {line.id for line in deployment.runs.all_summaries()} for deployment in deployments
    )
    for path in PATHS:
        one, other = full.ask("GET", path), never.ask("GET", path)
        assert one == other, path
        assert "canary" not in one[2].replace("q=canary", "").replace('value="canary"', ""), path
    for run in [f"held-{one}" for one in (*HIDDEN, *OPEN)]:
        assert list(action_replies(full, run, known_to_full)) == list(action_replies(never, run, known_to_never)), run
    for path in PATHS[: len(PAGES) - 1]:
        assert full.ask("GET", path) == never.ask("GET", path), path


@pytest.mark.parametrize("confirmation", ["auto", "person"])
@pytest.mark.parametrize("access", [*KINDS, LOCAL, LOOPBACK], ids=label)
def test_a_button_is_shown_exactly_when_its_action_is_allowed(
    tmp_path: Path, access: Access, confirmation: str
) -> None:
    deployment = Deployment(tmp_path, confirmation=confirmation)
    browser = Browser(deployment, access)
    for action in ("confirm", "deny", "cancel", "again"):
        run = f"for-{action}"
        deployment.begin("docs-guide", run)
        deployment.runs.submit(run, "write", "The output", {})
        if action == "again":
            deployment.runs.cancel(run)
        page = browser.ask("GET", f"/runs/{run}")[2]
        question = deployment.runs.get(run).question_id
        fields = f"token={form_token('s', browser.name)}&step=write&question={question}&new=0123456789ab"
        status, _, answer = browser.ask("POST", f"/runs/{run}/{action}", fields)
        assert (f'action="/runs/{run}/{action}"' in page) == (status == 303), (action, status, answer)
    deployment.close()

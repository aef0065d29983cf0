"""Access to the console: viewers, scopes, patterns of workflows, forms and host names of other sites, odd requests."""

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from console.sites import OpenConsole, Site, session_of, token
from support.json_values import JsonObject
from workflowlookup.app import make_services
from workflowlookup.console.app import LocalConsole
from workflowlookup.console.request import form_token
from workflowlookup.web import MAX_FORM_BYTES

ALL = ["/", "/runs", "/library", "/library/release", "/statistics", "/tools", "/health", "/events", "/nowhere"]
ACTIONS = ["confirm", "deny", "pause", "resume", "cancel", "again"]


@pytest.mark.parametrize("viewer", ["nobody", "nothing"])
@pytest.mark.parametrize("path", ALL)
def test_unauthenticated_visitors_see_nothing(furnished: Site, visit: OpenConsole, viewer: str, path: str) -> None:
    answer = visit(furnished, viewer).get(path)

    assert answer.status_code == 401
    assert "release" not in answer.text.lower()
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize(
    "path",
    ["", "/live?after=0", "/outputs/5", "/journal.jsonl", "/report.md"],
    ids=["page", "news", "output", "journal", "report"],
)
def test_hidden_runs_and_workflows_are_not_found(furnished: Site, visit: OpenConsole, path: str) -> None:
    client = visit(furnished, "stranger")
    hidden, missing = (client.get(f"/runs/{run}{path}") for run in (furnished.named["held"], "no-such-run"))

    assert (hidden.status_code, missing.status_code) == (404, 404)
    assert hidden.text == missing.text


def test_lists_contain_only_what_the_viewer_may_see(furnished: Site, visit: OpenConsole) -> None:
    client = visit(furnished, "stranger")

    assert '<li id="run-' not in client.get("/runs").text
    assert "release" not in client.get("/library").text.replace("released", "")
    assert "half-done" not in client.get("/library").text
    assert "There are no runs yet." in client.get("/statistics").text
    for path in ("/library/release", "/library/half-done", "/statistics/release", "/library/release/changes"):
        assert client.get(path).status_code == 404
    assert client.get(f"/events?run={furnished.named['held']}").status_code == 404


def run_for(site: Site, action: str) -> str:
    """A run to which this could be done by those who may."""
    is_over = action == "again"
    return (
        next(line.id for line in site.runs.all_summaries() if line.state == "completed")
        if is_over
        else site.named["held"]
    )


@pytest.mark.parametrize("action", ACTIONS)
def test_a_reader_changes_nothing(furnished: Site, visit: OpenConsole, action: str) -> None:
    client, run_id = visit(furnished, "reader"), run_for(furnished, action)
    fields = {"token": form_token(session_of("reader"), "reader"), "step": "publish", "new": "0" * 12}
    before = furnished.runs.get(run_id)
    answer = client.post(f"/runs/{run_id}/{action}", data=fields)

    assert answer.status_code == 403
    assert furnished.runs.get(run_id) == before
    assert 'method="post"' not in client.get(f"/runs/{run_id}").text


@pytest.mark.parametrize(
    ("viewer", "action"),
    [*(("judge", action) for action in ("pause", "resume", "cancel", "again")), ("runner", "confirm")],
)
def test_each_action_needs_its_own_scope(furnished: Site, visit: OpenConsole, viewer: str, action: str) -> None:
    client, run_id = visit(furnished, viewer), run_for(furnished, action)
    fields = {"token": form_token(session_of(viewer), viewer), "step": "publish", "new": "0" * 12}

    assert client.post(f"/runs/{run_id}/{action}", data=fields).status_code == 403


@pytest.mark.parametrize("action", ACTIONS)
def test_actions_on_hidden_runs_are_not_found(furnished: Site, visit: OpenConsole, action: str) -> None:
    fields = {"token": form_token(session_of("stranger"), "stranger")}
    client = visit(furnished, "stranger")

    assert client.post(f"/runs/{furnished.named['held']}/{action}", data=fields).status_code == 404


# ── forms from elsewhere ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"origin": "https://evil.example"}, 403, id="another site"),
        pytest.param({"origin": "null"}, 403, id="a site that hides"),
        pytest.param({"origin": "http://localhost:8001"}, 403, id="another port"),
        pytest.param({"origin": None}, 403, id="no word of where it is from"),
        pytest.param({"origin": None, "sec-fetch-site": "cross-site"}, 403, id="the browser says another site"),
        pytest.param({"sec-fetch-site": "same-site"}, 403, id="the browser says a neighbour"),
        pytest.param({"origin": None, "sec-fetch-site": "same-origin"}, 303, id="the browser says ours"),
        pytest.param({}, 303, id="ours"),
    ],
)
def test_forms_are_accepted_from_our_own_pages_only(
    site: Site, visit: OpenConsole, headers: JsonObject, status: int
) -> None:
    client, run_id = visit(site), site.named["fresh"]
    fields = {"token": token(client.get(f"/runs/{run_id}").text)}
    for name in headers:
        client.headers.pop(name, None)
    sent = {name: value for name, value in headers.items() if value is not None}

    assert client.post(f"/runs/{run_id}/cancel", data=fields, headers=sent).status_code == status
    assert (site.runs.get(run_id).state == "cancelled") is (status == 303)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param("", id="none"),
        pytest.param("x" * 43, id="made up"),
        pytest.param(form_token(session_of("judge"), "judge"), id="of another viewer"),
        pytest.param(form_token("another session", "mira"), id="of another session"),
    ],
)
def test_a_form_belongs_to_one_visit(furnished: Site, visit: OpenConsole, made: str) -> None:
    client, run_id = visit(furnished), furnished.named["fresh"]

    assert client.post(f"/runs/{run_id}/cancel", data={"token": made}).status_code == 403
    assert furnished.runs.get(run_id).state == "waiting"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        pytest.param("a=" + "x" * MAX_FORM_BYTES, "application/x-www-form-urlencoded", 413, id="too long"),
        pytest.param("&".join(f"a{n}=1" for n in range(30)), "application/x-www-form-urlencoded", 400, id="too many"),
        pytest.param(b"a=\xff\xfe", "application/x-www-form-urlencoded", 400, id="no text"),
        pytest.param('{"token": 1}', "application/json", 415, id="JSON"),
        pytest.param("token=1", "text/plain", 415, id="plain text"),
        pytest.param("token=1", "multipart/form-data; boundary=x", 415, id="in parts"),
    ],
)
def test_odd_bodies_are_refused(furnished: Site, visit: OpenConsole, body: str | bytes, kind: str, status: int) -> None:
    answer = visit(furnished).post(
        f"/runs/{furnished.named['fresh']}/cancel", content=body, headers={"content-type": kind}
    )

    assert answer.status_code == status


# ── odd addresses ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/htmx.LICENSE.txt",
        "/static//etc/passwd",
        "/library/..%2f..%2fetc%2fpasswd",
        "/library/%2e%2e",
        "/runs/%00",
        "/runs/%F0%9F%92%A9",
        "/runs/" + "x" * 5_000,
        "/runs/{held}/outputs/" + "9" * 5_000,
        "/runs/{held}/outputs/-1",
        "/.env",
        "/library/release/%3Cscript%3E",
    ],
)
def test_other_paths_are_not_found(furnished: Site, visit: OpenConsole, path: str) -> None:
    answer = visit(furnished).get(path.format(**furnished.named))

    assert answer.status_code == 404
    assert "root:" not in answer.text
    assert "<script>" not in answer.text


@pytest.mark.parametrize("path", ["/runs", "/library", "/health", "/nowhere"])
def test_forms_posted_to_pages_are_refused(furnished: Site, visit: OpenConsole, path: str) -> None:
    assert visit(furnished).post(path, data={}).status_code == 405


def test_actions_cannot_be_reached_by_a_link(furnished: Site, visit: OpenConsole) -> None:
    assert visit(furnished).get(f"/runs/{furnished.named['fresh']}/cancel").status_code in (404, 405)
    assert furnished.runs.get(furnished.named["fresh"]).state == "waiting"


def test_an_internal_error_is_reported_without_details(
    furnished: Site, visit: OpenConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = visit(furnished)
    monkeypatch.setattr(type(client.console.runs), "summaries", lambda *_: 1 / 0)
    answer = client.get("/runs")

    assert answer.status_code == 500
    assert "division" not in answer.text
    assert "Traceback" not in answer.text


# ── the console of one person ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def local(furnished: Site) -> LocalConsole:
    return LocalConsole(make_services(furnished.settings), person="mira", port=8000)


@pytest.fixture
def browser(local: LocalConsole) -> Iterator[TestClient]:
    with TestClient(local.app, base_url="http://127.0.0.1:8000", follow_redirects=False) as client:
        yield client


def test_the_key_opens_the_console_once(local: LocalConsole, browser: TestClient) -> None:
    entry_path = local.entry_path
    assert browser.get("/runs").status_code == 401
    assert browser.get("/enter?key=guessed").status_code == 303
    assert browser.get("/runs").status_code == 401

    entered = browser.get(entry_path)
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    assert re.search(r"workflowlookup-8000=[\w-]+; HttpOnly; Path=/; SameSite=lax", entered.headers["set-cookie"])
    assert browser.get("/runs").status_code == 200

    browser.cookies.clear()
    assert "set-cookie" not in browser.get(entry_path).headers
    refused = browser.get("/runs")
    assert refused.status_code == 401
    assert "workflowlookup console" in refused.text


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "", "[", "0"]
)
def test_requests_with_another_host_name_are_refused(local: LocalConsole, browser: TestClient, host: str) -> None:
    browser.get(local.entry_path)

    assert browser.get("/runs", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"])
def test_requests_with_our_host_names_are_answered(local: LocalConsole, browser: TestClient, host: str) -> None:
    browser.get(local.entry_path)

    assert browser.get("/tools", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("site_of_request", "is_compressed"), [("same-origin", True), ("none", True), ("cross-site", False), ("", False)]
)
def test_no_other_site_can_ask_for_a_compressed_page(
    furnished: Site, visit: OpenConsole, site_of_request: str, is_compressed: bool
) -> None:
    client, path = visit(furnished), f"/runs/{furnished.named['held']}"
    answers = [client.get(path, headers={"sec-fetch-site": site_of_request}) for _ in range(2)]

    assert [answer.headers.get("content-encoding") == "gzip" for answer in answers] == [is_compressed] * 2
    assert (token(answers[0].text) != token(answers[1].text)) is is_compressed
    sent = client.post(f"{path}/pause", data={"token": token(answers[1].text), "note": "x" * 10_001})
    assert sent.status_code == 413  # so the token was accepted
    assert client.get("/static/console.css").headers["content-encoding"] == "gzip"
    plain = client.get(path, headers={"sec-fetch-site": site_of_request, "accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers

"""Passkeys: a person registers one and signs answers with it, in a real Chromium with a virtual authenticator."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from console.sites import OpenConsole, OpenWindow, ServeSite, Site, Window, token
from support.json_values import JsonObject
from support.make import FORM, document, step
from workflowlookup import extras
from workflowlookup.app import make_people, make_runs
from workflowlookup.errors import RunDamaged
from workflowlookup.language.document.building import build
from workflowlookup.people.keys import create_key
from workflowlookup.people.store import PeopleStore, new_key, text_to_add
from workflowlookup.runs.events import ConfirmationGiven
from workflowlookup.runs.fold import fold
from workflowlookup.runs.run import Run
from workflowlookup.store.journal import summarise

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

ASKS = {"by": "person", "answers": FORM}


@pytest.fixture
def own(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site without runs, whose user has a configuration directory."""
    made = Site(tmp_path, is_furnished=False, config=tmp_path_factory.mktemp("config"))
    yield made
    made.runs.close()


def held(site: Site, confirmation: JsonObject = ASKS) -> Run:
    """A run that waits for a person."""
    content = document(step("deploy", requireConfirmation=confirmation), step("last-step"))
    run = site.runs.start(build(content), {}, {})
    return site.runs.submit(run.id, "deploy", "Deployed.", {})


def people(site: Site) -> PeopleStore:
    return make_people(site.settings)


class Authenticator:
    """A virtual authenticator of the browser."""

    def __init__(self, page: "Page", **options: Any) -> None:
        self.session: CDPSession = page.context.new_cdp_session(page)
        self.session.send("WebAuthn.enable")
        settings = {
            "protocol": "ctap2",
            "transport": "internal",
            "hasResidentKey": True,
            "hasUserVerification": True,
            "isUserVerified": True,
            "automaticPresenceSimulation": True,
        }
        added = self.session.send("WebAuthn.addVirtualAuthenticator", {"options": settings | options})
        self.id = added["authenticatorId"]

    def verify_user(self, is_verified: bool) -> None:
        self.session.send("WebAuthn.setUserVerified", {"authenticatorId": self.id, "isUserVerified": is_verified})

    def credentials(self) -> list[JsonObject]:
        answer = self.session.send("WebAuthn.getCredentials", {"authenticatorId": self.id})
        return list(answer["credentials"])


def register(opened: Window, name: str) -> None:
    page = opened.open("/people")
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Register a passkey").click()
    page.get_by_text("Your passkey is registered.").wait_for()


@pytest.fixture
def ada(own: Site, serve: ServeSite, window: OpenWindow) -> tuple[Window, Authenticator]:
    """A browser with the passkey of the first person."""
    opened = window(serve(own, "localhost"))
    authenticator = Authenticator(opened.page)
    register(opened, "ada")
    return opened, authenticator


def forgive(opened: Window, count: int) -> None:
    """Wait until the browser has complained so often of requests that were refused, and forget it."""
    while len(opened.complaints) < count:
        opened.page.wait_for_event("console")
    opened.complaints.clear()


def fill_in(page: "Page", note: str = "") -> None:
    page.get_by_label("size", exact=False).select_option("large")
    page.get_by_label("Note").fill(note)


def test_the_first_passkey_is_trusted_and_signs_answers(own: Site, ada: tuple[Window, Authenticator]) -> None:
    opened, _ = ada
    run = held(own)
    page = opened.open(f"/runs/{run.id}")

    fill_in(page, "Fine,\nby me.")
    page.locator("[data-yes]").click()
    page.get_by_text("You confirmed the step.").wait_for()

    assert "Confirmed, signed by ada with a passkey" in page.inner_text("#timeline")
    moved = make_runs(own.settings).get(run.id)
    _, answer = moved.answers["deploy"]
    assert (moved.current, moved.unverified, dict(moved.context)) == ("last-step", (), {"size": "large"})
    assert (answer.how, answer.note) == ("passkey", "Fine,\nby me.")
    (key,) = people(own).active()
    assert (key.person, key.rp_id, key.endorsement) == ("ada", "localhost", None)
    assert key.sign_count > 0


def test_a_no_is_signed_too(own: Site, ada: tuple[Window, Authenticator]) -> None:
    run = held(own)
    page = ada[0].open(f"/runs/{run.id}")

    page.get_by_label("Note").fill("Not today.")
    page.locator("[data-no]").click()
    page.get_by_text("You did not confirm the step.").wait_for()

    assert make_runs(own.settings).get(run.id).answers["deploy"][1].how == "passkey"


def test_without_the_person_nothing_is_signed(own: Site, ada: tuple[Window, Authenticator]) -> None:
    """The authenticator wants a finger or a PIN, and does not get it."""
    opened, authenticator = ada
    authenticator.verify_user(False)
    run = held(own)
    page = opened.open(f"/runs/{run.id}")

    fill_in(page)
    page.locator("[data-yes]").click()
    page.get_by_text("Nothing was signed:").wait_for()

    assert own.runs.get(run.id).waiting_for == "confirmation"


def test_a_question_that_was_answered_meanwhile_is_not_signed(own: Site, ada: tuple[Window, Authenticator]) -> None:
    opened, _ = ada
    run = held(own)
    page = opened.open(f"/runs/{run.id}")
    page.route("**/events*", lambda route: route.abort())
    fill_in(page)
    own.runs.cancel(run.id)

    page.evaluate("document.querySelector('form[data-passkey]').requestSubmit()")
    page.get_by_text("has moved on since you read the question").wait_for()
    forgive(opened, 2)  # the challenge was refused, and then the form

    assert own.runs.get(run.id).state == "cancelled"


def test_a_further_passkey_waits_for_the_signature_of_one_who_is_known(
    own: Site, ada: tuple[Window, Authenticator], serve: ServeSite, window: OpenWindow
) -> None:
    opened, _ = ada
    other = window(serve(own, "localhost"), "judge")
    Authenticator(other.page)
    register(other, "bob")
    run = held(own)

    assert [key.person for key in people(own).active()] == ["ada"]
    assert "bob waits for a signature" in other.page.inner_text("main")
    page = opened.open("/people")
    page.get_by_role("button", name="Sign with your passkey").click()
    page.get_by_text("The passkey counts from now on.").wait_for()

    assert [(key.person, key.endorsement is not None) for key in people(own).active()] == [
        ("ada", False),
        ("bob", True),
    ]
    page = other.open(f"/runs/{run.id}")
    fill_in(page)
    page.locator("[data-yes]").click()
    page.get_by_text("signed by bob with a passkey").first.wait_for()


def test_a_passkey_is_signed_for_with_a_key_in_the_terminal(own: Site, serve: ServeSite, window: OpenWindow) -> None:
    store, private = people(own), create_key("correct horse battery")
    key = new_key("ada", private.public, 1)
    store.add(key, None, private)
    opened = window(serve(own, "localhost"))
    Authenticator(opened.page)
    register(opened, "ada")
    assert f"workflowlookup person approve {store.pending()[0].id}" in opened.page.inner_text("main")

    (pending,) = store.pending()
    store.add(pending, store.sign(key, "correct horse battery", text_to_add(pending)))

    assert [one.method for one in people(own).active()] == ["key", "passkey"]


# ── forged and replayed ─────────────────────────────────────────────────────────────────────────────────────────


class Caught:
    """The form with a real signature, as the browser would have sent it."""

    def __init__(self, opened: Window, run: Run, note: str = "") -> None:
        page = opened.open(f"/runs/{run.id}")
        fill_in(page, note)
        page.route("**/confirm", lambda route: route.fulfill(status=204))  # the browser stays on the page
        with page.expect_request("**/confirm") as sent:
            page.locator("[data-yes]").click()
        self.fields: dict[str, str] = dict(sent.value.post_data_json or {})
        self.passkey: JsonObject = json.loads(self.fields["passkey"])
        self.origin = opened.address
        self.cookies = {"viewer": "mira"}

    def send(self, opened: Window, run: Run, origin: str = "", **changes: str) -> int:
        headers = {"Origin": origin or self.origin}
        form: dict[str, str | float | bool] = {**self.fields, **changes}
        answer = opened.context.request.post(
            f"{self.origin}/runs/{run.id}/confirm", form=form, headers=headers, max_redirects=0
        )
        return answer.status


EDITS: dict[str, Callable[[Caught], dict[str, str]]] = {
    "note": lambda _: {"note": "Another note."},
    "answers": lambda _: {"answer.size": "small"},
    "signature": lambda caught: {"passkey": json.dumps({**caught.passkey, "signature": "AAAA"})},
    "client data": lambda caught: {"passkey": json.dumps({**caught.passkey, "clientData": "e30"})},
    "authenticator data": lambda caught: {"passkey": json.dumps({**caught.passkey, "authenticatorData": "AAAA"})},
    "credential": lambda caught: {"passkey": json.dumps({**caught.passkey, "id": "AAAA"})},
    "nonsense": lambda _: {"passkey": "{}"},
    "nothing": lambda _: {"passkey": ""},
}


def test_a_signed_form_counts_as_it_is_and_in_no_other_form(own: Site, ada: tuple[Window, Authenticator]) -> None:
    opened, _ = ada
    run, other = held(own), held(own)
    caught = Caught(opened, run, "Fine.")

    refused = {name: caught.send(opened, run, **edit(caught)) for name, edit in EDITS.items()}
    elsewhere = caught.send(opened, other)
    moved_elsewhere = caught.send(opened, other, question=other.question_id)
    foreign = caught.send(opened, run, origin="https://evil.example")

    assert {name: status for name, status in refused.items() if status < 400} == {}
    assert (elsewhere, moved_elsewhere, foreign) == (409, 403, 403)
    assert [own.runs.get(one.id).waiting_for for one in (run, other)] == ["confirmation"] * 2
    assert caught.send(opened, run) == 303
    assert caught.send(opened, run) == 409, "a second time"


def test_a_sign_counter_that_does_not_grow_is_refused(own: Site, ada: tuple[Window, Authenticator]) -> None:
    """As a copy of the authenticator would send it."""
    opened, _ = ada
    first, second = held(own), held(own)
    early = Caught(opened, first)
    late = Caught(opened, second)

    assert late.send(opened, second) == 303
    assert early.send(opened, first) == 403
    assert own.runs.get(first.id).waiting_for == "confirmation"


def test_a_stored_signature_of_a_passkey_is_verified_when_the_run_is_read(
    own: Site, ada: tuple[Window, Authenticator]
) -> None:
    opened, _ = ada
    run = held(own)
    assert Caught(opened, run, "Fine.").send(opened, run) == 303
    journal = own.runs.journal
    edited = [
        msgspec.structs.replace(record, event=msgspec.structs.replace(record.event, note="Changed."))
        if isinstance(record.event, ConfirmationGiven)
        else record
        for record in journal.read(run.id)
    ]
    assert make_runs(own.settings).get(run.id).unverified == ()
    journal.delete(run.id)
    journal.append(run.id, 0, edited, summarise(fold(run.id, edited)))

    with pytest.raises(RunDamaged, match="does not match its signature"):
        make_runs(own.settings).get(run.id)
    page = opened.open(f"/runs/{run.id}")
    forgive(opened, 1)
    assert "does not match its signature" in page.inner_text("main")


# ── without a browser ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_unsigned_answer_in_the_console_is_refused(own: Site, visit: OpenConsole) -> None:
    run = held(own, {"by": "person"})
    client = visit(own)
    page = client.get(f"/runs/{run.id}").text

    assert "This answer counts only if a person signs it. No passkey is registered for this console." in page
    hidden = {"token": token(page), "step": "deploy", "question": run.question_id}
    for act in ("confirm", "deny"):
        answer = client.post(f"/runs/{run.id}/{act}", data=hidden)
        assert (answer.status_code, "is not enough" in answer.text) == (409, True)
    assert own.runs.get(run.id).waiting_for == "confirmation"


@pytest.mark.parametrize("passkey", ["", "{", "[]", '{"x":' * 5_000], ids=["none", "cut", "list", "deep"])
def test_a_form_without_a_passkey_registers_nobody(own: Site, visit: OpenConsole, passkey: str) -> None:
    client = visit(own)
    at_name = {"host": "localhost:8000", "origin": "http://localhost:8000"}
    hidden = {"token": token(client.get("/people", headers=at_name).text), "person": "ada", "passkey": passkey}

    answer = client.post("/people", data=hidden, headers=at_name)

    assert (answer.status_code, "The form brings no passkey" in answer.text) == (400, True)
    assert people(own).all_keys() == {}


def test_the_pages_say_what_is_missing(own: Site, visit: OpenConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    run = held(own)
    client = visit(own)

    at_number = client.get("/people", headers={"host": "127.0.0.1:8000"}).text
    monkeypatch.setattr(extras, "is_missing", lambda extra: extra == extras.SIGN)
    pages = [client.get(path).text for path in ("/people", f"/runs/{run.id}")]

    assert "Open the console by its name" in at_number
    assert all(re.search(r"need the extra .*sign.*pip install", page) for page in pages)


@pytest.mark.parametrize("name", ["reader", "runner", "stranger"])
def test_who_may_not_confirm_registers_nobody(own: Site, visit: OpenConsole, name: str) -> None:
    client = visit(own, name)
    status = client.get("/people").status_code

    assert status == (200 if name == "stranger" else 404)


def test_a_setting_allows_the_console_without_a_signature(tmp_path: Path, visit: OpenConsole) -> None:
    site = Site(tmp_path, is_furnished=False)
    site.settings = msgspec.structs.replace(site.settings, person_confirmation=("console",))
    run = held(site, {"by": "person"})
    client = visit(site)
    page = client.get(f"/runs/{run.id}").text
    hidden = {"token": token(page), "step": "deploy", "question": run.question_id}

    assert client.post(f"/runs/{run.id}/confirm", data=hidden).status_code == 303
    assert site.runs.get(run.id).answers["deploy"][1].how == "console"
    site.runs.close()

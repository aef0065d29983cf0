"""The page of the people who can sign answers: who they are, and the forms by which a passkey is added."""

from starlette.responses import RedirectResponse, Response

from workflowlookup.console import passkey_forms
from workflowlookup.console.request import RequestRefused, Visit
from workflowlookup.logs import audit
from workflowlookup.people.store import PersonKey, new_key, text_to_add
from workflowlookup.store.journal import now

NOTICES = {
    "first": "Your passkey is registered. It is the first key here, so it is trusted as it is.",
    "pending": "Your passkey is registered. It counts once a person who is known here has signed for it.",
    "added": "The passkey counts from now on.",
}


async def people(visit: Visit) -> Response:
    visit.require_section("people")
    store = visit.services.people
    obstacle = passkey_forms.obstacle(visit)
    keys = list(store.all_keys().values())
    host = passkey_forms.rp_id(visit)
    may_sign = not obstacle and bool(store.passkeys(host))
    return visit.page(
        "people.html",
        section="people",
        keys=keys,
        pending=[
            (key, passkey_forms.signing_options(visit, text_to_add(key)) if may_sign else None)
            for key in store.pending()
        ],
        options=None if obstacle else passkey_forms.registration_options(visit),
        obstacle=obstacle,
        problem=store.problem,
        kinds=visit.services.person_confirmation,
        notice=NOTICES.get(visit.query("notice"), ""),
    )


async def register(visit: Visit) -> Response:
    """Register a passkey: the first of an installation counts at once, a further one when it is signed for."""
    visit.require_section("people")
    store = visit.services.people
    passkey = passkey_forms.read_registration(visit)
    key = new_key(visit.form.get("person", "").strip(), passkey.public, now(), passkey)
    if store.all_keys():
        store.propose(key)
        notice = "pending"
    else:
        store.add(key, None)
        notice = "first"
    _audit(visit, "person register", key)
    return RedirectResponse(f"/people?notice={notice}", 303)


async def approve(visit: Visit) -> Response:
    """Sign for a passkey that waits."""
    visit.require_section("people")
    store = visit.services.people
    key = next((key for key in store.pending() if key.id == visit.form.get("key")), None)
    if key is None:
        raise RequestRefused(409, "This passkey does not wait for a signature any more. Load the page again.")
    store.add(key, passkey_forms.read_signature(visit, text_to_add(key)))
    _audit(visit, "person approve", key)
    return RedirectResponse("/people?notice=added", 303)


def _audit(visit: Visit, action: str, key: PersonKey) -> None:
    audit(action, by=visit.by, person=key.person, key=key.id)

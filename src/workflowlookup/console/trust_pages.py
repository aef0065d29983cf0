"""The page that shows what a repository brought and nobody trusted, and the button by which a person allows it."""

from starlette.responses import RedirectResponse, Response

from workflowlookup.console.guard import NotThere, Refused
from workflowlookup.console.visit import Visit
from workflowlookup.errors import RunStateError
from workflowlookup.trust import Entry, digest_of_all, digests_of, printed


async def trust(visit: Visit) -> Response:
    if not visit.viewer.administers_all:
        raise NotThere
    entries = _untrusted(visit)
    digests = digests_of(entries)
    hopeless = [entry for entry in entries if all(entry is not other for other, _ in digests)]
    return visit.page(
        "trust.html",
        place="trust",
        entries=[(entry, printed(entry)) for entry, _ in digests],
        hopeless=hopeless,
        shown=digest_of_all(digests),
        problem=visit.house.consent.store.fault(),
        refusal=_refusal(visit),
        is_said=visit.asked("said") == "trusted",
    )


async def allow(visit: Visit) -> Response:
    """Trust exactly what was shown. Raises `RunStateError` when it is not the same any more."""
    if not visit.viewer.administers_all:
        raise NotThere
    if refusal := _refusal(visit):
        raise Refused(403, refusal)
    digests = digests_of(_untrusted(visit))
    if not digests or visit.form.get("shown") != digest_of_all(digests):
        raise RunStateError("What would run has changed since you looked at it. Look again before you decide.")
    visit.house.consent.trust(digests, by=f"console: {visit.viewer.name}")
    visit.house.reload()
    return RedirectResponse("/trust?said=trusted", 303)


def _untrusted(visit: Visit) -> list[Entry]:
    return visit.house.consent.untrusted_in(visit.house.catalog.workflows())


def _refusal(visit: Visit) -> str:
    """Why this viewer may look, but not decide; empty when they may."""
    if visit.viewer.kind == "person" or (visit.viewer.kind == "local" and visit.house.is_private):
        return ""
    return (
        "Only a person may decide this, and this page cannot know that you are one. Open it with `workflowlookup "
        "console`, sign in with a token of a person, or run `workflowlookup trust` in a terminal."
    )

"""The page that shows what a repository brought and nobody trusted, and the button by which a person allows it."""

from starlette.responses import RedirectResponse, Response

from workflowlookup.console.request import Visit
from workflowlookup.errors import RunStateError
from workflowlookup.tools.contract import ONLY_A_PERSON
from workflowlookup.trust import Entry, digest_of_all, digests_of, printed


async def trust(visit: Visit) -> Response:
    visit.need_place("trust")
    entries = _untrusted(visit)
    digests = digests_of(entries)
    hopeless = [entry for entry in entries if all(entry is not other for other, _ in digests)]
    return visit.page(
        "trust.html",
        place="trust",
        entries=[(entry, printed(entry)) for entry, _ in digests],
        hopeless=hopeless,
        shown=digest_of_all(digests),
        problem=visit.services.consent.store.fault(),
        refusal="" if visit.access.may_trust else ONLY_A_PERSON,
        is_said=visit.asked("said") == "trusted",
    )


async def allow(visit: Visit) -> Response:
    """Trust exactly what was shown. Raises `RunStateError` when it is not the same any more."""
    visit.need_place("trust")
    digests = digests_of(_untrusted(visit))
    if not digests or visit.form.get("shown") != digest_of_all(digests):
        raise RunStateError("What would run has changed since you looked at it. Look again before you decide.")
    visit.services.trust(digests, by=f"console: {visit.name}")
    return RedirectResponse("/trust?said=trusted", 303)


def _untrusted(visit: Visit) -> list[Entry]:
    return visit.services.consent.untrusted_in(visit.services.catalog.workflows())

"""What a workflow may do, by whose it is and what is trusted."""

import pytest

from support.make import document, step
from workflowlookup import trust
from workflowlookup.trust import PROVIDER, SERVER, SETTING, Consent, TrustEntry, TrustStore

CALLING = document(step("ask", call={"server": "tool", "tool": "echo"}))


def ignoring(kind: str, name: str = "tool") -> trust.Consent:
    return Consent(
        TrustStore(""), lambda: [TrustEntry(file="/clone/workflowlookup.toml", kind=kind, name=name, value={})]
    )


@pytest.mark.parametrize("kind", [SERVER, PROVIDER])
def test_the_users_own_workflow_may_not_call_a_system_that_is_ignored(kind: str) -> None:
    assert [entry.name for entry in ignoring(kind).untrusted("", CALLING)] == ["tool"]
    assert ignoring(kind, "other").untrusted("", CALLING) == []


def test_a_workflow_of_a_repository_may_not_call_anything_untrusted() -> None:
    names = [entry.name for entry in Consent(TrustStore("")).untrusted("/clone/sample.json", CALLING)]

    assert names == ["sample-workflow/ask"]


def test_the_users_own_workflow_is_not_inspected_if_no_system_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trust, "step_entries", None)

    assert Consent(TrustStore("")).untrusted("", CALLING) == []
    assert ignoring(SETTING).untrusted("", CALLING) == []

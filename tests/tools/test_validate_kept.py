"""What `workflow_validate` keeps of what it told."""

from workflowlookup.core.model import Issue
from workflowlookup.tools import workflow_validate
from workflowlookup.tools.workflow_validate import LONGEST_KEPT, MOST_KEPT, _encode, _encoded, _tell


def test_it_is_bounded_and_short(monkeypatch):
    monkeypatch.setattr(workflow_validate, "_encoded", kept := {})

    for number in range(MOST_KEPT + 100):
        _encode((Issue(message=f"{number}", suggestion="s"),))
        _encode((Issue(message=f"{number}" * LONGEST_KEPT, suggestion="s"),))

    assert 0 < len(kept) <= MOST_KEPT
    assert all(len(bytes(told)) <= LONGEST_KEPT for told in kept.values())


def test_the_same_findings_are_told_in_the_same_words():
    issues = (Issue(message="m", suggestion="s"), Issue(message="n", suggestion="s"))
    first = _encode(issues)

    assert _encoded[tuple(Issue(message=issue.message, suggestion="s") for issue in issues)] == first
    assert _tell(issues) == {"valid": False, "issues": ["m", "n"], "suggestions": [workflow_validate.REVIEW, "s"]}

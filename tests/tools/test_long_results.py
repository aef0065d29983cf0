"""The first part of a long result: short enough, of the same shape, and the beginning of the whole."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflowlookup.protocol.jsonrpc import Request
from workflowlookup.protocol.requests import run_id_in
from workflowlookup.tools.long_results import first_part, run_id_of, uri_of

TEXTS = st.text(max_size=50).flatmap(lambda text: st.integers(0, 2_000).map(lambda times: text * times))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=200) | st.dictionaries(st.text(max_size=200), inner, max_size=60),
    max_leaves=60,
)
RESULTS = st.dictionaries(st.text(min_size=1, max_size=20).filter(lambda name: name != "cut"), VALUES, max_size=30)
LIMIT = 30_000


def begins(part: Any, whole: Any) -> bool:
    """Whether one value is the other with texts, lists and maps cut at their end."""
    match part, whole:
        case str(), str():
            return part == whole or (part.endswith("…") and whole.startswith(part[:-1]))
        case list(), list():
            return len(part) <= len(whole) and all(map(begins, part, whole))
        case dict(), dict():
            return list(part) == list(whole)[: len(part)] and all(begins(part[name], whole[name]) for name in part)
    return bool(part == whole)


@settings(deadline=None)
@given(RESULTS)
def test_the_first_part_is_short_and_begins_like_the_whole(result: dict[str, Any]) -> None:
    whole = msgspec.json.decode(msgspec.json.encode(result))

    part = first_part(whole, 100_000, "tool-result://workflow_list")

    cut = part.pop("cut")
    assert (cut["characters"], cut["resource"]) == (100_000, "tool-result://workflow_list")
    assert len(msgspec.json.encode(part).decode()) <= LIMIT
    assert list(part) == list(whole), "every field of the result is there"
    assert begins(part, whole)


def test_a_short_field_is_whole_beside_a_long_one() -> None:
    whole = {"long": "x" * 90_000, "steps": [{"id": str(number)} for number in range(9_000)], "next": "Go on." * 50}

    part = first_part(whole, 200_000, "")

    assert part["next"] == whole["next"]
    assert 9_000 < len(part["long"]) < 11_000, "the long ones share the rest"
    assert part["steps"] == whole["steps"][: len(part["steps"])]
    assert 600 < len(part["steps"]) < 900


def test_the_resource_of_a_tool_that_changes_a_run_is_the_status_of_the_run() -> None:
    uri = uri_of("workflow_submit", {"runId": "r", "stepId": "one", "output": "x"}, {"runId": "r"})

    assert uri == "tool-result://workflow_status?arguments=%7B%22runId%22%3A%22r%22%7D"
    assert run_id_of(uri) == "r"
    assert uri_of("workflow_next", {"context": {"long": "x" * 3_000}}, {}) == "", "too long for a URI"
    assert uri_of("workflow_refresh", {}, {}) is None, "not to be done again"


@pytest.mark.parametrize("uri", ["tool-result://[x", "tool-result://workflow_status#r"])
def test_a_uri_that_names_no_resource_names_no_run(uri: str) -> None:
    assert run_id_in(Request(b"1", "resources/read", {"uri": uri}, 99)) == ""

"""Names of workflow tools: sound, short, unlike each other, and kept."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflowlookup.providers.definition import Definition
from workflowlookup.tools.tool_names import MAX_LENGTH, assign_names, slug


def flow(workflow_id: str, name: str, provider: str = "p") -> Definition:
    return Definition(id=workflow_id, name=name, description="d", provider=provider)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deploy", "deploy"),
        ("deployIt_Now2", "deployIt_Now2"),
        ("Report", "report"),
        ("Deploy a service", "deploy_a_service"),
        ("  Übung: 1/2 ", "ubung_1_2"),
        ("報告", ""),
        ("x" * 60, "x" * 60),
    ],
)
def test_a_name_is_made_of_what_names_may_have(name: str, expected: str) -> None:
    assert slug(name) == expected


def test_where_two_would_be_the_same_the_id_is_added() -> None:
    flows = [flow("1", "Report"), flow("2", "Report"), flow("r-3", "Report"), flow("2", "Report", "q")]

    names, new = assign_names(flows, {}, ())

    assert list(names.values()) == ["report", "report_2", "report_r-3", "report_2_q"]
    assert new == names


def test_a_name_that_says_nothing_is_made_from_the_id() -> None:
    names, _ = assign_names([flow("monthly", "報告"), flow("月", "報告")], {}, ())

    assert names["p", "monthly"] == "monthly"
    assert re.fullmatch(r"workflow_[0-9a-f]{8}", names["p", "月"])


def test_what_is_built_in_is_nobodys_name() -> None:
    names, _ = assign_names([flow("x", "workflow_list")], {}, {"workflow_list"})

    assert names == {("p", "x"): "workflow_list_x"}


def test_a_name_is_kept_whatever_the_workflow_is_called_now() -> None:
    stored = {("p", "1"): "report", ("p", "gone"): "summary"}

    names, new = assign_names([flow("2", "Report"), flow("1", "Summary")], stored, ())

    assert names == {("p", "1"): "report", ("p", "2"): "report_2"}
    assert new == {("p", "2"): "report_2"}


texts = st.text(min_size=1, max_size=80)


@given(
    st.lists(
        st.tuples(texts, st.sampled_from(["Report", "report!", "x" * 99, "報告", "workflow_list"])),
        unique_by=lambda pair: pair[0],
    )
)
def test_names_are_sound_and_differ(pairs: list[tuple[str, str]]) -> None:
    names, _ = assign_names([flow(*pair) for pair in pairs], {}, {"workflow_list"})

    assert len(set(names.values())) == len(pairs)
    assert all(re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_LENGTH}}}", name) for name in names.values())
    assert "workflow_list" not in names.values()

"""Filters: which workflows become tools."""

import pytest

from workflowlookup.providers.config import Filters, WorkflowFilter
from workflowlookup.providers.definition import Definition

FLOWS = [
    Definition(id="deploy-web", name="Deploy the web", description="d", provider="ci", category="ops"),
    Definition(id="deploy-db", name="Deploy: database", description="d", provider="ci", category="data"),
    Definition(id="bug-investigation", name="Bug investigation", description="d", provider="library"),
    Definition(id="flow[1]", name="One", description="d", provider="other", category="ops"),
]


@pytest.mark.parametrize(
    ("include", "exclude", "admitted"),
    [
        ((), (), [0, 1, 2, 3]),
        (("deploy-*",), (), [0, 1]),
        (("DEPLOY*",), (), [0, 1]),
        (("deploy",), (), []),
        (("name:deploy: *",), (), [1]),
        (("id:deploy-?b",), (), [1]),
        (("category:ops",), (), [0, 3]),
        (("provider:library", "provider:other"), (), [2, 3]),
        ((), ("provider:ci",), [2, 3]),
        (("category:ops",), ("provider:ci",), [3]),
        (("deploy-[dw]*",), (), [0, 1]),
        (("id:flow[[]1]",), (), [3]),
        (("(*",), (), []),
    ],
)
def test_filters_admit_the_expected_workflows(
    include: tuple[str, ...], exclude: tuple[str, ...], admitted: list[int]
) -> None:
    sieve = WorkflowFilter(Filters(include, exclude))

    assert [number for number, flow in enumerate(FLOWS) if sieve.admits(flow)] == admitted

"""Attempts to get an output accepted without doing the work: all are refused or shown, except those that
docs/security.md lists as what cannot be prevented on one account.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign.attacker import Attempt, Outcome
from campaign.table import ATTEMPTS, summary

SECURITY = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
MIN_ATTEMPTS = 200


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Iterator[list[tuple[Attempt, Outcome]]]:
    """What each attempt came to; the numbers are printed at the end."""
    results: list[tuple[Attempt, Outcome]] = []
    yield results
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"\n{summary(results)}")


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=str)
def test_an_attempt(attempt: Attempt, tmp_path: Path, results: list[tuple[Attempt, Outcome]]) -> None:
    outcome, text = attempt.make(tmp_path)
    results.append((attempt, outcome))

    assert outcome == attempt.expected, text
    assert re.search(attempt.expects, text), text
    assert outcome != "passed" or attempt.listed in SECURITY


def test_the_campaign_is_large_and_each_attempt_is_another() -> None:
    assert len({str(attempt) for attempt in ATTEMPTS}) == len(ATTEMPTS) >= MIN_ATTEMPTS
    assert all(attempt.listed for attempt in ATTEMPTS if attempt.expected == "passed")

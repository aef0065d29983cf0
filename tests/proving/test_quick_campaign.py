"""Some attempts of the campaign, of all kinds; tests/soak/test_campaign.py makes all of them."""

import re
from pathlib import Path

import pytest

from campaign.attacker import FIX, Attacker, Attempt
from campaign.table import ATTEMPTS

REFUSED = [attempt for attempt in ATTEMPTS if attempt.expected == "refused" and attempt.kind != "timeouts"][::11]
SHOWN = [attempt for attempt in ATTEMPTS if attempt.expected == "shown" and attempt.kind == "edited journal"][::3]


@pytest.mark.parametrize("attempt", [*REFUSED, *SHOWN], ids=str)
def test_an_attempt(attempt: Attempt, tmp_path: Path) -> None:
    outcome, said = attempt.make(tmp_path)

    assert outcome == attempt.expected, said
    assert re.search(attempt.expects, said), said


@pytest.mark.parametrize("workflow", ["pinned", "fresh", "measured"])
def test_work_that_is_done_is_accepted(workflow: str, tmp_path: Path) -> None:
    attacker = Attacker(tmp_path)
    attacker.serve()
    attacker.begin(workflow)
    attacker.project.write("app.sh", FIX)
    attacker.submit()

    assert attacker.outcome() == "passed"

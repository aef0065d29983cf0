"""The words of other systems for the states of a run."""

import re
from pathlib import Path

import pytest

from workflowlookup.providers.shapes import WORDS, meaning_of, state_of

DOCS = Path(__file__).parents[2] / "docs" / "providers.md"
SYSTEMS = {
    "airflow": "queued=waiting running=running success=completed failed=failed",
    "argo": "Pending=waiting Running=running Succeeded=completed Failed=failed Error=failed",
    "conductor": "RUNNING=running COMPLETED=completed FAILED=failed TIMED_OUT=failed TERMINATED=cancelled PAUSED=waiting",
    "github": "queued=waiting in_progress=running requested=waiting waiting=waiting success=completed failure=failed "
    "neutral=completed cancelled=cancelled skipped=cancelled timed_out=failed action_required=waiting stale=failed "
    "startup_failure=failed",
    "n8n": "new=waiting running=running waiting=waiting success=completed error=failed crashed=failed canceled=cancelled",
    "prefect": "SCHEDULED=waiting PENDING=waiting RUNNING=running PAUSED=waiting CANCELLING=running "
    "CANCELLED=cancelled COMPLETED=completed FAILED=failed CRASHED=failed AwaitingRetry=waiting TimedOut=failed",
    "step functions": "RUNNING=running SUCCEEDED=completed FAILED=failed TIMED_OUT=failed ABORTED=cancelled "
    "PENDING_REDRIVE=waiting",
    "temporal": "WORKFLOW_EXECUTION_STATUS_RUNNING=running WORKFLOW_EXECUTION_STATUS_COMPLETED=completed "
    "WORKFLOW_EXECUTION_STATUS_TIMED_OUT=failed Canceled=cancelled Terminated=cancelled ContinuedAsNew=running",
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_state_words_of_a_system_are_recognized(system: str) -> None:
    expected = dict(pair.split("=") for pair in SYSTEMS[system].split())

    assert {word: meaning_of(word) for word in expected} == expected


def test_an_unknown_state_word_means_running() -> None:
    assert (meaning_of("ALMOST"), state_of("ALMOST"), state_of(None), state_of("Queued")) == (
        *(None, "running"),
        *("running", "running"),
    )


def test_states_in_the_settings_take_precedence_over_the_table() -> None:
    assert state_of("Stopped", {"STOPPED": "completed"}) == "completed"
    assert state_of("success", {"SUCCESS": "waiting"}) == "running"


def test_the_docs_list_every_word() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (`[^|]+`) \|$", DOCS.read_text(), re.MULTILINE)
    listed = {meaning: tuple(re.findall(r"`(\w+)`", words)) for meaning, words in rows}

    assert {meaning: listed.get(meaning) for meaning in WORDS} == WORDS

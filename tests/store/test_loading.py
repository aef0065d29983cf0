"""Runs with long outputs are shown with excerpts of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.make import document, step
from workflowlookup.errors import RunStateError
from workflowlookup.language.document.building import build
from workflowlookup.language.text import length_of
from workflowlookup.runs.events import Record
from workflowlookup.runs.report import report_of
from workflowlookup.runs.run import Run
from workflowlookup.store import loading, service
from workflowlookup.store.loading import SHORT_EXCERPT, read_excerpts
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

PICKY = step("write", validationCriteria=[{"type": "contains", "value": "PASS", "message": "no"}])
LONG = 300_000


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[service.Runs]:
    runs = Runs(SqliteJournal(str(tmp_path / "runs.sqlite")))
    yield runs
    runs.close()


def refused(runs: service.Runs, times: int) -> Run:
    run = runs.start(build(document(PICKY)), {}, {})
    for number in range(times):
        run = runs.submit(run.id, "write", f"{number}" + "y" * LONG, {})
    return run


def outputs(records: list[Record]) -> list[str]:
    return [record.event.output for record in records if hasattr(record.event, "output")]


def test_long_outputs_are_read_as_excerpts_that_know_their_length(runs: service.Runs) -> None:
    run = refused(runs, 3)

    records = read_excerpts(runs, run.id)

    assert [(len(output), length_of(output)) for output in outputs(records)] == [(50_000, LONG + 1)] * 3
    assert [record.sequence for record in records] == [record.sequence for record in runs.history(run.id)]
    assert f"… {LONG + 1 - 1_000:,} more characters" in report_of(run, records)


def test_later_excerpts_of_many_long_outputs_are_shorter(runs: service.Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "LONG_EXCERPTS_BYTES", 100_000)
    run = refused(runs, 4)

    assert [len(output) for output in outputs(read_excerpts(runs, run.id))] == [
        50_000,
        50_000,
        SHORT_EXCERPT,
        SHORT_EXCERPT,
    ]


def test_a_run_that_is_too_long_even_in_excerpts_is_refused(
    runs: service.Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "MAX_BYTES", 100_000)
    run = refused(runs, 3)

    with pytest.raises(RunStateError, match=f"too long to be shown.*workflowlookup export {run.id}"):
        read_excerpts(runs, run.id)


def test_the_cache_of_runs_counts_their_outputs(runs: service.Runs) -> None:
    started = runs.start(build(document(step("one"), step("two"))), {}, {})

    run = runs.submit(started.id, "one", "x" * 100_000, {})

    assert run.characters == 100_000
    assert run.weight - started.weight >= 100_000


def test_the_outputs_of_one_run_are_limited_together(runs: service.Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CHARACTERS", 1_000)
    run = runs.start(build(document(step("one"), step("two"))), {}, {})
    run = runs.submit(run.id, "one", "x" * 600, {})

    with pytest.raises(RunStateError, match="would have more than 1,000"):
        runs.submit(run.id, "two", "x" * 401, {})

    assert runs.submit(run.id, "two", "x" * 400, {}).state == "completed"

"""`workflowlookup stats [ID]`: statistics of the runs of each version of a workflow, by step. Nothing is sent."""

import argparse
from typing import Final

from workflowlookup.app import make_services
from workflowlookup.cli.arguments import time_or_age
from workflowlookup.cli.output import complain, progress, write, write_json, write_quoted, write_records
from workflowlookup.cli.services import has_journal, milliseconds
from workflowlookup.errors import RunStateError, StorageError
from workflowlookup.language.formats.schemas import suggest
from workflowlookup.language.text import duration, one_line, plural
from workflowlookup.runs.proofs.statistics import ProofStatistics
from workflowlookup.runs.statistics import StepStatistics, Tally, WorkflowStatistics
from workflowlookup.settings import Settings
from workflowlookup.store.journal import RunQuery

COLUMNS: Final = ("step", "reached", "skipped", "refused", "tries", "proved", "time", "slow", "waiting", "stopped")
PROOF_COLUMNS: Final = ("proof", "proved", "failed", "unproved", "waived", "skipped", "time", "slow", "checks")
FEWER_PROOF_COLUMNS: Final = ("proof", "proved", "failed", "unproved", "waived", "slow")
FEWER_COLUMNS: Final = ("step", "reached", "refused", "time", "stopped")
NARROW: Final = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", help="only runs of this workflow")
    parser.add_argument(
        "--since", metavar="TIME", type=time_or_age, help="only runs started since: 2026-11-16, 12h, 30d"
    )
    parser.add_argument("--json", action="store_true", help="print the statistics as JSON; times are in milliseconds")


def run(options: argparse.Namespace, settings: Settings) -> int:
    workflows = _count(options, settings) if has_journal(settings) else []
    if options.json:
        write_json({"workflows": workflows})
    elif workflows:
        for statistics in workflows:
            _write(statistics)
    else:
        complain(_no_runs(options, settings))
        return int(bool(options.id))
    return 0


def _count(options: argparse.Namespace, settings: Settings) -> list[WorkflowStatistics]:
    """The statistics by workflow and version, those with the latest run first."""
    runs = make_services(settings).runs
    tallies: dict[tuple[str, str], Tally] = {}
    summaries = list(
        runs.all_summaries(RunQuery(workflow_id=options.id, since=options.since and milliseconds(options.since)))
    )
    with progress("Counting", len(summaries)) as tick:
        for summary in summaries:
            tally = tallies.setdefault((summary.workflow_id, summary.version), Tally())
            try:
                tally.add(summary.id, runs.journal.read(summary.id))
            except (RunStateError, StorageError) as refusal:
                complain(f"run {summary.id} is not counted: {refusal.remedy}")
            tick()
    return [statistics for tally in tallies.values() if (statistics := tally.statistics()) is not None]


def _no_runs(options: argparse.Namespace, settings: Settings) -> str:
    if not options.id:
        return "there are no runs to count. `workflowlookup run ID` starts one."
    summaries = make_services(settings).runs.all_summaries() if has_journal(settings) else ()
    ids = sorted({summary.workflow_id for summary in summaries})
    return f"there are no runs of workflow {suggest(options.id, ids)}; `workflowlookup runs` lists all runs"


def _write(statistics: WorkflowStatistics) -> None:
    states = ", ".join(f"{count} {state}" for state, count in sorted(statistics.states.items()))
    median = "" if statistics.median_time is None else f"; median {duration(statistics.median_time)}"
    write()
    write(
        (statistics.workflow_id, "bold"),
        (f" {statistics.version}", "dim"),
        f": {plural(statistics.runs, 'run')} ({states}{median})",
    )
    write()
    rows = [_row(step) for step in statistics.steps]
    columns = [column for column in COLUMNS if column != "proved" or any(row["proved"] != "-" for row in rows)]
    write_records(rows, columns, fewer=FEWER_COLUMNS, min_width=NARROW)
    if statistics.proofs:
        write()
        proofs = sorted(statistics.proofs, key=lambda proof: -(proof.slow_time or 0))
        write_records(
            [_proof_row(proof) for proof in proofs], PROOF_COLUMNS, fewer=FEWER_PROOF_COLUMNS, min_width=NARROW
        )
        for proof in proofs:
            if proof.failure:
                write()
                write((f"{proof.step}/{proof.name}", "bold"), f" did not pass the last time: {one_line(proof.failure)}")
                write_quoted(proof.tail)


def _row(step: StepStatistics) -> dict[str, str]:
    return {
        "step": f"{'· ' * step.depth}{step.id}",
        "reached": str(step.reached or "-"),
        "skipped": str(step.skipped or "-"),
        "refused": str(step.refused or "-"),
        "tries": "-" if step.tries is None else f"{step.tries:g}",
        "proved": _proved(step),
        "time": _time(step.median_time),
        "slow": _time(step.slow_time),
        "waiting": str(step.waiting or "-"),
        "stopped": str(step.stopped or "-"),
    }


def _proof_row(proof: ProofStatistics) -> dict[str, str]:
    counts = {name: str(getattr(proof, name) or "-") for name in ("proved", "failed", "unproved", "waived", "skipped")}
    times = {"time": _time(proof.median_time), "slow": _time(proof.slow_time)}
    return {"proof": f"{proof.step}/{proof.name}", **counts, **times, "checks": one_line(proof.checked) or proof.kind}


def _proved(step: StepStatistics) -> str:
    taken = step.proved + step.disproved + step.unproved
    return f"{step.proved} of {taken}" if taken else "-"


def _time(span: int | None) -> str:
    return "-" if span is None else duration(span)


EXAMPLES = """\
  workflowlookup stats                              every workflow that was run
  workflowlookup stats bug-investigation            where its runs stop, and what is refused
  workflowlookup stats --since 30d --json | jq '.workflows[].steps[] | select(.refused > 3)'"""

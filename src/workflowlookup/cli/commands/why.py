"""`workflowlookup why RUN`: explains why each step ran, was skipped or waits; `why ID --context …` needs no run."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from workflowlookup.app import make_services
from workflowlookup.authoring.graph import draw, draw_run
from workflowlookup.authoring.mermaid import as_mermaid
from workflowlookup.cli.arguments import add_context_argument
from workflowlookup.cli.documents import open_workflow
from workflowlookup.cli.output import write, write_json, write_list, write_quoted, write_text
from workflowlookup.cli.services import find_run, has_journal
from workflowlookup.cli.terminal.run_display import without_patterns
from workflowlookup.errors import RunNotFound, WorkflowNotFound
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.navigation import find_step
from workflowlookup.language.text import how_often, joined
from workflowlookup.language.values import brief
from workflowlookup.runs.proofs.words import proved
from workflowlookup.runs.run import Run, Waiting
from workflowlookup.runs.why import NO_CONDITION, Explanation, Fate, Reason, explain_context, explain_run
from workflowlookup.settings import Settings

MAX_ERROR_CHARS: Final = 500
"""How many characters of each part of another system's error are shown."""
_SIGNS: Final[Mapping[Fate, tuple[str, str]]] = {
    Fate.RAN: ("✓", "green"),
    Fate.WAITS: ("→", "bold yellow"),
    Fate.SKIPPED: ("·", "dim"),
    Fate.WOULD_RUN: ("○", "cyan"),
    Fate.WOULD_BE_SKIPPED: ("·", "dim"),
    Fate.NOT_REACHED: ("-", "dim"),
    Fate.FAILED: ("✗", "bold red"),
    Fate.CANCELLED: ("✗", "yellow"),
    Fate.END_UNKNOWN: ("?", "bold red"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subject", metavar="RUN_OR_ID", help="a run, by a prefix of its id; or a workflow, by its id or path"
    )
    add_context_argument(parser, meaning="a context variable: show what would happen in a new run")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the steps and the conditions that decided")
    form.add_argument("--mermaid", action="store_true", help="print a Mermaid flowchart with the path marked")


def run(options: argparse.Namespace, settings: Settings) -> int:
    subject = _find(options.subject, settings, is_workflow=bool(options.context))
    facts: dict[str, Any]
    if isinstance(subject, Workflow):
        workflow, head, facts = subject, "", {"context": dict(options.context)}
        explanation = explain_context(workflow, facts["context"], Budget())
        graph = draw(workflow, facts["context"])
    else:
        workflow, facts = subject.workflow, {"runId": subject.id, "state": subject.state}
        person = " for a person" if subject.waiting_for is Waiting.CONFIRMATION else ""
        proofs = f" · {proved(subject.proof_counts)}" if subject.proof_counts.total else ""
        head = f" · run {subject.id} · {subject.state}{person}{proofs}"
        explanation = explain_run(subject, make_services(settings).runs.history(subject.id), Budget())
        graph = draw_run(subject, explanation)
    if options.mermaid:
        write_text(as_mermaid(graph))
    elif options.json:
        identity = {"workflowId": workflow.id, "version": workflow.version}
        write_json({**identity, **facts, "steps": explanation.steps, "warnings": explanation.warnings})
    else:
        _write(workflow, head, explanation)
    return 0


def _find(name: str, settings: Settings, *, is_workflow: bool) -> Run | Workflow:
    """The run with exactly this id, else the workflow, else the run with this prefix."""
    runs = make_services(settings).runs if has_journal(settings) and not is_workflow else None
    if runs is not None and runs.journal.head(name) is not None:
        return runs.get(name)
    try:
        return open_workflow(name, settings)
    except WorkflowNotFound as refusal:
        if runs is None:
            raise
        try:
            return runs.get(find_run(runs, name))
        except RunNotFound as problem:
            message = f"{problem.remedy} There is no workflow with this id either: `workflowlookup list` shows them."
            raise RunNotFound(message, runId=name) from refusal


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(workflow: Workflow, more: str, explanation: Explanation) -> None:
    write((workflow.name, "bold"), (f"  {workflow.id} · version {workflow.version}{more}", "dim"))
    for reason in explanation.steps:
        sign, style = _SIGNS[reason.fate]
        indent = "  " * reason.depth
        write()
        title = joined(reason.title)
        write(
            indent, (f"{sign} ", style), (reason.id, "cyan"), f"  {title}: ", (reason.fate, style), hang=len(indent) + 2
        )
        for line in _lines(workflow, reason):
            write(indent, "    ", line, hang=len(indent) + 4)
        for name, output in reason.outputs.items():
            write(indent, f"    the end of what '{name}' wrote:")
            write_quoted(output)
    write_list("Warnings", explanation.warnings)


def _lines(workflow: Workflow, reason: Reason) -> Iterator[str]:
    if reason.times > 1:
        yield f"the same in {reason.times:,} iterations: {reason.iterations}"
    if reason.because and (reason.because != NO_CONDITION or reason.fate is not Fate.NOT_REACHED):
        yield joined(reason.because)
    values = dict.fromkeys(check.sentence() for check in reason.checks)
    if values:
        yield f"here {', '.join(values)}"
    if reason.refused:
        step = find_step(workflow, reason.id)
        issues = without_patterns(step, reason.issues) if isinstance(step, PromptStep) else reason.issues
        yield f"refused {how_often(reason.refused)}: {' '.join(issues)}"
    if reason.failed:
        yield f"its call failed {how_often(reason.failed)}: {' '.join(reason.failure.split())}"
    if reason.error is not None:
        parts = {"detail": reason.error.detail, "output": reason.error.output}
        yield from (
            f"{name} there: {brief(value, MAX_ERROR_CHARS)}" for name, value in parts.items() if value is not None
        )
    yield from map(joined, reason.proofs)
    if reason.confirmation:
        yield joined(reason.confirmation)


EXAMPLES = """\
  workflowlookup why 9f2c                                         what decided about each step of a run
  workflowlookup why bug-investigation --context bugKind=hidden   what would happen in a new one
  workflowlookup why 9f2c --mermaid > run.mmd                     a picture with the path marked"""

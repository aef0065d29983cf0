"""Shows a run to a person: the step with its prompt, the verdict on an output, the progress, the end.

Prompts are rendered as Markdown. Outputs, notes and reasons are untrusted, and are shown as plain text without control
characters. The journal has the messages of refusals for agents, which contain the pattern if the author gave no
message. Here a simple pattern is put into words, and any other pattern is called the form that the step describes.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from workflowlookup.cli.output import (
    Piece,
    as_command,
    is_terminal,
    width,
    write,
    write_heading,
    write_list,
    write_markdown,
    write_quoted,
)
from workflowlookup.cli.terminal.confirmation import MAX_SHOWN
from workflowlookup.language.contract import how_to_send, unmet
from workflowlookup.language.formats.pattern_words import pattern_in_words
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.schemas import BadSchema
from workflowlookup.language.guidance import Guidance, guide
from workflowlookup.language.model import PromptStep
from workflowlookup.language.rules import GIVEN_UP, NO_MATCH, ContainsRule, RegexRule, Rule, each_rule
from workflowlookup.language.templates import filler
from workflowlookup.language.text import how_often, joined
from workflowlookup.runs.draft import loops_to_end, remedy_of
from workflowlookup.runs.events import ConfirmationDenied, EndUnknown, Failed, OutputAccepted, OutputRefused
from workflowlookup.runs.proofs.due import SnapshotDue, all_due
from workflowlookup.runs.proofs.state import NO_PROOFS
from workflowlookup.runs.proofs.words import proved, sentences_of
from workflowlookup.runs.questions import question_of
from workflowlookup.runs.run import Run, State, Waiting

FORM: Final = 'have the form that the step describes under "The output must meet"'
_OTHERS: Final = (
    (re.compile(re.escape(NO_MATCH.format("")) + ".*"), f"The output must {FORM}."),
    (re.compile(re.escape(GIVEN_UP).replace(r"\{\}", ".*")), "This output took too long to judge. Shorten it."),
    (re.compile("The output matches the regular expression /.*/[a-z]*"), f"The output may {FORM}"),
)
"""Messages with patterns that are not in the document, because they were filled from the context."""


def refusal_lines(run: Run) -> list[str]:
    """A line for each issue of the last output, if it was refused; for a proof, also what to do."""
    refused = run.last_submission
    if not isinstance(refused, OutputRefused):
        return []
    judgements = run.proofs.get(run.current, NO_PROOFS).judgements.values()
    remedies = {joined(one.reason): one.remedy for one in judgements if one.verdict != "passed" and one.reason}
    lines = without_patterns(run.step, refused.issues, refused.output)
    return [
        next((f"{line} {remedies[reason]}" for reason in remedies if line.endswith(reason)), line) for line in lines
    ]


def without_patterns(step: PromptStep, issues: Iterable[str], output: str | None = None) -> list[str]:
    """The issues without regular expressions; with the output, also suggestions how to fix them."""
    rules = list(each_rule(step.criteria))
    hints = {} if output is None else _hints(rules, output)
    patterns = [rule for rule in rules if isinstance(rule, RegexRule)]
    return [_line(message, hints.get(message, ""), patterns) for message in issues]


def _line(message: str, hint: str, patterns: list[RegexRule]) -> str:
    message = joined(message)
    for rule in patterns:
        described = rule.words()
        message = message.replace(NO_MATCH.format(rule.pattern), f"The output must {in_words(rule)}.")
        message = message.replace(described, f"The output may {in_words(rule)}")
    for pattern, words in _OTHERS:
        message = pattern.sub(words, message)
    return f"{message}{'' if message.endswith(('.', '!', '?')) else '.'} {hint}" if hint else message


def in_words(rule: RegexRule) -> str:
    """A pattern in words, such as `contain "PASS" or "FAIL"`."""
    return pattern_in_words(rule.pattern, rule.flags) or FORM


def _hints(rules: list[Rule], output: str) -> dict[str, str]:
    """By message: a suggestion that says more than the message."""
    says_more = [
        rule
        for rule in rules
        if not isinstance(rule, RegexRule) and (rule.message or not isinstance(rule, ContainsRule))
    ]
    try:
        issues = [issue for rule in says_more for issue in rule.check()(output, {}, Budget()) or ()]
    except BadSchema:  # the output was not refused by this schema
        return {}
    return {issue.message: issue.suggestion for issue in issues}


STYLES: Final[Mapping[str, str]] = {
    State.QUEUED: "dim",
    State.RUNNING: "cyan",
    State.WAITING: "yellow",
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.CANCELLED: "dim",
    State.UNKNOWN: "magenta",
}

BAR: Final = 30
_BAR_CHARACTERS: Final = ("━", "─")
_LISTS: Final = (
    ("preconditions", "Before you start"),
    ("clarification_prompts", "Questions to ask first"),
    ("meta_guidance", "Throughout"),
)


def write_start(run: Run) -> None:
    """Print the workflow, the run, and what a person should know before the first step."""
    workflow = run.workflow
    write((workflow.name, "bold"), (f"  {workflow.id} · version {workflow.version} · run {run.id}", "dim"))
    for field, title in _LISTS:
        write_list(title, getattr(workflow, field))


def write_state(run: Run) -> None:
    """Print the state of a resumed run in one line."""
    facts = [_count(run), status_sentence(run).removeprefix("The run ").removesuffix(".")]
    if isinstance(run.last_submission, OutputRefused):
        facts.append(f"refused {how_often(run.attempts)}")
    write((run.workflow.name, "bold"), f"  {' · '.join(facts)}")


def write_step(run: Run, *, with_progress: bool = True) -> None:
    """Print the current step in full."""
    guidance = guide(run.workflow, run.offered, Budget())
    write()
    if with_progress:
        write(*progress(run))
        write()
    write_markdown("\n\n".join(_markdown(run, guidance)))
    write_list("The output must meet", guidance.criteria)
    write_list("The server will check", guidance.proofs)
    needs = unmet(run.workflow, run.step, run.scope, is_done=True)
    write_list("Variables to set with the output", [need.sentence() for need in needs])
    write_list("Warnings", guidance.warnings)
    for loop_id in loops_to_end(run)[-1:]:
        write()
        write(f"If the loop '{loop_id}' has nothing left to do, end it instead (:end).")


def _markdown(run: Run, guidance: Guidance) -> Iterator[str]:
    yield f"# {guidance.step['title']}"
    iteration = f" · iteration {run.loop.iteration} of loop `{run.loop.id}`" if run.loop else ""
    yield f"`{run.current}`{iteration}"
    if run.refused_by_person(run.current) and not isinstance(run.last_submission, OutputRefused):
        yield "**A person did not agree to this step.**"
    if guidance.requires_confirmation:
        yield "**You will be asked to confirm this step.**"
    yield guidance.prompt


def write_call(run: Run) -> None:
    """Print the call of the current step."""
    _write_title(run)
    if run.step.call is not None:
        write(f"The server calls {run.step.call.described}.")
    if run.calling is not None and run.calling.failure:
        write(("The last attempt failed: ", "yellow"), run.calling.failure)


def write_proving(run: Run) -> None:
    """Print what is being proven."""
    write()
    names = [due.name for due in all_due(run, Budget()) if not isinstance(due, SnapshotDue)]
    write(("Proving: ", "cyan"), ", ".join(names)) if names else write(("Looking at the project.", "cyan"))


def _write_title(run: Run) -> None:
    """Print the progress of the run, and the current step in a line."""
    write()
    write(*progress(run))
    write()
    iteration = f" · iteration {run.loop.iteration} of loop {run.loop.id}" if run.loop else ""
    write((filler(run.scope, {})(run.step.title), "bold"), (f"  {run.current}{iteration}", "dim"))


def write_note(run: Run) -> None:
    """Print the note of a person who said no."""
    if run.note:
        write(("Their note: ", "yellow"), run.note)


def write_needs(run: Run) -> None:
    """Print the variables that the run waits for."""
    _write_title(run)
    write(how_to_send(run.workflow, run.current, run.missing[0]))
    write_list("Warnings", run.warnings)


def write_verdict(run: Run) -> None:
    """Print the verdict on the last output."""
    match run.last_submission:
        case OutputAccepted(step_id=step_id):
            write((f"{_sign('✓', '+')} accepted", "bold green"))
            for sentence in sentences_of(run, step_id):
                write(("  - ", "green"), sentence, hang=4)
        case OutputRefused():
            limit = run.step.max_attempts
            attempt = f"attempt {run.attempts}" + ("" if limit is None else f" of {limit}")
            write((f"{_sign('✗', '!')} refused", "bold red"), (f"  ({attempt})", "dim"))
            for problem in refusal_lines(run):
                write(("  - ", "red"), problem, hang=4)
            for judgement in run.proofs.get(run.current, NO_PROOFS).judgements.values():
                if judgement.tail and judgement.verdict != "passed" and not judgement.at_start:
                    write(f"The end of what {judgement.summary} wrote:")
                    write_quoted(judgement.tail)


def write_question(run: Run, command: str) -> None:
    """Print the question to a person, with the output to confirm; `command` shows all of a long one."""
    question = question_of(run, Budget())
    write_heading(question.heading)
    _, earlier = run.answers.get(run.current, (0, None))
    if isinstance(earlier, ConfirmationDenied):
        write(
            ("A person said no to an earlier output of this step", "yellow"),
            f": {earlier.note}" if earlier.note else ".",
        )
    for number, (title, text) in enumerate(question.quotations):
        if number:
            write(f"{title}:")
        write_quoted(text[:MAX_SHOWN])
        if len(text) > MAX_SHOWN:
            write((f"  … {len(text) - MAX_SHOWN:,} more characters: `{command}` shows them.", "dim"))


def write_end(run: Run) -> None:
    """Print how the run ended."""
    write()
    write(*progress(run))
    write(*end_pieces(run))


def end_pieces(run: Run) -> Iterator[Piece]:
    """How the run ended, such as `The run is failed: …`, as pieces of one line."""
    yield f"The run is {run.state}", f"bold {STYLES[run.state]}"
    if isinstance(run.end, Failed | EndUnknown):
        yield as_command(f": {run.end.reason} {remedy_of(run)}")
    elif run.end is not None and run.end.reason:
        yield f": {run.end.reason}"
    else:
        yield "."


def status_sentence(run: Run) -> str:
    """A sentence: what the run waits for, or how it ended."""
    if run.waiting_for is Waiting.OUTPUT:
        return f"The run waits for the output of step '{run.current}'."
    if run.waiting_for is Waiting.CONTEXT:
        return f"The run waits for the variable '{run.missing[0].variable}', which loop '{run.current}' needs."
    if run.waiting_for is Waiting.CONFIRMATION:
        return f"The run waits for a person to confirm step '{run.current}'."
    if run.waiting_for is Waiting.PROOF:
        return f"The proofs of step '{run.current}' are being taken."
    if run.waiting_for is Waiting.CALL:
        state = "is being made" if run.state is State.RUNNING else "has not been made yet"
        return f"The call of step '{run.current}' {state}."
    return "".join(piece if isinstance(piece, str) else piece[0] for piece in end_pieces(run))


def progress(run: Run) -> Iterator[Piece]:
    """The number of done steps, with a bar if the total is known."""
    done, total = len(run.results), run.total
    if is_terminal() and total:
        size = min(BAR, max(5, (width() or BAR) - 20))
        filled = min(size, size * done // total)
        yield _sign(_BAR_CHARACTERS[0], "#") * filled, "green"
        yield _sign(_BAR_CHARACTERS[1], "-") * (size - filled), "dim"
        yield "  "
    yield _count(run), "cyan"


def _count(run: Run) -> str:
    """How many steps are done, and of how many if that is known; and how many proofs passed."""
    proofs = f", {proved(run.proof_counts)}" if run.proof_counts.total else ""
    return f"{len(run.results)}{'' if run.total is None else f' of {run.total}'} done{proofs}"


def _sign(sign: str, plain: str) -> str:
    """The sign, or a plain one if the encoding lacks it."""
    try:
        sign.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return plain
    return sign

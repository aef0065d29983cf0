"""The question to a person that a run waits for: its text, what it is about, and the form to fill in.

Text from an agent or another system (outputs, arguments, values of templates) is quoted: every line of it has a mark,
and values inside sentences are cut to one line, so that no such text can look like the question itself.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.captures import capture_values
from workflowlookup.language.contract import input_misfits
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.schemas import ValueSchema, expected_by
from workflowlookup.language.guidance import prompt_text, requires_confirmation
from workflowlookup.language.model import Confirmation
from workflowlookup.language.navigation import scope_of
from workflowlookup.language.templates import as_words, filler
from workflowlookup.language.text import clip_line, visible
from workflowlookup.language.values import Context, Json, as_boolean, assign, brief, json_equal, json_or_text, lookup
from workflowlookup.runs.events import OutputRefused
from workflowlookup.runs.proofs.words import advice_of
from workflowlookup.runs.run import Run

MAX_QUOTED: Final = 1_000
"""Limit on the characters of an output in a form."""
MAX_VALUE: Final = 200
MAX_BUTTON: Final = 40
"""Limit on the characters of a title, or of a value in a sentence."""
MARK: Final = "> "
THE_OUTPUT: Final = "The output"
"""The title of a subject that is the output of the step."""
_FLAT: Final = frozenset({"string", "number", "integer", "boolean"})


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field that the person fills in."""

    name: str
    schema: Mapping[str, Any]
    required: bool = False

    @property
    def label(self) -> str:
        """`size (one of "small", "large")`."""
        title = self.schema.get("title")
        words = self.schema.get("description") or expected_by(self.schema)
        return clip_line(f"{title if isinstance(title, str) else self.name} ({words})")

    @property
    def kind(self) -> str:
        kind = self.schema.get("type", "string" if "enum" not in self.schema else "")
        return kind if isinstance(kind, str) else ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts to choose from; empty if the field is not a choice."""
        options = self.schema.get("enum")
        is_texts = isinstance(options, list) and all(isinstance(value, str) for value in options)
        return tuple(options) if options is not None and is_texts else ()

    @property
    def is_flat(self) -> bool:
        """Whether a client's form can show it: a text, a number, a boolean, or a choice of texts."""
        return self.kind in _FLAT or bool(self.choices)

    def parse(self, text: str) -> Json:
        """The value that a person typed. Text that cannot be parsed stays text, and is refused later."""
        if self.kind == "string" or self.choices:
            return text
        if self.kind == "boolean":
            value = as_boolean(text)
            return text if value is None else value
        return json_or_text(text)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a person about the current step of a run."""

    text: str
    if_not: str
    """What happens if they say no."""
    about: str
    """The title of the subject: `The output`."""
    subject: str
    """The output, the arguments of the call, or the prompt; not quoted yet."""
    brief: str = ""
    """The text for a reader who knows the step; empty if it is the same."""
    issues: tuple[str, ...] = ()
    """Why the output was refused or could not be proven, if the question is whether to accept it anyway."""
    issues_title: str = "Why it was refused"
    sets: Context = {}
    """The variables that a yes sets, because they came with the output."""
    fields: tuple[Field, ...] = ()
    yes: str = ""
    no: str = ""
    """What buttons for the two answers say."""

    @property
    def heading(self) -> str:
        """The question, and what happens if they say no."""
        return f"{self.text} If not, {self.if_not}."

    def message(self, limit: int = MAX_QUOTED, rest: str = "", *, quotes_output: bool = True) -> str:
        """The question with its subject, quoted; `rest` says where the whole text is if it is cut.

        `quotes_output`: whether an output is quoted, too; without it the reader knows the step.
        """
        text = self.text if quotes_output else self.brief or self.text
        parts = [f"{text} If not, {self.if_not}."]
        for about, text in self.quotations:
            if about == THE_OUTPUT and not quotes_output:
                continue
            cut = ""
            if len(text) > limit:
                cut = f"; the first {limit:,} of {len(text):,} characters{f', all of it is in {rest}' if rest else ''}"
            parts.append(f"{about}{cut}:\n{quote(text[:limit])}")
        return "\n\n".join(parts)

    @property
    def quotations(self) -> Iterator[tuple[str, str]]:
        """Pairs of title and text that the person has to see before they answer. The texts are not quoted yet;
        invisible characters are replaced.
        """
        yield self.about, visible(self.subject)
        if self.issues:
            yield self.issues_title, visible("\n".join(self.issues))
        if self.sets:
            lines = (f"{clip_line(name)} = {brief(value, MAX_VALUE)}" for name, value in self.sets.items())
            yield "It sets", visible("\n".join(lines))


def question_of(run: Run, budget: Budget) -> Question:
    """The open question of the run."""
    reason = run.open_question.reason if run.open_question is not None else "step"
    name = f"Step '{title_of(run)}' of '{clip_line(run.workflow.name)}'"
    author_question = _author_question(run)
    fails, fail = "the run fails", "Fail the run"
    title = clip_line(title_of(run), MAX_BUTTON)
    output = run.last_submission.output if run.last_submission else ""
    fields = tuple(fields_of(run, budget))
    if reason == "before":
        text = author_question or f"{name} is about to be done. Do you agree?"
        prompt = prompt_text(run.step, run.scope, filler(run.scope, {}), budget)
        return Question(
            text=text,
            if_not=fails,
            about="What is to be done",
            subject=prompt,
            fields=fields,
            yes=f"Allow: {title}",
            no=fail,
        )
    if reason == "call" and run.step.call is not None:
        arguments = msgspec.json.format(msgspec.json.encode(run.call_arguments)).decode()
        called = f"{name} will call {clip_line(run.step.call.described)}."
        text = f"{called} {author_question or 'Do you agree?'}"
        return Question(
            text=text,
            if_not=fails,
            about="Its arguments",
            subject=arguments,
            fields=fields,
            yes=f"Call: {title}",
            no=fail,
        )
    if reason == "attempts" and isinstance(run.last_submission, OutputRefused):
        text = f"{name} was refused, and no attempts are left. Accept it as it is?"
        issues, sets = run.last_submission.issues, _changed(run.context, _context_with_pending(run, budget))
        return Question(
            text=text,
            if_not=fails,
            about=THE_OUTPUT,
            subject=output,
            issues=issues,
            sets=sets,
            fields=fields,
            yes="Accept it as it is",
            no=fail,
        )
    if reason == "unproved" and run.proving is not None:
        return Question(
            text=f"{name} is done, but something that should be true about it could not be proven. Accept it anyway?",
            if_not="the output is refused",
            about=THE_OUTPUT,
            subject=run.proving.request.output,
            issues=unproved_lines(run),
            issues_title="What could not be proven",
            sets=_changed(run.context, _context_with_pending(run, budget)),
            fields=fields,
            yes="Accept it without proof",
            no="Refuse the output",
        )
    if (
        run.step.asks_before
    ):  # its condition became true only with the output, and the author's question is about doing it
        author_question = ""
    agree = "Do you agree?"
    text = author_question or f"{name} is done. {agree}"
    sets = _changed(run.context_before, run.context)
    return Question(
        text=text,
        brief=author_question or agree,
        if_not="the step is done again",
        about=THE_OUTPUT,
        subject=output,
        sets=sets,
        fields=fields,
        yes=f"Accept: {title}",
        no="Send back",
    )


def _changed(before: Context, after: Context) -> Context:
    """The variables whose value has changed."""
    return {name: value for name, value in after.items() if name not in before or not json_equal(before[name], value)}


def _author_question(run: Run) -> str:
    """The author's question, with each value in a template cut to one line."""
    confirmation = run.step.confirmation
    if confirmation is None or not confirmation.question:
        return ""

    def value_of(context: Context, name: str) -> Json:
        value = lookup(context, name)
        return None if value is None else clip_line(as_words(value))

    return visible(filler(run.scope, {}, value_of)(confirmation.question))


def title_of(run: Run) -> str:
    """The title of the current step, on one line."""
    return clip_line(filler(run.scope, {})(run.step.title))


def quote(text: str) -> str:
    """Text with a mark before every line, without invisible characters and unusual line breaks."""
    return "\n".join(f"{MARK}{line}".rstrip() for line in visible(text).split("\n"))


# ── fields and answers ──────────────────────────────────────────────────────────────────────────────────────────


def fields_of(run: Run, budget: Budget) -> Iterator[Field]:
    """The fields of the open question."""
    step = run.step
    if step.confirmation is None or not step.confirmation.answers or run.open_question is None:
        return
    if run.open_question.reason in ("attempts", "unproved"):
        context = _context_with_pending(run, budget)
        if not asks_after(run, scope_of(run.workflow, run.current, context, run.extents), budget):
            return
    yield from fields_in(step.confirmation.answers)


def asks_after(run: Run, scope: Context, budget: Budget) -> bool:
    """Whether a person must agree to the output of the current step.

    It is enough if the condition holds in one of two contexts: when the step was handed out, or with the changes that
    came with the output. After a no, the person is always asked again.
    """
    step = run.step
    if step.asks_before and run.agreed_to(run.current):
        return False
    was_refused = run.refused_by_person(run.current)
    return was_refused or any(requires_confirmation(step, context, budget) for context in (run.scope, scope))


def unproved_lines(run: Run) -> tuple[str, ...]:
    """What could not be proven about the output that a person is asked about, why, and what they can do."""
    judgements = run.proving.judgements.values() if run.proving is not None else ()
    return tuple(clip_line(advice_of(one), MAX_QUOTED) for one in judgements if one.verdict != "passed")


def _context_with_pending(run: Run, budget: Budget) -> Context:
    """The context if a person accepts the output that was refused, or could not be proven."""
    if run.proving is not None:
        return assign({**run.context, **run.proving.request.context}, run.proving.request.captured)
    sent_changes = run.last_submission.context if isinstance(run.last_submission, OutputRefused) else {}
    return assign({**run.context, **sent_changes}, captures_of_refused(run, budget))


def captures_of_refused(run: Run, budget: Budget) -> Context:
    """The captures of the refused output, without values that `inputSchema` forbids."""
    output = run.last_submission.output if isinstance(run.last_submission, OutputRefused) else ""
    return {
        name: value
        for name, value in capture_values(run.step.captures, output, budget).values.items()
        if not any(input_misfits(run.workflow, run.input, {name: value}))
    }


def fields_in(answers: Mapping[str, Any]) -> Iterator[Field]:
    """The fields of the `answers` of a step."""
    required = answers.get("required", ())
    for name, schema in answers.get("properties", {}).items():
        yield Field(name=name, schema=schema if isinstance(schema, Mapping) else {}, required=name in required)


def field_problem(run: Run, field: Field, answer: Context) -> str:
    """Why a value does not fit a field; empty if it fits. `answer` is empty if no value was given."""
    confirmation = run.step.confirmation or Confirmation()
    shared = {key: confirmation.answers[key] for key in ("$defs", "definitions") if key in confirmation.answers}
    required = [field.name] if field.required else []
    schema = {**shared, "type": "object", "properties": {field.name: field.schema}, "required": required}
    return "; ".join(misfit.sentence() for misfit in ValueSchema(schema).misfits(dict(answer)))


def refuse_answers(run: Run, answers: Context, budget: Budget) -> None:
    """Raises `InvalidParams` unless the answers fit the fields of the open question."""
    confirmation = run.step.confirmation if any(fields_of(run, budget)) else None
    refuse_misfitting_answers(confirmation or Confirmation(), answers)


def refuse_misfitting_answers(confirmation: Confirmation, answers: Context) -> None:
    """Raises `InvalidParams` unless the answers fit the fields that a confirmation asks for."""
    names = [field.name for field in fields_in(confirmation.answers)]
    unknown = [name for name in answers if name not in names]
    if unknown:
        fields = f"its fields are {', '.join(names)}" if names else "it has none"
        raise InvalidParams(f"the question has no field '{clip_line(unknown[0])}': {fields}")
    if not names:
        return
    problems = [misfit.sentence() for misfit in ValueSchema(confirmation.answers).misfits(dict(answers))]
    if problems:
        raise InvalidParams("the answers do not fit the fields of the question: " + "; ".join(problems))

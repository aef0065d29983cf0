"""The question to a person that a run waits for: its words, what it is about, and the form that they fill in.

What an agent or another system wrote (outputs, arguments, values of templates) is quoted: every line of it carries a
mark, and values inside sentences are cut to one line, so that no text can pass for the question itself.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.captures import capture_values
from workflowlookup.language.contract import input_misfits
from workflowlookup.language.guidance import as_words, filler, prompt_text, requires_confirmation
from workflowlookup.language.model import Confirmation
from workflowlookup.language.navigation import scope_of
from workflowlookup.language.patterns import Budget
from workflowlookup.language.schemas import ValueSchema, expected_by
from workflowlookup.language.text import INVISIBLE, joined, visible
from workflowlookup.language.values import Context, Json, as_boolean, assign, brief, json_equal, json_or_text, lookup
from workflowlookup.runs.events import OutputRefused
from workflowlookup.runs.run import Run

MAX_QUOTED: Final = 1_000
"""How many characters of an output a person is shown in a form."""
MAX_VALUE: Final = 200
"""How many characters of a title, or of a value in a sentence, are shown."""
MARK: Final = "> "
_FLAT: Final = frozenset({"string", "number", "integer", "boolean"})


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A value that the person is asked for."""

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
        """The texts that may be chosen from; none when it is no such field."""
        listed = self.schema.get("enum")
        is_texts = isinstance(listed, list) and all(isinstance(value, str) for value in listed)
        return tuple(listed) if listed is not None and is_texts else ()

    @property
    def is_flat(self) -> bool:
        """Whether a client's form can have it: a text, a number, a boolean, or one of several texts."""
        return self.kind in _FLAT or bool(self.choices)

    def parse(self, text: str) -> Json:
        """The value of what was typed. What does not read as one stays text, and is refused as such."""
        if self.kind == "string" or self.choices:
            return text
        if self.kind == "boolean":
            value = as_boolean(text)
            return text if value is None else value
        return json_or_text(text)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked about the step that a run is at."""

    text: str
    if_not: str
    """What a no leads to."""
    about: str
    """What the subject is: `The output`."""
    subject: str
    """The output, the arguments of the call, or the prompt; as it was written, not yet quoted."""
    issues: tuple[str, ...] = ()
    """What an output was refused for that is to be taken as it is."""
    sets: Context = {}
    """The variables that came with the output and count with a yes."""
    fields: tuple[Field, ...] = ()

    @property
    def heading(self) -> str:
        """The question with what a no leads to."""
        return f"{self.text} If not, {self.if_not}."

    def message(self, most: int = MAX_QUOTED, rest: str = "") -> str:
        """The question with what it is about, quoted; `rest` says where all of it is when it is cut."""
        parts = [self.heading]
        for about, text in self.quotations:
            cut = ""
            if len(text) > most:
                cut = f"; the first {most:,} of {len(text):,} characters{f', all of it is in {rest}' if rest else ''}"
            parts.append(f"{about}{cut}:\n{quote(text[:most])}")
        return "\n\n".join(parts)

    @property
    def quotations(self) -> Iterator[tuple[str, str]]:
        """What the person has to see before they answer, each text with what it is: not yet quoted, and with a mark in
        place of every character that cannot be seen.
        """
        yield self.about, visible(self.subject)
        if self.issues:
            yield "Why it was refused", visible("\n".join(self.issues))
        if self.sets:
            lines = (f"{clip_line(name)} = {brief(value, MAX_VALUE)}" for name, value in self.sets.items())
            yield "It sets", visible("\n".join(lines))


def question_of(run: Run, budget: Budget) -> Question:
    """The question that the run waits for."""
    reason = run.open_question.reason if run.open_question is not None else "step"
    name = f"Step '{title_of(run)}' of '{clip_line(run.workflow.name)}'"
    own = _own_words(run)
    fails = "the run fails"
    output = run.last_submission.output if run.last_submission else ""
    fields = tuple(fields_of(run, budget))
    if reason == "before":
        text = own or f"{name} is about to be done. Do you agree?"
        prompt = prompt_text(run.step, run.scope, filler(run.scope, {}), budget)
        return Question(text=text, if_not=fails, about="What is to be done", subject=prompt, fields=fields)
    if reason == "call" and run.step.call is not None:
        arguments = msgspec.json.format(msgspec.json.encode(run.call_arguments)).decode()
        called = f"{name} will call {clip_line(run.step.call.described)}."
        text = f"{called} {own or 'Do you agree?'}"
        return Question(text=text, if_not=fails, about="Its arguments", subject=arguments, fields=fields)
    if reason == "attempts" and isinstance(run.last_submission, OutputRefused):
        text = f"{name} was refused as often as it may be. Accept it as it is?"
        issues, sets = run.last_submission.issues, _changed(run.context, _context_with_refused(run, budget))
        return Question(
            text=text, if_not=fails, about="The output", subject=output, issues=issues, sets=sets, fields=fields
        )
    if run.step.asks_before:  # the condition came to hold with the output: the author's words are about the step ahead
        own = ""
    text = own or f"{name} is done. Do you agree, so that the run goes on?"
    sets = _changed(run.context_before, run.context)
    return Question(
        text=text, if_not="the step is done again", about="The output", subject=output, sets=sets, fields=fields
    )


def _changed(before: Context, after: Context) -> Context:
    """The variables that have another value than before."""
    return {name: value for name, value in after.items() if name not in before or not json_equal(before[name], value)}


def _own_words(run: Run) -> str:
    """The author's question, with the values of its templates cut to one line each."""
    wanted = run.step.confirmation
    if wanted is None or not wanted.question:
        return ""

    def value_of(context: Context, name: str) -> Json:
        value = lookup(context, name)
        return None if value is None else clip_line(as_words(value))

    return visible(filler(run.scope, {}, value_of)(wanted.question))


def title_of(run: Run) -> str:
    """The title of the step that the run is at, on one line."""
    return clip_line(filler(run.scope, {})(run.step.title))


def clip_line(text: str, most: int = MAX_VALUE) -> str:
    """Text for the inside of a sentence: one line, cut, without characters that cannot be seen."""
    line = joined(re.sub(INVISIBLE, " ", text[: 4 * most]))
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[:most]}…"


def quote(text: str) -> str:
    """Text with a mark before every line, without invisible characters and unusual line breaks."""
    return "\n".join(f"{MARK}{line}".rstrip() for line in visible(text).split("\n"))


# ── what the person fills in ────────────────────────────────────────────────────────────────────────────────────


def fields_of(run: Run, budget: Budget) -> Iterator[Field]:
    """The values that the person is asked for with the open question."""
    step = run.step
    if step.confirmation is None or not step.confirmation.answers or run.open_question is None:
        return
    if run.open_question.reason == "attempts":
        context = _context_with_refused(run, budget)
        if not asks_after(run, scope_of(run.workflow, run.current, context, run.extents), budget):
            return
    yield from fields_in(step.confirmation.answers)


def asks_after(run: Run, scope: Context, budget: Budget) -> bool:
    """Whether a person must agree to the output of the current step.

    The condition counts as it was when the step was handed out and as it is with the changes that came with the output:
    neither can switch it off. After a no the person is asked again in any case.
    """
    step = run.step
    if step.asks_before and run.agreed_to(run.current):
        return False
    was_refused = run.refused_by_person(run.current)
    return was_refused or any(requires_confirmation(step, context, budget) for context in (run.scope, scope))


def _context_with_refused(run: Run, budget: Budget) -> Context:
    """The variables as they are when a person takes the refused output as it is."""
    sent = run.last_submission.context if isinstance(run.last_submission, OutputRefused) else {}
    return assign({**run.context, **sent}, captures_of_refused(run, budget))


def captures_of_refused(run: Run, budget: Budget) -> Context:
    """What the refused output says of the variables of its step, without what the input schema forbids."""
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
        known = schema if isinstance(schema, Mapping) else {}
        yield Field(name=name, schema=known, required=name in required)


def field_problem(run: Run, field: Field, given: Context) -> str:
    """Why a field cannot have what was given for it (nothing, if `given` is empty); empty when it fits."""
    confirmation = run.step.confirmation or Confirmation()
    shared = {key: confirmation.answers[key] for key in ("$defs", "definitions") if key in confirmation.answers}
    required = [field.name] if field.required else []
    schema = {**shared, "type": "object", "properties": {field.name: field.schema}, "required": required}
    return "; ".join(misfit.sentence() for misfit in ValueSchema(schema).misfits(dict(given)))


def refuse_answers(run: Run, answers: Context, budget: Budget) -> None:
    """Raises `InvalidParams` unless the answers fit the fields of the open question."""
    wanted = run.step.confirmation if any(fields_of(run, budget)) else None
    refuse_misfitting(wanted or Confirmation(), answers)


def refuse_misfitting(wanted: Confirmation, answers: Context) -> None:
    """Raises `InvalidParams` unless the answers fit the fields that a confirmation asks for."""
    names = [field.name for field in fields_in(wanted.answers)]
    unknown = [name for name in answers if name not in names]
    if unknown:
        asked = f"it asks for {', '.join(names)}" if names else "it asks for none"
        raise InvalidParams(f"the question has no field '{clip_line(unknown[0])}': {asked}")
    if not names:
        return
    found = [misfit.sentence() for misfit in ValueSchema(wanted.answers).misfits(dict(answers))]
    if found:
        raise InvalidParams("the answers do not fit what is asked for: " + "; ".join(found))

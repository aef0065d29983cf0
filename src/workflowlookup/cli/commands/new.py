"""`workflowlookup new ID`: writes a workflow to start from, or a copy of another; it is valid and can be run.

On a terminal it asks for what the flags do not set; elsewhere it uses the defaults. If the input ends before the last
answer, nothing is written.
"""

import argparse
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from workflowlookup.cli.arguments import whole_number
from workflowlookup.cli.configuration import read_text, replace_text
from workflowlookup.cli.documents import open_workflow
from workflowlookup.cli.input import ask_line, is_interactive
from workflowlookup.cli.output import CommandError, is_terminal, shown_path, write
from workflowlookup.language.document.checking import check
from workflowlookup.language.document.findings import Severity
from workflowlookup.language.formats.layout import CannotLayOut
from workflowlookup.language.forms import (
    DOCUMENT_SUFFIXES,
    JSON,
    MARKDOWN,
    YAML,
    Form,
    document_text,
    form_named,
    suffix_of,
)
from workflowlookup.language.values import DEFAULT_CATEGORY, DEFAULT_VERSION, Json
from workflowlookup.language.workflow_schema import workflow_schema
from workflowlookup.library.files import FIXTURE_SUFFIXES
from workflowlookup.settings import Settings

PROJECT_DIRECTORY: Final = os.path.join(".workflowlookup", "workflows")
SCHEMA_NAME: Final = "workflow.schema.json"
FORMS: Final = (MARKDOWN.name, YAML.name, JSON.name)
_TITLES: Final = ("Understand the task", "Plan the work", "Do the work", "Check the result")
DEFAULT_STEPS: Final = 3
MAX_STEPS: Final = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", type=_identifier, help="id of the new workflow")
    parser.add_argument("--name", help="name for people, shown in lists")
    parser.add_argument("--description", help="what it achieves and when to use it; agents choose by this text")
    parser.add_argument("--category", help=f"category to group by (default: {DEFAULT_CATEGORY})")
    steps = parser.add_mutually_exclusive_group()
    number = f"number of steps, at least 2 (default: {DEFAULT_STEPS})"
    steps.add_argument("--steps", metavar="N", type=whole_number(2, MAX_STEPS), help=number)
    steps.add_argument(
        "--step", metavar="TITLE", action="append", help="title of a step; repeat it for each step, in order"
    )
    steps.add_argument(
        "--from",
        dest="source",
        metavar="ID_OR_PATH",
        help="start from this workflow: all of it, with the new id and what other flags say",
    )
    add_form_arguments(parser)
    parser.add_argument(
        "--directory", metavar="DIR", default=PROJECT_DIRECTORY, help=f"target directory (default: {PROJECT_DIRECTORY})"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if there is one")


def add_form_arguments(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--yaml", dest="form", action="store_const", const=YAML.name, help="write YAML, not Markdown")
    form.add_argument("--json", dest="form", action="store_const", const=JSON.name, help="write JSON, not Markdown")


def _identifier(text: str) -> str:
    form = workflow_schema()["$defs"]["id"]
    if not re.search(form["pattern"], text) or not form["minLength"] <= len(text) <= form["maxLength"]:
        raise argparse.ArgumentTypeError(
            f"'{text}' must be {form['description'].rstrip('.')}".replace("Lower", "lower")
        )
    return text


def run(options: argparse.Namespace, settings: Settings) -> int:
    is_asking = is_terminal() and is_interactive()
    if options.id is None and not is_asking:
        raise CommandError("an ID is required, as in `workflowlookup new release-notes`.", 2)
    identifier = options.id or _ask_id()
    form = form_named(options.form or (_ask_form() if is_asking and not options.source else FORMS[0]))
    stem = os.path.join(options.directory, identifier)
    path = stem + suffix_of(form)
    existing = next((stem + suffix for suffix in DOCUMENT_SUFFIXES if os.path.lexists(stem + suffix)), None)
    if existing is not None and not (options.force and existing == path):
        remedy = "Replace it with --force" if existing == path else "Remove it"
        raise CommandError(f"{shown_path(existing)} exists. {remedy}, or choose another id.")
    document = (
        _copy(open_workflow(options.source, settings).document, identifier, options)
        if options.source
        else _make(identifier, options, is_asking=is_asking)
    )
    has_schema = os.path.exists(os.path.join(options.directory, "..", SCHEMA_NAME))
    errors = [finding.message for finding in check(document) if finding.severity is Severity.ERROR]
    try:
        text = text_for_editors(document, form) if has_schema else document_text(document, form)
    except CannotLayOut as reason:
        errors.append(f"The document cannot be written, because {reason}")
    if errors:
        raise CommandError(f"nothing was written. {'; '.join(errors)}")
    replace_text(path, read_text(path), text)
    directories = [] if options.directory == PROJECT_DIRECTORY else ["--directories", options.directory]
    write((f"Wrote {shown_path(path)}.", "green"))
    write("Next: edit the prompts and the messages of the criteria. Then:")
    for words in (["watch", path], ["graph", identifier, *directories], ["next", identifier, *directories]):
        write(("  workflowlookup " + shlex.join(words), "bold"), wrap=False)
    write("And write a test fixture:")
    fixture = (
        f"{shlex.join(['test', '--example', identifier, *directories])} > {shlex.quote(stem + FIXTURE_SUFFIXES[0])}"
    )
    write(("  workflowlookup " + fixture, "bold"), wrap=False)
    return 0


# ── questions ───────────────────────────────────────────────────────────────────────────────────────────────────


def _make(identifier: str, options: argparse.Namespace, *, is_asking: bool) -> Json:
    schema = workflow_schema()

    def answer(field: str, default: str) -> str:
        limit = schema["properties"][field]["maxLength"]
        return getattr(options, field) or (is_asking and _line(f"{field.capitalize()} [{default}]:", limit)) or default

    name = answer("name", identifier.strip("-._").replace("-", " ").replace("_", " ").capitalize() or identifier)
    description = answer("description", f"Leads an agent through '{name}' step by step.")
    category = answer("category", DEFAULT_CATEGORY)
    titles = options.step
    if not titles and is_asking and options.steps is None:
        titles = _ask_titles(schema["$defs"]["title"]["maxLength"])
    flow = straight(titles) if titles else branching(_default_titles(options.steps or DEFAULT_STEPS))
    return make_document(identifier, name, description, category, flow)


def _ask_id() -> str:
    while True:
        try:
            return _identifier(_line("Id, such as release-notes:", workflow_schema()["$defs"]["id"]["maxLength"]))
        except argparse.ArgumentTypeError as reason:
            write(str(reason))


def _ask_form() -> str:
    while (form := _line(f"Format, {' or '.join(FORMS)} [{FORMS[0]}]:", 10).lower() or FORMS[0]) not in FORMS:
        pass
    return form


def _ask_titles(limit: int) -> Sequence[str]:
    """The titles of the steps; empty for the default ones."""
    write(f"Titles of the steps; an empty line ends the list. Default: {', '.join(_default_titles(DEFAULT_STEPS))}.")
    titles: list[str] = []
    while len(titles) < MAX_STEPS and (title := _line(f"Step {len(titles) + 1}:", limit)):
        titles.append(title)
    return titles


def _line(question: str, limit: int) -> str:
    """Ask for a line, again if it is too long. Raises `CommandError` at the end of the input."""
    while (line := ask_line(question)) is not None:
        if len(line := line.strip()) <= limit:
            return line
        write(f"At most {limit} characters; you typed {len(line)}.")
    raise CommandError("the input ended. Nothing was written.")


def _default_titles(count: int) -> Sequence[str]:
    return [*_TITLES, *(f"Step {number}" for number in range(len(_TITLES) + 1, count + 1))][:count]


# ── the document ────────────────────────────────────────────────────────────────────────────────────────────────


def _copy(document: Mapping[str, Json], identifier: str, options: argparse.Namespace) -> Json:
    """The document with another id, and with what the flags say. The place of its schema is not copied."""
    fields = {name: getattr(options, name) for name in ("name", "description", "category") if getattr(options, name)}
    without_schema = {name: value for name, value in document.items() if name != "$schema"}
    return {**without_schema, "id": identifier, **fields}


def make_document(identifier: str, name: str, description: str, category: str, flow: Mapping[str, Json]) -> Json:
    """A workflow document with the steps of `straight` or `branching`."""
    return {
        "id": identifier,
        "name": name,
        "description": description,
        "version": DEFAULT_VERSION,
        "category": category,
        **flow,
    }


def text_for_editors(document: Mapping[str, Json], form: Form) -> str:
    """The text of a document, which names its schema where editors look for it. Raises `CannotLayOut`."""
    schema = f"../{SCHEMA_NAME}"
    if form is JSON:
        return document_text({"$schema": schema, **document}, form)
    comment = f"# yaml-language-server: $schema={schema}\n" if form is YAML else ""
    return comment + document_text(document, form)


def straight(titles: Sequence[str]) -> Mapping[str, Json]:
    """A step for each title, one after the other."""
    ids = list(_ids(titles))
    return {"steps": [_plain_step(*pair, is_last=pair[0] == ids[-1]) for pair in zip(ids, titles, strict=True)]}


def branching(titles: Sequence[str]) -> Mapping[str, Json]:
    """At least two steps. The first one decides whether the second one runs."""
    ids = list(_ids(titles))
    first = {
        "id": ids[0],
        "title": titles[0],
        "prompt": (
            "Say in your own words what is asked for, what is given, and how you will know that it is done.\n\n"
            f"Then judge the size: `small` if '{titles[1]}' is not worth its time here, otherwise `large`.\n"
            "End with the line `taskSize: small` or `taskSize: large`."
        ),
        "produces": {"taskSize": {"enum": ["small", "large"]}},
        "validationCriteria": [
            {"type": "length", "message": "Say what is asked for, what is given, and when it is done.", "min": 100},
        ],
    }
    _, second, *others = straight(titles)["steps"]
    condition = {"var": "taskSize", "not_equals": "small"}
    second = {"id": ids[1], "title": titles[1], "runCondition": condition} | second
    return {"steps": [first, second, *others]}


def _plain_step(identifier: str, title: str, *, is_last: bool) -> dict[str, Json]:
    ending = (
        "Close with a section `Result`: what is done, and what is left." if is_last else "Close with what comes next."
    )
    heading = {
        "type": "regex",
        "message": "Add a section 'Result': what is done, and what is left.",
        "pattern": "^#* *Result\\b",
        "flags": "im",
    }
    length = {
        "type": "length",
        "message": "Show what you did and what came of it, not only that it is done.",
        "min": 80,
    }
    return {
        "id": identifier,
        "title": title,
        "prompt": (
            f"{title}. Describe here what the agent should do, in the order in which it should do it.\n\n"
            f"Show what you did, with the commands and their output where there are some. {ending}"
        ),
        "validationCriteria": [heading, length] if is_last else [length],
    }


def _ids(titles: Sequence[str]) -> Iterator[str]:
    """An id for each step, from its title."""
    used: set[str] = set()
    for number, title in enumerate(titles, 1):
        words = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")[:50].strip("-")
        identifier = words if len(words) > 2 else f"step-{number}"
        identifier = f"{identifier}-{number}" if identifier in used else identifier
        used.add(identifier)
        yield identifier


EXAMPLES = """\
  workflowlookup new                                ask for everything
  workflowlookup new release-notes                  ask for the rest
  workflowlookup new release-notes --yaml --steps 4
  workflowlookup new my-review --from code-review   start from another workflow
  workflowlookup new release-notes --name "Release notes" --step "Collect the changes" --step "Write them up\""""

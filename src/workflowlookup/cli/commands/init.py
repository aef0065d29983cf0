"""`workflowlookup init`: prepares a project for workflows: a directory, an example, editor support, a CI job, and the
commands that prove its steps.

It can be run again at any time. Existing files are kept, unless `--force` is given.
"""

import argparse
import json
import os
import re
from collections.abc import Iterator
from typing import Final

from workflowlookup.cli.commands.new import (
    PROJECT_DIRECTORY,
    SCHEMA_NAME,
    add_form_arguments,
    branching,
    make_document,
    text_for_editors,
)
from workflowlookup.cli.configuration import NotEditable, NotReadable, json_section, read_text, replace_text, with_added
from workflowlookup.cli.input import ask_yes_or_no, is_interactive
from workflowlookup.cli.output import complain, shown_path, write, write_hint, write_text
from workflowlookup.cli.project_commands import as_toml, find_commands
from workflowlookup.language.forms import MARKDOWN, Form, form_named, suffix_of
from workflowlookup.language.values import DEFAULT_CATEGORY
from workflowlookup.language.workflow_schema import workflow_schema_text
from workflowlookup.library.files import is_document_name
from workflowlookup.settings import FILE_NAME, Settings, read_settings
from workflowlookup.trust import COMMAND

EXAMPLE_ID: Final = "example-workflow"
SCHEMA_URL: Final = f"./.workflowlookup/{SCHEMA_NAME}"
VSCODE_SETTINGS: Final = os.path.join(".vscode", "settings.json")
JSON_MAPPING: Final = {"fileMatch": ["/.workflowlookup/workflows/**/*.json", "!*.test.json"], "url": SCHEMA_URL}
YAML_MAPPING: Final = [
    *(f"/.workflowlookup/workflows/**/*.{ending}" for ending in ("yaml", "yml")),
    *("!*.test.yaml", "!*.test.yml"),
]

CI_EXAMPLE: Final = """\
# A job for GitHub Actions: copy it to .github/workflows/workflows.yml.
name: Workflows
on:
  push:
  pull_request:
jobs:
  workflows:
    runs-on: ubuntu-latest
    permissions:
      contents: read
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.13"
      # If your package index does not have it: pip install git+https://HOST/OWNER/REPOSITORY,
      # or, for a copy of its source in this repository, pip install ./path/to/the/copy
      - run: pip install workflowlookup
      - run: workflowlookup validate .workflowlookup/workflows
      - run: workflowlookup lint .workflowlookup/workflows
      - run: workflowlookup fmt --check .workflowlookup/workflows
      - run: workflowlookup test .workflowlookup/workflows
"""

FIXTURE: Final = """\
# Tests for `workflowlookup test`: the steps for each size of task, and outputs that are accepted and refused.
workflow: example-workflow
cases:
  - name: a small task needs no plan
    steps: [understand-the-task, do-the-work]
    outputs:
      understand-the-task:
        accept:
          - |-
            The help text of `export` names a flag that no longer exists. Given are the help text and the code.
            It is done when the help text names the flags that the code has.
            taskSize: small
        refuse:
          - output: Done.
            issues:
              - Say what is asked for, what is given, and when it is done.
              - "taskSize is not in the output: expected one of 'small', 'large'. Add the line `taskSize: small`."
      do-the-work:
        accept:
          - |-
            `export --help` named `--all`; now it names `--every`, as the code does. The tests pass.
            ## Result
            The help text is right, and nothing is left.
        refuse:
          - output: Done.
            issues:
              - "Add a section 'Result': what is done, and what is left."
              - Show what you did and what came of it, not only that it is done.
  - name: a large task is planned
    context: {taskSize: large}
    steps: [understand-the-task, plan-the-work, do-the-work]
    outputs:
      plan-the-work:
        accept:
          - First the parser, then the command, then the tests. What comes next is the parser, in `src/parser.py`.
        refuse:
          - output: I will do it.
            issues:
              - Show what you did and what came of it, not only that it is done.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_form_arguments(parser)
    parser.add_argument("--force", action="store_true", help="replace files that differ; the old ones are kept as .bak")
    parser.add_argument(
        "--commands", action="store_true", help=f"write the project's commands into {FILE_NAME} without a question"
    )


def run(options: argparse.Namespace, settings: Settings) -> int:
    for path, text in _files(form_named(options.form or MARKDOWN.name)):
        _put(path, text, force=options.force)
    is_mapped = _map_schema()
    _add_commands(settings, is_wanted=options.commands)
    write_hint("Next: workflowlookup new my-workflow. An MCP client that starts in this directory finds it.")
    return 0 if is_mapped else 1


def _files(form: Form) -> Iterator[tuple[str, str]]:
    yield os.path.join(".workflowlookup", SCHEMA_NAME), workflow_schema_text()
    yield os.path.join(".workflowlookup", "ci-example.yml"), CI_EXAMPLE
    name = EXAMPLE_ID + suffix_of(form)
    existing = os.listdir(PROJECT_DIRECTORY) if os.path.isdir(PROJECT_DIRECTORY) else []
    if name not in existing and any(is_document_name(other) for other in existing):
        write("skipped ", (os.path.join(PROJECT_DIRECTORY, name), "bold"), ": there are workflows already")
        return
    document = make_document(
        EXAMPLE_ID,
        "Example workflow",
        "Shows what a workflow has: prompts, a condition on a variable, and criteria. Make it your own, or remove it.",
        DEFAULT_CATEGORY,
        branching(["Understand the task", "Plan the work", "Do the work"]),
    )
    yield os.path.join(PROJECT_DIRECTORY, name), text_for_editors(document, form)
    yield os.path.join(PROJECT_DIRECTORY, f"{EXAMPLE_ID}.test.yaml"), FIXTURE


def _put(path: str, text: str, *, force: bool) -> None:
    """Write a file. An existing file is replaced only with `force`."""
    try:
        before = read_text(path)
    except NotReadable:  # a file that is not text counts as different
        before = ""
    if before not in (None, text) and not force:
        write(("kept ", "yellow"), (path, "bold"), ": it differs; --force replaces it")
    else:
        _replace(path, before, text)


def _replace(path: str, before: str | None, text: str) -> None:
    if text == before:
        write("unchanged ", (path, "bold"))
        return
    copy = replace_text(path, before, text)
    write(("wrote ", "green"), (path, "bold"), f" (the old one is {shown_path(copy)})" if copy else "")


def _map_schema() -> bool:
    """Tell VS Code which schema the documents have, for completion and hover."""
    try:
        before = read_text(VSCODE_SETTINGS)
        text = before or ""
        if json.dumps(SCHEMA_URL) not in json.dumps(json_section(text, "json.schemas")):
            text = with_added(text, "json.schemas", None, JSON_MAPPING)
        if json.dumps(SCHEMA_URL) not in json.dumps(json_section(text, "yaml.schemas")):
            text = with_added(text, "yaml.schemas", SCHEMA_URL, YAML_MAPPING)
    except (NotReadable, NotEditable) as reason:
        complain(f"{VSCODE_SETTINGS} was not changed: {reason}. Add this yourself:")
        print(json.dumps({"json.schemas": [JSON_MAPPING], "yaml.schemas": {SCHEMA_URL: YAML_MAPPING}}, indent=2))
        return False
    _replace(VSCODE_SETTINGS, before, text)
    return True


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────


def _add_commands(settings: Settings, *, is_wanted: bool) -> None:
    """Suggest the commands that proofs use (`use: test`), and write those that a person wants."""
    here = [entry.name for entry in settings.from_repository if entry.kind == COMMAND]
    new = {name: words for name, words in find_commands(".").items() if name not in (*settings.commands, *here)}
    if not new:
        return
    write()
    write("A workflow can have the server run commands of this project, such as its tests. Its files suggest:")
    write_text(as_toml(new))
    if not is_wanted and not (is_interactive() and ask_yes_or_no(f"Write them into {FILE_NAME}?")):
        write(f"`workflowlookup init --commands` writes them into {FILE_NAME}; or put others there.")
        return
    try:
        before = read_text(FILE_NAME)
    except NotReadable as reason:
        complain(f"{FILE_NAME} was not changed: {reason}.")
        return
    if re.search(r"^\s*\[\s*commands\s*\]", before or "", re.MULTILINE):
        complain(f"{FILE_NAME} has a table [commands] already: add them there yourself.")
        return
    _replace(FILE_NAME, before, f"{before.rstrip()}\n\n{as_toml(new)}" if before else as_toml(new))
    if is_interactive() and ask_yes_or_no("They run only after you have trusted them. Look at them now?"):
        from workflowlookup.cli.commands import trust  # noqa: PLC0415 - only if a person wants that

        now = read_settings({}, os.environ, directory=os.getcwd())
        trust.run(argparse.Namespace(path=FILE_NAME, list=False, revoke=False, json=False), now)
    else:
        write(f"They run only after you have trusted them: `workflowlookup trust {FILE_NAME}`.")


EXAMPLES = """\
  workflowlookup init             create .workflowlookup/ with an example, and set the schema in VS Code
  workflowlookup init --yaml      the example as YAML, not Markdown
  workflowlookup init --commands  also write the project's own commands, for proofs
  workflowlookup init --force     after an upgrade: write the schema and the example again"""

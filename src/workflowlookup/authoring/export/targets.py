"""What a workflow can be exported as: `TARGETS` says of each how it is rendered and what its file is called."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from workflowlookup.authoring.export.marks import Digests, end_mark, marked
from workflowlookup.authoring.export.standalone import standalone
from workflowlookup.authoring.export.text import front_matter, skill_description, skill_fields
from workflowlookup.authoring.export.thin import brief, thin
from workflowlookup.language.model import Workflow
from workflowlookup.runs.run_document import encode_document

Body = Callable[[Workflow, Sequence[str]], str]
"""Renders a workflow; the second argument are the paths of the files that it brings along."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow becomes."""

    render: Callable[[Workflow, Sequence[str], Body], str]
    file: str
    """The path in a directory; `{name}` is the name of the skill."""
    takes_files: bool = False
    """Whether what the workflow brings along is written beside it."""
    is_section: bool = False
    """Whether it is a section of a file that belongs to others."""


def _skill(workflow: Workflow, files: Sequence[str], body: Body) -> str:
    return f"{front_matter(skill_fields(workflow))}\n{body(workflow, files)}"


def _claude_command(workflow: Workflow, _: Sequence[str], body: Body) -> str:
    fields = {"description": skill_description(workflow.description), "argument-hint": "[task]"}
    task = "The task, or what we spoke about if nothing follows: $ARGUMENTS"
    return f"{front_matter(fields)}\n{body(workflow, ())}\n{task}\n"


def _section(workflow: Workflow, _: Sequence[str], __: Body) -> str:
    return brief(workflow) + end_mark(workflow.id)


TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        "skill": Target(render=_skill, file="{name}/SKILL.md", takes_files=True),
        "claude-command": Target(render=_claude_command, file="{name}.md"),
        "agents-md": Target(render=_section, file="AGENTS.md", is_section=True),
    }
)


def export_text(workflow: Workflow, target: Target, files: Digests = (), *, is_standalone: bool = False) -> str:
    """A workflow as one of the targets, with its mark. `files`: what the workflow brings along."""
    body = standalone if is_standalone else thin
    beside = files if target.takes_files else ()
    text = target.render(workflow, [path for path, _ in beside], body)
    return marked(text, workflow.id, document_digest(workflow), beside)


def document_digest(workflow: Workflow) -> str:
    """The SHA-256 of the document, as in runs."""
    return encode_document(workflow)[1]

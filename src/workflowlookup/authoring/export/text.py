"""What all exported files share: names and descriptions by the rules of Agent Skills, front matter, harmless text."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from workflowlookup.language.model import Workflow
from workflowlookup.language.text import one_line, printable, shorten
from workflowlookup.language.values import Json

MAX_SKILL_NAME: Final = 64
MAX_SKILL_DESCRIPTION: Final = 1_024
_BACKTICKS_THAT_RUN: Final = re.compile(r"!(?=`)|(?<=```)!")
_COMMENT_OF_OURS: Final = re.compile(r"<!--(?=\s*workflowlookup)")


def skill_name(workflow_id: str) -> str:
    """The id in the form of a skill's name: lower-case letters, digits and single hyphens. `my.work_flow` becomes
    `my-work-flow`.
    """
    return re.sub(r"[^a-z0-9]+", "-", workflow_id.lower()).strip("-")[:MAX_SKILL_NAME] or "workflow"


def skill_description(description: str) -> str:
    """The description of a workflow on one line, as short as that of a skill must be."""
    text = harmless(one_line(description))
    return text if len(text) <= MAX_SKILL_DESCRIPTION else shorten(text, MAX_SKILL_DESCRIPTION - 1)


def skill_fields(workflow: Workflow) -> dict[str, Json]:
    """The front matter of the skill that a workflow becomes."""
    return {
        "name": skill_name(workflow.id),
        "description": skill_description(workflow.description),
        "metadata": {"workflow": workflow.id, "version": workflow.version},
    }


def front_matter(fields: Mapping[str, Json]) -> str:
    """Fields as YAML between two lines of dashes. Texts are quoted as in JSON, which every parser of YAML reads."""
    lines = []
    for name, value in fields.items():
        if isinstance(value, Mapping):
            lines += [f"{name}:", *(f"  {key}: {_quoted(item)}" for key, item in value.items())]
        else:
            lines.append(f"{name}: {_quoted(value)}")
    return "\n".join(["---", *lines, "---"]) + "\n"


def _quoted(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def harmless(text: str) -> str:
    """Text of a document that no reader of the file obeys: Claude Code runs the command in ``!`command` `` before the
    model reads the file, and a comment of ours would end a section.
    """
    return _COMMENT_OF_OURS.sub("<!- -", _BACKTICKS_THAT_RUN.sub("! ", printable(text)))

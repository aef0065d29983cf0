"""The formats that can be imported: one table, `FORMATS`. A new one is a function and an entry.

Each entry says how it recognises a source and how it reads it to a `Draft`. Nothing of a source is executed, and no
file is opened here: the source has the bytes of the files that may be read.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from workflowlookup.authoring.foreign.draft import Draft, Source
from workflowlookup.authoring.foreign.markdown_formats import (
    is_command,
    is_in,
    is_markdown,
    is_skill,
    read_command,
    read_markdown,
    read_skill,
)
from workflowlookup.authoring.foreign.step_files import has_step_files, read_step_files
from workflowlookup.authoring.foreign.structured_formats import (
    is_beads_formula,
    is_goose_recipe,
    is_spec_kit_workflow,
    read_beads_formula,
    read_goose_recipe,
    read_spec_kit_workflow,
)


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A format of other programs."""

    name: str
    """As it is written in `x-source`."""
    words: str
    """As it is called in sentences."""
    recognises: Callable[[Source], bool]
    read: Callable[[Source], Draft]
    """Raises `NotImportable`."""


FORMATS: Final[Sequence[Format]] = (
    Format(name="beads-formula", words="beads formula", recognises=is_beads_formula, read=read_beads_formula),
    Format(
        name="spec-kit-workflow",
        words="spec-kit workflow",
        recognises=is_spec_kit_workflow,
        read=read_spec_kit_workflow,
    ),
    Format(name="goose-recipe", words="goose recipe", recognises=is_goose_recipe, read=read_goose_recipe),
    Format(name="bmad", words="BMAD workflow with step files", recognises=has_step_files, read=read_step_files),
    Format(name="agent-skill", words="Agent Skill", recognises=is_skill, read=read_skill),
    Format(name="claude-command", words="Claude command", recognises=is_command, read=read_command),
    Format(
        name="windsurf-workflow",
        words="Windsurf workflow",
        recognises=is_in(".windsurf/workflows", ".devin/workflows"),
        read=read_markdown,
    ),
    Format(
        name="cline-workflow",
        words="Cline workflow",
        recognises=is_in(".clinerules/workflows", "Cline/Workflows"),
        read=read_markdown,
    ),
    Format(name="markdown", words="Markdown page", recognises=is_markdown, read=read_markdown),
)
"""In the order in which they are tried."""


def recognise(source: Source) -> Format | None:
    """The first format that recognises a source."""
    return next((each for each in FORMATS if each.recognises(source)), None)

"""Proofs of a step: what must be true in the world, beside the criteria for the words of an output.

A proof is one struct that says what is checked; `proving` checks it, and `runs` decides what follows. Nothing here
touches the world.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from workflowlookup.language.conditions import CompiledCondition
from workflowlookup.language.rules import CriteriaCheck
from workflowlookup.language.schemas import ValueSchema

COMMAND_SECONDS: Final = 600.0
"""Time limit of a command that names none."""
HTTP_SECONDS: Final = 10.0
"""Time limit of an HTTP request that names none."""

Since: TypeAlias = Literal["step", "run"]
"""Since the step was handed out, or since the run began."""
WhenUnproved: TypeAlias = Literal["refuse", "ask", "note"]
"""What happens to an output with a proof that cannot be judged: it is refused, a person may accept it, or it is
accepted and marked."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is read from the output of a command: the first group of the last match of the pattern."""

    pattern: str
    type: Literal["string", "number", "integer"] = "number"


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """A command runs in a temporary worktree of another commit, with some files of the working tree copied over."""

    base: str = "run"
    """`run` or `step` for the commit at that time, or a revision."""
    copied: tuple[str, ...] = ()
    """`with`: globs of the files that are copied from the working tree."""


class Proof(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One thing that must be true. `name` is unique within the step."""

    name: str
    condition: CompiledCondition | None = None
    message: str = ""
    """The author's message for a proof that fails; may contain templates."""


class CommandProof(Proof, frozen=True, kw_only=True, tag="command"):
    """A command ends in time, with one of these exit codes, and its output meets criteria."""

    use: str = ""
    """The name of a command in the settings; empty with `run`."""
    run: tuple[str, ...] = ()
    """The program and its arguments; empty with `use`. Arguments may contain templates, the program may not."""
    args: tuple[str, ...] = ()
    """Added to the command of `use`; may contain templates."""
    cwd: str = "."
    env: tuple[str, ...] = ()
    """Names of environment variables that are passed on."""
    timeout: float = COMMAND_SECONDS
    exit_codes: tuple[int, ...] | None = (0,)
    """None if every code but 0 is right."""
    stdout: CriteriaCheck | None = None
    stderr: CriteriaCheck | None = None
    measures: Mapping[str, Measure] = {}
    holds: CompiledCondition | None = None
    """A condition on the context with the measures, whose values may contain templates."""
    at_start: bool = False
    """Taken when the step is handed out, as a measure that refuses nothing."""
    against: Against | None = None


class FileProof(Proof, frozen=True, kw_only=True, tag="file"):
    """Every file that matches the glob holds; there is at least one, unless `exists` is false: then there is none."""

    path: str
    exists: bool = True
    changed: Since | None = None
    text: CriteriaCheck | None = None
    json: ValueSchema | None = None


class GitProof(Proof, frozen=True, kw_only=True, tag="git"):
    """The repository says so."""

    changed: tuple[str, ...] = ()
    """Globs: each matches at least one file that changed."""
    unchanged: tuple[str, ...] = ()
    """Globs: none matches a file that changed."""
    since: Since = "run"
    clean: bool | None = None
    commits: int = 0
    """At least so many commits."""
    branch: str = ""
    """A pattern for the name of the branch."""


class HttpProof(Proof, frozen=True, kw_only=True, tag="http"):
    """A URL answers with this status, and its body meets criteria."""

    url: str
    method: Literal["GET", "HEAD"] = "GET"
    status: int = 200
    body: CriteriaCheck | None = None
    within: float = HTTP_SECONDS


AnyProof: TypeAlias = CommandProof | FileProof | GitProof | HttpProof
PROOFS: Final = (CommandProof, FileProof, GitProof, HttpProof)

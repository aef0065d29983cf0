"""Proofs of a step: what must be true in the world, beside the criteria for the words of an output.

A proof is one struct that says what is checked, in words too; `proving` checks it, and `runs` decides what follows. A
new kind is a struct here, a member of `AnyProof` and its fields in `workflow.schema.json`. Nothing here touches the
world.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

import msgspec

from workflowlookup.language.conditions import CompiledCondition, construct_from_json, describe
from workflowlookup.language.criteria import CompiledCriteria, describe_criterion
from workflowlookup.language.formats.patterns import BadPattern, Budget, compile_pattern
from workflowlookup.language.formats.schemas import BadSchema, PathTo, ValueSchema
from workflowlookup.language.rules import AllOf
from workflowlookup.language.templates import has_template
from workflowlookup.language.text import plural
from workflowlookup.language.values import Json

COMMAND_SECONDS: Final = 600.0
"""Time limit of a command that names none."""
HTTP_SECONDS: Final = 10.0
"""Time limit of an HTTP request that names none."""

Since: TypeAlias = Literal["step", "run"]
"""Since the step was handed out, or since the run began."""
WhenUnproved: TypeAlias = Literal["refuse", "ask", "note"]
"""What happens to an output with a proof that cannot be judged: it is refused, a person may accept it, or it is
accepted and marked."""

_SINCE: Final[Mapping[str, str]] = {"run": "since the run began", "step": "since the step was handed out"}


class Flaw(msgspec.Struct, frozen=True):
    """Why a proof can never be judged: the path within its JSON, what is wrong, and what to do."""

    path: PathTo
    message: str
    remedy: str


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is read from the output of a command: the first group of the last match of the pattern."""

    pattern: str
    type: Literal["string", "number", "integer"] = "number"


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """A command runs in a temporary worktree of another commit, with some files of the working tree copied over."""

    base: str = "run"
    """`run` or `step` for the commit at that time, or a revision."""
    copied: tuple[str, ...] = msgspec.field(default=(), name="with")
    """`with`: globs of the files that are copied from the working tree."""


class Proof(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One thing that must be true. `name` is unique within the step. Every kind defines `words`."""

    criteria: ClassVar[Sequence[str]] = ()
    """Names of fields with criteria."""
    demands: ClassVar[Sequence[str]] = ()
    """Names of fields, beside criteria, that demand something only if they are there; a list demands each item."""

    name: str
    condition: CompiledCondition | None = None
    message: str = ""
    """The author's message for a proof that fails; may contain templates."""

    def words(self) -> str:
        """What must be true, as a sentence for a model, without a full stop."""
        raise NotImplementedError

    def paths(self) -> Iterator[tuple[PathTo, str]]:
        """The paths and globs in it, which must be inside the root, each with its path within the JSON."""
        yield from ()

    def flaws(self, budget: Budget) -> Iterator[Flaw]:  # noqa: ARG002 - for kinds that can have flaws
        """Why it can never be judged, beside criteria and paths, which are checked for every kind. Raises `TooSlow`."""
        yield from ()

    def describe(self) -> str:
        """What must be true, followed by the author's message."""
        return f"{self.words()}: {self.message}" if self.message else self.words()


class CommandProof(Proof, frozen=True, kw_only=True, tag="command"):
    """A command ends in time, with one of these exit codes, and its output meets criteria."""

    criteria = ("stdout", "stderr")
    demands = ("holds",)

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
    exit_codes: tuple[int, ...] | None = msgspec.field(default=(0,), name="exitCode")
    """None if every code but 0 is right."""
    stdout: CompiledCriteria | None = None
    stderr: CompiledCriteria | None = None
    measures: Mapping[str, Measure] = msgspec.field(default={}, name="measure")
    holds: CompiledCondition | None = None
    """A condition on the context with the measures, whose values may contain templates."""
    at_start: bool = msgspec.field(default=False, name="at")
    """Taken when the step is handed out, as a measure that refuses nothing."""
    against: Against | None = None

    @property
    def command_words(self) -> str:
        """``the project's command `test` with `-x` ``, or `` `make test` ``."""
        if self.run:
            return f"`{' '.join(self.run)}`"
        return f"the project's command `{self.use}`" + (f" with `{' '.join(self.args)}`" if self.args else "")

    def words(self) -> str:
        where = "" if self.cwd == "." else f" in `{self.cwd}`"
        if self.against is not None:
            base = {"run": "the commit at the start of the run", "step": "the commit at the start of the step"}
            where += f" in a copy of {base.get(self.against.base, f'commit {self.against.base}')}"
            where += f" with the present {_globs(self.against.copied)}" if self.against.copied else ""
        recorded = f"; it measures {', '.join(self.measures)}" if self.measures else ""
        if self.at_start:
            return f"When the step is handed out, the server runs {self.command_words}{where}{recorded}"
        codes = (
            "an exit code other than 0"
            if self.exit_codes is None
            else f"exit code {' or '.join(map(str, self.exit_codes))}"
        )
        held = f"; {describe(self.holds)}" if self.holds else ""
        criteria = _meets("its standard output", self.stdout) + _meets("its standard error", self.stderr)
        details = "" if self.message else f"{recorded}{held}"  # which the message explains
        words = f"{self.command_words}{where} ends with {codes}{criteria}{details}"
        return words[0].upper() + words[1:]

    def paths(self) -> Iterator[tuple[PathTo, str]]:
        yield ("cwd",), self.cwd
        if self.against is not None:
            yield from ((("against", "with", index), glob) for index, glob in enumerate(self.against.copied))

    def flaws(self, budget: Budget) -> Iterator[Flaw]:
        if self.run and has_template(self.run[0]):
            remedy = "Write the program itself; arguments may have templates"
            yield Flaw(("run", 0), "The program of 'run' contains a template", remedy)
        if self.at_start and self.against is not None:
            remedy = "Remove one of them: a base commit is the same at the start and later"
            yield Flaw(("against",), "'against' does not go together with 'at'", remedy)
        if self.holds is not None and not self.measures:
            remedy = 'Add \'measure\', for example {"passed": {"pattern": "(\\\\d+) passed"}}, or remove \'holds\''
            yield Flaw(("holds",), "'holds' compares measures, and this command measures nothing", remedy)
        for name, measure in self.measures.items():
            yield from _pattern_flaw(("measure", name, "pattern"), measure.pattern, budget)


class FileProof(Proof, frozen=True, kw_only=True, tag="file"):
    """Every file that matches the glob holds; there is at least one, unless `exists` is false: then there is none."""

    criteria = ("text",)
    demands = ("changed", "json")

    path: str
    exists: bool = True
    changed: Since | None = None
    text: CompiledCriteria | None = None
    json: ValueSchema | None = None

    def words(self) -> str:
        if not self.exists:
            return f"No file matches `{self.path}`"
        every = f"every file that matches `{self.path}`" if _is_glob(self.path) else "it"
        subject = f"A file matches `{self.path}`" if _is_glob(self.path) else f"The file `{self.path}` exists"
        changed = f"; {every} has changed {_SINCE[self.changed]}" if self.changed else ""
        fits = f"; {every} is JSON that is {self.json.expected}" if self.json is not None else ""
        text = _meets(f"the text of {every}", self.text)
        return f"{subject}{changed}{text}{fits}"

    def paths(self) -> Iterator[tuple[PathTo, str]]:
        yield ("path",), self.path

    def flaws(self, budget: Budget) -> Iterator[Flaw]:
        if not self.exists:
            for field in ("changed", "text", "json"):
                if getattr(self, field) is not None:
                    message = f"'{field}' says something about files that must not exist"
                    yield Flaw((field,), message, f"Remove '{field}', or remove 'exists'")
        try:
            if self.json is not None:
                budget.spend(lambda _: self.json and self.json.validator)
        except BadSchema as problem:
            yield Flaw(("json",), f"The JSON Schema in 'json' is malformed ({problem})", "Fix the schema")


class GitProof(Proof, frozen=True, kw_only=True, tag="git"):
    """The repository says so."""

    demands = ("changed", "unchanged", "clean", "commits", "branch")

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

    def words(self) -> str:
        since = _SINCE[self.since]
        parts = [f"a file matching `{glob}` has changed {since}" for glob in self.changed]
        if self.unchanged:
            globs = ", ".join(f"`{glob}`" for glob in self.unchanged)
            parts.append(f"no file matching {globs} has changed {since}")
        if self.clean is not None:
            parts.append(f"git reports {'no uncommitted' if self.clean else 'uncommitted'} changes")
        if self.commits:
            there_are = "there is" if self.commits == 1 else "there are"
            parts.append(f"{there_are} at least {plural(self.commits, 'commit')} {since}")
        if self.branch:
            parts.append(f"the branch matches /{self.branch}/")
        words = "; ".join(parts)
        return words[0].upper() + words[1:]

    def paths(self) -> Iterator[tuple[PathTo, str]]:
        for field, globs in (("changed", self.changed), ("unchanged", self.unchanged)):
            yield from (((field, index), glob) for index, glob in enumerate(globs))

    def flaws(self, budget: Budget) -> Iterator[Flaw]:
        if self.branch:
            yield from _pattern_flaw(("branch",), self.branch, budget)


class HttpProof(Proof, frozen=True, kw_only=True, tag="http"):
    """A URL answers with this status, and its body meets criteria."""

    criteria = ("body",)

    url: str
    method: Literal["GET", "HEAD"] = "GET"
    status: int = 200
    body: CompiledCriteria | None = None
    within: float = HTTP_SECONDS

    def words(self) -> str:
        answer = f"{self.method} {self.url} answers with status {self.status} within {self.within:g} seconds"
        return answer + _meets("the body", self.body)

    def flaws(self, budget: Budget) -> Iterator[Flaw]:  # noqa: ARG002 - as in the base class
        host = _HOST.match(self.url)
        if host is None:
            remedy = "Write it as http://localhost:8000/path; only the part after the host may have templates"
            yield Flaw(("url",), "The URL has no scheme and host of its own", remedy)
        elif "@" in host["host"]:
            yield Flaw(("url",), "The URL contains a user name or password", "Remove it from the URL")
        if self.method == "HEAD" and self.body is not None:
            yield Flaw(("body",), "An answer to HEAD has no body", "Use GET, or remove 'body'")


AnyProof: TypeAlias = CommandProof | FileProof | GitProof | HttpProof
PROOFS: Final[Mapping[str, type[AnyProof]]] = MappingProxyType(
    {str(kind.__struct_config__.tag): kind for kind in get_args(AnyProof)}
)
"""By `kind`, as the author writes it."""


def is_at_start(proof: AnyProof) -> bool:
    """Whether it is a measure from the start of a step, which refuses nothing."""
    return isinstance(proof, CommandProof) and proof.at_start


_HOST: Final = re.compile(r"https?://(?P<host>(?:[^\s/?#{}\\])+)(?=[/?#]|$)", re.IGNORECASE)


def _meets(subject: str, criteria: CompiledCriteria | None) -> str:
    criterion = criteria.criterion if criteria is not None else None
    if isinstance(criterion, AllOf) and len(criterion.parts) == 1:
        criterion = criterion.parts[0]
    return f"; {subject} meets this: {describe_criterion(criterion)}" if criterion is not None else ""


def _globs(globs: Sequence[str]) -> str:
    return "files matching " + " and ".join(f"`{glob}`" for glob in globs)


def _is_glob(path: str) -> bool:
    return any(character in path for character in "*?[")


def _pattern_flaw(path: PathTo, pattern: str, budget: Budget) -> Iterator[Flaw]:
    try:
        compile_pattern(pattern, "m", budget)
    except BadPattern as problem:
        yield Flaw(path, f"The pattern '{pattern}' does not compile ({problem})", "Fix the pattern")


# ── parsing ─────────────────────────────────────────────────────────────────────────────────────────────────────


def proofs_of(step: Mapping[str, Any]) -> tuple[AnyProof, ...]:
    """The proofs of a step of a valid document. A proof without a name gets its kind and its number in that kind."""
    numbers: Counter[str] = Counter()
    proofs = []
    for entry in step.get("proof", ()):
        kind = entry["kind"]
        numbers[kind] += 1
        fields = {"name": f"{kind}-{numbers[kind]}", **entry}
        for field, convert in _FORMS.items():
            if field in fields:
                fields[field] = convert(fields[field])
        proofs.append(msgspec.convert(fields, PROOFS[kind], strict=False, dec_hook=construct_from_json))
    return tuple(proofs)


def _exit_codes(value: Json) -> Json:
    return None if value == "nonzero" else [value] if isinstance(value, int) else value


_FORMS: Final[Mapping[str, Any]] = {
    "exitCode": _exit_codes,
    "at": lambda _: True,
    "json": lambda schema: {"schema": schema},
}
"""Fields that have several forms in a document, by name: what becomes of the author's value."""

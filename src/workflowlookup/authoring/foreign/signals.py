"""What the lines of a step suggest: criteria from check-lists, proofs from commands that verify, questions to the user.

Nothing here becomes active by itself. What cannot be a criterion or a proof is reported with its line.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from workflowlookup.authoring.foreign.draft import Note, Place, Suggestion, SuggestionKind
from workflowlookup.authoring.foreign.page import CodeBlock, Page
from workflowlookup.authoring.foreign.words import is_verification
from workflowlookup.language.read_commands import only_reads

MAX_SUGGESTIONS: Final = 20
"""For one step, of each kind."""
MAX_LINE: Final = 4_096
"""Length up to which a line is searched."""
MAX_CRITERION: Final = 80
"""Length of the text that an output must contain."""

_SHELL: Final = frozenset({"bash", "sh", "shell", "zsh", "console", "shell-session", "terminal"})
_BULLET: Final = re.compile(r"[ \t]*[-*+][ \t]+(?:\[[ xX]\][ \t]+)?(?P<text>\S.*)")
_BOX: Final = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]+\[[ xX]\][ \t]+(?P<text>\S.*)")
_LABEL: Final = re.compile(r"[ \t]*(?:\*\*|__)(?P<text>[^*_]{3,60})(?:\*\*|__)[ \t]*:?[ \t]*$")
_INLINE_CODE: Final = re.compile(r"`(?P<code>[^`\n]+)`")
_MARKS: Final = re.compile(r"\*\*|__|`|(?<!\w)\*(?=\S)|(?<=\S)\*(?!\w)")
_LINK: Final = re.compile(r"!?\[(?P<text>[^\]\n]*)\]\([^)\n]*\)")
_RUNNER: Final = re.compile(
    r"(?:\./|bash |sh )?(?:npm|pnpm|yarn|bun|deno|npx|bunx|make|just|task|pytest|python3?|uv|uvx|poetry|hatch|tox|nox"
    r"|ruff|mypy|pyright|cargo|go|dotnet|mvn|\./mvnw|gradle|\./gradlew|gradlew|swift|xcodebuild|flutter|dart|bundle|rake|rspec"
    r"|rubocop|mix|composer|phpunit|php|tsc|eslint|biome|prettier|jest|vitest|playwright|terraform|ansible-lint"
    r"|shellcheck|hadolint|golangci-lint|ctest|cmake|bazel|nx|turbo|pre-commit|markdownlint)\b(?: |$)"
)
_NOT_PLAIN: Final = re.compile(r"[|&;<>$`(){}*?~#\\!\[\]\n]|\.\.\.|…")
_ASKS: Final = re.compile(
    r"\b(?:ask|confirm with|check with|consult|prompt) (?:the |your )?(?:user|human|person|operator|developer)\b"
    r"|\b(?:wait|pause|stop)(?: here)?(?: and wait)? for (?:the |their |explicit |your )*(?:user|human|person|approval"
    r"|confirmation|go-ahead|sign-?off|feedback|response|answer)\w*"
    r"|\b(?:get|obtain|require|request|seek|need)s? (?:the |explicit |their )*(?:user|human)?(?:'s|s)? ?"
    r"(?:approval|confirmation|sign-?off|consent|permission)\b"
    r"|\b(?:user|human)(?:'s)? (?:approval|confirmation|must (?:approve|confirm|agree))\b"
    r"|\bask(?:user|_user|_followup)_?question\b|\bAskUserQuestion\b|\bHALT\b"
    r"|\bonce (?:the )?user (?:approves|confirms|agrees)\b|等待用户|询问用户|用户确认|向用户确认",
    re.IGNORECASE,
)
_NEGATED: Final = re.compile(r"\b(?:do not|don't|never|without|no need to|avoid)\W+(?:\w+\W+){0,3}$", re.IGNORECASE)
_FLOW: Final = re.compile(
    r"\b(?:go back|return|skip|jump|loop back|proceed|advance|move|go)(?: straight| directly)? to (?:step|phase)\b"
    r"|\brepeat (?:until|from|steps?|phases?|this|the|for)\b|\b(?:loop|iterate) (?:until|over|through|back|from)\b"
    r"|(?:^\W*|[.:;]\s+)for each\b|\b(?:steps?|phases?) [\d.]+ (?:only )?(?:if|when|unless)\b|\bwhile \w+ remain",
    re.IGNORECASE,
)


def _line(page: Page, number: int) -> str:
    return page.line(number)[:MAX_LINE]


def plain(text: str) -> str:
    """A line of Markdown without marks of emphasis, code and links. Of a very long one, only the beginning."""
    text = text[:MAX_LINE]
    return " ".join(_MARKS.sub("", _LINK.sub(r"\g<text>", text)).split())


def suggestions(page: Page, title: str, lines: Sequence[tuple[int, int]]) -> tuple[list[Suggestion], list[Note]]:
    """What a step suggests, and what of it was left out and why."""
    numbers = [number for first, after in lines for number in range(first, after)]
    sections = _sections(page, title, numbers)
    verifying = {number for number in numbers if is_verification(sections[number])}
    found: list[Suggestion] = []
    notes: list[Note] = []
    for readings in (
        _criteria(page, numbers, verifying),
        _proofs(page, numbers, verifying),
        _confirmations(page, numbers),
    ):
        of_this_kind: list[Suggestion] = []
        for reading in readings:
            if isinstance(reading, Note):
                notes.append(reading)
            elif len(of_this_kind) < MAX_SUGGESTIONS and all(reading.value != other.value for other in of_this_kind):
                of_this_kind.append(reading)
        found += of_this_kind
    return found, notes


def _sections(page: Page, title: str, numbers: Sequence[int]) -> dict[int, str]:
    """For each line the heading or the bold label above it; the title of the step before the first one."""
    headings = {heading.first: heading.text for heading in page.headings}
    current = title
    sections: dict[int, str] = {}
    for number in numbers:
        if number in headings:
            current = headings[number]
        elif number not in page.code_lines and (label := _LABEL.match(_line(page, number))):
            current = label["text"]
        sections[number] = current
    return sections


def _criteria(page: Page, numbers: Sequence[int], verifying: set[int]) -> Iterator[Suggestion]:
    """An item of a check-list, or of a list in a section that verifies: the output names it."""
    for number in numbers:
        if number in page.code_lines:
            continue
        line = _line(page, number)
        is_item = number in page.bullets and number in verifying and not line.startswith(("  ", "\t"))
        match = _BOX.match(line) or (_BULLET.match(line) if is_item else None)
        text = plain(match["text"]).rstrip(".;,:") if match else ""
        if not text or (is_item and _command(match["text"] if match else "")):
            continue
        if len(text) > MAX_CRITERION:
            text = text[: text.rfind(" ", 0, MAX_CRITERION) if " " in text[:MAX_CRITERION] else MAX_CRITERION]
        yield Suggestion(
            kind=SuggestionKind.CRITERION,
            value={"type": "contains", "value": text, "message": ""},
            place=Place(page.file, number, number),
            quote=line.strip(),
        )


def _command(text: str) -> str:
    """The command that an item of a list says to run, such as "`make test` passes"; empty if there is none."""
    return next((match["code"] for match in _INLINE_CODE.finditer(text) if _RUNNER.match(match["code"])), "")


def _proofs(page: Page, numbers: Sequence[int], verifying: set[int]) -> Iterator[Suggestion | Note]:
    """A command in a section that verifies: it passes."""
    inside = set(numbers)
    for block in page.code:
        if block.first in inside and block.first in verifying and block.language in _SHELL:
            for number, command in _commands(block):
                yield proof_of(command, Place(page.file, number, number))
    for number in sorted(verifying - page.code_lines):
        if number in page.bullets and (command := _command(_line(page, number))):
            yield proof_of(command, Place(page.file, number, number))


def _commands(block: CodeBlock) -> Iterator[tuple[int, str]]:
    """The command lines of a block; one that is continued in the next line is whole."""
    start, parts = 0, list[str]()
    for number, line in enumerate(block.lines, block.first):
        text = line.strip().removeprefix("$ ")
        if not parts:
            start = number
        if text.endswith("\\"):
            parts.append(text[:-1].strip())
            continue
        command = " ".join([*parts, text]).strip()
        parts = []
        if command and not command.startswith("#"):
            yield start, re.sub(r"\s+#\s.*$", "", command)


def proof_of(command: str, place: Place) -> Suggestion | Note:
    """The proof that a command passes, or why it cannot be one."""
    if _NOT_PLAIN.search(command):
        return Note(f"`{command}` is no suggested proof: a proof starts one program, without a shell", place)
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words or only_reads(command) or words[0] in ("cd", "export", "echo", "source", "set", "open", "exit"):
        return Note(f"`{command}` is no suggested proof: it passes whether or not the work is right", place)
    value = {"kind": "command", "run": words}
    return Suggestion(kind=SuggestionKind.PROOF, value=value, place=place, quote=command)


def _confirmations(page: Page, numbers: Sequence[int]) -> Iterator[Suggestion]:
    """The first line that says to ask or wait for the user."""
    for number in numbers:
        line = _line(page, number)
        match = _ASKS.search(line)
        if match and not _NEGATED.search(line[: match.start()]):
            place = Place(page.file, number, number)
            yield Suggestion(kind=SuggestionKind.CONFIRMATION, value=True, place=place, quote=line.strip())
            return


def flow(page: Page) -> list[int]:
    """The lines that branch, repeat or skip in words."""
    lines = range(page.body, page.end)
    return [number for number in lines if number not in page.code_lines and _FLOW.search(_line(page, number))]


_INLINE_COMMAND: Final = re.compile(r"(?<![\w`])!`(?P<command>[^`\n]+)`")


def executed_when_loaded(page: Page) -> Iterator[Note]:
    """Commands that the program of the source runs when it loads the file."""
    for number in range(page.body, page.end):
        for match in _INLINE_COMMAND.finditer(_line(page, number)):
            text = f"`{match['command']}` would have run whenever the file was loaded; here it is only text"
            yield Note(text, Place(page.file, number, number))

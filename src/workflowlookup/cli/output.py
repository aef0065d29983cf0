"""What commands print: JSON for programs, plain and stable text into a pipe, tables and colour on a terminal.

`rich` is imported only for a terminal. Documents are written by strangers, so their text is printed without control
characters: it cannot move the cursor or paint over what stands above it.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.errors import WorkflowLookupError

if TYPE_CHECKING:
    from rich.console import Console

Piece = str | tuple[str, str]
"""Text, or text and its style."""

_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def width() -> int | None:
    """How many columns there are; None in a pipe, which has no end."""
    return _console().width if is_terminal() else None


def clean(text: str) -> str:
    """The text without what a terminal would obey instead of show; line breaks and tabs stay."""
    return _UNPRINTABLE.sub(_REPLACEMENT, text.replace("\r\n", "\n"))


def shown_path(path: str) -> str:
    """A path that can be printed, also when its name is not text."""
    return os.fsencode(path).decode(errors="backslashreplace")


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def write(*pieces: Piece) -> None:
    """One line."""
    parts = _cleaned(pieces)
    if not is_terminal():
        print("".join(text for text, _ in parts))
        return
    from rich.text import Text  # noqa: PLC0415 - only for a terminal

    _console().print(Text.assemble(*parts), soft_wrap=True)


def _cleaned(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    return [(clean(piece), "") if isinstance(piece, str) else (clean(piece[0]), piece[1]) for piece in pieces]


def write_heading(title: str) -> None:
    write()
    write((title, "bold"))


def write_hint(text: str) -> None:
    """What to do next: for the person at the terminal, and for nobody else."""
    if is_terminal():
        write()
        write((text, "dim"))


def write_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, cut: bool = False) -> None:
    """A row a line, whole, in a pipe; within the width of a terminal, by wrapping cells or by cutting the last."""
    cells = [[clean(" ".join(cell.split())) for cell in row] for row in rows]
    if not is_terminal():
        lines = [[heading.upper() for heading in headings], *cells]
        widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    from rich.table import Table  # noqa: PLC0415 - only for a terminal
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", expand=cut)
    for heading in headings:
        is_last = heading == headings[-1]
        table.add_column(
            heading,
            style="cyan" if heading == headings[0] else "",
            no_wrap=cut or heading == headings[0],
            overflow="ellipsis" if cut else "fold",
            ratio=1 if cut and is_last else None,
        )
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    _console().print(table)


def write_markdown(text: str) -> None:
    """Markdown as it is in a pipe, laid out on a terminal."""
    text = clean(text)
    if not is_terminal():
        print(text)
        return
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only for a terminal
    from rich.markdown import Markdown  # noqa: PLC0415

    markdown = Markdown(text, hyperlinks=False)
    # Rich drops what looks like HTML; a prompt that says <file> must be shown as it is.
    markdown.parsed = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(text)
    _console().print(markdown)


def write_list(title: str, lines: Sequence[str]) -> None:
    """A section of literal lines, such as patterns, that Markdown would bend; nothing without lines."""
    if lines:
        write_heading(title if is_terminal() else f"## {title}")
        write()
        for line in lines:
            write(("- ", "cyan"), line)


class Branch(msgspec.Struct, frozen=True):
    """A line of a tree, and what hangs on it."""

    pieces: tuple[Piece, ...]
    branches: tuple["Branch", ...] = ()


def write_tree(root: Branch) -> None:
    """A line a branch, whole, in a pipe; wrapped beside its guides on a terminal."""
    if not is_terminal():
        write(*root.pieces)
        _write_branches(root.branches, "")
        return
    from rich.text import Text  # noqa: PLC0415 - only for a terminal
    from rich.tree import Tree  # noqa: PLC0415

    def grow(branch: Branch) -> Tree:
        tree = Tree(Text.assemble(*_cleaned(branch.pieces)), guide_style="dim")
        tree.children = [grow(inner) for inner in branch.branches]
        return tree

    _console().print(grow(root))


def _write_branches(branches: Sequence[Branch], indent: str) -> None:
    for branch in branches:
        is_last = branch is branches[-1]
        write(indent, "└── " if is_last else "├── ", *branch.pieces)
        _write_branches(branch.branches, indent + ("    " if is_last else "│   "))


def write_diff(file: str, before: str, after: str) -> None:
    """What changes in a file, as `diff -u` shows it."""
    import difflib  # noqa: PLC0415 - only for changes

    old, new = before.splitlines(), after.splitlines()
    name = shown_path(file)
    for line in difflib.unified_diff(old, new, name if before else "/dev/null", name, lineterm=""):
        write((line, DIFF_STYLES.get(line[0], "")))
    write()


def write_json(value: Any) -> None:
    """JSON, indented; in UTF-8 whatever the terminal's encoding is, and a name that is not text by its code."""
    write_bytes(
        json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
    )


def write_bytes(data: bytes) -> None:
    """Bytes as they are, for programs."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def refuse(refusal: WorkflowLookupError) -> None:
    """Say on standard error why a tool would not answer, in the words of the command line."""
    complain(as_command(refusal.explain()))


_AS_COMMANDS: Final = {
    "Call workflow_list": "Run `workflowlookup list`",
    "Call workflow_runs to see them": "`workflowlookup runs` lists them",
    "Start a new run with workflow_start": "Start a new one with `workflowlookup run`",
    "start a new run with workflow_start": "start a new one with `workflowlookup run`",
    "Look at it with workflow_status": "Look at it with `workflowlookup run show`",
}


def as_command(text: str) -> str:
    """What a tool advises, in the words of the command line."""
    for tool, command in _AS_COMMANDS.items():
        text = text.replace(tool, command)
    return text


def complain(text: str) -> None:
    """Say on standard error what is wrong."""
    print(f"workflowlookup: {clean(text)}", file=sys.stderr)


def _console() -> "Console":
    from rich.console import Console  # noqa: PLC0415 - only for a terminal

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)

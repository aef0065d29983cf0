"""What commands print: JSON for programs, plain and stable text into a pipe, tables and colour on a terminal.

`rich` is imported only for a terminal. The text of documents is untrusted, so it is printed without control characters:
it cannot move the cursor or overwrite what is above it.
"""

import contextlib
import itertools
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.errors import StorageError, WorkflowLookupError
from workflowlookup.language.text import escaped, joined, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Piece = str | tuple[str, str]
"""Text, or text and its style."""

DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
QUOTE: Final = "  │ "
_WORD: Final = re.compile("(?:`[^`\n]{1,300}`|[\\S\u00a0\u202f])+")
_OPENING: Final = ("Ps", "Pi")
_CLOSING: Final = ("Pe", "Pf", "Po", "Mn", "Me", "Mc", "Cf", "Sk", "Lm")
_JOINER: Final = "\N{ZERO WIDTH JOINER}"


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def is_styled() -> bool:
    """Whether output has layout and colour: on a terminal, and with FORCE_COLOR, as in CI logs."""
    return is_terminal() or os.environ.get("FORCE_COLOR", "0") not in ("", "0")


def width() -> int | None:
    """The width of the terminal in columns; None in a pipe, where lines are not wrapped."""
    return _console().width if is_styled() else None


def shown_path(path: str) -> str:
    """A path that can be printed on one line, even if it has line breaks or is not text."""
    return escaped(os.fsencode(path).decode(errors="backslashreplace"))


def write(*pieces: Piece, hang: int = 0, wrap: bool = True) -> None:
    """Print a line. On a terminal it is wrapped between words, with continuation lines indented by `hang` columns.

    `wrap=False` is for text that people copy, such as a command or a line of a diff.
    """
    parts = _cleaned(pieces)
    if not is_styled():
        print("".join(text for text, _ in parts))
        return
    from rich.text import Text  # noqa: PLC0415 - only for a terminal

    console = _console()
    text = Text.assemble(*parts)
    console.print(_wrapped(text, console.width, hang) if wrap else text, soft_wrap=True)


def write_quoted(text: str) -> None:
    """Print untrusted text with a bar before each row, so that no part of it looks like a line of ours."""
    for row in quoted_rows(text, width()):
        write((QUOTE, "dim"), row, wrap=False)


def quoted_rows(text: str, columns: int | None) -> list[str]:
    """The rows of a text, narrow enough for `QUOTE` before each; whole lines if `columns` is None."""
    rows = printable(text).expandtabs().splitlines()
    return rows if columns is None else [part for row in rows for part in _folded(row, max(columns - len(QUOTE), 2))]


def wrapped_rows(text: str, columns: int | None) -> list[str]:
    """The rows of a text on a terminal with this many columns, without control characters."""
    text = printable(text)
    if columns is None:
        return text.split("\n")
    from rich.text import Text  # noqa: PLC0415 - only for a terminal

    return _wrapped(Text(text), columns, 0).plain.split("\n")


def _wrapped(text: "Text", columns: int, hang: int) -> "Text":
    from rich.text import Text  # noqa: PLC0415 - only for a terminal

    hang = min(hang, columns // 2)
    rows: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        line.expand_tabs(8)
        parts = line.divide(_breaks(line.plain, columns, hang, hang if rows else 0))
        for part in parts:
            part.rstrip()
            rows.append(Text.assemble(" " * hang, part) if rows else part)
    return Text("\n").join(rows)


def _breaks(text: str, columns: int, hang: int, indent: int) -> list[int]:
    """The offsets at which rows after the first begin. The terminal breaks words that are wider than a row, so that
    they can be copied unchanged.
    """
    from rich.cells import cell_len  # noqa: PLC0415 - only for a terminal

    breaks, column, end = [], indent, 0
    for start, stop in _unbreakable(text):
        column += cell_len(text[end:start])
        size = cell_len(text[start:stop])
        if column + size > columns and column > hang:
            breaks.append(start)
            column = hang
        column, end = column + size, stop
    return breaks


def _unbreakable(text: str) -> Iterator[tuple[int, int]]:
    """Words, and commands in backticks; single characters in scripts without spaces, such as Chinese."""
    for word in _WORD.finditer(text):
        start = word.start()
        for offset in range(start + 1, word.end()):
            if _may_break(text[offset - 1], text[offset]):
                yield start, offset
                start = offset
        yield start, word.end()


def _may_break(before: str, after: str) -> bool:
    """Whether a row may end between two characters of a word: beside a wide character, but not before closing marks."""
    if after.isascii() and before.isascii():
        return False
    is_wide = any(unicodedata.east_asian_width(character) in "WF" for character in (before, after))
    kinds = unicodedata.category(before), unicodedata.category(after)
    return is_wide and kinds[0] not in _OPENING and kinds[1] not in _CLOSING and before != _JOINER


def _folded(row: str, columns: int) -> list[str]:
    """The rows of a line, broken between words if possible, else anywhere."""
    from rich.cells import chop_cells  # noqa: PLC0415 - only for a terminal

    starts = [0, *_breaks(row, columns, 0, 0), len(row)]
    parts = [row[start:stop] for start, stop in itertools.pairwise(starts)]
    return [piece for part in parts for piece in chop_cells(part.rstrip(" "), columns) or [""]]


def _cleaned(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    return [(printable(piece), "") if isinstance(piece, str) else (printable(piece[0]), piece[1]) for piece in pieces]


@contextlib.contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar on standard error, if that is a terminal. Call the function after each of `total` items."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(transient=True, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


def write_heading(title: str) -> None:
    write()
    write((title, "bold"))


def write_hint(text: str, command: str = "") -> None:
    """Print what to do next, perhaps with a command to copy; only on a terminal."""
    if is_styled():
        write()
        write((text + command, "dim"), wrap=not command)


def write_records(
    records: Iterable[Mapping[str, Piece]],
    columns: Sequence[str],
    *,
    fewer: Sequence[str] = (),
    min_width: int = 0,
    cut: bool = False,
) -> None:
    """Print a table of these fields; on a terminal narrower than `min_width`, of `fewer` fields."""
    if fewer and (width() or min_width) < min_width:
        columns = fewer
    write_table(columns, [[record[column] for column in columns] for record in records], cut=cut)


def write_table(headings: Sequence[str], rows: Sequence[Sequence[Piece]], *, cut: bool = False) -> None:
    """Print a table. In a pipe each row is one line; on a terminal cells are wrapped, or the last one is cut."""
    styled = [[(joined(text), style) for text, style in _cleaned(row)] for row in rows]
    if not is_styled():
        lines = [[heading.upper() for heading in headings], *([text for text, _ in row] for row in styled)]
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
    for row in styled:
        table.add_row(*(Text(text, style) for text, style in row))
    _console().print(table)


def write_markdown(text: str) -> None:
    """Print Markdown, rendered on a terminal and unchanged in a pipe."""
    text = printable(text)
    if not is_styled():
        print(text)
        return
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only for a terminal
    from rich.markdown import Markdown  # noqa: PLC0415

    markdown = Markdown(text, hyperlinks=False)
    # Rich drops what looks like HTML, but a prompt may contain <file>.
    markdown.parsed = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(text)
    _console().print(markdown)


def write_list(title: str, lines: Sequence[str]) -> None:
    """Print a section of literal lines, such as patterns, which Markdown would change; nothing without lines."""
    if lines:
        write_heading(title if is_styled() else f"## {title}")
        write()
        for line in lines:
            write(("- ", "cyan"), line, hang=2)


class Branch(msgspec.Struct, frozen=True):
    """A line of a tree, and the branches below it."""

    pieces: tuple[Piece, ...]
    branches: tuple["Branch", ...] = ()


def write_tree(root: Branch) -> None:
    """Print a tree. In a pipe each branch is one line; on a terminal lines are wrapped."""
    if not is_styled():
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
    """Print the changes of a file, as `diff -u` does."""
    import difflib  # noqa: PLC0415 - only for changes

    old, new = before.splitlines(), after.splitlines()
    name = shown_path(file)
    for line in difflib.unified_diff(old, new, name if before else "/dev/null", name, lineterm=""):
        write((line, DIFF_STYLES.get(line[0], "")), wrap=False)
    write()


def write_json(value: Any) -> None:
    """Print indented JSON as UTF-8, whatever the encoding of the terminal; invalid characters are escaped."""
    write_bytes(
        json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
    )


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output unchanged."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_text(text: str) -> None:
    """Write text for programs, unchanged in a pipe and without control characters on a terminal."""
    write_bytes((printable(text) if is_styled() else text).encode())


def write_file(path: str, data: bytes) -> None:
    """Write a file. Raises `StorageError`."""
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as problem:
        raise StorageError(f"{shown_path(path)} cannot be written: {problem.strerror}.", file=path) from problem


class CommandError(WorkflowLookupError):
    """A command cannot do what it was asked to. The exit code is 2 for wrong usage."""

    def __init__(self, remedy: str, exit_code: int = 1) -> None:
        super().__init__(remedy)
        self.exit_code = exit_code

    def explain(self) -> str:
        return self.remedy


def refuse(refusal: WorkflowLookupError) -> int:
    """Print an error on standard error, with commands in place of tools. Returns the exit code."""
    text, file = refusal.explain(), refusal.data.get("file")
    complain(as_command(text.replace(file, escaped(file)) if isinstance(file, str) and file else text))
    return refusal.exit_code if isinstance(refusal, CommandError) else 1


_AS_COMMANDS: Final = {
    "Call workflow_list": "Run `workflowlookup list`",
    "Call workflow_runs to see them": "`workflowlookup runs` lists them",
    "Start a new run with workflow_start": "Start a new one with `workflowlookup run`",
    "start a new run with workflow_start": "start a new one with `workflowlookup run`",
    "Look at it with workflow_status": "Look at it with `workflowlookup run show`",
}


def as_command(text: str) -> str:
    """The advice of a tool, with commands in place of tools."""
    for tool, command in _AS_COMMANDS.items():
        text = text.replace(tool, command)
    return text


def complain(text: str) -> None:
    """Print an error on standard error."""
    text = f"workflowlookup: {printable(text)}"
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415 - only for a terminal
        from rich.text import Text  # noqa: PLC0415

        text = _wrapped(Text(text), Console(file=sys.stderr).width, 0).plain
    print(text, file=sys.stderr)


def _console() -> "Console":
    from rich.console import Console  # noqa: PLC0415 - only for a terminal

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)

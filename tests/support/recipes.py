"""Follows the recipes of `docs/extending.md` to the letter, on a copy of the tree.

A recipe is a section. What is done with a block of code stands in the line before it:

- ``A new file `PATH`:``
- ``In `PATH`, before `LINE`:``, or `after`, or `in place of`: the one line that begins like this.
- ``At the end of `PATH`:``
- ``Add to `NAME` in `PATH`:`` another entry of the table with this name; of a JSON file, the object at this place.
"""

import ast
import json
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from support.json_values import Json

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "extending.md"
HOW = (
    re.compile(r"(?P<how>A new file) `(?P<path>[^`]+)`:"),
    re.compile(r"(?P<how>At the end of) `(?P<path>[^`]+)`:"),
    re.compile(r"In `(?P<path>[^`]+)`, (?P<how>before|after|in place of) (?P<what>``.+?``|`[^`]+`):"),
    re.compile(r"(?P<how>Add to) `(?P<what>[^`]+)` in `(?P<path>[^`]+)`:"),
)


class Change(NamedTuple):
    """One block of a recipe."""

    how: str
    path: str
    what: str
    text: str


def read_recipes() -> dict[str, list[Change]]:
    """By heading: the changes, in order."""
    recipes: dict[str, list[Change]] = {}
    for section in re.split(r"^## ", GUIDE.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        recipes[heading] = list(_changes(body))
    return recipes


def _changes(body: str) -> Iterator[Change]:
    for block in re.finditer(r"([^\n]*)\n\n```\w+\n(.*?)```", body, flags=re.DOTALL):
        match = next((matched for form in HOW if (matched := form.fullmatch(block[1]))), None)
        assert match, f"what is to be done with this block? {block[1]!r}"
        parts = match.groupdict()
        yield Change(parts["how"], parts["path"], (parts.get("what") or "").strip("` "), block[2])


class Tree:
    """A copy of the source, the tests and the docs, to which recipes are applied."""

    def __init__(self, directory: Path) -> None:
        self.root = directory
        unneeded = shutil.ignore_patterns("node_modules", ".*")  # with the bytecode, which stays valid
        for name in ("src", "tests", "docs"):
            shutil.copytree(ROOT / name, directory / name, ignore=unneeded)
        shutil.copy(ROOT / "pyproject.toml", directory)

    def path(self, name: str) -> Path:
        return self.root / (name if name.startswith(("tests/", "docs/")) else f"src/workflowlookup/{name}")

    def follow(self, changes: list[Change]) -> None:
        for change in changes:
            self.make(change)

    def make(self, change: Change) -> None:
        path = self.path(change.path)
        if change.how == "A new file":
            assert not path.exists(), f"{change.path} is there already"
            path.write_text(change.text)
            return
        text = path.read_text()
        if change.how == "At the end of":
            path.write_text(text + change.text)
        elif change.how != "Add to":
            path.write_text(_with_lines(text, change))
        elif path.suffix == ".json":
            path.write_text(json.dumps(_with_object(json.loads(text), change), indent=2))
        else:
            path.write_text(_with_entry(text, change))


def _with_lines(text: str, change: Change) -> str:
    lines = text.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.strip().startswith(change.what)]
    assert len(places) == 1, f"{change.path} has {len(places)} lines that begin with {change.what!r}"
    (place,) = places
    indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    added = textwrap.indent(change.text, indent)
    if re.match(r"(async )?def |class |@", change.text):
        added += "\n" if indent else "\n\n"
    if change.how == "after":
        place += 1
    lines[place : place + (change.how == "in place of")] = [added]
    return "".join(lines)


def _with_object(content: Json, change: Change) -> Json:
    node = content
    for name in change.what.split("."):
        node = node[name]
    _merge(node, json.loads(change.text))
    return content


def _merge(into: Any, added: Any) -> None:
    for key, value in added.items():
        if isinstance(into.get(key), list):
            into[key] += value
        elif isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            assert key not in into, f"{key} is there already"
            into[key] = value


def _with_entry(text: str, change: Change) -> str:
    """The text with one more entry in a table: a literal, the arguments of a call, or a union of types."""
    table = _table(ast.parse(text), change.what)
    entry = change.text.strip()
    if isinstance(table, ast.BinOp):
        return _inserted(text, table, f" | {entry}")
    last = max(_parts(table), key=lambda node: (node.end_lineno, node.end_col_offset))
    return _inserted(text, last, f",\n{entry}")


def _inserted(text: str, after: ast.expr, added: str) -> str:
    lines = text.splitlines(keepends=True)
    assert after.end_lineno is not None
    line = lines[after.end_lineno - 1].encode()
    lines[after.end_lineno - 1] = (
        line[: after.end_col_offset] + added.encode() + line[after.end_col_offset :]
    ).decode()
    return "".join(lines)


def _parts(table: ast.expr) -> list[Json]:
    return table.values if isinstance(table, ast.Dict) else table.args if isinstance(table, ast.Call) else table.elts  # type: ignore[attr-defined]


def _table(module: ast.Module, what: str) -> ast.expr:
    """The table of a name, such as `NAME`, `Class.NAME` or, inside of it, `NAME[KEY]`."""
    name, _, key = what.removesuffix("]").partition("[")
    owner, _, name = name.rpartition(".")
    body: list[ast.stmt] = module.body
    if owner:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == owner)
    value = next(value for node in body if (value := _assigned(node, name)) is not None)
    if isinstance(value, ast.BinOp):
        return value
    tables = [node for node in ast.walk(value) if isinstance(node, ast.Dict | ast.Tuple | ast.List | ast.Set)]
    if not key:
        return tables[0] if tables else value
    outer = tables[0]
    assert isinstance(outer, ast.Dict)
    return next(inner for one, inner in zip(outer.keys, outer.values, strict=True) if ast.unparse(one) == key)  # type: ignore[arg-type]


def _assigned(node: ast.stmt, name: str) -> ast.expr | None:
    target = (
        node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if isinstance(node, ast.Assign) else None
    )
    return node.value if isinstance(target, ast.Name) and target.id == name else None  # type: ignore[attr-defined]

"""Finds the commands by which a project is tested, linted and built, from the files that its tools are configured in.

Nothing is run: a file only suggests a command, and a person decides.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

MAX_BYTES: Final = 1 << 20
NAMES: Final = ("test", "lint", "build", "typecheck")
"""The names that workflows use."""
Suggestions = Iterator[tuple[str, list[str]]]


def find_commands(directory: str) -> dict[str, list[str]]:
    """By name: the command that the files of a project suggest. Of several, the first in `FINDERS` counts."""
    commands: dict[str, list[str]] = {}
    for find in FINDERS:
        for name, words in find(directory):
            commands.setdefault(name, words)
    return {name: commands[name] for name in NAMES if name in commands}


def as_toml(commands: Mapping[str, Sequence[str]]) -> str:
    """The commands as a table of a settings file."""
    lines = [f"{name} = [{', '.join(map(json.dumps, words))}]" for name, words in commands.items()]
    return "\n".join(["[commands]", *lines, ""])


def _text(directory: str, name: str) -> str:
    """The text of a regular file; empty if there is none, or it is not one that a person wrote."""
    path = os.path.join(directory, name)
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MAX_BYTES:
            return ""
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(MAX_BYTES)
    except OSError:
        return ""


def _make(directory: str) -> Suggestions:
    text = next(filter(None, (_text(directory, name) for name in ("GNUmakefile", "makefile", "Makefile"))), "")
    targets = {target for line in re.findall(r"^([\w \t.-]+):(?!=)", text, re.MULTILINE) for target in line.split()}
    yield from ((name, ["make", name]) for name in NAMES if name in targets)


def _tox(directory: str) -> Suggestions:
    if any(os.path.isfile(os.path.join(directory, name)) for name in ("tox.ini", "tox.toml")):
        yield "test", ["tox"]


def _nox(directory: str) -> Suggestions:
    if os.path.isfile(os.path.join(directory, "noxfile.py")):
        yield "test", ["nox"]


def _python(directory: str) -> Suggestions:
    try:
        project = tomllib.loads(_text(directory, "pyproject.toml"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    named = json.dumps(project, default=str)
    lock = {"uv.lock": ["uv", "run"], "poetry.lock": ["poetry", "run"], "pdm.lock": ["pdm", "run"]}
    prefix = next((words for name, words in lock.items() if os.path.isfile(os.path.join(directory, name))), [])
    tools = {"pytest": ("test", ["pytest"]), "ruff": ("lint", ["ruff", "check"]), "mypy": ("typecheck", ["mypy"])}
    for tool, (name, words) in tools.items():
        if re.search(rf"\b{tool}\b", named):
            yield name, [*prefix, *words]


def _node(directory: str) -> Suggestions:
    try:
        package: Any = json.loads(_text(directory, "package.json") or "{}")
    except (ValueError, RecursionError):
        return
    scripts = package.get("scripts") if isinstance(package, dict) else None
    lock = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lockb": "bun"}
    program = next((words for name, words in lock.items() if os.path.isfile(os.path.join(directory, name))), "npm")
    for name in NAMES:
        script = scripts.get(name) if isinstance(scripts, dict) else None
        if isinstance(script, str) and "no test specified" not in script:
            yield name, [program, "run", name]


def _rust(directory: str) -> Suggestions:
    if os.path.isfile(os.path.join(directory, "Cargo.toml")):
        yield from (("test", ["cargo", "test"]), ("build", ["cargo", "build"]), ("lint", ["cargo", "clippy"]))


def _go(directory: str) -> Suggestions:
    if os.path.isfile(os.path.join(directory, "go.mod")):
        names = {"test": "test", "build": "build", "lint": "vet"}
        yield from ((name, ["go", word, "./..."]) for name, word in names.items())


FINDERS: Final[tuple[Callable[[str], Suggestions], ...]] = (_make, _tox, _nox, _python, _node, _rust, _go)
"""In order of precedence: what people wrote for this project counts before what is usual for its tools."""

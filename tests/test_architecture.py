"""The shape of the code: imports point one way, and the wire pays for nothing that it does not use."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import workflowlookup
from support.json_values import Json, JsonObject

SOURCE = Path(workflowlookup.__file__).parent
LAYERS = (
    ("errors", "greenlets", "preload"),
    ("cache",),
    ("extras", "language", "access", "web", "atomic", "repository", "processes"),
    ("runs", "shares", "trust", "logs", "checked_http"),
    ("library", "store", "proving", "people"),
    ("authoring", "fetching", "providers", "receipts"),
    ("execution", "notices"),
    ("tools",),
    ("protocol",),
    ("auth", "settings"),
    ("transport", "console"),
    ("app",),
    ("app_http",),
    ("cli",),
    ("__main__",),
)
"""The parts of the package. A part imports only parts of the rows above its own."""
ROWS = {part: row for row, parts in enumerate(LAYERS) for part in parts}
LANGUAGE_LAYERS = ("text", "values", "formats", "markdown", "", "document")
"""The parts of `language`, in the same way; the empty name stands for its other modules, which may import each other."""
PURE = {
    "language": {
        *(
            "bisect",
            "codecs",
            "contextlib",
            "collections",
            "difflib",
            "enum",
            "functools",
            "itertools",
            "json",
            "math",
            "re",
            "shlex",
            "textwrap",
            "types",
            "typing",
        ),
        *("unicodedata", "urllib.parse"),
        *("jsonschema_rs", "markdown_it", "msgspec", "regex", "yaml"),
        "time",  # the processor time that patterns may take, in `patterns`
    },
    "runs": {
        *("collections", "datetime", "enum", "hashlib", "itertools", "math", "re", "statistics", "types", "typing"),
        *("urllib.parse", "msgspec"),
    },
}
"""What the pure parts may import: nothing that reads files, the network, the environment, a wall clock or chance."""


def imports_of(path: Path) -> Iterator[str]:
    """The top-level parts of the package that a file imports, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [
                f"{node.module}.{alias.name}" if node.module == "workflowlookup" else str(node.module)
                for alias in node.names
            ]
        for name in names:
            if name.startswith("workflowlookup."):
                yield name.split(".")[1]


def test_imports_point_one_way() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for imported in imports_of(path):
            if imported not in ("__version__", part) and ROWS[imported] >= ROWS[part]:
                wrong.append(f"{path.relative_to(SOURCE)} imports {imported}")
    assert wrong == []


def test_formats_know_nothing_of_workflows_and_their_meaning_nothing_of_documents() -> None:
    def layer_of(name: str) -> int:
        part = name.split(".")[2] if name.count(".") > 1 else ""
        return LANGUAGE_LAYERS.index(part if part in LANGUAGE_LAYERS else "")

    wrong = []
    for path in (SOURCE / "language").rglob("*.py"):
        module = ".".join(path.with_suffix("").relative_to(SOURCE.parent).parts)
        for imported in modules_imported_by(path):
            if imported.startswith("workflowlookup.language") and layer_of(imported) > layer_of(module):
                wrong.append(f"{module} imports {imported}")
    assert wrong == []


def test_the_sdk_is_for_other_servers_that_we_call() -> None:
    """What comes to us is answered without it, and a server over HTTP starts without it."""
    script = "import sys, workflowlookup.transport.http.site, workflowlookup.transport.http.server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert {"mcp", "mcp_types", "pydantic"} & set(loaded) == set()


def test_every_part_of_the_package_has_its_place() -> None:
    parts = {
        path.name.removesuffix(".py")
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }

    assert parts - {"__init__"} == set(ROWS)


def test_the_page_about_the_architecture_names_every_module() -> None:
    page = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text("utf-8")
    named = {word for code in re.findall(r"`([^`\n]+)`", page) for word in re.findall(r"\w+", code)}
    modules = [path for path in SOURCE.rglob("*.py") if path.parent.name not in ("commands", "builtin")]

    unnamed = {path.stem for path in modules if not path.stem.endswith(("__", "_pages"))} - named
    assert unnamed == set()


def modules_imported_by(path: Path) -> Iterator[str]:
    """The modules that a file imports: `import x`, `from x import y`, wherever that stands."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("part", PURE)
def test_the_language_and_the_runs_are_pure(part: str) -> None:
    impure = {
        (path.name, name)
        for path in (SOURCE / part).rglob("*.py")
        for name in modules_imported_by(path)
        if not name.startswith("workflowlookup") and not {name, name.partition(".")[0]} & PURE[part]
    }

    assert impure == set()


def test_only_the_schema_of_documents_is_read_from_a_file() -> None:
    readers = {
        path.name
        for part in PURE
        for path in (SOURCE / part).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    }

    assert readers == {"workflow_schema.py"}


def loaded_after(*requests: JsonObject, **settings: str) -> set[str]:
    """The modules of a new interpreter that has answered these messages."""
    script = (
        "import sys\n"
        "from workflowlookup.app import make_connection\n"
        "from workflowlookup.settings import read_settings\n"
        f"connection = make_connection(read_settings({settings!r}, {{}}, directory='.'))\n"
        f"for line in {[json.dumps(message).encode() for message in requests]!r}:\n"
        "    assert b'result' in connection.handle(line)\n"
        "print(*sys.modules)\n"
    )
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def ask(method: str, **params: Json) -> JsonObject:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


INITIALIZE = ask("initialize", protocolVersion="2025-11-25", capabilities={})


def test_the_reply_to_initialize_costs_neither_core_nor_library_nor_anything_heavy() -> None:
    loaded = loaded_after(INITIALIZE)

    heavy = {"asyncio", "jsonschema_rs", "regex", "yaml", "markdown_it", "rich", "mcp", "ctypes", "tomllib"}
    ours = {
        "workflowlookup.language.document.checking",
        "workflowlookup.library.catalog",
        "workflowlookup.tools.registry",
    }
    assert loaded & (heavy | ours) == set()


def test_the_first_list_waits_for_no_other_tool() -> None:
    loaded = loaded_after(INITIALIZE, ask("tools/call", name="workflow_list", arguments={}))

    tools = {name.rpartition(".")[2] for name in loaded if name.startswith("workflowlookup.tools.builtin.workflow_")}
    assert tools == {"workflow_list"}
    assert not {"workflowlookup.language.document.building", "json"} & loaded


def test_the_lookup_tools_load_nothing_of_runs() -> None:
    """With workflow tools on, their names are in the journal, and the first list of tools reads them there."""
    loaded = loaded_after(
        INITIALIZE,
        ask("tools/list"),
        ask("workflow_list"),
        ask("workflow_get", id="bug-investigation"),
        ask("workflow_next", workflowId="bug-investigation", completedSteps=[]),
        ask("workflow_validate", workflowId="bug-investigation", stepId="reproduce", output="x"),
        workflow_tools="false",
    )

    ours = {name for name in loaded if name.startswith(("workflowlookup.runs.", "workflowlookup.store."))}
    ours -= {"workflowlookup.store.journal_url"}  # the table of URLs, which the settings read
    assert ours | loaded & {"sqlite3", "psycopg", "secrets", "hashlib"} == set()
    assert not {name for name in loaded if name.startswith("workflowlookup.tools.run_answers")}


def test_every_test_file_has_a_name_of_its_own() -> None:
    """Else pytest collects only one of them, and stops."""
    files = [path for path in Path(__file__).parent.rglob("test_*.py") if not (path.parent / "__init__.py").exists()]

    assert sorted(names := [path.name for path in files]) == sorted(set(names))

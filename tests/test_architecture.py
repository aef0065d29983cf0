"""The shape of the code: imports point one way, and the wire pays for nothing that it does not use."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import workflowlookup

SOURCE = Path(workflowlookup.__file__).parent
LAYERS = {
    "errors": 0,
    "cache": 0,
    "greenlets": 0,
    "extras": 1,
    "core": 1,
    "access": 1,
    "recent": 1,
    "web": 1,
    "atomic": 1,
    "repository": 1,
    "shares": 2,
    "trust": 2,
    "logs": 2,
    "library": 3,
    "runs": 3,
    "journals": 4,
    "providers": 4,
    "execution": 5,
    "tools": 6,
    "protocol": 7,
    "transport": 8,
    "console": 8,
    "settings": 8,
    "app": 9,
    "cli": 10,
    "__main__": 11,
}
"""errors, cache, greenlets <- extras, core, access, recent, web, atomic, repository <- shares, trust, logs <- library, runs <- journals, providers <- execution <- tools <- protocol <- transport, console <- app <- cli"""


def imports_of(path: Path):
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


def test_imports_point_one_way():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for imported in imports_of(path):
            if imported not in ("__version__", part) and LAYERS[imported] >= LAYERS[part]:
                wrong.append(f"{path.relative_to(SOURCE)} imports {imported}")
    assert wrong == []


def test_the_sdk_is_for_other_servers_that_we_call():
    """What comes to us is answered without it, and a server over HTTP starts without it."""
    script = "import sys, workflowlookup.transport.http.site, workflowlookup.transport.http.server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert {"mcp", "mcp_types", "pydantic"} & set(loaded) == set()


def test_every_part_of_the_package_has_its_place():
    parts = {
        path.name.removesuffix(".py")
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }

    assert parts - {"__init__"} == set(LAYERS)


def test_the_core_is_pure():
    forbidden = {"os", "logging", "random", "subprocess", "socket", "asyncio", "threading"}
    found = {
        (path.name, name)
        for path in (SOURCE / "core").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [])
        if name in forbidden
    }
    assert found == set()


def loaded_after(*asked, **settings):
    """The modules of a new interpreter that has answered these messages."""
    script = (
        "import sys\n"
        "from workflowlookup.app import make_connection\n"
        "from workflowlookup.settings import read_settings\n"
        f"connection = make_connection(read_settings({settings!r}, {{}}, directory='.'))\n"
        f"for line in {[json.dumps(message).encode() for message in asked]!r}:\n"
        "    assert b'result' in connection.handle(line)\n"
        "print(*sys.modules)\n"
    )
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def ask(method, **params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


INITIALIZE = ask("initialize", protocolVersion="2025-11-25", capabilities={})


def test_the_reply_to_initialize_costs_neither_core_nor_library_nor_anything_heavy():
    loaded = loaded_after(INITIALIZE)

    heavy = {"asyncio", "jsonschema_rs", "regex", "yaml", "rich", "mcp", "ctypes", "tomllib"}
    ours = {"workflowlookup.language.document", "workflowlookup.library.catalog", "workflowlookup.tools.registry"}
    assert loaded & (heavy | ours) == set()


def test_the_first_list_waits_for_no_other_tool():
    loaded = loaded_after(INITIALIZE, ask("tools/call", name="workflow_list", arguments={}))

    tools = {name.rpartition(".")[2] for name in loaded if name.startswith("workflowlookup.tools.workflow_")}
    assert tools == {"workflow_list"}
    assert "workflowlookup.language.building" not in loaded


def test_the_lookup_tools_load_nothing_of_runs():
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

    ours = {name for name in loaded if name.startswith(("workflowlookup.runs", "workflowlookup.runs.run"))}
    assert ours | loaded & {"sqlite3", "psycopg", "secrets", "hashlib"} == set()
    assert not {name for name in loaded if name.startswith("workflowlookup.tools.run_answers")}


def test_every_test_file_has_a_name_of_its_own():
    """Else pytest collects only one of them, and stops."""
    files = [path for path in Path(__file__).parent.rglob("test_*.py") if not (path.parent / "__init__.py").exists()]

    assert sorted(names := [path.name for path in files]) == sorted(set(names))

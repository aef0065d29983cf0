"""The manifest: each clause has a test, each test names clauses that exist, each clause exists once.

Everything is read from the files, not from what pytest collected, so that it holds for any selection of tests.
"""

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from spec.clauses import CLAUSES as STATIC_CLAUSES
from spec.dynamic_clauses import DYNAMIC_CLAUSES

CLAUSES = (*STATIC_CLAUSES, *DYNAMIC_CLAUSES)
HERE = Path(__file__).parent
EXAMPLES = "test_examples.py"
"""Its clauses are in examples.json."""

KNOWN = {clause.id for clause in CLAUSES}
TREES = {path.name: ast.parse(path.read_text("utf-8")) for path in sorted(HERE.glob("test_*.py"))}


def marks_in(tree: ast.AST) -> Iterator[ast.Call]:
    """Every `pytest.mark.spec(…)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.spec":
            yield node


def clauses_in(tree: ast.AST) -> list[str]:
    return [ast.literal_eval(argument) for mark in marks_in(tree) for argument in mark.args]


def proven() -> dict[str, set[str]]:
    """The clauses that each file's tests name."""
    examples = json.loads((HERE / "examples.json").read_text("utf-8"))["examples"]
    clauses = {name: set(clauses_in(tree)) for name, tree in TREES.items() if name != EXAMPLES}
    return {**clauses, EXAMPLES: {exchange["clause"] for example in examples for exchange in example["exchanges"]}}


PROVEN = proven()


def test_every_clause_has_a_test() -> None:
    assert sorted(KNOWN - set().union(*PROVEN.values())) == []


@pytest.mark.parametrize("name", PROVEN)
def test_every_clause_that_a_test_names_exists(name: str) -> None:
    assert sorted(PROVEN[name] - KNOWN) == []


def test_every_clause_exists_once() -> None:
    assert [name for name, count in Counter(clause.id for clause in CLAUSES).items() if count > 1] == []


@pytest.mark.parametrize("name", [name for name in TREES if name not in (EXAMPLES, Path(__file__).name)])
def test_every_test_names_the_clauses_that_it_proves(name: str) -> None:
    tests = [
        node for node in ast.walk(TREES[name]) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]

    assert [test.name for test in tests if not any(clauses_in(decorator) for decorator in test.decorator_list)] == []


def test_every_clause_says_where_it_comes_from_and_what_it_says() -> None:
    wanting = [
        clause
        for clause in CLAUSES
        if not (clause.section and clause.says and clause.id[:4] in ("001/", "002/", "004/"))
    ]

    assert wanting == []


@pytest.mark.spec(
    "004/testing/handshake",
    "004/testing/discovery",
    "004/testing/errors",
    "004/testing/schemas",
    "004/testing/parameters",
    "004/testing/error-responses",
)
@pytest.mark.parametrize(
    ("file", "clauses"),
    [
        ("test_initialize.py", {"004/checklist/initialize", "004/versioning/reject"}),
        ("test_tools_list.py", {"004/checklist/tools-list", "004/tools-list/input-schema"}),
        ("test_requests.py", {"004/errors/-32700", "004/errors/-32600", "004/errors/-32601", "004/errors/-32603"}),
        ("test_tools_list.py", {"004/tools-list/output-schema", "004/testing/schemas"}),
        ("test_tools_list.py", {"004/checklist/input-validation"}),
        ("test_errors_of_tools.py", {"004/checklist/error-codes", "004/checklist/error-context"}),
    ],
    ids=["handshake", "discovery", "errors", "schemas", "parameters", "error responses"],
)
def test_every_test_of_the_spec_exists(file: str, clauses: set[str]) -> None:
    assert clauses <= PROVEN[file]

"""Each recipe of `docs/extending.md`, followed to the letter on a copy of the tree, gives what works everywhere."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.json_values import Json, JsonObject
from support.make import document, step
from support.recipes import Tree, read_recipes

RECIPES = read_recipes()
PREPARE = """
import os
from starlette.testclient import TestClient
from workflowlookup.app import make_catalog, make_console, make_runs
from workflowlookup.settings import read_settings

settings = read_settings({}, os.environ, directory=".")
runs, catalog = make_runs(settings), make_catalog(settings)
console = make_console(settings, person="ann", port=8000)
client = TestClient(console.app, base_url="http://localhost:8000")
"""
OPERATOR = "divisible or operator or schema or every_example or every_row"
RULE = "begins or rule or every_row"
ENVELOPE: JsonObject = {"io.modelcontextprotocol/clientCapabilities": {}}


class Extended(Tree):
    """A copy to which a recipe was applied, and a directory with a library and a journal of its own to try it in."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "tree")
        self.home, self.work = directory / "home", directory / "work"
        self.library = self.home / ".workflowlookup" / "workflows"
        self.settings = self.home / "workflowlookup" / "workflowlookup.toml"
        for path in (self.work, self.library, self.settings.parent):
            path.mkdir(parents=True)

    def publish(self, *steps: JsonObject, **fields: Json) -> None:
        content = document(*steps, **fields)
        (self.library / f"{content['id']}.json").write_text(json.dumps(content))

    def python(self, *words: str, stdin: str = "", code: int | None = 0, cwd: Path | None = None) -> str:
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src"), "HOME": str(self.home)}
        environment |= {"XDG_CONFIG_HOME": str(self.home), "XDG_DATA_HOME": str(self.home), "COLUMNS": "120"}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=cwd or self.work,
            env=environment,
            input=stdin,
            capture_output=True,
            check=False,
            text=True,
            timeout=600,
        )
        assert code is None or done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if code is None else "")

    def command(self, *words: str, stdin: str = "", code: int = 0) -> str:
        return self.python("-m", "workflowlookup", *words, stdin=stdin, code=code)

    def serve(self, *calls: tuple[str, JsonObject], version: str = "2026-07-28", settings: str = "") -> list[Json]:
        """The results of requests to a server on standard input and output, in the order of the requests."""
        if settings:
            self.settings.write_text(settings)
        meta = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": version}
        lines = [
            json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}})
            for number, (method, params) in enumerate(calls)
        ]
        text = self.command("serve", stdin="\n".join(lines) + "\n")
        replies = {reply["id"]: reply for reply in map(json.loads, text.splitlines()) if "id" in reply}
        return [replies[number].get("result", replies[number].get("error")) for number in range(len(calls))]

    def call(self, tool: str, settings: str = "", **arguments: Json) -> Json:
        (reply,) = self.serve(("tools/call", {"name": tool, "arguments": arguments}), settings=settings)
        return reply["structuredContent"]

    def test(self, *words: str, code: int | None = 0) -> str:
        """Tests of the copy."""
        return self.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *words, code=code, cwd=self.root)


Follow = Callable[..., Extended]


@pytest.fixture
def follow(tmp_path: Path) -> Follow:
    def make(*headings: str) -> Extended:
        tree = Extended(tmp_path)
        for heading in headings:
            tree.follow(RECIPES[heading])
        return tree

    return make


def test_there_is_a_recipe_for_each_row_of_the_table() -> None:
    assert list(RECIPES) == [
        *("An operator", "A rule", "A proof", "An event", "A tool", "A source of the library", "A provider"),
        *("A journal", "An engine", "A form", "A command", "A console page", "A setting", "A version of MCP"),
    ]


def test_an_operator(follow: Follow) -> None:
    tree = follow("An operator")
    dividing = {"var": "n", "gt": 100, "divisibleBy": 2}
    tree.publish(
        step("ask-number", prompt="Set `n`.", produces=["n"]),
        step("even-step", runCondition=dividing),
        step("other-step", runCondition={"not": {"var": "n", "gt": 10, "divisibleBy": 7}}),
    )
    path = str(tree.library / "sample-workflow.json")

    assert tree.command("validate", path).count("warning") == 0
    assert "dead-step" not in (text := tree.command("lint", path)), text
    assert "constant-condition" not in text
    assert "divisibleBy" in tree.command("schema")
    next_, done = tree.serve(
        *(
            (
                "tools/call",
                {
                    "name": "workflow_next",
                    "arguments": {
                        "workflowId": "sample-workflow",
                        "completedSteps": ["ask-number"],
                        "context": {"n": number},
                    },
                },
            )
            for number in (102, 21)
        )
    )
    assert next_["structuredContent"]["step"]["id"] == "even-step"
    assert done["structuredContent"]["isComplete"]
    assert "n is divisible by 2" in tree.command("why", "sample-workflow", "--context", "n=21")
    run_and_draw = """
run = runs.start(catalog.get("sample-workflow"), {}, {"n": 21})
run = runs.submit(run.id, "ask-number", "done", {})
with client:
    client.get(console.entry_path)
    print(run.state, client.get(f"/runs/{run.id}").text)
"""
    page = tree.python("-c", PREPARE + run_and_draw)
    assert page.startswith("completed")
    assert "n is divisible by 2" in page
    tree.test(
        "tests/language/test_table.py",
        "tests/language/test_workflow_schema.py",
        "tests/test_authoring.py",
        "-k",
        OPERATOR,
    )


def test_a_rule(follow: Follow) -> None:
    tree = follow("A rule")
    rule = {"type": "begins", "beginning": "{{name}}:", "message": "Begin with the name."}
    tree.publish(step("name-it", validationCriteria=[rule]), contextSchema={"properties": {"name": {"type": "string"}}})
    path = str(tree.library / "sample-workflow.json")

    assert tree.command("validate", path).count("warning") == 0
    assert "broken-rule" not in tree.command("lint", path)
    (reply,) = tree.serve(
        (
            "tools/call",
            {
                "name": "workflow_next",
                "arguments": {"workflowId": "sample-workflow", "completedSteps": [], "context": {"name": "Ann"}},
            },
        )
    )
    words = reply["structuredContent"]["guidance"]["validationCriteria"]
    assert words == ['The output begins with "Ann:": Begin with the name.']
    context = ("--context", "name=Ann", "--json")
    refused = json.loads(tree.command("check", "sample-workflow", "name-it", *context, stdin="done", code=1))
    assert refused["issues"] == ["Begin with the name."]
    assert 'Begin the output with "Ann:".' in refused["suggestions"]
    assert json.loads(tree.command("check", "sample-workflow", "name-it", *context, stdin="Ann: done"))["valid"]
    (tree.library / "sample-workflow.test.yaml").write_text(
        "cases:\n  - name: it\n    context: {name: Ann}\n    steps: [name-it]\n    complete: true\n"
        "    outputs: {name-it: {accept: ['Ann: done'], refuse: [done]}}\n"
    )
    assert "passed" in tree.command("test", path)
    broken = {"type": "begins", "beginning": 3, "message": "m"}
    tree.publish(step("name-it", validationCriteria=[broken]))
    assert "must be text" in tree.command("validate", path, code=1)
    tree.test("tests/language/test_table.py", "tests/language/test_rules.py", "tests/test_authoring.py", "-k", RULE)


def test_a_proof(follow: Follow) -> None:
    tree = follow("A proof")
    proof = [{"kind": "size", "name": "small", "path": "{{name}}.txt", "max": 3, "message": "Be brief."}]
    tree.publish(step("write-it", proof=proof, validationCriteria=["x"]), inputSchema={"properties": {"name": {}}})
    path = str(tree.library / "sample-workflow.json")
    sentence = "The files that match `a.txt` have at most 3 bytes together"

    assert tree.command("validate", path).count("warning") == 0
    assert tree.command("lint", path).count("warning") == 0
    assert "1 proof" in tree.command("graph", "sample-workflow")
    weaker = tree.library.parent / "weaker.json"
    weaker.write_text(Path(path).read_text().replace('"max": 3', '"max": 9'))
    assert "proof small" in tree.command("diff", path, str(weaker), code=1)
    (tree.library / "sample-workflow.test.yaml").write_text(
        "cases:\n  - name: it\n    context: {name: a}\n"
        "    outputs: {write-it: {accept: [x], refuse: [{output: x, proof: {small: fail}, issues: [Be brief.]}]}}\n"
    )
    assert "passed" in tree.command("test", path)
    (tree.work / "a.txt").write_text("abcd")
    started = tree.call("workflow_start", workflowId="sample-workflow", input={"name": "a"})
    assert started["guidance"]["proofs"] == [f"{sentence}: Be brief."]
    submission = {"runId": started["runId"], "stepId": "write-it", "output": "x"}
    refused = tree.call("workflow_submit", **submission)
    assert refused["verdict"]["issues"] == [f"Be brief. Proof 'small' ({sentence}) failed: They have 4 bytes."]
    (tree.work / "a.txt").write_text("abc")
    assert tree.call("workflow_submit", **submission | {"output": "x, shorter"})["state"] == "completed"
    assert "have at most 3 bytes together" in tree.command("export", started["runId"], "--markdown")
    tree.test("tests/language/test_table.py", "-k", "size or every_row")
    tree.test("tests/language/test_proof.py", "-k", "schema")
    tree.test("tests/proving/test_kinds.py", "-k", "size or kind")
    tree.test(
        "tests/language/test_workflow_schema.py", "tests/test_authoring.py", "-k", "field or choice or example or proof"
    )


def test_an_event(follow: Follow) -> None:
    tree = follow("An event")
    tree.publish(step("one-step"))
    note_and_tell = """
run = runs.start(catalog.get("sample-workflow"), {}, {})
run = runs.leave_note(run.id, "Look at this first.", by="ann")
runs.submit(run.id, "one-step", "done", {})
with client:
    client.get(console.entry_path)
    print(client.get(f"/runs/{run.id}").text.count("Look at this first."))
    print(client.get(f"/runs/{run.id}/report.md").text)
    open("run.jsonl", "w").write(client.get(f"/runs/{run.id}/journal.jsonl").text)
print(run.id)
"""
    text = tree.python("-c", PREPARE + note_and_tell)
    run_id = text.split()[-1]

    assert text.startswith("1\n")
    assert "Note +" in text
    assert "Look at this first." in tree.command("export", run_id, "--markdown")
    tree.command("why", run_id)
    tree.command("stats", "sample-workflow")
    assert "1 run" in tree.command("import", "run.jsonl", "--journal", "other.sqlite")
    tree.test("tests/runs/test_events.py", "tests/runs/test_fold.py")


READERS = [
    *(
        change
        for change in RECIPES["An event"]
        if change.how == "Add to" and change.what not in ("Event", "NOT_DECISIVE")
    )
]


def test_who_leaves_readers_of_events_out_is_told_which(follow: Follow) -> None:
    tree = follow()
    tree.follow([change for change in RECIPES["An event"] if change not in READERS])

    output = tree.test("tests/runs/test_events.py", code=None)

    for left_out in READERS:
        name = left_out.what.partition("[")[0].rpartition(".")[2]
        assert re.search(f"{name} in {left_out.path}.* says nothing about Noted", output)


def test_a_tool(follow: Follow) -> None:
    tree = follow("A tool")
    listed, counted, refused = tree.serve(
        ("tools/list", {}),
        ("tools/call", {"name": "workflow_count", "arguments": {"workflowId": "bug-investigation"}}),
        ("tools/call", {"name": "workflow_count", "arguments": {"workflowID": "bug-investigation"}}),
    )

    (tool,) = [one for one in listed["tools"] if one["name"] == "workflow_count"]
    assert tool["inputSchema"]["required"] == ["workflowId"]
    assert counted["structuredContent"]["steps"] > 0
    assert "workflowID" in refused["content"][0]["text"]
    assert "## workflow_count" in tree.python("-c", "import generate; print(generate.tools())", cwd=tree.root / "docs")


def test_a_source(follow: Follow) -> None:
    tree = follow("A source of the library")
    (tree.work / "workflows.list").write_text("one.json\n")
    (tree.work / "one.json").write_text(json.dumps(document(identifier="listed-workflow")))

    assert "listed-workflow" in tree.command("list")
    assert tree.call("workflow_get", id="listed-workflow")["id"] == "listed-workflow"
    assert "listed" in tree.command("doctor")


def test_a_provider(follow: Follow) -> None:
    tree = follow("A provider")
    (tree.home / "recipes.json").write_text('{"soup": "Boil it."}')
    settings = f'[providers.home]\nkind = "kitchen"\nrecipes = "{tree.home}/recipes.json"\n'
    tree.settings.write_text(settings)

    assert "soup" in tree.command("tools")
    done = tree.call("soup")
    assert (done["state"], done["result"]) == ("completed", "soup, cooked: Boil it.")
    tree.settings.write_text(settings.replace("recipes =", "recipe ="))
    assert "recipe" in tree.command("doctor", code=1)


def test_a_journal(follow: Follow) -> None:
    tree = follow("A journal")
    tree.publish(step("one-step"))
    url = f"audited://{tree.home}/runs.sqlite"

    started = tree.call("workflow_start", settings=f'journal = "{url}"\n', workflowId="sample-workflow")

    assert started["runId"] in tree.command("runs", "--journal", url)
    assert '"event":"started"' in (tree.home / "runs.sqlite.log").read_text()
    assert "audited://" in tree.command("doctor", "--journal", "elsewhere://x", code=1)
    tree.test("tests/contract/test_journals.py", "-k", "audited")
    tree.test("tests/contract/test_engines.py", "-k", "audited and (driven_and_then_no_more or twice)")


def test_an_engine(follow: Follow) -> None:
    tree = follow("An engine")

    tree.test("tests/contract/test_engines.py", "-k", "sqlite and (driven_and_then_no_more or twice)")


def test_a_form(follow: Follow) -> None:
    tree = follow("A form")
    text = json.dumps(document(step(prompt=5)), indent=1)
    (tree.library / "bad.jsonc").write_text(f"// mine\n{text}")
    (tree.library / "good.jsonc").write_text("// mine\n" + json.dumps(document(identifier="commented")))
    path = str(tree.library / "good.jsonc")

    assert "commented" in tree.command("list")
    assert "bad.jsonc:11:4: error: Field 'prompt'" in tree.command("validate", str(tree.library), code=1)
    assert "a comment would be lost" in tree.python("-m", "workflowlookup", "fmt", path, code=None)
    tree.command("convert", path, "--to", "markdown")
    tree.command("convert", str(tree.library / "good.workflow.md"), "--to", "jsonc", "--force")
    assert json.loads(Path(path).read_text())["id"] == "commented"


def test_a_command(follow: Follow) -> None:
    tree = follow("A command")

    assert "show how many steps each workflow has" in tree.command("--help")
    assert "every workflow with its steps" in tree.command("count", "--help")
    assert "bug-investigation" in tree.command("count")


def test_a_console_page(follow: Follow) -> None:
    tree = follow("A console page")
    tree.publish(step("one-step"), step("two-step"))
    visit = """
with client:
    print(client.get("/count").status_code)
    client.get(console.entry_path)
    print(client.get("/count").text)
    print(client.get("/library").text.count('href="/count"'))
"""
    status, *page, linked = tree.python("-c", PREPARE + visit).splitlines()

    assert (status, linked) == ("401", "1")
    assert "Sample workflow" in "\n".join(page)
    assert '<p class="state">2</p>' in "\n".join(page)


def test_a_setting(follow: Follow) -> None:
    tree = follow("A setting")
    show = "import os; from workflowlookup.settings import *; print(read_settings({}, os.environ, directory='.').max_title)"
    (tree.work / "workflowlookup.toml").write_text("max_title = 20\n")

    assert tree.python("-c", show) == "20\n"
    assert "--max-title" in tree.command("serve", "--help")
    tree.command("list", "--max-title", "3", code=2)
    assert "max_title" in tree.python("-c", "import generate; print(generate.settings())", cwd=tree.root / "docs")
    tree.test("tests/trust/test_brought_settings.py", "tests/test_settings.py")


def test_a_version_of_mcp(follow: Follow) -> None:
    tree = follow("A version of MCP")
    discovered, listed = tree.serve(("server/discover", {}), ("tools/list", {}), version="2027-02-01")

    assert discovered["supportedVersions"] == ["2026-07-28", "2027-02-01"]
    assert "workflow_list" in [tool["name"] for tool in listed["tools"]]
    (refused,) = tree.serve(("tools/list", {}), version="2027-03-01")
    assert "2027-02-01" in json.dumps(refused)
    shown = "from workflowlookup.protocol.versions import VERSION_RULES; print(VERSION_RULES['2027-02-01'].envelope)"
    assert tree.python("-c", shown) == "True\n"


def test_all_of_them_together_are_typed_and_in_order(follow: Follow) -> None:
    tree = follow(*RECIPES)

    tree.python("-m", "ruff", "check", "--fix", "--quiet", "src", cwd=tree.root)
    tree.python("-m", "mypy", "src", cwd=tree.root)
    tree.test("tests/test_architecture.py", "-k", "not names_every_module")  # the page names only modules of ours

"""The light installation, in a fresh environment: what works without extras, and what says which one it needs."""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import fresh_install
from support.json_values import Json, JsonObject
from support.make import document, step, write
from workflowlookup import __version__
from workflowlookup.app import make_runs
from workflowlookup.language.document.building import build
from workflowlookup.settings import read_settings

ROOT = Path(__file__).parent.parent
MAX_MEGABYTES = 70
MAX_DISTRIBUTIONS = 10


class Light:
    """The program in an environment without extras, in a home of its own."""

    def __init__(self, home: Path, wheel: Path) -> None:
        self.home = home
        self.wheel = wheel
        self.place = home / "venv"
        self.project = home / "project"

    def run(
        self, *words: str, lines: Sequence[JsonObject] = (), **environment: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self.home), "PATH": os.defpath, **environment}
        return subprocess.run(
            [self.place / "bin" / "workflowlookup", *words],
            input="".join(json.dumps(line) + "\n" for line in lines),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=self.project,
            env=environment,
        )

    def serve(self, *calls: tuple[str, JsonObject], words: Sequence[str] = ()) -> tuple[list[Json], str]:
        """What a server on standard input and output answers to these calls of tools, and its log."""
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        before = [("initialize", hello), ("tools/list", {})]
        requests = [*before, *(("tools/call", {"name": n, "arguments": a}) for n, a in calls)]
        lines = [{"jsonrpc": "2.0", "id": i, "method": m, "params": p} for i, (m, p) in enumerate(requests)]
        done = self.run("serve", *words, lines=lines)
        assert done.returncode == 0, done.stderr
        answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
        return [answers[number] for number in range(len(before), len(lines))], done.stderr

    def line(self, extra: str) -> str:
        """The line that installs an extra here; the environment has no pip of its own."""
        return f"uv pip install --python {self.place}/bin/python '{self.wheel}[{extra}]'"


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Light:
    home = tmp_path_factory.mktemp("light")
    wheel = fresh_install.build_wheel(ROOT, home / "dist")
    light = Light(home, wheel)
    fresh_install.install_wheel(wheel, light.place)
    light.project.mkdir()
    write(home / "mine", document(step("first", call={"server": "git", "tool": "status"}), identifier="caller"))
    (home / "systems.toml").write_text(
        '[mcpServers.git]\ncommand = "git-server"\n\n'
        '[providers.shop]\nkind = "http"\nbase_url = "http://127.0.0.1:9"\nworkflows = [{id = "sell"}]\n'
    )
    return light


def test_outputs_are_proven_without_any_extra(light: Light) -> None:
    proof = {"kind": "command", "name": "tests", "run": ["sh", "-c", "test -e fixed"]}
    path = write(light.home / "proven", document(step("first", proof=[proof]), identifier="proven-one", name="Proven"))
    arguments = {"runId": "p1", "stepId": "first", "output": "done"}
    words = ("--directories", str(path.parent), "--drain-seconds", "30")

    start = ("workflow_start", {"workflowId": "proven-one", "runId": "p1"})
    (_, refused), _ = light.serve(start, ("workflow_submit", arguments), words=words)
    (light.project / "fixed").touch()
    (accepted,), _ = light.serve(("workflow_submit", arguments), words=words)

    assert refused["result"]["structuredContent"]["verdict"]["valid"] is False
    assert accepted["result"]["structuredContent"]["state"] == "completed"


def test_the_light_installation_is_small(light: Light) -> None:
    weight = fresh_install.weigh(light.place)

    assert weight.distributions <= MAX_DISTRIBUTIONS
    assert weight.megabytes <= MAX_MEGABYTES


def test_a_workflow_with_proofs_needs_no_extra(light: Light) -> None:
    (started,), log = light.serve(("workflow_start", {"workflowId": "bug-investigation"}))

    assert started["result"]["structuredContent"]["step"]["id"] == "reproduce"
    assert log == ""


def test_a_server_on_standard_input_and_output_serves_the_library_and_runs(light: Light) -> None:
    answers, log = light.serve(
        ("workflow_list", {}),
        ("workflow_next", {"workflowId": "bug-investigation", "completedSteps": []}),
        ("workflow_validate", {"workflowId": "bug-investigation", "stepId": "reproduce", "output": "x"}),
        ("workflow_start", {"workflowId": "incident-review", "runId": "light-run"}),
        ("workflow_status", {"runId": "light-run"}),
    )
    listed, following, judged, started, status = (answer["result"]["structuredContent"] for answer in answers)

    assert len(listed["workflows"]) >= 8
    assert following["step"]["id"] == "reproduce"
    assert judged["valid"] is False
    assert (started["runId"], status["state"]) == ("light-run", "waiting")
    assert log == ""


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["show", "bug-investigation"],
        ["runs"],
        ["stats"],
        ["graph", "bug-investigation", "--format", "svg"],
        ["tools"],
        ["doctor"],
        ["db", "check"],
        ["token", "list"],
    ],
    ids=" ".join,
)
def test_a_command_needs_no_extra(light: Light, words: list[str]) -> None:
    light.serve(("workflow_start", {"workflowId": "incident-review", "runId": "light-run"}))

    done = light.run(*words)

    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_authors_need_no_extra(light: Light) -> None:
    path = ".workflowlookup/workflows/own.workflow.md"
    fixture = light.project / ".workflowlookup/workflows/own.test.yaml"
    for words in (["new", "own"], ["lint", path], ["test", "--example", "own"], ["test", str(fixture)], ["fmt", path]):
        done = light.run(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        if "--example" in words:
            fixture.write_text(done.stdout)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve", "--http", "127.0.0.1:0"], "http"),
        (["console", "--no-open"], "http"),
        (["serve", "--journal", "postgresql://u@127.0.0.1/x"], "postgres"),
        (["runs", "--journal", "postgresql://u@127.0.0.1/x"], "postgres"),
        (["db", "check", "--journal", "postgresql://u@127.0.0.1/x"], "postgres"),
        (["run", "caller", "--directories", "../mine"], "calls"),
        (["key"], "sign"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_names_the_extra_that_it_needs(light: Light, words: list[str], extra: str) -> None:
    done = light.run(*words)

    assert (done.returncode, done.stdout) == (1, "")
    assert f"need the extra '{extra}', which is not installed. Install it with: {light.line(extra)}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_workflow_with_a_call_is_served_and_its_start_is_refused(light: Light) -> None:
    (listed, got, *refused, other), log = light.serve(
        ("workflow_list", {}),
        ("workflow_get", {"id": "caller"}),
        ("workflow_start", {"workflowId": "caller"}),
        ("sample_workflow", {}),  # its own tool
        ("workflow_start", {"workflowId": "incident-review"}),
        words=("--directories", "../mine"),
    )

    assert "caller" in [workflow["id"] for workflow in listed["result"]["structuredContent"]["workflows"]]
    assert got["result"]["structuredContent"]["id"] == "caller"
    assert other["result"]["structuredContent"]["state"] == "waiting"
    for answer in refused:
        assert answer["result"]["isError"] is True
        (block,) = answer["result"]["content"]
        assert block["text"].startswith("Not supported. Steps that call other systems, and providers, need the extra")
        assert light.line("calls") in block["text"]
    assert log == ""


def test_servers_and_providers_of_the_settings_say_what_they_need(light: Light) -> None:
    (refreshed,), log = light.serve(("workflow_refresh", {}), words=("--config", "../systems.toml"))

    assert "[mcpServers.git], [providers.shop] cannot be used; the rest works." in log
    assert light.line("calls") in log
    assert "Traceback" not in log
    assert light.line("calls") in json.dumps(refreshed, ensure_ascii=False)


def test_the_tool_of_a_provider_says_what_it_needs(light: Light) -> None:
    done = light.run("tools", "--config", "../systems.toml")

    assert done.returncode == 1
    assert "the provider 'shop' does not answer: it needs the extra 'calls', which is not installed" in done.stderr
    assert light.line("calls") in done.stderr


def test_doctor_names_every_extra_that_is_missing_and_one_line_for_all(light: Light) -> None:
    words = ["--config", "../systems.toml", "--directories", "../mine", "--journal", "postgresql://u@127.0.0.1/x"]
    done = light.run("doctor", "--json", "--http", "127.0.0.1:0", *words)
    report = json.loads(done.stdout)
    remedies = {one["problem"]: one["remedy"] for one in report["problems"] if "It is needed by" in one["problem"]}

    assert (done.returncode, report["version"], report["extras"]) == (1, __version__, [])
    names = [re.findall("need the extra '(.*)', which", problem)[0] for problem in remedies]
    assert sorted(names) == ["calls", "http", "postgres"]
    assert set(remedies.values()) == {f"Install it with: {light.line('calls,http,postgres')}"}
    needs = "It is needed by: [mcpServers.git], [providers.shop], the workflow 'caller'."
    assert any(problem.endswith(needs) for problem in remedies)


def start_elsewhere(light: Light, *steps: JsonObject) -> tuple[str, str]:
    """Start a run of these steps as an installation with all extras does, in a journal of its own."""
    journal = str(light.home / f"{steps[0]['id']}.sqlite")
    settings = read_settings({"journal": journal}, {}, directory=os.devnull)
    runs = make_runs(settings)
    runs.start(build(document(*steps)), {}, {}, run_id="started")
    runs.close()
    return "--journal", journal


def test_a_call_that_comes_due_here_fails_and_says_why(light: Light) -> None:
    journal = start_elsewhere(light, step("by-hand"), step("called", call={"server": "git", "tool": "status"}))

    (done,), _ = light.serve(
        ("workflow_submit", {"runId": "started", "stepId": "by-hand", "output": "x"}), words=journal
    )

    failure = done["result"]["structuredContent"]["data"]
    assert failure["state"] == "failed"
    assert light.line("calls") in failure["reason"]


def test_a_call_that_another_server_can_make_is_left_to_it(light: Light) -> None:
    journal = start_elsewhere(light, step("called", call={"server": "git", "tool": "status"}))

    (status,), log = light.serve(("workflow_status", {"runId": "started"}), words=journal)

    assert status["result"]["structuredContent"]["waitingFor"] == "call"
    assert log == ""

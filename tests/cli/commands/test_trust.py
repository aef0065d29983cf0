"""A cloned repository and the real processes: nothing of it runs until a person trusted exactly that."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from execution.working import call, effects
from support.client import ENVELOPE, Server
from support.command_line import Cli
from support.json_values import Json, JsonObject
from support.make import document, step, write
from support.narrowing import not_none
from support.web import WebClient, WebServer
from upstream.upstreams import McpUpstream

SCRIPT = '#!/bin/sh\necho ran >> "{marker}"\nexec cat >/dev/null\n'
Serve = Callable[..., Server]


class Clone:
    """A cloned repository whose settings name a program of its own, and the user's own configuration."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "project"
        (self.directory / ".git").mkdir(parents=True)
        self.marker = directory / "marker"
        self.script = self.directory / "tool.sh"
        self.script.write_text(SCRIPT.format(marker=self.marker))
        self.script.chmod(0o755)
        self.file = self.directory / "workflowlookup.toml"
        self.file.write_text('[providers.tool]\nkind = "mcp"\ncommand = "./tool.sh"\n')
        self.cli = Cli(self.directory)
        self.store = self.cli.own / "trust.json"

    def trust(self, *words: str, answer: str = "y") -> str:
        """What a person sees who is asked, and answers."""
        code, seen = self.cli.sit_down("trust", *words).see("[y/N]").type(f"{answer}\n").leave()
        assert code == (0 if answer == "y" else 1), seen
        return seen

    def runs(self, seconds: float) -> bool:
        """Whether the program ran within this time."""
        end = time.monotonic() + seconds
        while not self.marker.exists() and time.monotonic() < end:
            time.sleep(0.05)
        ran = self.marker.exists()
        self.marker.unlink(missing_ok=True)
        return ran


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.fixture
def serve(clone: Clone) -> Iterator[Serve]:
    """Starts the real server in the clone, as a client would, as far as the list of tools."""
    servers: list[Server] = []

    def start(capabilities: JsonObject | None = None, **environment: str) -> Server:
        own = {"XDG_CONFIG_HOME": str(clone.cli.own.parent)}
        servers.append(Server(clone.directory.parent, environment={**own, **environment}))
        servers[-1].initialize(capabilities=capabilities)
        servers[-1].request("tools/list")
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def log_of(server: Server) -> str:
    server.close_input()
    server.wait()
    return server.log()


# ── the settings of a clone ─────────────────────────────────────────────────────────────────────────────────────


def test_a_cloned_repository_runs_nothing_and_the_log_says_once_what_is_ignored(clone: Clone, serve: Serve) -> None:
    server = serve()

    assert not clone.runs(4)
    server.request("tools/list")
    lines = [line for line in log_of(server).splitlines() if "not trusted" in line]
    assert len(lines) == 1
    assert "provider 'tool'" in lines[0]
    assert f"`workflowlookup trust {clone.file}`" in lines[0]


def test_after_trust_on_the_terminal_it_runs_and_after_a_change_it_does_not(clone: Clone, serve: Serve) -> None:
    seen = clone.trust()
    assert '"command": "./tool.sh"' in seen
    assert f"{str(clone.script)!a}  SHA-256 " in seen.replace("\n", "")
    first = serve()
    assert clone.runs(20)
    first.stop()
    clone.marker.unlink(missing_ok=True)

    clone.file.write_text(clone.file.read_text() + 'args = ["--more"]\n')
    server = serve()
    assert not clone.runs(3)
    assert "provider 'tool'" in log_of(server)


def test_a_program_of_the_repository_that_changed_is_not_run(clone: Clone, serve: Serve) -> None:
    clone.trust()
    clone.script.write_text(clone.script.read_text() + "# and something else\n")

    serve()

    assert not clone.runs(3)


def test_a_program_that_changes_while_the_server_runs_is_not_started_again(clone: Clone, serve: Serve) -> None:
    """The settings stay as they are, so what is checked last is checked where the process is started."""
    clone.script.write_text(clone.script.read_text().replace("exec cat >/dev/null\n", ""))
    clone.trust()
    server = serve(WORKFLOWLOOKUP_REFRESH_SECONDS="0.3")
    assert clone.runs(20)
    assert clone.runs(20), "it is asked, and so started, again and again"
    clone.script.write_text(clone.script.read_text() + "# and something else\n")
    time.sleep(0.5)
    clone.marker.unlink(missing_ok=True)

    assert not clone.runs(3)
    assert "changed since it was trusted" in log_of(server)


def test_a_program_that_is_put_before_the_trusted_one_is_not_run(clone: Clone, serve: Serve) -> None:
    """A bare name is found by PATH, and PATH may lead into the repository."""
    clone.script.unlink()
    clone.file.write_text('[providers.tool]\nkind = "mcp"\ncommand = "uname"\n')
    clone.trust()
    path = f"{clone.directory / 'bin'}:{os.environ['PATH']}"
    (clone.directory / "bin").mkdir()
    planted = clone.directory / "bin" / "uname"
    planted.write_text(SCRIPT.format(marker=clone.marker))
    planted.chmod(0o755)

    serve(PATH=path)

    assert not clone.runs(3)


@pytest.mark.parametrize(
    ("entry", "file"),
    [
        ('command = "./tool.sh"\ncwd = "${NONE:-sub}"', "${NONE:-sub}/tool.sh"),
        ('command = "${NONE:-~}/tool.sh"', "~/tool.sh"),
        ('command = "sh"\nargs = ["~/tool.sh"]', "~/tool.sh"),
        ('command = "sh"\nargs = ["-c", "(./tool.sh)&"]', "tool.sh"),
        ('command = "sh"\nargs = ["-c", "cat <tool.sh|sh"]', "tool.sh"),
        ('command = "node"\nargs = ["-r./tool.sh"]', "tool.sh"),
    ],
)
def test_a_file_that_is_named_in_an_unusual_way_is_trusted_with_the_entry(clone: Clone, entry: str, file: str) -> None:
    path = clone.directory / file
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(clone.script.read_text())
    clone.file.write_text(f"[mcpServers.x]\n{entry}\n")

    listed = json.loads(clone.cli("trust", "--list", "--json").stdout)["entries"]

    assert [entry.get("programs") for entry in listed] == [[str(path)]]


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="such endless files are Linux's")
def test_a_program_that_is_an_endless_file_cannot_be_trusted(clone: Clone) -> None:
    clone.script.unlink()
    clone.script.symlink_to("/proc/self/pagemap")

    code, seen = clone.cli.sit_down("trust").see("cannot be trusted").leave()

    assert (code, clone.store.exists()) == (1, False), seen


def test_a_running_server_uses_newly_trusted_entries(clone: Clone, serve: Serve) -> None:
    server = serve()
    clone.trust()
    time.sleep(1.1)

    server.request("tools/list")

    assert clone.runs(20)


def test_revoked_entries_do_not_run(clone: Clone, serve: Serve) -> None:
    clone.trust()

    done = clone.cli("trust", "--revoke")

    assert done.stdout == f"No longer trusted: provider 'tool' in {clone.file}\n"
    serve()
    assert not clone.runs(3)


def test_doctor_names_what_is_ignored_and_starts_nothing(clone: Clone) -> None:
    done = clone.cli("doctor", "--json")

    problems = [one for one in json.loads(done.stdout)["problems"] if "not trusted" in one["problem"]]
    assert [one["problem"] for one in problems] == [
        f"{clone.file}: provider 'tool' is ignored, because it is not trusted."
    ]
    assert f"`workflowlookup trust {clone.file}`" in problems[0]["remedy"]
    assert not clone.marker.exists()


def test_doctor_advises_to_trust_a_server_that_a_workflow_calls(clone: Clone) -> None:
    clone.file.write_text('[mcpServers.up]\ncommand = "./tool.sh"\n')
    put(clone, {"line": "done"})

    problems = json.loads(clone.cli("doctor", "--json").stdout)["problems"]

    assert {
        "problem": "The workflow 'calling' calls the MCP server 'up', which is not trusted yet.",
        "remedy": "Look at [mcpServers.up] and allow it in a terminal: `workflowlookup trust`.",
    } in problems
    assert not clone.marker.exists()


@pytest.mark.parametrize("command", ["tools", "list", "lint", "runs"])
def test_commands_use_the_same_settings(clone: Clone, command: str) -> None:
    (clone.directory / ".workflowlookup" / "workflows").mkdir(parents=True)

    done = clone.cli(command)

    assert done.stderr.count("ignored in") == 1
    assert not clone.marker.exists()


# ── side doors ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_named_by_a_clients_project_configuration_is_the_projects(clone: Clone) -> None:
    """`.mcp.json` of the repository has `--config sub/other.toml`."""
    (clone.directory / "sub").mkdir()
    clone.file.rename(clone.directory / "sub" / "other.toml")

    done = clone.cli("tools", "--config", "sub/other.toml")

    assert "ignored in" in done.stderr
    assert not clone.marker.exists()


def test_a_file_in_a_parent_directory_of_the_repository_is_the_projects(clone: Clone, tmp_path: Path) -> None:
    (clone.directory / "sub").mkdir()
    inner = Cli(clone.directory / "sub")
    (clone.directory / "sub" / ".workflowlookup").mkdir()

    done = inner("tools", "--config", "../workflowlookup.toml", XDG_CONFIG_HOME=str(clone.cli.own.parent))

    assert "ignored in" in done.stderr
    assert not clone.marker.exists()


def test_a_trust_file_inside_the_project_trusts_nothing(clone: Clone, serve: Serve) -> None:
    clone.trust()
    inside = clone.directory / "x" / "workflowlookup"
    inside.mkdir(parents=True)
    (inside / "trust.json").write_bytes(clone.store.read_bytes())
    (inside / "trust.json").chmod(0o600)

    server = serve(XDG_CONFIG_HOME="x")
    assert not clone.runs(3)
    assert "is in the project" in log_of(server)
    home = clone.directory / "y" / ".config" / "workflowlookup"
    home.mkdir(parents=True)
    (home / "trust.json").write_bytes(clone.store.read_bytes())
    serve(XDG_CONFIG_HOME="", HOME=str(clone.directory / "y"))
    assert not clone.runs(3)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"version": 2, "trusted": []}', b'{"trusted": [{"file": 5}]}', b"\xff" * 10, b'{"x":' * 5_000],
)
def test_a_hostile_trust_file_trusts_nothing_and_is_not_overwritten(clone: Clone, content: bytes) -> None:
    clone.store.write_bytes(content)
    clone.store.chmod(0o600)

    done = clone.cli("tools")
    listed = clone.cli("trust", "--list")

    assert "ignored in" in done.stderr
    assert "cannot be used, so nothing is trusted" in listed.stderr
    assert clone.store.read_bytes() == content


def test_a_trust_file_that_others_can_write_trusts_nothing(clone: Clone, serve: Serve) -> None:
    clone.trust()
    assert clone.store.stat().st_mode & 0o777 == 0o600
    clone.store.chmod(0o666)

    serve()

    assert not clone.runs(3)


def test_a_deleted_working_directory_does_not_bypass_trust(clone: Clone, tmp_path: Path) -> None:
    code = "import asyncio, os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); "
    code += "from workflowlookup.cli.main import main; sys.exit(main(['tools', '--config', sys.argv[1]]))"  # CPython 3.13.0 cannot import asyncio there
    own = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(clone.cli.own.parent)}
    command = [sys.executable, "-c", code, str(clone.file)]

    done = subprocess.run(
        command, cwd=clone.directory, env=os.environ | own, capture_output=True, text=True, check=False
    )

    assert "ignored in" in done.stderr, done.stderr
    assert not clone.marker.exists()


# ── who may say it ──────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_terminal_nothing_is_trusted(clone: Clone) -> None:
    done = clone.cli("trust", stdin=b"y\n")

    assert done.returncode == 1
    assert "there is no terminal to ask one on" in done.stderr
    assert not clone.store.exists()


@pytest.mark.parametrize("variable", ["CLAUDECODE", "CODEX_SANDBOX", "CURSOR_AGENT", "CURSOR_TRACE_ID", "GEMINI_CLI"])
def test_in_an_agents_environment_nothing_is_trusted(clone: Clone, variable: str) -> None:
    agent: JsonObject = {variable: "1"}
    code, seen = clone.cli.sit_down("trust", **agent).leave()

    assert code == 1
    assert f"{variable} in the environment shows that an agent runs this command" in " ".join(seen.split())
    assert not clone.store.exists()


@pytest.mark.parametrize("answer", ["", "n", "yes please", "\x04"])
def test_anything_but_a_plain_yes_is_no(clone: Clone, answer: str) -> None:
    clone.trust(answer=answer)

    assert not clone.store.exists()


def test_input_typed_before_the_question_is_discarded(clone: Clone) -> None:
    sitting = clone.cli.sit_down("trust").type("y\ny\ny\n")

    sitting.see("[y/N]").type("\n").leave()

    assert not clone.store.exists()


def test_nothing_shown_can_move_the_cursor_or_hide_itself_and_secrets_are_not_shown(clone: Clone) -> None:
    evil = "\\u001b[2J\\u202efdp.exe"
    clone.file.write_text(
        f'[mcpServers.x]\ncommand = "{evil}"\nargs = ["\\u0430b"]\n'
        'env = {API_TOKEN = "hush-hush", LD_PRELOAD = "./evil.so", GIT_ASKPASS = "./ask.sh"}\n'
        '[mcpServers.y]\nurl = "https://me:pw@host.example/mcp?key=hush"\nheaders = {Authorization = "Bearer ${TOKEN}"}\n'
    )

    seen = clone.trust(answer="n")

    assert '"command": "\\u001b[2J\\u202efdp.exe"' in seen
    assert '"\\u0430b"' in seen
    assert '"LD_PRELOAD": "./evil.so"' in seen
    assert '"GIT_ASKPASS": "./ask.sh"' in seen
    assert '"url": "https://me:…@host.example/mcp?key=…"'.encode("ascii", "backslashreplace").decode() in seen
    assert "${TOKEN}" in seen
    assert "hush" not in seen
    assert "Bearer" not in seen


def test_every_host_and_every_variable_in_an_address_is_shown(clone: Clone) -> None:
    """A database takes its host from the query, too; and what stands before a question mark is the host."""
    clone.file.write_text(
        'journal = "postgresql://safe.example/runs?host=evil.example&password=hush"\n'
        '[mcpServers.x]\nurl = "https://me:${GITHUB_TOKEN}@evil.example/?key=${AWS_KEY}-hush"\n'
        '[mcpServers.y]\nurl = "https://evil.example:1?@safe.example/"\n'
    )

    seen = clone.trust(answer="n")

    assert '"postgresql://safe.example/runs?host=evil.example&password=\\u2026"' in seen
    assert '"https://me:${GITHUB_TOKEN}@evil.example/?key=${AWS_KEY}\\u2026"' in seen
    assert '"https://evil.example:1?@safe.example/"' in seen
    assert "hush" not in seen


def test_nothing_of_a_call_is_hidden_whatever_its_name(clone: Clone, calling: McpUpstream) -> None:
    put(clone, {"token": "delete-everything", "url": "https://host.example/?all=true"})

    seen = clone.trust(answer="n")

    assert '"token": "delete-everything"' in seen
    assert '"url": "https://host.example/?all=true"' in seen


def test_a_command_does_not_hide_under_the_name_of_a_secret(clone: Clone) -> None:
    clone.file.write_text('[mcpServers.x]\ncommand = "true"\nenv = {MY_TOKEN = "() { evil; }", KEY = "./evil.so"}\n')

    seen = clone.trust(answer="n")

    assert '"MY_TOKEN": "() { evil; }"' in seen
    assert '"KEY": "./evil.so"' in seen


def test_a_secret_that_is_not_shown_counts(clone: Clone) -> None:
    table = '[mcpServers.x]\ncommand = "true"\nenv = {{API_TOKEN = "{0}"}}\n'
    clone.file.write_text(table.format("one"))
    clone.trust()
    clone.file.write_text(table.format("two"))

    listed = json.loads(clone.cli("trust", "--list", "--json").stdout)["entries"]

    assert [(entry["name"], entry["state"]) for entry in listed] == [("x", "changed")]


def test_the_list_says_what_is_trusted_and_what_is_not(clone: Clone) -> None:
    clone.trust()
    clone.file.write_text(clone.file.read_text() + '[mcpServers.new]\ncommand = "new"\n')

    rows = json.loads(clone.cli("trust", "--list", "--json").stdout)["entries"]
    plain = clone.cli("trust", "--list").stdout

    assert [(row["kind"], row["name"], row["state"]) for row in rows] == [
        ("mcpServers", "new", "not trusted"),
        ("providers", "tool", "trusted"),
    ]
    assert "not trusted" in plain


def test_trust_can_be_given_from_elsewhere_by_path(clone: Clone, tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "elsewhere").mkdir()
    away = Cli(tmp_path / "elsewhere")
    own: JsonObject = {"XDG_CONFIG_HOME": str(clone.cli.own.parent)}

    away.sit_down("trust", str(clone.file), **own).see("[y/N]").type("y\n").leave()

    serve()
    assert clone.runs(20)


def test_a_long_entry_is_shown_screen_by_screen_before_the_question(clone: Clone) -> None:
    words = ", ".join(f'"word-{number}"' for number in range(90))
    clone.file.write_text(f'[providers.tool]\nkind = "mcp"\ncommand = "./tool.sh"\nargs = [{words}]\n')

    sitting = clone.cli.sit_down("trust").see("more lines.").type("\n").see("more lines.")
    assert "[y/N]" not in sitting.seen
    assert "word-60" in sitting.seen
    left = clone.cli.sit_down("trust").see("n stops here:").type("y\n").see("n stops here:").type("n\n").leave()

    assert sitting.type("\n").see("word-89").see("[y/N]").type("y\n").leave()[0] == 0
    assert left[0] == 1
    assert "[y/N]" not in left[1]


# ── the calls of a clone's workflows ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def calling(clone: Clone) -> McpUpstream:
    """The user's own server `up`; the clone has a workflow that calls it, and settings that name nothing."""
    upstream = McpUpstream(clone.directory.parent / "up")
    (clone.cli.own / "workflowlookup.toml").write_text(upstream.toml())
    clone.file.write_text("")
    put(clone, {"line": "done"})
    return upstream


def put(clone: Clone, arguments: JsonObject, **fields: Json) -> Path:
    steps = call("one", "append", arguments, step=fields)
    return write(clone.directory / ".workflowlookup" / "workflows", document(steps, identifier="calling"))


def start(server: Server, tool: str = "workflow_start") -> JsonObject:
    arguments = {"workflowId": "calling"} if tool == "workflow_start" else {}
    return dict(server.request("tools/call", {"name": tool, "arguments": arguments})["result"])


@pytest.mark.parametrize("tool", ["workflow_start", "sample_workflow"])
def test_a_call_of_a_clones_workflow_is_refused_at_the_start(
    clone: Clone, calling: McpUpstream, serve: Serve, tool: str
) -> None:
    server = serve()

    refusal = start(server, tool)["structuredContent"]

    assert (refusal["code"], refusal["message"]) == (-32007, "Security error")
    file = clone.directory / ".workflowlookup" / "workflows" / "calling.json"
    assert refusal["data"]["untrusted"] == [{"file": str(file), "kind": "call", "name": "calling/one"}]
    assert effects(calling) == []


def test_a_trusted_call_is_made_and_a_changed_one_is_not(clone: Clone, calling: McpUpstream, serve: Serve) -> None:
    seen = clone.trust()
    assert "call of step 'calling/one'" in seen
    assert start(serve())["structuredContent"]["state"] == "completed"
    assert effects(calling) == ["done"]

    put(clone, {"line": "something else"})

    assert start(serve())["structuredContent"]["code"] == -32007
    assert effects(calling) == ["done"]


def test_a_call_without_its_confirmation_needs_trust_again(clone: Clone, calling: McpUpstream, serve: Serve) -> None:
    put(clone, {"line": "done"}, requireConfirmation=True)
    clone.trust()
    put(clone, {"line": "done"})

    assert start(serve())["structuredContent"]["code"] == -32007
    assert effects(calling) == []


@pytest.mark.parametrize("word", ["calling", ".workflowlookup/workflows/calling.json"])
def test_the_command_run_makes_no_such_call(clone: Clone, calling: McpUpstream, word: str) -> None:
    done = clone.cli("run", word)

    assert done.returncode == 1
    assert "call of step 'calling/one'" in done.stderr
    assert "workflowlookup trust" in done.stderr
    assert effects(calling) == []


def test_a_workflow_of_a_clone_named_by_path_makes_no_call(clone: Clone, calling: McpUpstream, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    path = clone.directory / ".workflowlookup" / "workflows" / "calling.json"

    done = Cli(tmp_path / "elsewhere")("run", str(path), XDG_CONFIG_HOME=str(clone.cli.own.parent))

    assert done.returncode == 1
    assert "call of step 'calling/one'" in done.stderr
    assert effects(calling) == []


def test_a_run_started_before_trust_was_revoked_makes_no_call(clone: Clone, calling: McpUpstream, serve: Serve) -> None:
    """Checked where the call is made: by another process, of a run that had been allowed to start."""
    steps = [step("think"), call("one", "append", {"line": "done"})]
    write(clone.directory / ".workflowlookup" / "workflows", document(*steps, identifier="calling"))
    clone.trust()
    server = serve()
    begun = start(server)["structuredContent"]
    clone.cli("trust", "--revoke")

    arguments = {"runId": begun["runId"], "stepId": "think", "output": "thought"}
    ended = server.request("tools/call", {"name": "workflow_submit", "arguments": arguments})["result"]

    assert "Not trusted, because it came with a repository: call of step 'calling/one'" in json.dumps(ended)
    assert effects(calling) == []


def test_a_run_does_not_call_a_server_whose_trust_was_revoked(
    clone: Clone, calling: McpUpstream, serve: Serve, tmp_path: Path
) -> None:
    """Also a workflow of the user's own, and before the settings are read again."""
    clone.file.write_text((clone.cli.own / "workflowlookup.toml").read_text())
    (clone.cli.own / "workflowlookup.toml").unlink()
    flow = document(call("one", "append", {"line": "x"}), step("think"), call("two", "append", {"line": "y"}))
    write(tmp_path / "mine", {**flow, "id": "calling"})
    clone.trust(str(clone.file))
    server = serve(WORKFLOWLOOKUP_PROJECT="false", WORKFLOW_STORAGE_PATH=str(tmp_path / "mine"))
    begun = start(server)["structuredContent"]
    assert effects(calling) == ["x"]

    clone.cli("trust", "--revoke")
    arguments = {"runId": begun["runId"], "stepId": "think", "output": "thought"}
    ended = server.request("tools/call", {"name": "workflow_submit", "arguments": arguments})["result"]

    assert "Not trusted, because it came with a repository: MCP server 'up'" in json.dumps(ended)
    assert effects(calling) == ["x"]


def test_an_imported_run_makes_no_call(clone: Clone, calling: McpUpstream, serve: Serve, tmp_path: Path) -> None:
    """A repository may bring an exported run, too; whatever it says of where its document is from."""
    own = clone.cli.own / "workflows"
    write(own, document(step("think"), call("one", "append", {"line": "done"}), identifier="mine-only"))
    begun = clone.cli("run", "mine-only", "--json", "--directories", str(own))
    run_id = json.loads(begun.stdout)["runId"]
    (tmp_path / "run.jsonl").write_text(clone.cli("export", run_id).stdout)
    journal = str(tmp_path / "other.sqlite")
    done = clone.cli("import", str(tmp_path / "run.jsonl"), "--journal", journal)
    assert done.returncode == 0, done.stderr
    again = [clone.cli("import", str(tmp_path / "run.jsonl"), *there) for there in ([], ["--journal", journal])]
    assert [one.returncode for one in again] == [0, 0], "where it began and where it was taken in, it is the same run"

    server = serve(WORKFLOWLOOKUP_JOURNAL=journal)
    arguments = {"runId": run_id, "stepId": "think", "output": "thought"}
    ended = server.request("tools/call", {"name": "workflow_submit", "arguments": arguments})["result"]

    assert "Not trusted, because the run was imported" in json.dumps(ended)
    assert effects(calling) == []


def test_an_imported_run_makes_no_call_by_naming_a_file_that_is_trusted(
    clone: Clone, calling: McpUpstream, serve: Serve, tmp_path: Path
) -> None:
    """Else the confirmation that it brings along would count."""
    steps = [step("think"), call("one", "append", {"line": "done"})]
    write(clone.directory / ".workflowlookup" / "workflows", document(*steps, identifier="calling"))
    clone.trust()
    run_id = json.loads(clone.cli("run", "calling", "--json").stdout)["runId"]
    (tmp_path / "run.jsonl").write_text(clone.cli("export", run_id).stdout)
    journal = str(tmp_path / "other.sqlite")
    assert clone.cli("import", str(tmp_path / "run.jsonl"), "--journal", journal).returncode == 0

    server = serve(WORKFLOWLOOKUP_JOURNAL=journal)
    arguments = {"runId": run_id, "stepId": "think", "output": "thought"}
    ended = server.request("tools/call", {"name": "workflow_submit", "arguments": arguments})["result"]

    assert "Not trusted, because the run was imported" in json.dumps(ended)
    assert effects(calling) == []


def test_the_users_own_workflow_needs_no_trust(clone: Clone, calling: McpUpstream, serve: Serve) -> None:
    own = clone.cli.own / "workflows"
    write(own, document(call("one", "append", {"line": "mine"}), identifier="calling"))

    server = serve(WORKFLOWLOOKUP_PROJECT="false", WORKFLOWLOOKUP_DIRECTORIES=str(own))

    assert start(server)["structuredContent"]["state"] == "completed"
    assert effects(calling) == ["mine"]


def test_a_directory_that_the_environment_names_inside_the_project_is_the_projects(
    clone: Clone, calling: McpUpstream, serve: Serve
) -> None:
    write(clone.directory / "flows", document(call("one", "append", {"line": "x"}), identifier="calling"))

    server = serve(WORKFLOWLOOKUP_PROJECT="false", WORKFLOW_STORAGE_PATH="flows")

    assert start(server)["structuredContent"]["code"] == -32007
    assert effects(calling) == []


def test_a_call_of_a_server_that_is_ignored_is_refused_at_the_start(clone: Clone, serve: Serve) -> None:
    """The user's own workflow, and the repository's server: the answer says what is missing."""
    clone.file.write_text('[mcpServers.up]\ncommand = "./tool.sh"\n')
    own = clone.cli.own / "workflows"
    write(own, document(call("one", "append", {"line": "mine"}), identifier="calling"))

    refusal = start(serve(WORKFLOWLOOKUP_DIRECTORIES=str(own)))["structuredContent"]

    assert (refusal["code"], refusal["data"]["untrusted"][0]["name"]) == (-32007, "up")
    assert not clone.runs(1)


# ── a question through the client ───────────────────────────────────────────────────────────────────────────────

FORMS: JsonObject = {"elicitation": {"form": {}}}


def ask_to_start(server: Server, identifier: int, **arguments: Json) -> JsonObject:
    """The next message of the server after a start was asked for."""
    params = {"name": "workflow_start", "arguments": {"workflowId": "calling", **arguments}}
    server.send({"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params})
    return dict(server.receive())


def test_a_person_can_trust_the_calls_of_a_run_at_the_client(clone: Clone, calling: McpUpstream, serve: Serve) -> None:
    server = serve(FORMS)
    question = ask_to_start(server, 100)
    assert question["method"] == "elicitation/create"
    assert '        "line": "done"' in question["params"]["message"]

    server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"trust": True}}})

    assert server.receive()["result"]["structuredContent"]["state"] == "completed"
    assert effects(calling) == ["done"]
    assert json.loads(clone.store.read_text())["trusted"][0]["by"] == "form of tests"


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "accept", "content": {"trust": False}},
        {"action": "accept"},
    ],
)
def test_any_other_answer_leaves_it_untrusted_and_is_not_asked_for_again(
    clone: Clone, calling: McpUpstream, serve: Serve, answer: JsonObject
) -> None:
    server = serve(FORMS)
    question = ask_to_start(server, 100)
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})

    first = server.receive()["result"]["structuredContent"]
    second = ask_to_start(server, 101)["result"]["structuredContent"]

    assert (first["code"], second["code"]) == (-32007, -32007)
    assert (effects(calling), clone.store.exists()) == ([], False)


def test_content_that_changed_during_the_question_is_asked_about_again(
    clone: Clone, calling: McpUpstream, serve: Serve
) -> None:
    server = serve(FORMS)
    question = ask_to_start(server, 100)
    put(clone, {"line": "something else"})
    time.sleep(0.5)
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"trust": True}}})

    again = server.receive()

    assert '"line": "something else"' in again["params"]["message"]
    assert (effects(calling), clone.store.exists()) == ([], False)


@pytest.mark.parametrize("words", [{"trust": True}, {"context": {"trust": True}}, {"input": {"trust": True}}])
def test_an_agent_cannot_give_trust(clone: Clone, calling: McpUpstream, serve: Serve, words: JsonObject) -> None:
    ask_to_start(serve(), 100, **words)

    assert (effects(calling), clone.store.exists()) == ([], False)


def test_with_confirmation_agent_no_form_is_shown(clone: Clone, calling: McpUpstream, serve: Serve) -> None:
    reply = ask_to_start(serve(FORMS, WORKFLOWLOOKUP_CONFIRMATION="agent"), 100)

    assert reply["result"]["structuredContent"]["code"] == -32007


def test_workflow_refresh_asks_for_trust_in_settings(clone: Clone, serve: Serve) -> None:
    server = serve(FORMS)
    server.send({"jsonrpc": "2.0", "id": 100, "method": "tools/call", "params": {"name": "workflow_refresh"}})
    question = server.receive()
    assert f"with the file '{clone.script}' as it is now" in question["params"]["message"]
    assert not clone.marker.exists()

    server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"trust": True}}})

    assert clone.runs(20)


def test_since_2026_the_answer_comes_with_the_call_and_only_to_the_question_that_was_put(
    clone: Clone, calling: McpUpstream, serve: Serve
) -> None:
    server = serve()
    meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": FORMS}

    def begin(responses: JsonObject | None = None) -> JsonObject:
        params = {"name": "workflow_start", "arguments": {"workflowId": "calling"}, "_meta": meta}
        given = {} if responses is None else {"inputResponses": responses}
        return dict(server.request("tools/call", {**params, **given})["result"])

    yes = {"action": "accept", "content": {"trust": True}}
    (key,) = begin()["inputRequests"]
    guessed = key.rpartition("-")[0] + "-" + "0" * 16
    assert begin({guessed: yes})["resultType"] == "input_required"
    assert effects(calling) == []

    assert begin({key: yes})["structuredContent"]["state"] == "completed"
    assert effects(calling) == ["done"]


def refresh_over_http(clone: Clone, *words: str) -> list[str]:
    """The methods of what a client is asked that says yes to everything; with words, it has a token of that kind."""
    own = {"XDG_CONFIG_HOME": str(clone.cli.own.parent)}
    journal = ("--journal", str(clone.directory.parent / "runs.sqlite"))
    token = clone.cli("token", "create", "t", "--scope", "admin", *words, *journal).stdout.strip() if words else ""
    server = WebServer(clone.directory.parent, *journal, environment=own)
    client = WebClient(server.url, **({"authorization": f"Bearer {token}"} if token else {}))
    client.on_question = lambda _: {"result": {"action": "accept", "content": {"trust": True}}}
    heard: list[JsonObject] = []
    try:
        client.initialize(capabilities=FORMS)
        client.request("tools/call", {"name": "workflow_refresh", "arguments": {}}, heard)
    finally:
        client.close()
        server.stop()
    return [message["method"] for message in heard if "id" in message]


def test_over_http_a_client_without_a_token_is_not_a_person(clone: Clone) -> None:
    """Any process of this machine can be that client, also one of another account."""
    assert refresh_over_http(clone) == []
    assert not clone.store.exists()
    assert not clone.marker.exists()


def test_over_http_a_person_who_administers_everything_is_asked(clone: Clone) -> None:
    assert refresh_over_http(clone, "--person") == ["elicitation/create"]
    assert clone.runs(20)


# ── in the console ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def console(clone: Clone) -> Iterator[Callable[..., tuple[int, str]]]:
    """Asks the real console of the person at this machine, with the cookie that the key gave."""
    environment = {"HOME": str(clone.cli.home), "XDG_CONFIG_HOME": str(clone.cli.own.parent)}
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("WORKFLOW", "XDG_"))}
    command = [sys.executable, "-m", "workflowlookup", "console", "--no-open", "--port", "0"]
    process = subprocess.Popen(command, cwd=clone.directory, env=clean | environment, stdout=subprocess.PIPE, text=True)
    address = not_none(process.stdout).readline().strip()
    site, _, way_in = address.partition("/enter")
    cookie = httpx2.get(f"{site}/enter{way_in}").headers["set-cookie"].partition(";")[0]

    def ask(path: str, *, cookie: str = cookie, **form: str) -> tuple[int, str]:
        headers = {"cookie": cookie, "origin": site}
        reply = (
            httpx2.post(site + path, data=form, headers=headers) if form else httpx2.get(site + path, headers=headers)
        )
        return reply.status_code, reply.text

    yield ask
    process.kill()
    process.communicate()


def fields(page: str) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="(token|shown)" value="([^"]*)"', page))


def test_a_person_in_the_console_can_trust_what_is_shown(
    clone: Clone, console: Callable[..., tuple[int, str]], serve: Serve
) -> None:
    _, page = console("/trust")
    assert "provider &#39;tool&#39;" in page
    assert "./tool.sh" in page

    assert console("/trust", **fields(page))[0] == 303

    assert "Nothing needs trust" in console("/trust")[1]
    serve()
    assert clone.runs(20)


def test_the_console_trusts_nothing_by_a_form_of_another_page_or_about_something_else(
    clone: Clone, console: Callable[..., tuple[int, str]]
) -> None:
    _, page = console("/trust")

    assert console("/trust", **{**fields(page), "token": "x"})[0] == 403
    assert console("/trust", **{**fields(page), "shown": "x"})[0] == 409
    assert console("/trust", cookie="x=y", **fields(page))[0] == 401
    clone.script.write_text(clone.script.read_text() + "# changed\n")
    assert console("/trust", **fields(page))[0] == 409
    assert not clone.store.exists()


def test_pages_over_http_do_not_treat_local_visitors_as_persons(clone: Clone) -> None:
    """On loopback and without tokens anybody is let in, an agent too."""
    server = WebServer(clone.directory.parent, environment={"XDG_CONFIG_HOME": str(clone.cli.own.parent)})
    try:
        page = httpx2.get(f"{server.base}/trust").text
        form = {**fields(page), "shown": "x", "token": "x"}
        token = re.search(r'name="token" value="([^"]*)"', httpx2.get(f"{server.base}/library").text)
        form["token"] = token[1] if token else "x"
        refused = httpx2.post(f"{server.base}/trust", data=form, headers={"origin": server.base})
    finally:
        server.stop()

    assert "this page cannot know that you are one" in page
    assert "<button" not in page.partition("<main")[2].partition("</main>")[0]
    assert refused.status_code == 403
    assert not clone.store.exists()
    assert not clone.marker.exists()


@pytest.mark.parametrize("words", [("trust", "--list"), ("runs",), ("db", "check"), ("confirm", "--help"), ("list",)])
def test_a_mistake_in_the_settings_of_a_project_stops_no_command(cli: Cli, words: tuple[str, ...]) -> None:
    before = cli(*words)
    (cli.directory / "workflowlookup.toml").write_text("max_message_bytes = 1\n")

    done = cli(*words)

    assert (done.returncode, done.stdout) == (before.returncode, before.stdout)
    assert done.returncode in (0, 1)
    assert done.stderr.count("max_message_bytes must be") == int("--help" not in words)


def test_the_doctor_lists_a_mistake_in_the_settings_of_a_project(cli: Cli) -> None:
    (cli.directory / "workflowlookup.toml").write_text("max_message_bytes = 1\n")

    assert "Fix or remove it in the settings of the project" in " ".join(cli("doctor").stdout.split())

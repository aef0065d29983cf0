"""Claude Code, Codex and Gemini CLI, headless, in a project with our server and our hooks, which talk to a scripted model.

They come from npm, pinned in `agents/package-lock.json`; where that cannot be, the tests are skipped and say why. They
reach nothing but loopback: every other address goes to a proxy that is not there.
"""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from clients.model_api import ScriptedModel, Turn, Use
from support.command_line import Cli
from support.json_values import JsonObject
from support.make import document, step, write
from support.npm import install

FOLDER = Path(__file__).parent / "agents"
MACHINES = {"x86_64": "x64", "aarch64": "arm64"}
TIMEOUT = 60.0
WORKFLOW = document(
    step("look-around", prompt="Look at the file, and say what is in it.", tools={"allow": ["read"]}),
    step("change-it", prompt="Set x to two.", tools={"allow": ["read", "edit"]}),
    identifier="small-change",
    triggers=["set x"],
)
RUN_ID = re.compile(r"runId\W+([0-9a-f]{12})")


def program(pattern: str) -> str:
    """The path of an agent for this machine."""
    install(FOLDER, "the coding agents")
    machine = MACHINES.get(platform.machine(), platform.machine())
    paths = sorted((FOLDER / "node_modules").glob(pattern.format(machine=machine)))
    if not paths:
        pytest.skip(f"npm has no coding agent for this machine ({machine}), so nobody ran it")
    return str(paths[0])


def run_id_in(text: str) -> str:
    """The run that an answer of the server in a request names."""
    matches = RUN_ID.findall(text.replace("\\", ""))
    assert matches, text[-2_000:]
    return str(matches[-1])


class Project:
    """A project with a workflow."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self.file = cli.directory / "a.py"
        self.file.write_text("x = 1\n")
        workflows = cli.directory / ".workflowlookup" / "workflows"
        workflows.mkdir(parents=True)
        write(workflows, WORKFLOW)
        subprocess.run(["git", "init", "-q"], cwd=cli.directory, check=True)

    def install(self, client: str, *flags: str) -> None:
        """Give the client our server and hooks, with these settings."""
        installed = self.cli("install", client, "--hooks", "--yes", *flags)
        assert installed.returncode == 0, installed.stderr

    def talk(self, command: Sequence[str], messages: Sequence[str] = (), **environment: str) -> list[JsonObject]:
        """Run an agent to its end: write a line to it, read until it has a result or answers, and so on.

        Returns the lines of JSON that it printed.
        """
        closed = "http://127.0.0.1:9"
        own = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.cli.home),
            "HTTP_PROXY": closed,
            "HTTPS_PROXY": closed,
            "NO_PROXY": "127.0.0.1",
        }
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                command,
                cwd=self.cli.directory,
                env=own | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            watchdog = threading.Timer(TIMEOUT, os.killpg, (process.pid, signal.SIGKILL))
            watchdog.start()
            lines: list[JsonObject] = []
            try:
                for message in messages:
                    process.stdin.write(f"{message}\n")
                    process.stdin.flush()
                    for line in process.stdout:
                        lines.append(json.loads(line))
                        if lines[-1].get("type") == "result" or lines[-1].get("id") == json.loads(message).get(
                            "id", ""
                        ):
                            break
                process.stdin.close()
                lines += [json.loads(line) for line in process.stdout]
                code = process.wait()
            finally:
                watchdog.cancel()
            errors.seek(0)
            assert code == 0, (lines[-3:], errors.read()[-2_000:])
        return lines

    def events(self, run_id: str) -> list[str]:
        """The kinds of events that the journal has of a run: what happened, however often the agent asked its model."""
        lines = self.cli("export", run_id).stdout.splitlines()
        return [record["event"]["event"] for line in lines if "event" in (record := json.loads(line))]

    def runs(self) -> list[JsonObject]:
        """The runs of the journal, the last started first."""
        runs: list[JsonObject] = json.loads(self.cli("runs", "--json").stdout)["runs"]
        return runs

    def only_run(self) -> JsonObject:
        (run,) = self.runs()
        return run


class ClaudeCode(Project):
    def __init__(self, cli: Cli) -> None:
        self._program = program("@anthropic-ai/claude-code-linux-{machine}/claude")
        super().__init__(cli)

    def say(self, model: ScriptedModel, *messages: str, options: Sequence[str] = ()) -> list[JsonObject]:
        """One session in which a person sends these messages."""
        content = [{"type": "user", "message": {"role": "user", "content": message}} for message in messages]
        form = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
        allowed = ("--permission-mode", "acceptEdits", "--allowedTools", "mcp__workflowlookup")
        return self.talk(
            [self._program, "--print", *form, *allowed, *options],
            [json.dumps(message) for message in content],
            ANTHROPIC_BASE_URL=model.url,
            ANTHROPIC_API_KEY="none",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
        )

    @staticmethod
    def tool(name: str, **arguments: str) -> Use:
        return Use(f"mcp__workflowlookup__{name}", dict(arguments))


class Codex(Project):
    def __init__(self, cli: Cli) -> None:
        self._program = program("@openai/codex-linux-{machine}/vendor/*/bin/codex")
        super().__init__(cli)
        self.install("codex")
        self._environment = {"CODEX_HOME": str(cli.home / ".codex")}

    def trust_hooks(self) -> list[JsonObject]:
        """Trust all hooks, as a person does in `/hooks`: by the same requests. Returns the hooks as Codex lists them."""
        server = [self._program, "app-server"]
        client = {"clientInfo": {"name": "tests", "title": "Tests", "version": "1"}}
        hello = {"id": 1, "method": "initialize", "params": client}
        listing = {"id": 2, "method": "hooks/list", "params": {"cwds": [str(self.cli.directory)]}}
        *_, listed = self.talk(server, [json.dumps(hello), json.dumps(listing)], **self._environment)
        hooks: list[JsonObject] = listed["result"]["data"][0]["hooks"]
        state = {str(hook["key"]): {"trusted_hash": hook["currentHash"]} for hook in hooks}
        edit = {"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}
        trust = {"id": 2, "method": "config/batchWrite", "params": {"edits": [edit]}}
        *_, stored = self.talk(server, [json.dumps(hello), json.dumps(trust)], **self._environment)
        assert stored["result"]["status"] == "ok", stored
        return hooks

    def say(self, model: ScriptedModel, *words: str) -> list[JsonObject]:
        """`codex exec` with these words."""
        provider = f'{{name="scripted", base_url="{model.url}/v1", wire_api="responses", stream_max_retries=0}}'
        settings = {
            "model": '"scripted"',
            "model_provider": '"scripted"',
            "model_providers.scripted": provider,
            "approval_policy": '"never"',
            "sandbox_mode": '"danger-full-access"',
            "model_auto_compact_token_limit": "10000",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return self.talk([self._program, "exec", "--json", *options, *words], **self._environment)

    @staticmethod
    def tool(name: str, **arguments: str) -> Use:
        return Use(name, dict(arguments), "mcp__workflowlookup")


class GeminiCli(Project):
    def __init__(self, cli: Cli) -> None:
        node = shutil.which("node")
        if node is None:
            pytest.skip("Node.js is not installed (no `node` on the PATH), so nobody ran Gemini CLI")
        self._command = [node, program("@google/gemini-cli/bundle/gemini.js")]
        super().__init__(cli)
        settings = cli.home / ".gemini" / "settings.json"
        settings.parent.mkdir()
        settings.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))
        self.install("gemini")

    def say(self, model: ScriptedModel, prompt: str) -> list[JsonObject]:
        """A session with one prompt."""
        options = ("--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust", "-m", "gemini-2.5-pro")
        return self.talk(
            [*self._command, "--prompt", prompt, *options],
            GEMINI_API_KEY="none",
            GOOGLE_GEMINI_BASE_URL=model.url,
        )

    @staticmethod
    def tool(name: str, **arguments: str) -> Use:
        return Use(f"mcp_workflowlookup_{name}", dict(arguments))


def submit(agent: type[ClaudeCode | Codex | GeminiCli], step_id: str, output: str) -> Turn:
    """The agent sends the output of a step of the run that it has read about."""
    return lambda request: agent.tool("workflow_submit", runId=run_id_in(request), stepId=step_id, output=output)

"""`make demo`: a real session with the real server, as an MCP client would hold it.

Everything on the screen is what goes over the pipes. Only the agent is played: its outputs are those of the fixture,
one of them lazy on purpose, so that a refusal can be seen. `releases.py` is the other system whose workflow is a tool.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

WORKFLOW: Final = "bug-investigation"
FIXTURE: Final = Path(__file__).parent.parent / "src" / "workflowlookup" / "bundled" / f"{WORKFLOW}.test.yaml"
ROOT_CAUSE: Final = """\
**Cause**: report/period.py:27 counts the days of a month by dividing its seconds by 86,400.
**Mechanism**: the month of the clock change is an hour short, the division rounds down, and the last day is left out.
**Evidence**: in UTC, which has no clock change, the same export has all 31 rows.
**Origin**: since the export was moved from dates to timestamps.
**Why it escaped**: the tests export February only.
"""
"""What the agent says at this step, so that the demo tells one story."""
UPSTREAM: Final = Path(__file__).with_name("releases.py")
CLIENTS: Final = {"claude-code": "Claude Code", "codex": "Codex", "cursor": "Cursor", "vscode": "VS Code"}
COMMAND: Final = [sys.executable, "-m", "workflowlookup"]

RELEASE: Final = "publish_a_release"
"""The tool that the other system's workflow becomes."""
SETTINGS: Final = """\
[mcpServers.releases]
command = {python}
args = [{program}, {runs}]

[providers.releases]
kind = "mcp"
server = "releases"
"""

out = Console(highlight=False, width=min(110, Console().width))


class Client:
    """Speaks JSON-RPC over the pipes of a server that it starts, and shows what is said."""

    def __init__(self, directory: str) -> None:
        self._ids = itertools.count(1)
        self._sent = 0.0
        project = Path(directory) / "project"
        project.mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [*COMMAND, "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=project,
            env={
                **os.environ,
                "WORKFLOWLOOKUP_JOURNAL": str(Path(directory) / "runs.sqlite"),
                "XDG_CONFIG_HOME": str(_settings_file(directory).parent.parent),
            },
            text=True,
            bufsize=1,
        )

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        return self.hear(self.begin(method, params))

    def begin(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request; its id."""
        number = next(self._ids)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        self._send(message)
        return number

    def tell(self, method: str, params: dict[str, Any] | None = None) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def hear(self, number: int) -> Any:
        """The result of a request; what the server says meanwhile is shown."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            message = json.loads(line)
            if message.get("id") != number:
                show_news(message, line)
                continue
            show_line("←", line.strip(), "green", f"{(time.perf_counter() - self._sent) * 1e6:,.0f} µs")
            if "error" in message:
                raise SystemExit(f"the server refused: {message['error']}")
            return message["result"]
        raise SystemExit("the server left without an answer")

    def wait_for(self, method: str) -> None:
        """Listen until the server says this by itself."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            show_news(json.loads(line), line)
            if json.loads(line).get("method") == method:
                return

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        show_line("→", json.dumps(message, ensure_ascii=False), "cyan")
        self._sent = time.perf_counter()
        self._process.stdin.write(json.dumps(message) + "\n")

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})["structuredContent"]

    def initialize(self) -> Any:
        result = self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        self.tell("notifications/initialized")
        return result

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def close(self) -> int:
        self.ask("shutdown")
        return self._process.wait(10)


def show_line(arrow: str, text: str, colour: str, note: str = "") -> None:
    """One message, cut to a line; of a request the part that says what is asked."""
    text = text.replace('{"jsonrpc": "2.0", ', "{")
    room = out.width - len(note) - 8
    line = Text(f"  {arrow} ", style=f"bold {colour}")
    line.append(text if len(text) <= room else text[: room - 1] + "…", style="dim")
    line.append(f"  {note}", style=f"italic {colour}")
    out.print(line, no_wrap=True, overflow="ellipsis")


def show_news(message: dict[str, Any], line: str) -> None:
    """What the server says by itself; of progress what a client would show."""
    if message.get("method") == "notifications/progress":
        told = message["params"]
        total = f"{told['total']:g}" if "total" in told else "?"
        line = f"{message['method']} {told['progress']:g} of {total}: {told.get('message', '')}"
    show_line("←", line.strip(), "yellow")


def title(number: int, text: str) -> None:
    out.print()
    out.rule(f"[bold]{number}. {text}[/]", align="left", style="dim")


def say(text: str) -> None:
    """A remark between the messages."""
    out.print(Padding(text, (1, 2, 0, 2)))


def show_list(workflows: list[dict[str, str]]) -> None:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for column in ("id", "category", "description"):
        table.add_column(column, no_wrap=column != "description")
    for one in workflows:
        table.add_row(f"[bold cyan]{one['id']}[/]", one["category"], one["description"])
    out.print(Padding(table, (1, 0, 0, 2)))


def show_step(reply: dict[str, Any]) -> None:
    step, progress = reply["step"], reply["progress"]
    heading = f"[bold]{step['title']}[/]  [dim]{step['id']} · {progress['completed']} done[/]"
    paragraphs = reply["guidance"]["prompt"].split("\n\n")
    shown = "\n\n".join(paragraphs[:3]) + ("\n\n…" if len(paragraphs) > 3 else "")
    out.print(Padding(Panel(Markdown(shown), title=heading, title_align="left", border_style="cyan"), (1, 0, 0, 2)))


def show_verdict(output: str, verdict: dict[str, Any]) -> None:
    excerpt = output if len(output) < 160 else output[:157] + "…"
    out.print(Padding(Text(f"the agent: {excerpt}".replace("\n", " "), style="italic"), (0, 4)))
    if verdict["valid"]:
        out.print(Padding("[bold green]✓ accepted[/]", (0, 4)))
        return
    out.print(Padding("[bold red]✗ refused[/]", (0, 4)))
    for issue in verdict["issues"]:
        out.print(Padding(Text(f"• {issue}", style="red"), (0, 6)))


def story() -> tuple[dict[str, Any], dict[str, Any]]:
    """What the agent knows, and by step what it hands in."""
    cases = yaml.safe_load(FIXTURE.read_text("utf-8"))["cases"]
    outputs = {step_id: given for case in cases for step_id, given in case.get("outputs", {}).items()}
    outputs["root-cause"]["accept"] = [ROOT_CAUSE]
    return cases[0]["context"], outputs


def lead(client: Client) -> list[str]:
    """Follow the workflow to its end: the first output is lazy and refused, then every one is accepted."""
    context, outputs = story()
    completed: list[str] = []
    while True:
        reply = client.call("workflow_next", workflowId=WORKFLOW, completedSteps=completed, context=context)
        if reply["isComplete"]:
            return completed
        show_step(reply)
        step_id = reply["step"]["id"]
        lazy, good = outputs[step_id]["refuse"][0]["output"], outputs[step_id]["accept"][0]
        for output in [good] if completed else [lazy, good]:
            verdict = client.call(
                "workflow_validate", workflowId=WORKFLOW, stepId=step_id, output=output, context=context
            )
            show_verdict(output, verdict)
        completed.append(step_id)


def hold(client: Client, directory: str) -> Client:
    """Start a run, try to skip to its end, kill the server, and go on with another: the same run, the same step."""
    context, outputs = story()
    run = client.call("workflow_start", workflowId=WORKFLOW, context=context)
    first = run["step"]["id"]
    say(f"[bold]run {run['runId']}[/] waits for the output of '{first}'; the agent tries to skip to the fix:")
    skipped = client.call("workflow_submit", runId=run["runId"], stepId="fix", output=outputs["fix"]["accept"][0])
    out.print(
        Padding(
            f"[bold red]✗ {skipped['code']} {skipped['message']}[/]: expected {skipped['data']['expected']}", (0, 4)
        )
    )
    client.kill()
    say("[bold red]kill -9[/], and a new server on the same journal:")
    client = Client(directory)
    client.initialize()
    going_on = client.call("workflow_submit", runId=run["runId"], stepId=first, output=outputs[first]["accept"][0])
    out.print(Padding(f"[bold green]✓ accepted[/], next is '{going_on['step']['id']}': {going_on['next']}", (0, 4)))
    return client


def _settings_file(directory: str) -> Path:
    """The user's own settings, which need no trust: what a project's file names is not started before it has it."""
    return Path(directory) / "config" / "workflowlookup" / "workflowlookup.toml"


def execute(client: Client, directory: str) -> Client:
    """Another system comes into the settings: its workflow is a tool, with progress, cancellation and a long memory."""
    before = len(client.ask("tools/list")["tools"])
    words = {"python": sys.executable, "program": str(UPSTREAM), "runs": str(Path(directory) / "releases.json")}
    quoted = {name: json.dumps(word) for name, word in words.items()}
    _settings_file(directory).parent.mkdir(parents=True)
    _settings_file(directory).write_text(SETTINGS.format_map(quoted))
    say("[bold]the user's workflowlookup.toml[/] now names the MCP server 'releases'; the running server takes it up:")
    client.wait_for("notifications/tools/list_changed")
    tools = client.ask("tools/list")["tools"]
    about = next(tool["description"] for tool in tools if tool["name"] == RELEASE)
    out.print(Padding(f"[bold green]✓ {len(tools)} tools, {before} before[/]; new is {RELEASE}: {about}", (0, 4)))

    say("called with a progress token, it says how far it is and answers with the result:")
    done = client.ask("tools/call", release("1.0.0", progressToken="demo"))["structuredContent"]
    out.print(Padding(f"[bold green]✓ {done['state']}[/]: {json.dumps(done['result'])}", (0, 4)))

    say("called again, and cancelled: the other system is told to stop, and the journal knows:")
    call = client.begin("tools/call", release("1.1.0"))
    time.sleep(0.7)
    client.tell("notifications/cancelled", {"requestId": call})
    run_id = client.call("workflow_runs", limit=1)["runs"][0]["runId"]
    stopped = client.call("workflow_cancel", runId=run_id)
    out.print(Padding(f"[bold red]✗ {stopped['state']}[/]: {stopped['stopped'][0]['told']}", (0, 4)))

    say("once more, and [bold red]kill -9[/] in the middle; a new server on the same journal goes on:")
    client.begin("tools/call", release("1.2.0"))
    time.sleep(0.7)
    client.kill()
    client = Client(directory)
    client.initialize()
    run_id = client.call("workflow_runs", limit=1)["runs"][0]["runId"]
    while (status := client.call("workflow_status", runId=run_id))["state"] in ("queued", "running"):
        time.sleep(1)
    out.print(Padding(f"[bold green]✓ {status['state']}[/]: {json.dumps(status['result'])}", (0, 4)))
    return client


def release(version: str, **meta: str) -> dict[str, Any]:
    return {"name": RELEASE, "arguments": {"version": version}, **({"_meta": meta} if meta else {})}


def show_install() -> None:
    for name, words in CLIENTS.items():
        done = subprocess.run([*COMMAND, "install", name, "--print"], capture_output=True, text=True, check=True)
        out.print(f"\n  [bold]{words}[/]   [dim]or:[/] workflowlookup install {name}")
        out.print(Padding(Text(done.stdout.rstrip(), style="green"), (0, 4)))


def main() -> int:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        client = Client(directory)
        title(1, "Discovery: both eras of MCP on one connection")
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        discovered = client.ask("server/discover", {"_meta": meta})
        started = (time.perf_counter() - began) * 1e3
        initialized = client.initialize()
        tools = client.ask("tools/list")["tools"]
        say(
            f"[bold]{initialized['serverInfo']['name']} {initialized['serverInfo']['version']}[/] was up and had "
            f"answered in {started:.0f} ms; this connection now speaks {discovered['supportedVersions'][0]} and "
            f"{initialized['protocolVersion']}. It offers {', '.join(tool['name'] for tool in tools)}."
        )
        title(2, "The library")
        show_list(client.call("workflow_list")["workflows"])
        title(3, f"Following '{WORKFLOW}', one step at a time")
        completed = lead(client)
        say(f"[bold green]Workflow complete:[/] {' → '.join(completed)}")
        title(4, "A run: the server holds the state, and no step can be skipped or lost")
        client = hold(client, directory)
        title(5, "Workflows as tools: another system's is called, watched and cancelled")
        client = execute(client, directory)
        title(6, "Goodbye")
        code = client.close()
        out.print(f"  the server left with exit code {code}")
    title(7, "Add it to your client")
    show_install()
    out.print(f"\n  Next: [bold]{os.path.join('.venv', 'bin', 'workflowlookup')} doctor[/], and README.md.\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main())

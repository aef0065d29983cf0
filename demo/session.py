"""`make demo`: a real session with the real server, as an MCP client would hold it.

Everything on the screen is what goes over the pipes. Only the agent is played: its outputs are those of the fixture,
one of them lazy on purpose, so that a refusal can be seen. The project with the bug is a real repository with real
tests, which the server runs. `releases.py` is the other system whose workflow is a tool.
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
FIX: Final = """\
Added test_a_month_with_a_clock_change_has_all_its_days in tests/test_period.py:10; it failed with 30 != 31.
Changed report/period.py:14 to count calendar days instead of hours. All tests pass.

regressionTest: tests/test_period.py
"""
"""What the agent claims, first before it is true and then when it is."""
PROJECT: Final = {
    ".gitignore": "__pycache__/\n",
    "report/__init__.py": "",
    "report/period.py": """\
\"""The length of a month in a country with summer time.\"""

from datetime import datetime, timedelta, timezone


def midnight(year: int, month: int) -> datetime:
    \"""The beginning of a month; summer time is from April to October.\"""
    hours = 2 if 4 <= month <= 10 else 1
    return datetime(year, month, 1, tzinfo=timezone(timedelta(hours=hours)))


def days(year: int, month: int) -> int:
    return (midnight(year, month + 1) - midnight(year, month)).days
""",
    "tests/__init__.py": "",
    "tests/test_period.py": """\
import unittest

from report.period import days


class Days(unittest.TestCase):
    def test_april_has_30_days(self) -> None:
        self.assertEqual(days(2024, 4), 30)
""",
}
"""A project in which March has 30 days."""
REGRESSION_TEST: Final = """
    def test_a_month_with_a_clock_change_has_all_its_days(self) -> None:
        self.assertEqual(days(2024, 3), 31)
"""
FIXED: Final = (
    "(midnight(year, month + 1) - midnight(year, month))",
    "(midnight(year, month + 1).date() - midnight(year, month).date())",
)
"""The wrong expression, and the right one."""
COMMANDS: Final = """\
[commands]
test = [{python}, "-m", "unittest", "discover", "-t", ".", "-s", "tests"]

"""
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
        self._process = subprocess.Popen(
            [*COMMAND, "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=project_in(directory),
            env=environment(directory),
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
            show_line("←", line.strip(), "green", duration(time.perf_counter() - self._sent))
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


def project_in(directory: str) -> Path:
    return Path(directory) / "project"


def environment(directory: str) -> dict[str, str]:
    """For the server and for commands: the journal, the settings and the data of this session only."""
    return {
        **os.environ,
        "WORKFLOWLOOKUP_JOURNAL": str(Path(directory) / "runs.sqlite"),
        "XDG_CONFIG_HOME": str(_settings_file(directory).parent.parent),
        "XDG_DATA_HOME": str(Path(directory) / "data"),
    }


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:,.0f} ms"


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
        params = message["params"]
        total = f"{params['total']:g}" if "total" in params else "?"
        line = f"{message['method']} {params['progress']:g} of {total}: {params.get('message', '')}"
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
    paragraphs = step["prompt"].split("\n\n")
    shown = "\n\n".join(paragraphs[:3]) + ("\n\n…" if len(paragraphs) > 3 else "")
    out.print(Padding(Panel(Markdown(shown), title=heading, title_align="left", border_style="cyan"), (1, 0, 0, 2)))


def show_verdict(output: str, verdict: dict[str, Any]) -> None:
    excerpt = output if len(output) < 160 else output[:157] + "…"
    out.print(Padding(Text(f"the agent: {excerpt}".replace("\n", " "), style="italic"), (0, 4)))
    if verdict["valid"]:
        out.print(Padding("[bold green]✓ accepted[/]", (0, 4)))
        for proof in verdict.get("proofs", ()):
            out.print(Padding(Text(f"• {proof}", style="green"), (0, 6)))
        return
    out.print(Padding("[bold red]✗ refused[/]", (0, 4)))
    for issue in verdict["issues"]:
        out.print(Padding(Text(f"• {issue}", style="red"), (0, 6)))


def story() -> tuple[dict[str, Any], dict[str, Any]]:
    """What the agent knows, and by step what it hands in."""
    cases = yaml.safe_load(FIXTURE.read_text("utf-8"))["cases"]
    outputs = {step_id: given for case in reversed(cases) for step_id, given in case.get("outputs", {}).items()}
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


def hold(client: Client, directory: str) -> tuple[Client, str]:
    """Start a run, try to skip to its end, kill the server, and go on with another: the same run, the same step.

    Returns the new client and the id of the run.
    """
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
    return client, run["runId"]


def prove(client: Client, directory: str, run_id: str) -> None:
    """Claim a fix before it is made and after: the server runs the tests. Then a receipt of the run is verified."""
    _, outputs = story()
    for step_id in ("triage", "root-cause"):
        client.call("workflow_submit", runId=run_id, stepId=step_id, output=outputs[step_id]["accept"][0])
    tests, code = (project_in(directory) / name for name in ("tests/test_period.py", "report/period.py"))
    tests.write_text(PROJECT["tests/test_period.py"] + REGRESSION_TEST)
    say("The agent has written the test, but has not changed the code. It claims the fix all the same:")
    show_verdict(FIX, client.call("workflow_submit", runId=run_id, stepId="fix", output=FIX)["verdict"])
    code.write_text(PROJECT["report/period.py"].replace(*FIXED))
    commit(directory, "Count calendar days")
    say("Now it changes the code, commits, and claims the same again:")
    show_verdict(FIX, client.call("workflow_submit", runId=run_id, stepId="fix", output=FIX)["verdict"])
    report = outputs["report"]["accept"][0]
    done = client.call("workflow_submit", runId=run_id, stepId="report", output=report)
    say(f"[bold green]{done['state']}[/], {done['proofs']['summary']}. A receipt for the commit, and its verification:")
    receipt = str(Path(directory) / "receipt.json")
    for arguments in (["receipt", run_id, "-o", receipt], ["verify", receipt, "--commit", "HEAD"]):
        result = subprocess.run(
            [*COMMAND, *arguments],
            cwd=project_in(directory),
            env=environment(directory),
            capture_output=True,
            text=True,
            check=True,
        )
        shown = " ".join(arguments).replace(receipt, "receipt.json")
        out.print(Padding(f"[bold]$ workflowlookup {shown}[/]", (0, 4)))
        out.print(Padding(Text(result.stdout.strip().replace(receipt, "receipt.json"), style="green"), (0, 6)))


def make_project(directory: str) -> None:
    """A repository with a bug, and the command for its tests in the user's own settings."""
    for name, text in PROJECT.items():
        path = project_in(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(directory, "init", "--quiet")
    commit(directory, "Count the days of a month")
    _settings_file(directory).parent.mkdir(parents=True)
    _settings_file(directory).write_text(COMMANDS.format(python=json.dumps(sys.executable)))


def commit(directory: str, message: str) -> None:
    git(directory, "add", "--all")
    identity = ("-c", "user.name=Demo", "-c", "user.email=demo@example.org", "-c", "commit.gpgsign=false")
    git(directory, *identity, "commit", "--quiet", "--message", message)


def git(directory: str, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=project_in(directory), check=True)


def _settings_file(directory: str) -> Path:
    """The user's own settings, which need no trust: what a project's file names is not started before it has it."""
    return Path(directory) / "config" / "workflowlookup" / "workflowlookup.toml"


def execute(client: Client, directory: str) -> Client:
    """Another system comes into the settings: its workflow is a tool, with progress, cancellation and a long memory."""
    before = len(client.ask("tools/list")["tools"])
    words = {"python": sys.executable, "program": str(UPSTREAM), "runs": str(Path(directory) / "releases.json")}
    quoted = {name: json.dumps(word) for name, word in words.items()}
    settings = _settings_file(directory)
    settings.write_text(settings.read_text() + SETTINGS.format_map(quoted))
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
        make_project(directory)
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
        client, run_id = hold(client, directory)
        title(5, "Proof: a claim counts when it is true")
        prove(client, directory, run_id)
        title(6, "Workflows as tools: another system's is called, watched and cancelled")
        client = execute(client, directory)
        title(7, "Goodbye")
        code = client.close()
        out.print(f"  the server left with exit code {code}")
    title(8, "Add it to your client")
    show_install()
    out.print(f"\n  Next: [bold]{os.path.join('.venv', 'bin', 'workflowlookup')} doctor[/], and README.md.\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main())

"""The answers to hooks of coding agents, in the form of Claude Code; Codex shares it, Gemini CLI in part.

A hook reads runs and stores what it did to them; it never carries anything out. `hook_entry` reads the message.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from workflowlookup.app import make_catalog, make_runs
from workflowlookup.cli.hook_entry import ALIASES, PLUGIN_VARIABLE, complain, project_directory
from workflowlookup.errors import JOURNAL_SECONDS, RunDamaged, RunNotFound, RunStateError, WorkflowLookupError
from workflowlookup.execution.proof_runner import machine_id
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.guidance import guide
from workflowlookup.language.text import shorten
from workflowlookup.language.tool_rules import moves_run, refuses, tool_use
from workflowlookup.language.triggers import is_triggered
from workflowlookup.language.values import Json, brief, lookup
from workflowlookup.repository import SESSION_VARIABLE, find_root_of_run
from workflowlookup.runs.events import OutputRefused
from workflowlookup.runs.run import Run, Waiting
from workflowlookup.settings import Settings, read_settings
from workflowlookup.store.journal_url import JournalUrl
from workflowlookup.store.service import Runs

MAX_PROMPT_BYTES: Final = 2_048
MAX_RUNS: Final = 5
MAX_VARIABLES: Final = 20
BY: Final = "hook"
_FOR_AGENT: Final = (Waiting.OUTPUT, Waiting.CONTEXT)

_RUN_ID: Final = re.compile(r'\\*"runId\\*": ?\\*"([\w-]+)')
"""The run that an answer of our tools is about. Some clients pass the answer on as a string with JSON in it."""

Answer = Mapping[str, Json] | None
"""What is printed for the client; None to let it go on."""


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a client, and the project that it is about."""

    event: str
    message: Mapping[str, Any]
    settings: Settings
    root: str
    runs: Runs
    is_session_known: bool
    """Whether the client tells servers its session, so that a run without one belongs to somebody else."""

    def text(self, field: str) -> str:
        value = self.message.get(field)
        return value if isinstance(value, str) else ""

    def open_runs(self) -> Iterator[Run]:
        """The open runs of this project on this machine, the last started first."""
        journal = JournalUrl(self.settings.journal)
        is_missing = journal.kind.is_file and not os.path.exists(journal.text)  # a hook makes no journal
        for run_id in self.runs.open_runs(self.root) if self.root and not is_missing else ():
            try:
                run = self.runs.get(run_id)
            except RunNotFound:  # purged since
                continue
            except RunDamaged as problem:  # the other runs still count
                complain(problem, "a run is not checked")
                continue
            if not run.is_over and run.machine in ("", machine_id()):
                yield run

    def runs_of_session(self, *waiting: Waiting) -> Iterator[Run]:
        """Those runs of this project that this session works on, that wait for one of these, and are not paused."""
        session = self.text("session_id")
        for run in self.open_runs():
            is_own = run.client_session == session if run.client_session else not self.is_session_known
            if is_own and not run.is_paused and run.waiting_for in waiting:
                yield run


def answer_hook(event: str, message: Mapping[str, Any], flags: Mapping[str, Any], config: str | None) -> None:
    """Print the answer to a message, if there is one. Raises what keeps it from being found."""
    directory = project_directory(message.get("cwd"))
    if PLUGIN_VARIABLE in os.environ:
        from workflowlookup.cli.client_hooks import is_in_settings  # noqa: PLC0415 - slow, and only for the plugin

        if is_in_settings(event, directory, os.environ):  # else each stop would count twice
            return
    settings = read_settings(flags, os.environ, directory=directory, config=config)
    seconds = min(settings.journal_timeout_seconds, JOURNAL_SECONDS)  # the client does not wait for long
    settings = msgspec.structs.replace(settings, journal_timeout_seconds=seconds)
    root, _ = find_root_of_run(settings.root, os.environ, directory)
    hook = Hook(
        event=event,
        message=message,
        settings=settings,
        root=root,
        runs=make_runs(settings),
        is_session_known=SESSION_VARIABLE in os.environ,
    )
    answer = _ANSWERS[ALIASES.get(event, event)](hook)
    if answer is not None:
        print(json.dumps(answer), flush=True)


# ── stop ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _stop(hook: Hook) -> Answer:
    for run in hook.runs_of_session(*_FOR_AGENT):
        if _is_blocked(hook, run):
            return {"decision": "block", "reason": _needed(run)}
    return None


def _is_blocked(hook: Hook, run: Run, agent: str = "") -> bool:
    """Whether the agent has to go on. It may stop if the run has moved on since it was read."""
    try:
        return not run.is_released and not hook.runs.block_stop(run.id, agent=agent, by=BY).is_released
    except RunStateError as problem:
        complain(problem, "the agent may stop")
        return False


def _subagent_stop(hook: Hook) -> Answer:
    """A sub-agent is told once: it may have been given another task than the step."""
    if hook.message.get("stop_hook_active") is True:
        return None
    for run in hook.runs_of_session(*_FOR_AGENT):
        if _is_blocked(hook, run, hook.text("agent_id") or "unknown"):
            return {"decision": "block", "reason": f"If you were given this step: {_needed(run)} If not, stop."}
    return None


def _needed(run: Run) -> str:
    """Which run waits for what."""
    head = f"Run {run.id} of workflow '{run.workflow.id}' is not done: it waits for"
    escape = "If you cannot go on, tell the user why; they can pause the run in a terminal or the console."
    if run.waiting_for is Waiting.CONTEXT:
        names = ", ".join(f"'{need.variable}'" for need in run.missing)
        return f"{head} {names}, which loop '{run.current}' needs. Send it with workflow_submit. {escape}"
    guidance = guide(run.workflow, run.offered, Budget())
    refused = run.last_submission if isinstance(run.last_submission, OutputRefused) else None
    needed = refused.issues if refused is not None else (*guidance.criteria, *guidance.proofs)
    title = "Still wrong" if refused is not None else "Needed"
    listed = _bounded(f" {title}: {'; '.join(needed)}.") if needed else ""
    step = f"the output of step '{run.current}' ({run.step.title})"
    return f"{head} {step}.{listed} Finish the step, and send its output with workflow_submit. {escape}"


# ── session start ───────────────────────────────────────────────────────────────────────────────────────────────


def _session_start(hook: Hook) -> Answer:
    runs = list(hook.open_runs())
    if not runs:
        return None
    lines = [f"Open workflow runs of this project: {len(runs)}."]
    for run in runs[:MAX_RUNS]:
        lines += ["", *_state_of(run)]
    if len(runs) > MAX_RUNS:
        lines += ["", f"{len(runs) - MAX_RUNS} more: call workflow_runs."]
    return _context(hook, "\n".join(lines))


def _state_of(run: Run) -> Iterator[str]:
    pause = " It is paused: leave it alone unless the user asks for it." if run.is_paused else ""
    waits = f"waits for {run.waiting_for}" if run.waiting_for else str(run.state)
    yield f"Run {run.id}, workflow '{run.workflow.id}', step '{run.current}': {waits}.{pause}"
    captured = {name: lookup(run.context, name) for name in run.value_sources}
    if captured:
        values = [f"{name} = {brief(value)}" for name, value in list(captured.items())[:MAX_VARIABLES]]
        more = f", and {len(captured) - MAX_VARIABLES} more" if len(captured) > MAX_VARIABLES else ""
        yield f"Known so far: {', '.join(values)}{more}."
    if run.waiting_for is Waiting.OUTPUT and not run.is_paused:
        yield f"To go on, send the output with workflow_submit (runId {run.id}, stepId {run.current}). The prompt:"
        yield _bounded(guide(run.workflow, run.offered, Budget()).prompt)


# ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _pre_tool_use(hook: Hook) -> Answer:
    name, given = _tool_name(hook), hook.message.get("tool_input")
    for run in hook.runs_of_session(Waiting.OUTPUT, Waiting.PROOF, Waiting.CONFIRMATION):
        rules = run.step.tools
        if rules is None:
            continue
        pattern = refuses(rules, tool_use(name, given if isinstance(given, dict) else {}, hook.root))
        if not pattern:
            continue
        try:
            hook.runs.refuse_tool(run.id, shorten(name, 200), "" if pattern == "allow" else pattern, by=BY)
        except WorkflowLookupError as problem:
            complain(problem, "the tool is refused, and that is not stored")
        is_open = run.waiting_for is Waiting.OUTPUT
        end = "finish this one first, with workflow_submit" if is_open else f"this one waits for {run.waiting_for}"
        reason = (
            f"Step '{run.current}' of run {run.id} (workflow '{run.workflow.id}') does not allow this. "
            f"{rules.describe()} Other steps may allow more: {end}."
        )
        if hook.event == "BeforeTool":
            return {"decision": "deny", "reason": reason}
        decision = {"permissionDecision": "deny", "permissionDecisionReason": reason}
        return {"hookSpecificOutput": {"hookEventName": hook.event, **decision}}
    return None


def _post_tool_use(hook: Hook) -> Answer:
    """Give a run to the session that started it or sent an output for it. A server learns the client's session when it
    starts, if at all, and the client may begin another."""
    session = hook.text("session_id")
    if not session or not moves_run(_tool_name(hook)):
        return None
    match = _RUN_ID.search(json.dumps(hook.message.get("tool_response")))
    for run in hook.open_runs() if match else ():
        if match is not None and run.id == match[1]:
            hook.runs.change_session(run.id, shorten(session, 200), by=BY)
    return None


def _tool_name(hook: Hook) -> str:
    """The name of the tool; for one of an MCP server as patterns spell it, which Gemini CLI does not."""
    context = hook.message.get("mcp_context")
    if not isinstance(context, dict):
        return hook.text("tool_name")
    return f"mcp__{context.get('server_name')}__{context.get('tool_name')}"


# ── prompts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _user_prompt(hook: Hook) -> Answer:
    if not hook.settings.hook_triggers:
        return None
    prompt, budget = hook.text("prompt"), Budget()
    workflows = make_catalog(hook.settings).workflows()
    matching = [workflow.id for workflow in workflows if is_triggered(workflow.triggers, prompt, budget)]
    if not matching:
        return None
    names = ", ".join(f"'{workflow_id}'" for workflow_id in sorted(matching)[:MAX_RUNS])
    return _context(
        hook, f"There is a workflow for this: {names}; unless the user wants it otherwise, call workflow_start."
    )


def _context(hook: Hook, text: str) -> Answer:
    return {"hookSpecificOutput": {"hookEventName": hook.event, "additionalContext": text}}


def _bounded(text: str) -> str:
    """The text, cut at 2 KiB."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_PROMPT_BYTES:
        return text
    return f"{data[:MAX_PROMPT_BYTES].decode('utf-8', 'ignore')} … (cut; workflow_status has the rest)"


_ANSWERS: Final[Mapping[str, Callable[[Hook], Answer]]] = {
    "SessionStart": _session_start,
    "UserPromptSubmit": _user_prompt,
    "PreToolUse": _pre_tool_use,
    "PostToolUse": _post_tool_use,
    "Stop": _stop,
    "SubagentStop": _subagent_stop,
}

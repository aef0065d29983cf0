"""Runs as files: JSON lines, one record each, as `export` writes them and `import` reads them.

An imported run is checked: each of its calls is decided again, as a live run decides it.

A journal is a list of batches, one for each call that changed the run. The first event of a batch says what the call
was; `advance`, `server_calls` and `proofs.taking` decide which events follow, and the batch must have exactly these.
Texts may differ, since an older version may have written them; whatever affects the run must be equal. If the result of
a call was too long to be stored whole, its verdict is trusted; so are the verdicts of proofs, which nobody can take
again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Final

import msgspec

from workflowlookup.errors import InvalidParams, WorkflowLookupError
from workflowlookup.language.values import Json, json_equal
from workflowlookup.runs import advance, events, server_calls
from workflowlookup.runs.chain import with_hashes
from workflowlookup.runs.draft import Draft, Moment
from workflowlookup.runs.events import Event, Record, kind_of
from workflowlookup.runs.fold import apply, fold
from workflowlookup.runs.proofs import taking
from workflowlookup.runs.run import Run, Waiting
from workflowlookup.runs.run_document import workflow_of
from workflowlookup.runs.server_calls import CallFailure


class ExportedRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A record with the id of its run, as one line of a file."""

    run_id: str
    sequence: int
    time: int
    by: str = ""
    event: Event
    hash: str = ""
    """As in `Record`; empty in files of older versions."""
    length: int = 0
    """How many events were exported; 0 in files of older versions."""


class Exporter:
    """Writes the records of a run as JSON lines, with hashes by which changes of the file show.

    The hashes are those of the journal, unless it has events that an older version wrote in another form.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._head = ""

    def lines(self, records: Iterable[Record]) -> str:
        """The lines for the next records, without gaps from the first one on."""
        lines = []
        for record in with_hashes(self._run.id, records, self._head):
            fields = {name: getattr(record, name) for name in record.__struct_fields__}
            line = ExportedRecord(run_id=self._run.id, length=self._run.sequence, **fields)
            lines.append(msgspec.json.encode(line).decode() + "\n")
            self._head = record.hash
        return "".join(lines)


def refuse_changed(run_id: str, records: Sequence[Record], length: int) -> None:
    """Raises `InvalidParams` for the first record of an exported run whose hash is not right, or that is missing.

    `length`: the number of records that were exported; 0 in a file of an older version, whose records have no hashes.
    """
    hashes = with_hashes(run_id, records)
    changed = next((ours.sequence for ours, theirs in zip(hashes, records, strict=True) if theirs.hash != ours.hash), 0)
    if changed and (length or any(record.hash for record in records)):
        raise InvalidParams(f"event {changed} of run '{run_id}' was changed after it was written")
    if len(records) < length:
        raise InvalidParams(f"of the {length} events of run '{run_id}' only {len(records)} are in the file")


# ── checking an imported run ────────────────────────────────────────────────────────────────────────────────────

_MAY_DIFFER: Final = frozenset(
    {
        *("reason", "remedy", "why", "issues", "suggestions", "missing", "warnings", "message", "told", "error"),
        *("hash", "document", "origin", "imported_from", "imported_head", "key", "nonce", "question", "how", "relayed"),
        *("root", "root_source", "machine", "client_session", "client_root"),
        *("characters", "is_reference", "value", "is_json", "done", "may_run", "is_pending"),
    }
)
"""Fields that are texts, or that do not affect the run. All others must be equal to those of a live run."""

_OLD_EXPORT: Final = (
    "An older version may have allowed what is refused now, such as skipping a loop without data, or changing a value "
    "of the input. The file is unchanged, and can be read as JSON lines"
)


def replay(run_id: str, records: Sequence[Record]) -> Run:
    """Fold the records and check them. Raises `InvalidParams` for the first event that a live run would not have."""
    run: Run | None = None
    position = 0
    while position < len(records):
        batch = _batch(run_id, run, records, position)
        for record in batch:
            run = fold(run_id, [record]) if run is None else apply(run, record)
        position += len(batch)
    if run is None:
        raise InvalidParams(f"run '{run_id}' has no events")
    return run


def _batch(run_id: str, run: Run | None, records: Sequence[Record], position: int) -> Sequence[Record]:
    """The records of one call, from this position on."""
    first = records[position]
    location = f"event {first.sequence} of run '{run_id}', '{kind_of(first.event)}',"
    following = records[position + 1].event if position + 1 < len(records) else None
    try:
        expected = _decide(run_id, run, first, following).records
        recorded = records[position : position + len(expected)]
        different = next((pair for pair in zip_longest(expected, recorded) if not _is_same(first, *pair)), None)
        if different is None:
            return recorded
        problem = _difference(*different)
    except WorkflowLookupError as refusal:
        problem = refusal.remedy or str(refusal)
    raise InvalidParams(f"{location} cannot happen in a run: {problem.rstrip('.')}. {_OLD_EXPORT}")


def _is_same(first: Record, expected: Record | None, recorded: Record | None) -> bool:
    """Whether a record is as expected: the same event, at the same time, by the same caller."""
    if expected is None or recorded is None or type(expected.event) is not type(recorded.event):
        return False
    if (recorded.sequence, recorded.time, recorded.by) != (expected.sequence, first.time, first.by):
        return False
    ours: Any = expected.event
    theirs: Any = recorded.event
    if isinstance(ours, events.ConfirmationAsked) and ours.reason != theirs.reason:
        return False
    if isinstance(ours, events.ContextAsked) and _variables(ours) != _variables(theirs):
        return False
    fields = [name for name in ours.__struct_fields__ if name not in _MAY_DIFFER]
    return all(json_equal(_plain(ours, name), _plain(theirs, name)) for name in fields)


def _plain(event: Event, name: str) -> Json:
    return msgspec.to_builtins(getattr(event, name))


def _variables(event: events.ContextAsked) -> list[str]:
    return [need.variable for need in event.missing]


def _difference(expected: Record | None, recorded: Record | None) -> str:
    following = f"'{kind_of(expected.event)}' follows" if expected else "nothing follows"
    about = getattr(expected.event, "step_id", "") or getattr(expected.event, "loop_id", "") if expected else ""
    actual = "the file ends in the middle of a call"
    if recorded:
        actual = f"event {recorded.sequence} is '{kind_of(recorded.event)}'"
    return f"{following}{f' for {about!r}' if about else ''}, and {actual}"


# ── the call behind a batch ─────────────────────────────────────────────────────────────────────────────────────


def _decide(run_id: str, run: Run | None, first: Record, following: Event | None) -> Draft:
    """Decide the call again that led to an event, from that event and, for some, the one that follows.

    Raises `InvalidParams` if a run cannot go on with such an event, and what `advance` raises.
    """
    at = Moment(time=first.time, by=first.by)
    if run is None:
        if not isinstance(first.event, events.Started):
            raise InvalidParams("a run begins with 'started'")
        return _begin(run_id, first.event, at)
    expired = advance.expire(run, Moment(time=at.time))
    if expired is not None:
        return expired
    decide = _DECISIONS.get(type(first.event))
    if decide is None:
        raise InvalidParams("this event cannot begin a batch")
    return decide(run, first.event, following, at)


def _begin(run_id: str, event: events.Started, at: Moment) -> Draft:
    added = {name: value for name, value in event.context.items() if name not in event.input}
    changed = {name: value for name, value in event.context.items() if event.input.get(name, value) != value}
    workflow = workflow_of(bytes(event.document))
    return advance.begin(run_id, workflow, event.input, {**added, **changed}, at, timeout=event.timeout)


def _output_accepted(run: Run, event: events.OutputAccepted, following: Event | None, at: Moment) -> Draft:
    if run.waiting_for is Waiting.PROOF:
        return taking.conclude(run, at)
    changes = following.changes if isinstance(following, events.ContextChanged) else {}
    sent_changes = {name: value for name, value in changes.items() if name not in event.captured}
    if run.waiting_for is not Waiting.CALL:
        return advance.submit(run, event.step_id, event.output, sent_changes, at)
    if event.characters or event.is_reference:
        return server_calls.accept_result(run, event, changes, at)
    save_as = run.step.call.save_as if run.step.call else ""
    return server_calls.finish_call(run, event.output, changes.get(save_as), at)


def _output_refused(run: Run, event: events.OutputRefused, following: Event | None, at: Moment) -> Draft:
    if run.waiting_for is Waiting.PROOF:
        return taking.conclude(run, at)
    if run.waiting_for is Waiting.CALL:  # the value of a refused result may not be stored
        return server_calls.refuse_result(run, event, at, is_final=isinstance(following, events.Failed))
    return advance.submit(run, event.step_id, event.output, event.context, at)


def _proofs_due(run: Run, event: events.ProofsDue, _: Event | None, at: Moment) -> Draft:
    return advance.submit(run, event.step_id, event.output, event.context, at)


def _confirmation_given(run: Run, event: events.ConfirmationGiven, _: Event | None, at: Moment) -> Draft:
    how = event.how or "console"
    return advance.confirm(
        run,
        event.step_id,
        at,
        how=how,
        question=event.question,
        note=event.note,
        answers=event.answers,
        signature=event.signature,
    )


def _confirmation_denied(run: Run, event: events.ConfirmationDenied, following: Event | None, at: Moment) -> Draft:
    how = event.how or "console"
    restores = isinstance(following, events.ContextRestored)  # older versions did not undo a denied output
    return advance.deny(
        run,
        event.step_id,
        at,
        how=how,
        question=event.question,
        note=event.note,
        signature=event.signature,
        restores=restores,
    )


def _call_failed(run: Run, event: events.CallFailed, following: Event | None, at: Moment) -> Draft:
    failed = following if isinstance(following, events.Failed) else None
    failure = CallFailure(
        reason=event.reason,
        error=event.error,
        may_run=event.may_run,
        is_final=failed is not None,
        timed_out=failed is not None and failed.timed_out,
    )
    return server_calls.fail_call(run, failure, at)


def _run_failed(run: Run, event: events.Failed, _: Event | None, at: Moment) -> Draft:
    is_running = run.calling is not None and run.calling.begun
    failure = CallFailure(reason=event.reason, is_final=True, timed_out=event.timed_out, is_running=is_running)
    return server_calls.fail_call(run, failure, at)


def _call_stopped(run: Run, event: events.CallStopped, _: Event | None, at: Moment) -> Draft:
    return server_calls.stop_call(run, event.stopped, event.told, at, is_pending=event.is_pending)


_Decision = Callable[[Run, Any, Event | None, Moment], Draft]

_DECISIONS: Final[Mapping[type[Event], _Decision]] = MappingProxyType(
    {
        events.OutputAccepted: _output_accepted,
        events.OutputRefused: _output_refused,
        events.ContextChanged: lambda run, event, _, at: advance.supply(run, run.current, event.changes, at),
        events.ConfirmationGiven: _confirmation_given,
        events.ConfirmationDenied: _confirmation_denied,
        events.ConfirmationDismissed: lambda run, event, _, at: advance.dismiss(run, event.step_id, at),
        events.StepOffered: lambda run, _, __, at: taking.conclude(run, at),
        events.ConfirmationAsked: lambda run, _, __, at: taking.conclude(run, at),
        events.ProofsDue: _proofs_due,
        events.ProofClaimed: lambda run, event, _, at: taking.claim(run, event, at),
        events.SnapshotTaken: lambda run, event, _, at: taking.take_snapshot(run, event.since, event.snapshot, at),
        events.ProofTaken: lambda run, event, _, at: taking.take_proof(run, event.judgement, at),
        events.CallBegun: lambda run, _, __, at: server_calls.begin_call(run, at),
        events.CallAcknowledged: lambda run, event, _, at: server_calls.acknowledge_call(run, event.remote_id, at),
        events.CallProgressed: lambda run, event, _, at: server_calls.report_call(
            run, event.done, event.total, event.message, at
        ),
        events.CallFailed: _call_failed,
        events.CallStopped: _call_stopped,
        events.Failed: _run_failed,
        events.EndUnknown: lambda run, event, _, at: server_calls.lose_call(run, event.reason, at),
        events.Cancelled: lambda run, event, _, at: advance.cancel(run, at, event.reason),
        events.Paused: lambda run, event, _, at: advance.pause(run, at, event.reason),
        events.Resumed: lambda run, _, __, at: advance.resume(run, at),
        events.StopBlocked: lambda run, event, _, at: advance.block_stop(run, at, event.agent),
        events.StopReleased: lambda run, _, __, at: advance.block_stop(run, at),
        events.SessionChanged: lambda run, event, _, at: advance.change_session(run, at, event.session),
        events.ToolRefused: lambda run, event, _, at: advance.refuse_tool(run, at, event.tool, event.pattern),
    }
)
"""By the first event of a batch: the call that leads to it."""

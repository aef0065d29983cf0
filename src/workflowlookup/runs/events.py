"""The events of a run. `fold` applies them; `advance`, `server_calls` and `proofs.taking` decide which ones happen."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from workflowlookup.language.conditions import Condition
from workflowlookup.language.contract import Need
from workflowlookup.language.navigation import LoopPosition
from workflowlookup.language.values import Json


def _kebab(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")


class _Event(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="event", tag=_kebab
):
    """Something that happened to a run. Step ids carry their iteration."""


NO_DOCUMENT: Final = msgspec.Raw(b"null")


class RemoteError(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What another system reported about a failure."""

    code: str = ""
    """Its error code, or the HTTP status."""
    message: str = ""
    detail: Json = None
    output: Json = None
    """The output of the failed job, if any."""


class Started(_Event, frozen=True, kw_only=True):
    """The run started, with this document, which it uses to its end."""

    hash: str
    document: msgspec.Raw = NO_DOCUMENT
    """The whole document as JSON; a journal stores equal documents once."""
    input: Mapping[str, Json] = {}
    context: Mapping[str, Json] = {}
    """All variables at the start, those of the input included."""
    timeout: float | None = None
    """Time limit for the run in seconds, from the caller."""
    origin: str = ""
    """The path of a document that came with a repository; its calls need the user's trust. Empty for the user's own
    documents and in older journals."""
    imported_from: str = ""
    """Where the run was imported from; empty for runs started in this journal."""
    imported_head: str = ""
    """The hash of the last event of the imported run where it came from; empty if the file had no hashes."""
    root: str = ""
    """The real path of the project directory, in which proofs are taken; empty if the server cannot see it."""
    root_source: str = ""
    """How the root was determined: `flag`, `CLAUDE_PROJECT_DIR`, `roots`, `git`, `directory`."""
    machine: str = ""
    """Identifies the machine of the root."""
    client_session: str = ""
    """The session id of the client that started it, if the server knew it."""
    client_root: str = ""
    """Where the server cannot see the files: the project directory as the client names it, if it does."""


class StepOffered(_Event, frozen=True, kw_only=True):
    """A step was handed to the agent: for the first time, or again."""

    step_id: str
    loop: LoopPosition | None = None
    warnings: tuple[str, ...] = ()


class OutputAccepted(_Event, frozen=True, kw_only=True):
    """The output meets the criteria of the step, or a person accepted it anyway; then it has no key."""

    step_id: str
    output: str
    key: str = ""
    captured: Mapping[str, Json] = {}
    """The variables that were read from the output."""
    warnings: tuple[str, ...] = ()
    characters: int = 0
    """The length of the result of a call, if it was too long to be stored whole."""
    is_reference: bool = False
    """Whether the variable of a call has only a reference, because its value is too long for the context."""
    value: str = ""
    """That value as JSON, if it is not the output."""
    is_json: bool = False
    """Whether the value behind the reference is JSON."""
    waived: tuple[str, ...] = ()
    """The proofs that did not pass, and without which a person accepted the output."""
    skipped: Mapping[str, str] = {}
    """By name: the proofs that a variable switched off, and why. Those that only measures of the server decide about
    are not in it."""


class OutputRefused(_Event, frozen=True, kw_only=True):
    """The output does not meet the criteria, or variables that the step produces are missing."""

    step_id: str
    output: str
    key: str
    context: Mapping[str, Json] = {}
    """The changes of the context that came with it. They apply if a person accepts the output anyway."""
    issues: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    missing: tuple[Need, ...] = ()


class ContextChanged(_Event, frozen=True, kw_only=True):
    """Variables were set."""

    changes: Mapping[str, Json]
    key: str = ""
    """The key of the call that sent them; empty for changes that came with an output."""


class ContextRestored(_Event, frozen=True, kw_only=True):
    """The changes of an output that a person denied were undone. Older journals lack this event: the values stayed."""

    step_id: str
    changes: Mapping[str, Json] = {}
    """The variables that the output had changed, with their values before it."""
    removed: tuple[str, ...] = ()
    """The variables that were not set before it."""


class ContextAsked(_Event, frozen=True, kw_only=True):
    """The list or count of the next loop is missing: the run waits until it is sent."""

    loop_id: str
    missing: tuple[Need, ...]
    loop: LoopPosition | None = None
    """The position of this loop in the loop around it."""
    warnings: tuple[str, ...] = ()


How: TypeAlias = Literal["terminal", "form", "console", "relayed", "key", "passkey"]
"""How a person's answer arrived: signed with a `key` or a `passkey`, or unsigned; `relayed` means through the agent."""


class Signature(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A person's signature of a text. Bytes are base64url without padding."""

    method: Literal["key", "passkey"]
    person: str
    key: str
    """The id of the key."""
    signature: str
    authenticator_data: str = ""
    """Of a passkey: what the authenticator signed together with the hash of the client data."""
    client_data: str = ""
    """Of a passkey: the client data JSON of the browser, with the challenge and the origin."""


class ConfirmationAsked(_Event, frozen=True, kw_only=True):
    """A person must agree: to the output of the step (`step`), to its last output when no attempts are left
    (`attempts`), to an output that could not be proven (`unproved`), to a call before it is made (`call`), or to the
    step before it is handed out (`before`).
    """

    step_id: str
    reason: Literal["step", "attempts", "unproved", "call", "before"] = "step"
    nonce: str = ""
    """The id of the question, so that an answer to another question is refused. Empty in older journals."""
    loop: LoopPosition | None = None
    warnings: tuple[str, ...] = ()
    """As in the `CallDue` or `StepOffered` that follows if the reason is `call` or `before`."""


class ConfirmationDismissed(_Event, frozen=True, kw_only=True):
    """The form was closed without an answer: the question stays open."""

    step_id: str


class _Answered(_Event, frozen=True, kw_only=True):
    """A person's answer to a question."""

    step_id: str
    how: How | None = None
    """None in older journals, for an answer that was not relayed."""
    question: str = ""
    """The nonce of the question that the person saw."""
    note: str = ""
    signature: Signature | None = None
    """Covers `signing.text_to_sign`. Answers of the kinds `key` and `passkey` have one."""
    relayed: bool = False
    """Only in older journals; it is converted to `how`."""

    def __post_init__(self) -> None:
        if self.relayed:
            msgspec.structs.force_setattr(self, "how", self.how or "relayed")
            msgspec.structs.force_setattr(self, "relayed", False)  # noqa: FBT003


class ConfirmationGiven(_Answered, frozen=True, kw_only=True):
    """A person agreed."""

    answers: Mapping[str, Json] = {}
    """What they filled in. A `ContextChanged` in the same batch sets the variables."""


class ConfirmationDenied(_Answered, frozen=True, kw_only=True):
    """A person did not agree."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What was seen when a proof was taken. Only `passed` counts as proven."""

    name: str
    kind: str
    verdict: Literal["passed", "failed", "unproved"]
    summary: str = ""
    """What was checked, on one line: `make test`."""
    reason: str = ""
    """Why it failed or could not be judged; a sentence."""
    remedy: str = ""
    """What to do about it; a sentence."""
    program: str = ""
    """The absolute path of the program that was run."""
    exit_code: int | None = None
    """Negative for a signal."""
    seconds: float = 0.0
    measures: Mapping[str, Json] = {}
    tail: str = ""
    """The part of the output that matters most, at most 2 KiB."""
    commit: str = ""
    """`HEAD` when the proof was taken; empty outside a repository."""
    is_clean: bool | None = None
    """Whether the working tree had no changes; None outside a repository."""
    digests: Mapping[str, str] = {}
    """SHA-256 of the files that were looked at, by path within the root."""
    tree: str = ""
    """Digest of the commit and of the tracked files that differ from it; the same for all proofs of one output."""
    at_start: bool = False
    witness: str = ""
    """Who took it, if not this server."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The state of the root at one time, so that later changes can be recognized."""

    commit: str = ""
    """`HEAD`; empty outside a repository and in one without commits."""
    files: Mapping[str, str] = {}
    """SHA-256 by path: in a repository, the files that differ from the commit (empty for a deleted one); elsewhere,
    the files that proofs look at."""
    ignores: Mapping[str, str] = {}
    """SHA-256 of the files that say what git ignores, by path."""
    is_repository: bool = False
    """Whether the root was in a git repository."""
    problem: str = ""
    """Why no snapshot could be taken; then nothing that needs it can be judged."""


class ProofsDue(_Event, frozen=True, kw_only=True):
    """The server has to look at the world: before a step is handed out (`start`: snapshots and measures), or after its
    output met the criteria (`output`)."""

    step_id: str
    reason: Literal["start", "output"]
    loop: LoopPosition | None = None
    warnings: tuple[str, ...] = ()
    """As in the `StepOffered` or `OutputAccepted` that follows."""
    output: str = ""
    key: str = ""
    captured: Mapping[str, Json] = {}
    context: Mapping[str, Json] = {}
    """The changes of the context that came with the output."""


class ProofClaimed(_Event, frozen=True, kw_only=True):
    """A witness takes the snapshot or proof that is due next, because the server cannot see the files. While the claim
    is valid, nobody else takes it. A witness that needs longer claims it again."""

    step_id: str
    name: str = ""
    """The proof; empty for a snapshot."""
    witness: str
    """The authenticated name of the witness, and the id of its process."""
    until: int
    """When the claim ends, in milliseconds since 1970."""


class SnapshotTaken(_Event, frozen=True, kw_only=True):
    """The state of the root when the run began (`run`) or the step is handed out (`step`)."""

    step_id: str
    since: Literal["run", "step"]
    snapshot: Snapshot


class ProofTaken(_Event, frozen=True, kw_only=True):
    """A proof was taken. No output and no caller can change this."""

    step_id: str
    judgement: Judgement


class CallDue(_Event, frozen=True, kw_only=True):
    """The server has to carry out a step: for the first time, or again."""

    step_id: str
    loop: LoopPosition | None = None
    warnings: tuple[str, ...] = ()


class CallBegun(_Event, frozen=True, kw_only=True):
    """The call is about to be made. The key identifies it to the other system (see `CallState.key`)."""

    step_id: str
    attempt: int
    key: str


class CallAcknowledged(_Event, frozen=True, kw_only=True):
    """The other system has started its own run, with this id."""

    step_id: str
    remote_id: str


class CallProgressed(_Event, frozen=True, kw_only=True):
    """The call reported its progress."""

    step_id: str
    done: float
    total: float | None = None
    message: str = ""


class CallFailed(_Event, frozen=True, kw_only=True):
    """An attempt of the call failed."""

    step_id: str
    reason: str
    error: RemoteError | None = None
    """What the other system reported about it."""
    may_run: bool = False
    """Whether the other system may still work on it."""


class CallStopped(_Event, frozen=True, kw_only=True):
    """What happened to a call that was still running when the run ended."""

    step_id: str
    stopped: bool
    """Whether it certainly no longer runs: its process was killed, or the other system said so."""
    told: str
    """A sentence for a person."""
    is_pending: bool = False
    """Whether stopping it will be tried again."""


class StepSkipped(_Event, frozen=True, kw_only=True):
    """A step was skipped, because this condition is not true."""

    step_id: str
    condition: Condition


class LoopEntered(_Event, frozen=True, kw_only=True):
    """A loop began. From here on, the list of a `forEach` and the count of a `for` are fixed."""

    loop_id: str
    iteration: int = 1
    total: int | None = None
    items: list[Json] | None = None


class LoopIterated(_Event, frozen=True, kw_only=True):
    """The next iteration of a loop began."""

    loop_id: str
    iteration: int


class LoopLeft(_Event, frozen=True, kw_only=True):
    """A loop ended, and why."""

    loop_id: str
    why: str


class Completed(_Event, frozen=True, kw_only=True):
    """No step remains."""

    warnings: tuple[str, ...] = ()


class Failed(_Event, frozen=True, kw_only=True):
    """The run failed: why, and what to do."""

    reason: str
    remedy: str
    timed_out: bool = False


class EndUnknown(_Event, frozen=True, kw_only=True):
    """The run ended at a call that was started, and nothing can say how the call ended."""

    step_id: str
    reason: str
    remedy: str


class Cancelled(_Event, frozen=True, kw_only=True):
    """The run was cancelled."""

    reason: str = ""


class Paused(_Event, frozen=True, kw_only=True):
    """A person paused the run: hooks let the agent stop, and no longer refuse tools. Outputs are still accepted."""

    reason: str = ""


class Resumed(_Event, frozen=True, kw_only=True):
    """A person ended the pause."""


class StopBlocked(_Event, frozen=True, kw_only=True):
    """The agent wanted to stop before the step was done, and a hook told it to go on."""

    step_id: str
    agent: str = ""
    """The id of a sub-agent; empty for the agent itself."""


class StopReleased(_Event, frozen=True, kw_only=True):
    """The agent was told to go on several times without progress, so the hook let it stop."""

    step_id: str


class SessionChanged(_Event, frozen=True, kw_only=True):
    """A hook saw that another session of the client works on the run: it started it, or submitted an output."""

    session: str


class ToolRefused(_Event, frozen=True, kw_only=True):
    """A hook refused the use of a tool that the step does not allow."""

    step_id: str
    tool: str
    pattern: str = ""
    """The pattern that denies it; empty if no pattern allows it."""


Event: TypeAlias = (
    Started
    | StepOffered
    | OutputAccepted
    | OutputRefused
    | ContextChanged
    | ContextRestored
    | ContextAsked
    | ConfirmationAsked
    | ConfirmationDismissed
    | ConfirmationGiven
    | ConfirmationDenied
    | ProofsDue
    | ProofClaimed
    | SnapshotTaken
    | ProofTaken
    | CallDue
    | CallBegun
    | CallAcknowledged
    | CallProgressed
    | CallFailed
    | CallStopped
    | StepSkipped
    | LoopEntered
    | LoopIterated
    | LoopLeft
    | Completed
    | Failed
    | EndUnknown
    | Cancelled
    | Paused
    | Resumed
    | StopBlocked
    | StopReleased
    | SessionChanged
    | ToolRefused
)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An event in a journal. The first has sequence 1; `time` is UTC in milliseconds since 1970; `by` may be empty."""

    sequence: int
    time: int
    by: str = ""
    event: Event
    hash: str = ""
    """The hash of this event and all before it (see `chain`); empty until it is stored."""


def kind_of(event: Event) -> str:
    """`output-accepted`."""
    return str(event.__struct_config__.tag)


_HOW_PHRASES: Final[Mapping[How | None, str]] = {
    "terminal": " in the terminal",
    "form": " in a form of the client",
    "console": " in the console",
    "relayed": ", relayed by the agent",
    "key": " with a key",
    "passkey": " with a passkey",
    None: "",
}


def describe_how(event: ConfirmationGiven | ConfirmationDenied) -> str:
    """` in the terminal`, `, signed by ada with a key`: how a person's answer arrived, to follow "confirmed"."""
    signer = f", signed by {event.signature.person}" if event.signature is not None else ""
    return f"{signer}{describe_kind(event.how)}"


def describe_kind(how: How | None) -> str:
    """` in the terminal`."""
    return _HOW_PHRASES[how]

"""What can happen to a run. What the events come to is in `run`, and what brings them about in `advance`."""

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
    """Something that happened to a run. Ids of steps carry their iteration."""


NO_DOCUMENT: Final = msgspec.Raw(b"null")


class RemoteError(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What another system said about a failure, in its own words."""

    code: str = ""
    """Its error code, or the HTTP status."""
    message: str = ""
    detail: Json = None
    output: Json = None
    """What the failed job gave all the same."""


class Started(_Event, frozen=True, kw_only=True):
    """The run began, with this document, which it keeps."""

    hash: str
    document: msgspec.Raw = NO_DOCUMENT
    """The whole document as JSON; journals store it once for all runs that have it."""
    input: Mapping[str, Json] = {}
    context: Mapping[str, Json] = {}
    """All variables at the start, those of the input included."""
    timeout: float | None = None
    """Seconds for the whole run, by the one who started it."""
    origin: str = ""
    """The file of the document when a repository brought it: what its calls need trust by. Empty for the user's own
    documents, and in journals that are older than trust."""
    imported_from: str = ""
    """Where the run was imported from; empty for runs that were started in this journal."""


class StepOffered(_Event, frozen=True, kw_only=True):
    """The agent was asked for the output of a step: for the first time, or once more."""

    step_id: str
    loop: LoopPosition | None = None
    warnings: tuple[str, ...] = ()


class OutputAccepted(_Event, frozen=True, kw_only=True):
    """The output meets the step's criteria, or a person took it as it is; then it has no key."""

    step_id: str
    output: str
    key: str = ""
    captured: Mapping[str, Json] = {}
    """The variables that came out of the output."""
    warnings: tuple[str, ...] = ()
    characters: int = 0
    """How long the result of a call was, when it was too long to be kept whole."""
    is_reference: bool = False
    """Whether the variable of a call holds only a reference, because its value is too long for the context."""
    value: str = ""
    """That value as JSON, where the output is not it."""
    is_json: bool = False
    """Whether what is referred to is JSON."""


class OutputRefused(_Event, frozen=True, kw_only=True):
    """The output does not do, or the context lacks what the step should have left in it."""

    step_id: str
    output: str
    key: str
    context: Mapping[str, Json] = {}
    """The changes of the context that came with it; they count when a person takes the output as it is."""
    issues: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    missing: tuple[Need, ...] = ()


class ContextChanged(_Event, frozen=True, kw_only=True):
    """Variables were set."""

    changes: Mapping[str, Json]
    key: str = ""
    """Of the call that supplied what the run waited for; empty for changes that came with an output."""


class ContextRestored(_Event, frozen=True, kw_only=True):
    """What came with an output that a person denied was taken back. Older journals lack it: there the values stayed."""

    step_id: str
    changes: Mapping[str, Json] = {}
    """The variables that the output had changed, with the values that they had before it."""
    removed: tuple[str, ...] = ()
    """The variables that were not set before it."""


class ContextAsked(_Event, frozen=True, kw_only=True):
    """A loop comes next whose list or count is missing: the run waits until somebody sends it."""

    loop_id: str
    missing: tuple[Need, ...]
    loop: LoopPosition | None = None
    """Where in the loop around it the loop stands."""
    warnings: tuple[str, ...] = ()


How: TypeAlias = Literal["terminal", "form", "console", "relayed"]
"""How a person's answer came: `relayed` is the agent's word for it."""


class ConfirmationAsked(_Event, frozen=True, kw_only=True):
    """A person must agree: to the output of the step (`step`), to taking its last output after as many attempts as it
    has (`attempts`), to a call before it is made (`call`), or to the step before it is handed out (`before`).
    """

    step_id: str
    reason: Literal["step", "attempts", "call", "before"] = "step"
    nonce: str = ""
    """Identifies this question, so that an answer to another one does not count. Empty in older journals."""
    loop: LoopPosition | None = None
    warnings: tuple[str, ...] = ()
    """As in the `CallDue` or `StepOffered` that follows when the reason is `call` or `before`."""


class ConfirmationDismissed(_Event, frozen=True, kw_only=True):
    """The form was closed without an answer: the question stays open."""

    step_id: str


class _Answered(_Event, frozen=True, kw_only=True):
    """A person's answer to a question."""

    step_id: str
    how: How | None = None
    """None in older journals, for an answer that was not relayed."""
    question: str = ""
    """The nonce of the question that was shown."""
    note: str = ""
    relayed: bool = False
    """Only read, from older journals: it becomes `how`."""

    def __post_init__(self) -> None:
        if self.relayed:
            msgspec.structs.force_setattr(self, "how", self.how or "relayed")
            msgspec.structs.force_setattr(self, "relayed", False)  # noqa: FBT003


class ConfirmationGiven(_Answered, frozen=True, kw_only=True):
    """A person agreed."""

    answers: Mapping[str, Json] = {}
    """What they filled in; a `ContextChanged` of the same call sets the variables."""


class ConfirmationDenied(_Answered, frozen=True, kw_only=True):
    """A person did not agree."""


class CallDue(_Event, frozen=True, kw_only=True):
    """The server is to do a step by itself: for the first time, or once more."""

    step_id: str
    loop: LoopPosition | None = None
    warnings: tuple[str, ...] = ()


class CallBegun(_Event, frozen=True, kw_only=True):
    """The call is about to be made; the key is the same for every attempt."""

    step_id: str
    attempt: int
    key: str


class CallAcknowledged(_Event, frozen=True, kw_only=True):
    """The other system has begun a run of its own, of this id."""

    step_id: str
    remote_id: str


class CallProgressed(_Event, frozen=True, kw_only=True):
    """How far the call is, by its own account."""

    step_id: str
    done: float
    total: float | None = None
    message: str = ""


class CallFailed(_Event, frozen=True, kw_only=True):
    """The call came to nothing, this time."""

    step_id: str
    reason: str
    error: RemoteError | None = None
    """What the other system said about it."""
    may_run: bool = False
    """Whether the other system may be at work on it all the same."""


class CallStopped(_Event, frozen=True, kw_only=True):
    """What became of a call that was still running when the run was over."""

    step_id: str
    stopped: bool
    """Whether it is known that nothing runs any more: its process was killed, or the other system said so."""
    told: str
    """A sentence for a person."""
    is_pending: bool = False
    """Whether it is not known yet, and tried again."""


class StepSkipped(_Event, frozen=True, kw_only=True):
    """A step was passed over, by this condition."""

    step_id: str
    condition: Condition


class LoopEntered(_Event, frozen=True, kw_only=True):
    """The first step of a loop comes next. The list of a `forEach` and the count of a `for` are fixed from here on."""

    loop_id: str
    iteration: int = 1
    total: int | None = None
    items: list[Json] | None = None


class LoopIterated(_Event, frozen=True, kw_only=True):
    """The next iteration of a loop began."""

    loop_id: str
    iteration: int


class LoopLeft(_Event, frozen=True, kw_only=True):
    """A loop was left, and why."""

    loop_id: str
    why: str


class Completed(_Event, frozen=True, kw_only=True):
    """No step is left."""

    warnings: tuple[str, ...] = ()


class Failed(_Event, frozen=True, kw_only=True):
    """The run ended without being completed: why, and what can be done."""

    reason: str
    remedy: str
    timed_out: bool = False


class EndUnknown(_Event, frozen=True, kw_only=True):
    """The run ended at a call that was started, and nobody can be asked how it ended."""

    step_id: str
    reason: str
    remedy: str


class Cancelled(_Event, frozen=True, kw_only=True):
    """Somebody ended the run."""

    reason: str = ""


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
)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An event in its place: the first has sequence 1; time is UTC in milliseconds since 1970; `by` "" is unknown."""

    sequence: int
    time: int
    by: str = ""
    event: Event


def kind_of(event: Event) -> str:
    """`output-accepted`."""
    return str(event.__struct_config__.tag)


_HOW: Final[Mapping[How | None, str]] = {
    "terminal": " in the terminal",
    "form": " in a form of the client",
    "console": " in the console",
    "relayed": ", by the word of the agent",
    None: "",
}


def describe_how(event: ConfirmationGiven | ConfirmationDenied) -> str:
    """` in the terminal`: how a person's answer came, to follow "confirmed"."""
    return _HOW[event.how]

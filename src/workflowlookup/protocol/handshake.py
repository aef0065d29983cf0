"""What client and server tell each other first: `initialize`, `server/discover`, and who calls.

In the handshake era a client introduces itself once; in the envelope era with every request.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from workflowlookup.errors import InvalidParams, UnsupportedProtocolVersion
from workflowlookup.language.values import Json
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.requests import SERVER_INFO, Call, cacheable, in_envelope
from workflowlookup.protocol.versions import (
    ENVELOPE_VERSIONS,
    HANDSHAKE_VERSIONS,
    LATEST,
    META_CAPABILITIES,
    META_CLIENT_INFO,
    VERSION_RULES,
    Rules,
    capabilities_at,
)
from workflowlookup.tools.contract import Caller

INSTRUCTIONS: Final = (
    "Workflows lead you through a task one step at a time: playbooks, checklists and procedures for work that keeps "
    "coming back, such as a bug, a review, an upgrade. Before you begin such a task, look for one with workflow_list, "
    "and start a run of it with workflow_start or with the tool that is named after it. A run leads you, it does not "
    "do the work: do exactly the step that it returns, submit your whole output with workflow_submit, with the "
    "variables that the prompt asked for as context, and repeat until the run is complete; the field next of every "
    "answer says what to do. If the verdict is not valid, fix what it names and submit again. The server carries out "
    "or proves some steps itself: the answer comes when that is done, or at once with wait false. Runs are stored and "
    "outlive this conversation: workflow_runs and workflow_status find them again, also after a lost answer. To follow "
    "a workflow without a stored run, call workflow_next with the ids of the steps you completed and the context "
    "variables you know, check your output with workflow_validate, and repeat until isComplete is true; without a "
    "step, send what missing names. Do not skip steps."
)
"""Claude Code shows a model the first 2,048 characters."""
MAX_CAPABILITIES_BYTES: Final = 4_096
"""Of `capabilities` in `initialize`, which stay in memory as long as the connection."""
MAX_CLIENT_NAME: Final = 200
"""How many characters of a client's name are stored."""


class Handshake:
    """The version, the capabilities and the name of one client."""

    def __init__(self, backend: Backend) -> None:
        self.rules: Rules | None = None
        """Of the version that `initialize` agreed on; None before it."""
        self.capabilities: Mapping[str, Json] = {}
        """Of the client, by `initialize`."""
        self._backend = backend
        self._name = ""
        self._caller: Caller | None = None

    def initialize(self, call: Call) -> Json:
        """Answer `initialize`. Raises `UnsupportedProtocolVersion`, and `InvalidParams` for malformed parameters."""
        requested = call.text("protocolVersion")
        capabilities = call.optional("capabilities", dict, "an object")
        if capabilities is None:
            raise InvalidParams("capabilities is required")
        client_info = call.optional("clientInfo", dict, "an object")
        if requested not in HANDSHAKE_VERSIONS:
            raise UnsupportedProtocolVersion(
                f"Try again with one of {', '.join(HANDSHAKE_VERSIONS)}.",
                supportedVersions=list(HANDSHAKE_VERSIONS),
                requestedVersion=requested,
            )
        self.rules = VERSION_RULES[requested]
        self.capabilities = bounded_capabilities(capabilities)
        self._name, self._caller = client_name(client_info), None
        return {
            "protocolVersion": requested,
            "capabilities": capabilities_at(self.rules, announces_changes=self._backend.announces_changes()),
            "serverInfo": SERVER_INFO,
            "instructions": INSTRUCTIONS,
        }

    def discover(self, call: Call) -> Json:
        """Answer `server/discover`, with or without the envelope of the request."""
        capabilities = capabilities_at(LATEST, announces_changes=self._backend.announces_changes())
        result = cacheable(
            {"supportedVersions": list(ENVELOPE_VERSIONS), "capabilities": capabilities, "instructions": INSTRUCTIONS}
        )
        return result if call.rules.envelope else in_envelope(result)

    def caller_of(self, call: Call) -> Caller:
        """The caller of a request, by `initialize`, or in the envelope era by the request itself."""
        if call.meta is not None:
            capabilities = call.meta[META_CAPABILITIES]
            name = self._backend.sign(client_name(call.meta.get(META_CLIENT_INFO)))
            if call.method != "tools/call":
                capabilities = _without_questions(capabilities)  # no other method may be answered with a question
            return Caller(capabilities=capabilities, name=name, answers=call.answers, timeout_seconds=call.timeout)
        caller = self.initialized_caller()
        if not call.answers and call.timeout is None:
            return caller
        return msgspec.structs.replace(caller, answers=call.answers, timeout_seconds=call.timeout)

    def initialized_caller(self) -> Caller:
        """The caller as `initialize` introduced it."""
        if self._caller is None:
            capabilities = self.capabilities
            if self.rules is None or not self.rules.elicitation:
                capabilities = _without_questions(capabilities)
            self._caller = Caller(capabilities=capabilities, name=self._backend.sign(self._name))
        return self._caller


def _without_questions(capabilities: Mapping[str, Json]) -> Mapping[str, Json]:
    """The capabilities of a client whose user cannot be asked."""
    return {name: value for name, value in capabilities.items() if name != "elicitation"}


def bounded_capabilities(capabilities: Mapping[str, Json]) -> Mapping[str, Json]:
    """The capabilities in `initialize` as they are stored: of long ones, only those that we use."""
    if len(msgspec.json.encode(capabilities)) <= MAX_CAPABILITIES_BYTES:
        return capabilities
    return {"elicitation": {}} if "elicitation" in capabilities else {}


def client_name(client_info: Json) -> str:
    """The name of a client, on one line and without invisible characters; empty if it has none."""
    name = client_info.get("name") if isinstance(client_info, dict) else None
    if not isinstance(name, str):
        return ""
    name = name[:MAX_CLIENT_NAME]
    if not (name.isascii() and name.isprintable()):
        from workflowlookup.language.text import visible  # noqa: PLC0415 - seldom needed

        name = visible(name)
    return " ".join(name.split())

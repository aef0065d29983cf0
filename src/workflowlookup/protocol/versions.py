"""The supported versions of MCP, and the rules that differ between them.

Up to 2025-11-25 a connection begins with `initialize` (the handshake era). Since 2026-07-28 there is no handshake: each
request carries its version and the client's capabilities in `params._meta` (the envelope era). The era is decided for
each message, so one connection can serve both.
"""

from typing import Final

import msgspec

from workflowlookup.language.values import Json

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ENVELOPE_VERSIONS: Final = ("2026-07-28",)
_ORDER: Final = {version: index for index, version in enumerate((*HANDSHAKE_VERSIONS, *ENVELOPE_VERSIONS))}

META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
META_TIMEOUT: Final = "workflowlookup/timeoutSeconds"
"""Our own key: how long a run that the call starts may take."""
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What is special about a version."""

    version: str
    batches: bool
    """Whether JSON-RPC batches are answered."""
    errors_as_results: bool
    """Whether an error of a tool is a result with `isError`."""
    misfits_as_results: bool
    """Whether arguments that do not fit the schema are such a result, too."""
    elicitation: bool
    """Whether clients may offer `elicitation`, so that a person can be asked."""
    tasks: bool
    """Whether a client may make a call as a task; since 2026-07-28 that is an extension."""
    resource_links: bool
    """Whether the content of a result may link to a resource."""
    envelope: bool
    """Whether results carry `resultType` and the server's name, and some error codes are forbidden."""


def _rules(version: str) -> Rules:
    def since(first: str) -> bool:
        return _ORDER[version] >= _ORDER[first]

    return Rules(
        version=version,
        batches=not since("2025-06-18"),
        errors_as_results=since("2025-03-26"),
        misfits_as_results=since("2025-11-25"),
        elicitation=since("2025-06-18"),
        tasks=version == "2025-11-25",
        resource_links=since("2025-06-18"),
        envelope=since("2026-07-28"),
    )


VERSION_RULES: Final = {version: _rules(version) for version in _ORDER}
LATEST: Final = VERSION_RULES[ENVELOPE_VERSIONS[-1]]
EARLIEST: Final = VERSION_RULES[HANDSHAKE_VERSIONS[0]]


def capabilities_at(rules: Rules, *, announces_changes: bool) -> dict[str, Json]:
    """The capabilities of this server in the form of a version. `announces_changes`: whether lists may change."""
    capabilities: dict[str, Json] = {
        "tools": {"listChanged": announces_changes, "notifyProgress": announces_changes},
        "resources": {"subscribe": True, "listChanged": announces_changes},
        "prompts": {"listChanged": False},
        "completions": {},
    }
    if rules.tasks:
        capabilities["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    if rules.envelope:
        capabilities["extensions"] = {TASKS_EXTENSION: {}, SKILLS_EXTENSION: {"directoryRead": True}}
    return capabilities

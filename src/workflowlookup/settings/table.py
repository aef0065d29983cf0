"""The table of settings. A row says what a setting means, how it is parsed, and when it needs the user's trust."""

import os
from collections.abc import Callable
from typing import Any, Final

import msgspec

from workflowlookup.access import PERSON_KINDS, SIGNED_KINDS
from workflowlookup.errors import JOURNAL_SECONDS
from workflowlookup.repository import Project
from workflowlookup.settings.parsers import (
    address,
    audit_destination,
    boolean,
    journal_url,
    names,
    networks,
    one_of,
    path,
    paths,
    patterns,
    seconds,
    some_of,
    web_address,
    whole_number,
    word,
)


class TrustRule(msgspec.Struct, frozen=True):
    """When a value in a repository's settings file needs the user's trust."""

    words: str
    """For the documentation: what a repository may do without trust."""
    applies: Callable[[Any, Any, Project], bool]
    """Whether trust is needed, given the value without the repository, the repository's value, and the project."""


ALWAYS: Final = TrustRule("nothing", lambda _, __, ___: True)
"""For settings that start something, or decide where data goes or who has access."""
NEVER: Final = TrustRule("set it", lambda _, __, ___: False)
"""For settings that do no harm, whatever the value."""
TO_SWITCH_ON: Final = TrustRule("switch it off", lambda before, after, _: after and not before)
TO_SWITCH_OFF: Final = TrustRule("switch it on", lambda before, after, _: before and not after)
TO_POLL_MORE_OFTEN: Final = TrustRule(
    "have them polled less often, or never",
    lambda before, after, _: after != 0 and (before == 0 or after < before),
)
TO_INCLUDE_MORE: Final = TrustRule(
    "choose where the user chose nothing, or fewer of the user's patterns",
    lambda before, after, _: bool(before) and not (after and set(after) <= set(before)),
)
TO_EXCLUDE_LESS: Final = TrustRule("exclude more", lambda before, after, _: not set(before) <= set(after))
TO_ALLOW_MORE: Final = TrustRule("allow fewer", lambda before, after, _: not set(after) <= set(before))
TO_LEAVE_THE_PROJECT: Final = TrustRule(
    "name directories of the project",
    lambda _, after, project: not all(project.contains(path) for path in after),
)


def to_loosen(*order: str) -> TrustRule:
    """For words in order: a repository may choose a later one, but not an earlier one."""
    return TrustRule(
        f"raise it: {' < '.join(order)}", lambda before, after, _: order.index(after) < order.index(before)
    )


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table."""

    name: str
    default: Any
    parse: Callable[[object], Any]
    help: str
    needs_trust: TrustRule = ALWAYS
    """When a value in a repository's file takes effect only after the user trusted it."""
    is_live: bool = False
    """Whether a change in a file takes effect while the server runs."""

    @property
    def separator(self) -> str:
        """The separator of list items in flags and in the environment."""
        return os.pathsep if self.parse is paths else ","

    def text_of(self, value: object) -> str:
        """A value as it is written in a flag; `none` for an empty one."""
        if isinstance(value, (list, tuple)):
            return self.separator.join(value) or "none"
        return str(value).lower() if isinstance(value, bool) else str(value) or "none"


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        name="bundled",
        default=True,
        parse=boolean,
        needs_trust=TO_SWITCH_ON,
        help="Offer the workflows that come with the package.",
    ),
    Setting(
        name="user",
        default=True,
        parse=boolean,
        needs_trust=TO_SWITCH_ON,
        help="Offer the workflows in ~/.workflowlookup/workflows.",
    ),
    Setting(
        name="project",
        default=True,
        parse=boolean,
        needs_trust=TO_SWITCH_ON,
        help="Offer the workflows in .workflowlookup/workflows of the project (see root): of the working directory, or "
        "of the nearest directory above it that has some.",
    ),
    Setting(
        name="directories",
        default=(),
        parse=paths,
        needs_trust=TO_LEAVE_THE_PROJECT,
        help="More directories with workflows; WORKFLOW_STORAGE_PATH adds to them.",
    ),
    Setting(
        name="frozen",
        default=False,
        parse=boolean,
        help="Refuse to start when the sources in the settings, `workflowlookup.lock` and the cache do not agree, and "
        "never fetch: for CI and servers. See [libraries](libraries.md).",
    ),
    Setting(
        name="git_timeout_seconds",
        default=60.0,
        parse=seconds(0.1, 3600),
        needs_trust=NEVER,
        help="How long a repository may take to answer `add`, `update`, `outdated` or `import`.",
    ),
    Setting(
        name="root",
        default="",
        parse=path,
        help="The project directory, whose workflows are offered and in which the proofs of runs are taken. By default "
        "the one that the client names (`CLAUDE_PROJECT_DIR`), else its MCP root around the working directory, else "
        "its first root, else the repository around the working directory, else that directory. A server over HTTP "
        "cannot see the files of its clients and ignores it.",
    ),
    Setting(
        name="proof_hosts",
        default=(),
        parse=names,
        is_live=True,
        help="Hosts that proofs of kind `http` may ask, besides this machine: names without port, such as "
        "staging.example.com.",
    ),
    Setting(
        name="witness_seconds",
        default=10.0,
        parse=seconds(0, 3600),
        is_live=True,
        help="How long a server over HTTP waits until a witness takes a proof, or takes over from one that is gone; "
        "then the proof counts as unproved. 0 does not wait.",
    ),
    Setting(
        name="journal",
        default="~/.local/share/workflowlookup/runs.sqlite",
        parse=journal_url,
        help="Journal URL: the path of a SQLite file, or the URL of a PostgreSQL database. `$XDG_DATA_HOME` moves the "
        "default.",
    ),
    Setting(
        name="journal_timeout_seconds",
        default=JOURNAL_SECONDS,
        parse=seconds(1, 600),
        help="How long a request waits for the journal before it is refused; over HTTP with 503.",
    ),
    Setting(
        name="confirmation",
        default="auto",
        parse=one_of("auto", "person", "agent"),
        needs_trust=to_loosen("agent", "auto", "person"),
        help="Whose answer counts where a step needs a person. auto: the client asks the person in a form if it can, "
        "otherwise the agent asks and relays the answer; person: only the person's own answer; agent: always the "
        "relayed answer.",
    ),
    Setting(
        name="person_confirmation",
        default=SIGNED_KINDS,
        parse=some_of(*PERSON_KINDS),
        needs_trust=TO_ALLOW_MORE,
        help="Which kinds of answers are enough for a step with `by: person`: passkey (signed in the console), key "
        "(signed in a terminal, with a passphrase), form (of the client), terminal, console. The last three are not "
        "signed: see [security](security.md).",
    ),
    Setting(
        name="hook_triggers",
        default=False,
        parse=boolean,
        needs_trust=TO_SWITCH_ON,
        help="Tell the agent, by a [hook](hooks.md), when a prompt matches the `triggers` of a workflow.",
    ),
    Setting(
        name="log_level",
        default="warning",
        parse=one_of("debug", "info", "warning", "error"),
        needs_trust=to_loosen("error", "warning", "info", "debug"),
        help="The least severe messages that are logged on standard error.",
    ),
    Setting(
        name="log_format",
        default="text",
        parse=one_of("text", "json"),
        needs_trust=NEVER,
        help="Format of the log on standard error: text, or one JSON object per line.",
    ),
    Setting(
        name="audit_log",
        default="",
        parse=audit_destination,
        help="Where to record who did what: `log` for standard error, or the absolute path of a file to which JSON "
        "lines are appended; empty: nowhere.",
    ),
    Setting(
        name="max_message_bytes",
        default=8 << 20,
        parse=whole_number(1024, 64 << 20),
        needs_trust=NEVER,
        help="Maximum size of a message. A longer one is answered with a parse error, and with its id if the id is in "
        "the first 64 KiB.",
    ),
    Setting(
        name="workflow_tools",
        default=True,
        parse=boolean,
        is_live=True,
        needs_trust=TO_SWITCH_ON,
        help="Offer each workflow as a tool of its own as well.",
    ),
    Setting(
        name="include",
        default=(),
        parse=patterns,
        is_live=True,
        needs_trust=TO_INCLUDE_MORE,
        help="Which workflows become tools: glob patterns for an id or a name, or a pattern after `id:`, `name:`, "
        "`category:` or `provider:`; all workflows if there is no pattern. The provider of the library is `library`.",
    ),
    Setting(
        name="exclude",
        default=(),
        parse=patterns,
        is_live=True,
        needs_trust=TO_EXCLUDE_LESS,
        help="Which workflows do not become tools; patterns as for include.",
    ),
    Setting(
        name="tools_budget_bytes",
        default=32_000,
        parse=whole_number(1_000, 64 << 20),
        is_live=True,
        needs_trust=NEVER,
        help="Maximum size of what models see of all tools: names, descriptions and input schemas, as compact JSON. If "
        "it would be larger, workflow_search and workflow_start replace the workflow tools.",
    ),
    Setting(
        name="refresh_seconds",
        default=300.0,
        parse=seconds(0, 86_400),
        is_live=True,
        needs_trust=TO_POLL_MORE_OFTEN,
        help="How often providers are polled for their workflows; 0: only at the start and on demand.",
    ),
    Setting(
        name="discovery_wait_seconds",
        default=0.3,
        parse=seconds(0, 60),
        help="How long the first list of tools waits for providers whose workflows are not cached yet.",
    ),
    Setting(
        name="timeout_seconds",
        default=300.0,
        parse=seconds(1, 86_400),
        is_live=True,
        needs_trust=NEVER,
        help="How long a run may take if the server or another system does all the work, unless the workflow or the "
        "call says otherwise.",
    ),
    Setting(
        name="max_concurrent",
        default=10,
        parse=whole_number(1, 100),
        is_live=True,
        needs_trust=NEVER,
        help="How many runs the server works on at once; the others are queued.",
    ),
    Setting(
        name="max_concurrent_total",
        default=0,
        parse=whole_number(0, 10_000),
        is_live=True,
        needs_trust=NEVER,
        help="How many runs all replicas on one PostgreSQL work on at once; `0`: each replica has only its own limit.",
    ),
    Setting(
        name="drain_seconds",
        default=1.0,
        parse=seconds(0, 60),
        needs_trust=NEVER,
        help="How long pending calls may take to finish when the client disconnects or the server stops.",
    ),
    Setting(
        name="stop_delay_seconds",
        default=0.0,
        parse=seconds(0, 300),
        needs_trust=NEVER,
        help="How long a stopping server over HTTP keeps serving while /readyz says 503, before it stops accepting "
        "connections: time for a load balancer to notice.",
    ),
    Setting(
        name="http",
        default="",
        parse=address,
        help="Serve HTTP at this HOST:PORT, such as 127.0.0.1:8787, instead of standard input and output.",
    ),
    Setting(
        name="public_url",
        default="",
        parse=web_address,
        help="The URL at which people open the console, such as https://workflows.example.com. Links in notices and "
        "feeds begin with it.",
    ),
    Setting(
        name="allowed_hosts",
        default=(),
        parse=names,
        help="More host names by which clients may call this server over HTTP, with or without a port; * allows all. A"
        " name that other machines can use makes tokens required, as require_tokens does.",
    ),
    Setting(
        name="require_tokens",
        default=False,
        parse=boolean,
        needs_trust=TO_SWITCH_OFF,
        help="Over HTTP, require a token from the first request on, also on loopback. The server does not start until "
        "there is a token or an issuer.",
    ),
    Setting(
        name="allowed_origins",
        default=(),
        parse=names,
        help="Origins of other web pages that may send requests over HTTP, such as https://tools.example.com; * allows"
        " all.",
    ),
    Setting(
        name="trusted_proxies",
        default=(),
        parse=networks,
        help="Addresses and networks of proxies whose X-Forwarded-For header is trusted, such as 127.0.0.1 for one on "
        "this machine. Requests without a token, and wrong tokens, are counted by the client's address.",
    ),
    Setting(
        name="max_sessions",
        default=1_000,
        parse=whole_number(1, 100_000),
        help="Maximum number of open sessions over HTTP.",
    ),
    Setting(
        name="connections_per_address",
        default=500,
        parse=whole_number(1, 100_000),
        help="How many HTTP connections one address may have open at once, at most half of all connections; addresses "
        "in trusted_proxies are not limited. At the limit, the oldest idle connection is closed for a new one.",
    ),
    Setting(
        name="idle_seconds",
        default=1_800.0,
        parse=seconds(1, 86_400),
        help="How long a session over HTTP may be unused before it is ended.",
    ),
    Setting(
        name="requests_per_minute",
        default=6_000,
        parse=whole_number(0, 10_000_000),
        help="How many requests one caller may send over HTTP in a minute; 0: no limit.",
    ),
    Setting(
        name="oauth_issuer",
        default="",
        parse=web_address,
        help="Over HTTP, accept JWTs of this issuer as well as tokens of `workflowlookup token`: the expected `iss` "
        "claim.",
    ),
    Setting(
        name="oauth_audience",
        default="",
        parse=word,
        help="Expected `aud` claim of these JWTs; usually this server's URL, such as https://example.com/mcp.",
    ),
    Setting(
        name="oauth_jwks_url",
        default="",
        parse=web_address,
        help="URL at which the issuer publishes its keys.",
    ),
    Setting(
        name="oauth_scopes_claim",
        default="scope",
        parse=word,
        help="The claim that has the scopes (read, run, confirm, witness, admin, alone or after `workflowlookup:`); "
        "dots lead into objects. The scope `person` says that a person holds the token.",
    ),
    Setting(
        name="oauth_workflows_claim",
        default="",
        parse=word,
        help="The claim that has patterns of the workflow ids that the token is good for; without this setting a token"
        " is good for all workflows.",
    ),
)
LIVE: Final = frozenset(setting.name for setting in SETTINGS if setting.is_live)
"""The settings whose changes take effect while the server runs. The tables of other systems do as well."""

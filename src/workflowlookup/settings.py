"""Settings: one table, read from flags, then the environment, then the project's file, then the user's, then defaults.

A setting is a row of `SETTINGS`. Its flag is `--name`, its variable `WORKFLOWLOOKUP_NAME`, its key in a file `name`.
Other systems are tables of a file: `[mcpServers.NAME]` and `[providers.NAME]`. A file that a repository brought counts
setting by setting over the user's own, and where it could do harm only when the user has trusted it (`trust`). While a
server runs, `Live` reads the settings again when a file has changed.
"""

import contextlib
import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from workflowlookup import extras
from workflowlookup.errors import JOURNAL_SECONDS
from workflowlookup.language.text import shorten
from workflowlookup.repository import Project, configuration_directory, find_project
from workflowlookup.store.journal_url import JournalUrl, without_password

if TYPE_CHECKING:
    from workflowlookup.providers.config import Plan, ProviderConfig, ServerConfig
    from workflowlookup.trust import Entry, Store

log = logging.getLogger(__name__)

Number = TypeVar("Number", int, float)

FILE_NAME: Final = "workflowlookup.toml"
PREFIX: Final = "WORKFLOWLOOKUP_"
TABLES: Final = {"mcpServers": "servers", "servers": "servers", "providers": "providers"}
"""The tables of the file, and the fields of `Settings` that they fill; `servers` is the same as `mcpServers`."""


MAX_FILE_BYTES: Final = 256 << 10
MAX_NESTING: Final = 64
MAX_FAULTS: Final = 3
"""How many faults of a project's settings file one line names."""
_PART: Final = r"(?:(?<![\w-])[\w-]++|\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+"
_LONG_KEY: Final = f"(?:{_PART}){{{MAX_NESTING}}}"
"""A dotted key costs `tomllib` the square of its parts, in memory too: one of 200 kB takes gigabytes."""


class SettingsError(Exception):
    """A setting that cannot be used: which, where it came from, what was expected."""


def boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError("true or false")


def _parts(value: object, what: str, separator: str) -> list[str]:
    """The parts of a list. Raises `ValueError`."""
    if isinstance(value, str):
        value = [part for part in value.split(separator) if part.strip()]
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return list(value)
    raise ValueError(f"a list of {what} (in the environment separated by '{separator}')")


def paths(value: object) -> tuple[str, ...]:
    return tuple(os.path.expanduser(part) for part in _parts(value, "directories", os.pathsep))


def journal_url(value: object) -> str:
    return JournalUrl(value if isinstance(value, str) else "").text


def command_line(settings: "Settings", *words: str) -> str:
    """A command that a person can paste; with `--journal` where the journal is not the default.

    The password of a database is never in it: then it says where to put it.
    """
    if settings.origins["journal"] == "default":
        return shlex.join(["workflowlookup", *words])
    url, has_password = JournalUrl(settings.journal).as_argument()
    command = shlex.join(["workflowlookup", *words, "--journal", url])
    return f"PGPASSWORD=… {command}" if has_password else command


def web_address(value: object) -> str:
    """Of something that is trusted: over TLS, or on this machine."""
    found = (
        re.fullmatch(r"(https?)://(\[[0-9a-f:]+\]|[\w.-]+)(:\d+)?(/[^\s?#]*)?", value)
        if isinstance(value, str)
        else None
    )
    if value == "" or (found and (found[1] == "https" or found[2] in ("localhost", "127.0.0.1", "[::1]"))):
        return str(value)
    raise ValueError("an address that begins with https:// (http:// for this machine only)")


def word(value: object) -> str:
    if isinstance(value, str) and (not value or re.fullmatch(r"[!-~]+", value)):
        return value
    raise ValueError("one word")


def _number_within(kind: type[Number], least: Number, most: Number, words: str) -> Callable[[object], Number]:
    def parse(value: object) -> Number:
        with contextlib.suppress(ValueError, OverflowError):
            if isinstance(value, (str, int, kind)) and not isinstance(value, bool):
                number = kind(value)
                if least <= number <= most:  # which is not so for what is no number
                    return number
        raise ValueError(words)

    return parse


def whole_number(least: int, most: int) -> Callable[[object], int]:
    return _number_within(int, least, most, f"a whole number from {least:,} to {most:,}")


def seconds(least: float, most: float) -> Callable[[object], float]:
    return _number_within(float, least, most, f"a number of seconds from {least:g} to {most:,g}")


def patterns(value: object) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in _parts(value, "patterns", ","))
    if parts:
        from workflowlookup.providers.config import Pattern  # noqa: PLC0415 - most people filter nothing

        for part in parts:
            Pattern(part)
    return parts


def names(value: object) -> tuple[str, ...]:
    parts = tuple(part.strip().lower().rstrip("/") for part in _parts(value, "names", ","))
    if not all(parts):
        raise ValueError("a list of names, none of them empty")
    return parts


def networks(value: object) -> tuple[str, ...]:
    import ipaddress  # noqa: PLC0415 - seldom needed

    try:
        return tuple(str(ipaddress.ip_network(part)) for part in names(value))
    except ValueError:
        raise ValueError("a list of addresses and networks, such as 10.0.0.5 and 172.16.0.0/12") from None


def address(value: object) -> str:
    if value == "":
        return ""
    from workflowlookup.web import split_address  # noqa: PLC0415 - only a server over HTTP has an address

    split_address(value if isinstance(value, str) else "")
    return str(value)


def audit_destination(value: object) -> str:
    path = os.path.expanduser(value) if isinstance(value, str) else "?"
    if path in ("", "log") or os.path.isabs(path):
        return path
    raise ValueError("log, or an absolute path")


def one_of(*options: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if isinstance(value, str) and value.lower() in options:
            return value.lower()
        raise ValueError(f"one of {', '.join(options)}")

    return parse


# ── what a repository may set ───────────────────────────────────────────────────────────────────────────────────


class TrustRule(msgspec.Struct, frozen=True):
    """When a value in a repository's file needs trust."""

    words: str
    """What a repository may do without trust, for the documentation."""
    applies: Callable[[Any, Any, Project], bool]
    """Whether trust is needed, from the value in force without the repository, the wanted one, and the project."""


ALWAYS: Final = TrustRule("nothing", lambda _, __, ___: True)
"""For what starts something, or decides where data goes or who has access."""
NEVER: Final = TrustRule("set it", lambda _, __, ___: False)
"""For what does no harm, whatever the value."""
TO_SWITCH_ON: Final = TrustRule("switch it off", lambda held, wanted, _: wanted and not held)
TO_SWITCH_OFF: Final = TrustRule("switch it on", lambda held, wanted, _: held and not wanted)
TO_ASK_MORE_OFTEN: Final = TrustRule(
    "have them asked less often, or never",
    lambda held, wanted, _: wanted != 0 and (held == 0 or wanted < held),
)
TO_INCLUDE_MORE: Final = TrustRule(
    "choose where the user chose nothing, or fewer of the user's patterns",
    lambda held, wanted, _: bool(held) and not (wanted and set(wanted) <= set(held)),
)
TO_EXCLUDE_LESS: Final = TrustRule("exclude more", lambda held, wanted, _: not set(held) <= set(wanted))
TO_LEAVE_THE_PROJECT: Final = TrustRule(
    "name directories of the project",
    lambda _, wanted, project: not all(project.contains(path) for path in wanted),
)


def to_loosen(*order: str) -> TrustRule:
    """For words in order, of which a repository may choose a later one but no earlier one."""
    return TrustRule(f"raise it: {' < '.join(order)}", lambda held, wanted, _: order.index(wanted) < order.index(held))


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    default: Any
    parse: Callable[[object], Any]
    help: str
    needs_trust: TrustRule = ALWAYS
    """When a value in a file that a repository brought counts only after the user trusted it."""
    is_live: bool = False
    """Whether a change in the file takes effect while the server runs."""

    @property
    def separator(self) -> str:
        """What stands between the parts of a list, in flags and in the environment."""
        return os.pathsep if self.parse is paths else ","

    def text_of(self, value: object) -> str:
        """A value as a flag would have it; `none` for an empty one."""
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
        help="Offer the workflows in ./.workflowlookup/workflows.",
    ),
    Setting(
        name="directories",
        default=(),
        parse=paths,
        needs_trust=TO_LEAVE_THE_PROJECT,
        help="More directories with workflows; WORKFLOW_STORAGE_PATH adds to them.",
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
        help="Offer each workflow as a tool of its own, too.",
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
        help="Which of these do not become tools; the same kind of patterns.",
    ),
    Setting(
        name="tools_budget_bytes",
        default=200_000,
        parse=whole_number(1_000, 64 << 20),
        is_live=True,
        needs_trust=NEVER,
        help="Maximum size of the list of tools. If it would be larger, workflow_search and workflow_start replace the "
        "workflow tools.",
    ),
    Setting(
        name="refresh_seconds",
        default=300.0,
        parse=seconds(0, 86_400),
        is_live=True,
        needs_trust=TO_ASK_MORE_OFTEN,
        help="How often providers are asked for their workflows; 0: only at the start and on demand.",
    ),
    Setting(
        name="discovery_wait_seconds",
        default=0.3,
        parse=seconds(0, 60),
        help="How long the first list of tools waits for providers of which no workflows are cached.",
    ),
    Setting(
        name="timeout_seconds",
        default=300.0,
        parse=seconds(1, 86_400),
        is_live=True,
        needs_trust=NEVER,
        help="How long a run may take if the server or another system does all of it, unless the workflow or the call "
        "says otherwise.",
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
        help="Serve HTTP at this HOST:PORT, such as 127.0.0.1:8787, in place of standard input and output.",
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
        help="The claim that has the scopes (read, run, confirm, admin, alone or after `workflowlookup:`); dots lead "
        "into objects. The scope `person` says that a person holds the token.",
    ),
    Setting(
        name="oauth_workflows_claim",
        default="",
        parse=word,
        help="The claim that has patterns of the workflow ids that the token is good for; without this setting a token"
        " is good for all workflows.",
    ),
)


def issuer_of(settings: "Settings") -> dict[str, str]:
    """Whose tokens are taken, by the names without `oauth_`; empty when the settings name nobody."""
    names = ("issuer", "audience", "jwks_url", "scopes_claim", "workflows_claim")
    found = {name: str(getattr(settings, f"oauth_{name}")) for name in names}
    return found if found["issuer"] else {}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force; `origins` tells where each came from."""

    bundled: bool
    user: bool
    project: bool
    directories: tuple[str, ...]
    journal: str
    journal_timeout_seconds: float
    confirmation: str
    log_level: str
    log_format: str
    audit_log: str
    max_message_bytes: int
    workflow_tools: bool
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    tools_budget_bytes: int
    refresh_seconds: float
    discovery_wait_seconds: float
    timeout_seconds: float
    max_concurrent: int
    max_concurrent_total: int
    drain_seconds: float
    stop_delay_seconds: float
    http: str
    allowed_hosts: tuple[str, ...]
    require_tokens: bool
    allowed_origins: tuple[str, ...]
    trusted_proxies: tuple[str, ...]
    max_sessions: int
    connections_per_address: int
    idle_seconds: float
    requests_per_minute: int
    oauth_issuer: str
    oauth_audience: str
    oauth_jwks_url: str
    oauth_scopes_claim: str
    oauth_workflows_claim: str
    origins: Mapping[str, str]
    servers: Mapping[str, "ServerConfig"] = {}
    providers: Mapping[str, "ProviderConfig"] = {}
    left_out: Mapping[str, str] = {}
    """The entries of servers and providers that cannot be used, such as "providers.shop", each with the reason."""
    faults: tuple[str, ...] = ()
    """What is wrong in the project's settings file, and so has no effect: a repository must not stop the user."""
    brought: tuple["Entry", ...] = ()
    """The entries of a repository's file that need trust."""
    ignored: tuple["Entry", ...] = ()
    """Those of `brought` that are not trusted and have no effect."""
    trust: "TrustFile"
    """The file with what the user has trusted."""
    own_directory: str = ""
    """The user's own configuration directory; empty for an account without a home directory."""
    project_around: Project
    """The project around the working directory."""
    candidates: tuple[str, ...] = ()
    """The files that decide them."""
    read_again: Callable[[], "Settings"] | None = None
    """The settings by the same flags and the same environment, as of then. Raises `SettingsError`."""


def needed_extras(settings: Settings) -> dict[str, list[str]]:
    """The extras that the settings need, each with the settings that need it."""
    systems = [f"[mcpServers.{name}]" for name in settings.servers if name not in settings.providers]
    systems += [f"[providers.{name}]" for name in settings.providers]
    needed = {
        extras.CALLS: systems,
        extras.HTTP: ["http"] if settings.http else [],
        JournalUrl(settings.journal).kind.extra: ["journal"],
    }
    return {extra: names for extra, names in needed.items() if extra and names}


def plan_of(settings: Settings) -> "Plan":
    """What the settings say about workflow tools and about work of the server's own."""
    from workflowlookup.providers.config import Filters, Plan  # noqa: PLC0415 - `initialize` needs none of it

    return Plan(
        is_on=settings.workflow_tools,
        filters=Filters(settings.include, settings.exclude),
        servers=settings.servers,
        providers=settings.providers,
        budget_bytes=settings.tools_budget_bytes,
        refresh_seconds=settings.refresh_seconds,
        discovery_wait_seconds=settings.discovery_wait_seconds,
        timeout_seconds=settings.timeout_seconds,
        max_concurrent=settings.max_concurrent,
        max_concurrent_total=settings.max_concurrent_total,
    )


class TrustFile(msgspec.Struct, frozen=True):
    """The file with what the user has trusted. Without a path there is none, and `problem` says why."""

    path: str
    problem: str = ""

    @staticmethod
    def of(own: str, project: Project) -> "TrustFile":
        """The file in the user's configuration directory; none when a repository brought that directory."""
        path = os.path.join(own, "trust.json")
        if project.brings(path):
            return TrustFile("", f"{own} lies in the project, so it is not the user's own: nothing is trusted")
        return TrustFile(path)

    def store(self) -> "Store":
        from workflowlookup.trust import Store  # noqa: PLC0415 - only where a repository brings something

        return Store(self.path, self.problem)


class _Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A settings file as it was read, once: what is checked is what is used."""

    file: str
    table: Mapping[str, Any]
    is_brought: bool
    """Whether a repository brought it."""
    may_be_wrong: bool
    """Whether what is wrong in it is ignored: a repository brought it, and the user did not name it."""


def read_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], *, directory: str, config: str | None = None
) -> Settings:
    """The settings for a process in `directory`. Raises `SettingsError`."""
    files = _Files(environment, directory, config)
    values: dict[str, Any] = files.systems()
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        said = (
            (f"--{setting.name.replace('_', '-')}", flags.get(setting.name)),
            (PREFIX + setting.name.upper(), environment.get(PREFIX + setting.name.upper())),
        )
        origin, raw = next(((origin, raw) for origin, raw in said if raw is not None), ("", None))
        found = files.value(setting) if raw is None else (origin, _parse(setting, origin, raw))
        origins[setting.name], values[setting.name] = found
    if origins["journal"] == "default":
        data = environment.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
        values["journal"] = os.path.join(data, "workflowlookup", "runs.sqlite")
    storage_path = environment.get("WORKFLOW_STORAGE_PATH")
    if storage_path:
        values["directories"] = (*paths(storage_path), *values["directories"])
        origins["directories"] = "WORKFLOW_STORAGE_PATH" + (
            "" if origins["directories"] == "default" else f", {origins['directories']}"
        )
    named = [name for name in ("oauth_issuer", "oauth_audience", "oauth_jwks_url") if values[name]]
    if len(named) not in (0, 3):
        raise SettingsError(f"{named[0]}: oauth_issuer, oauth_audience and oauth_jwks_url go together")
    return Settings(
        **values,
        origins=origins,
        faults=tuple(files.faults),
        brought=tuple(files.brought),
        ignored=tuple(files.ignored),
        trust=files.trust,
        own_directory=files.own_directory,
        project_around=files.project,
        candidates=(*files.candidates, files.trust.path),
        read_again=lambda: read_settings(flags, environment, directory=directory, config=config),
    )


def _parse(setting: Setting, origin: str, raw: object) -> Any:
    try:
        return setting.parse(raw)
    except ValueError as problem:
        found = shorten(without_password(repr(raw)), 200)
        raise SettingsError(f"{origin}: {setting.name} must be {problem}; found {found}") from None


class _Files:
    """The settings files of one reading, the user's own first; each counts over those before it."""

    def __init__(self, environment: Mapping[str, str], directory: str, config: str | None) -> None:
        self._environment = environment
        self._directory = directory
        self.project = find_project(directory)
        own = configuration_directory(environment, directory)
        self.own_directory = "" if "~" in own.split(os.sep) else own  # nobody knows where it leads
        self.trust = TrustFile.of(own, self.project)
        self.candidates = self._chosen(os.path.join(own, FILE_NAME), config)
        self.faults: list[str] = []
        self._layers = [layer for file in self.candidates if (layer := self._layer(file, is_named=file == config))]
        self.brought: list[Entry] = []
        """Entries that need trust."""
        self.ignored: list[Entry] = []
        """Those of them that are not trusted, and so have no effect."""

    def _layer(self, file: str, *, is_named: bool) -> _Layer | None:
        """A settings file; None when there is none, unless it was named, or when it is ignored."""
        if not is_named and not os.path.isfile(file):
            return None
        is_brought = self.project.brings(file)
        may_be_wrong = is_brought and not is_named
        try:
            table = _read_file(file)
            _check_values(file, table)
        except SettingsError as problem:
            if not may_be_wrong:
                raise
            self.faults.append(str(problem))
            return None
        layer = _Layer(file=file, table=table, is_brought=is_brought, may_be_wrong=may_be_wrong)
        unknown = sorted(table.keys() - {setting.name for setting in SETTINGS} - TABLES.keys())
        if unknown:
            known = ", ".join(setting.name for setting in SETTINGS)
            self._refuse(layer, f"unknown setting '{shorten(unknown[0], 60)}'. Known: {known}")
        return layer

    def _refuse(self, layer: _Layer, problem: str) -> None:
        """Raises `SettingsError`, unless what is wrong in the file is ignored."""
        problem = f"{layer.file}: {problem}"
        if not layer.may_be_wrong:
            raise SettingsError(problem)
        self.faults.append(problem)

    def _chosen(self, users: str, config: str | None) -> tuple[str, ...]:
        """The files to read. One that `--config` names replaces both; one of a repository, only the project's."""
        if config is None:
            return users, os.path.join(self._directory, FILE_NAME)
        return (users, config) if self.project.brings(config) else (config,)

    def value(self, setting: Setting) -> tuple[str, Any]:
        """Where a setting comes from, of the files and the default, and its value."""
        origin, value = "default", setting.default
        for layer in self._layers:
            if (raw := layer.table.get(setting.name)) is None:
                continue
            try:
                wanted = _parse(setting, layer.file, raw)
            except SettingsError as problem:
                if not layer.may_be_wrong:
                    raise
                self.faults.append(str(problem))
                continue
            beside = os.path.dirname(layer.file)  # what a file names lies beside it, wherever one works
            if setting.parse is paths:
                wanted = tuple(os.path.join(beside, path) for path in wanted)
            elif setting.parse is journal_url:
                wanted = JournalUrl(wanted).relative_to(beside)
            is_risky = layer.is_brought and wanted != value and setting.needs_trust.applies(value, wanted, self.project)
            if not is_risky or self._trusts_setting(layer, setting.name):
                origin, value = layer.file, wanted
        return origin, value

    def _trusts_setting(self, layer: _Layer, name: str) -> bool:
        """Whether a setting of a repository is trusted. A log-in (`oauth_…`) is one entry, never half trusted."""
        from workflowlookup.trust import SETTING, Entry  # noqa: PLC0415 - only where a repository brings something

        value = layer.table[name]
        if name.startswith("oauth_"):
            name, value = "oauth", {key: part for key, part in layer.table.items() if key.startswith("oauth_")}
        entry = Entry(file=os.path.realpath(layer.file), kind=SETTING, name=name, value=value)
        if entry in self.brought:
            return entry not in self.ignored
        return self._pins(entry) is not None

    def _pins(self, entry: "Entry") -> Mapping[str, str] | None:
        """The digests of the programs of a trusted entry; None for one that is not trusted, which is ignored."""
        self.brought.append(entry)
        pins = self.trust.store().pins(entry)
        if pins is None:
            self.ignored.append(entry)
        return pins

    def systems(self) -> dict[str, Any]:
        """The other systems, those of a repository as far as they are trusted."""
        tables: dict[str, dict[str, Any]] = {"servers": {}, "providers": {}}
        files: dict[tuple[str, str], str] = {}
        pins: dict[tuple[str, str], Mapping[str, str]] = {}
        left_out: dict[str, str] = {}
        for layer in self._layers:
            if "servers" in layer.table and "mcpServers" in layer.table:
                self._refuse(layer, "servers is the same as mcpServers; only one of them can stand")
                continue
            for title, field in TABLES.items():
                table = layer.table.get(title, {})
                if not isinstance(table, Mapping):
                    left_out[title] = f"{layer.file}: {title} must be a table of tables, such as [{title}.name]"
                    continue
                for name, entry in table.items():
                    if layer.is_brought:
                        found = self._system_pins(layer, field, name, entry, tables)
                        if found is None:
                            continue
                        pins[field, name] = found
                    tables[field][name], files[field, name] = entry, layer.file
        if not any(tables.values()):
            return {"left_out": left_out}
        from workflowlookup.providers.config import read_systems  # noqa: PLC0415 - most people name no other systems

        systems = read_systems(tables["servers"], tables["providers"])
        for place, problem in systems.left_out.items():
            title, _, name = place.partition(".")
            left_out[place] = f"{files[TABLES[title], name]}: {problem}"
        servers = {
            name: msgspec.structs.replace(server, root=self.project.root, files=pins[key])
            if (key := ("servers" if name in tables["servers"] else "providers", name)) in pins
            else server
            for name, server in systems.servers.items()
        }
        return {"servers": servers, "providers": systems.providers, "left_out": left_out}

    def _system_pins(
        self, layer: _Layer, field: str, name: str, value: Any, tables: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, str] | None:
        """As `_pins`, for a server or a provider; None also for one that is disabled or no table."""
        from workflowlookup.providers.config import process_files  # noqa: PLC0415 - as above
        from workflowlookup.trust import PROVIDER, SERVER, Entry  # noqa: PLC0415

        if not isinstance(value, Mapping) or value.get("disabled") is True:
            return None
        parts = {"provider": value}  # what the entry would start
        if field == "providers" and (server := tables["servers"].get(str(value.get("server")))):
            parts["server"] = server  # a provider behind another server would be another provider
        programs = set[str]()
        for part in parts.values():
            programs |= process_files(part, self._directory, self.project.root, self._environment)
        is_server = field == "servers"
        return self._pins(
            Entry(
                file=os.path.realpath(layer.file),
                kind=SERVER if is_server else PROVIDER,
                name=name,
                value=value if is_server else parts,
                programs=tuple(sorted(programs)),
            )
        )


def warn_left_out(settings: Settings, before: Settings | None = None) -> None:
    """Log the entries of other systems that cannot be used; with `before`, those that were in order then."""
    for entry, problem in settings.left_out.items():
        if before is None or before.left_out.get(entry) != problem:
            message = "[%s] is left out; the rest works: %s. Fix the entry; no restart is needed"
            log.warning(message, entry, problem)


def warn_faults(settings: Settings) -> None:
    """Log what is wrong in the project's settings file."""
    if settings.faults:
        more = f"; and {len(settings.faults) - MAX_FAULTS} more" if len(settings.faults) > MAX_FAULTS else ""
        what = "; ".join(settings.faults[:MAX_FAULTS]) + more
        log.warning("ignored in the settings of the project: %s. Fix or remove it; everything else works", what)


def warn_ignored(settings: Settings, before: Settings | None = None) -> None:
    """Log what a repository brings and nobody trusted, by file; with `before`, what was not ignored then."""
    if settings.ignored:
        from workflowlookup.trust import how_to_trust  # noqa: PLC0415 - loaded with them

        new = [entry for entry in settings.ignored if before is None or entry not in before.ignored]
        if new and (problem := settings.trust.store().fault()):
            log.warning("%s", problem)
        for file in dict.fromkeys(entry.file for entry in new):
            what = ", ".join(str(entry) for entry in new if entry.file == file)
            log.warning("ignored in %s, because it is not trusted: %s. %s", file, what, how_to_trust([file]))


def _check_values(path: str, table: Mapping[str, Any]) -> None:
    """Raises `SettingsError` for values that TOML does not have, and that could not be hashed, shown or compared."""
    level: list[Any] = [table]
    for _ in range(MAX_NESTING):
        values = [part for value in level for part in (value.values() if isinstance(value, Mapping) else value)]
        if any(isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 for value in values):
            raise SettingsError(f"{path} has an integer of more than 64 bits")
        level = [value for value in values if isinstance(value, (Mapping, list))]
    if level:
        raise SettingsError(f"{path} is nested deeper than {MAX_NESTING} levels")


def _read_file(path: str) -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 - most people have no settings file

    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise SettingsError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes")
        if re.search(_LONG_KEY, text := data.decode()):
            raise SettingsError(f"{path} has a key of more than {MAX_NESTING} parts")
        return tomllib.loads(text)
    except OSError as problem:
        raise SettingsError(f"{path}: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:  # ValueError also for an integer of more than 4,300 digits
        raise SettingsError(f"{path} is not TOML: {problem}") from problem


# ── settings that change while the server runs ──────────────────────────────────────────────────────────────────

LIVE: Final = frozenset(setting.name for setting in SETTINGS if setting.is_live)
"""What takes effect while the server runs; the tables do, too."""
SECONDS_BETWEEN_LOOKS: Final = 1.0


class Live:
    """The settings in force, read again when their file changes; one that cannot be used changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._started_with = settings
        self.problem = ""
        """What is wrong with the file as it is now."""
        self._seen = _signatures(settings.candidates)
        self._next_look = 0.0
        self._stuck: list[str] = []

    def look(self, *, is_asked: bool = False) -> Settings | None:
        """The new settings, when what can change has changed; asked outright, the file is read in any case.

        What is wrong is logged, and is in `problem` until the file is mended.
        """
        now = time.monotonic()
        if now < self._next_look and not is_asked:
            return None
        self._next_look = now + SECONDS_BETWEEN_LOOKS
        signatures = _signatures(self.settings.candidates)
        if (signatures == self._seen and not is_asked) or self.settings.read_again is None:
            return None
        self._seen = signatures
        try:
            new = self.settings.read_again()
            faults = [fault for fault in new.faults if fault not in self.settings.faults]
            problem = "; ".join(faults[:MAX_FAULTS])
        except SettingsError as refusal:
            problem = str(refusal)
        if problem:
            if problem != self.problem:
                log.warning("the settings stay as they were: %s", problem)
            self.problem = problem
            return None
        if self.problem:
            log.info("the settings can be read again")
        self.problem = ""
        before, self.settings = self.settings, new
        warn_left_out(new, before)
        warn_ignored(new, before)
        if self.stuck() != self._stuck:
            self._stuck = self.stuck()
            log.warning("what has changed takes effect with the next start: %s", ", ".join(self._stuck) or "nothing")
        live = (*sorted(LIVE), "servers", "providers")
        return new if any(getattr(new, name) != getattr(before, name) for name in live) else None

    def stuck(self) -> list[str]:
        """The settings that have other values now but take effect with the next start only."""
        names = [setting.name for setting in SETTINGS if setting.name not in LIVE]
        return [name for name in names if getattr(self.settings, name) != getattr(self._started_with, name)]


def _signatures(files: Sequence[str]) -> list[object]:
    """What changes when one of the files does."""
    found: list[object] = []
    for file in files:
        try:
            status = os.stat(file)
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            found.append(None)
    return found

"""What the settings say about other systems, as frozen values. No `repr` contains a secret.

`${NAME}` in an environment, a header or a URL stands for an environment variable of ours: `expanded` fills it in when
it is used, so that a variable that is not set costs the one system that needs it, and nothing that is shown holds it.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeVar, get_args, get_origin

import msgspec

from workflowlookup.language.values import Json
from workflowlookup.providers.shapes import (
    FIELDS,
    KEY,
    METHODS,
    PLACEHOLDERS,
    PRESETS,
    Meaning,
    Paging,
    unknown_in_body,
    unknown_in_path,
)
from workflowlookup.repository import touches


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server that steps call, or that has workflows: a command, or a URL. The familiar `mcpServers` form."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = {}
    root: str = ""
    """The project that brought it; empty for one of the user's own."""
    files: Mapping[str, str] = {}
    """By path: the SHA-256 of each file below that root that was trusted with the entry."""

    def __repr__(self) -> str:
        return f"ServerConfig({self.name})"


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A system that has workflows: which kind it is, and what its kind needs to know."""

    name: str
    kind: str
    """A key of `provider.KINDS` and of `OPTIONS`."""
    options: Mapping[str, Json] = {}

    def __repr__(self) -> str:
        return f"ProviderConfig({self.name}, {self.kind})"


class Filters(msgspec.Struct, frozen=True):
    """Which workflows become tools: those that an include admits (all, when there is none) and no exclude names."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


FILTER_FIELDS: Final = ("id", "name", "category", "provider")


class Subject(Protocol):
    """A workflow, as far as it matters for whether it becomes a tool, and how that tool is named."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def provider(self) -> str: ...


class Pattern:
    """One pattern: `deploy-*`, `name:Deploy*`, `category:ops`, `provider:ci`. Case does not count.

    `*` is any text, `?` any character, `[ab]` one of these. Raises `ValueError` when it cannot be meant.
    """

    def __init__(self, text: str) -> None:
        import fnmatch  # noqa: PLC0415 - most settings filter nothing

        self.text = text
        prefix, colon, rest = text.partition(":")
        if colon and re.fullmatch(r"[A-Za-z]+", prefix):
            if prefix.lower() not in FILTER_FIELDS:
                from workflowlookup.language.schemas import suggest  # noqa: PLC0415 - only mistakes need it

                known = ", ".join(f"{field}:" for field in FILTER_FIELDS)
                raise ValueError(
                    f"patterns that begin with {known} or none of them; "
                    f"found {suggest(prefix, FILTER_FIELDS)} in '{text}' "
                    f"(write 'name:{text}' when the colon is part of a name)"
                )
            self.fields: tuple[str, ...] = (prefix.lower(),)
        else:
            self.fields, rest = ("id", "name"), text
        if not rest.strip():
            raise ValueError(f"patterns that say something; found '{text}'")
        if rest.count("[") != rest.count("]"):
            raise ValueError(f"patterns in which each [ has its ] (write [[] for the character itself); found '{text}'")
        self._matches = re.compile(fnmatch.translate(rest.strip()), re.IGNORECASE).match

    def admits(self, subject: Subject) -> bool:
        return any(self._matches(getattr(subject, field)) for field in self.fields)


class Sieve:
    """The filters of the settings, ready for use."""

    def __init__(self, filters: Filters) -> None:
        self.include: Sequence[Pattern] = [Pattern(text) for text in filters.include]
        self.exclude: Sequence[Pattern] = [Pattern(text) for text in filters.exclude]

    def admits(self, subject: Subject) -> bool:
        """Whether the workflow becomes a tool."""
        included = not self.include or any(pattern.admits(subject) for pattern in self.include)
        return included and not any(pattern.admits(subject) for pattern in self.exclude)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that the settings say about workflow tools and about work of our own; it can change while the server runs."""

    is_on: bool = True
    """Whether workflows become tools."""
    filters: Filters = Filters()
    servers: Mapping[str, ServerConfig] = {}
    providers: Mapping[str, ProviderConfig] = {}
    budget_bytes: int = 200_000
    """How long `tools/list` may become before the workflow tools fold into workflow_search and workflow_start."""
    refresh_seconds: float = 300.0
    discovery_wait_seconds: float = 0.3
    """How long the first list of tools waits for providers whose workflows are not remembered."""
    timeout_seconds: float = 300.0
    """For runs that go by themselves, unless the workflow or the call says otherwise."""
    max_concurrent: int = 10
    max_concurrent_total: int = 0
    """How many runs the server works on at once; the others are queued."""


# ── the tables of the settings file ─────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
LIBRARY: Final = "library"
"""What the provider of our own documents is called; no other can have the name."""


class StaticWorkflow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A workflow that the settings describe, for a system that cannot list its own."""

    id: str
    name: str = ""
    """Without it, the id."""
    description: str = ""
    """Without it, the name."""
    category: str | None = None
    version: str | None = None
    input_schema: dict[str, Any] | None = None
    execution_type: Literal["sync", "async"] = "async"
    metadata: dict[str, Any] = {}

    def listed(self) -> Json:
        """As a provider would list it."""
        name = self.name or self.id
        raw: dict[str, Json] = msgspec.to_builtins(self)
        return {key: value for key, value in raw.items() if value} | {
            "name": name,
            "description": self.description or name,
        }


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of every kind of provider."""

    workflows: tuple[StaticWorkflow, ...] = ()
    """In place of the list, for a system that has none."""

    interval: float = 2.0
    """Seconds between two questions about a run, at most."""
    timeout: float = 30.0
    """Seconds for an answer."""
    idempotent: bool = False
    """Whether a start with the same key, sent twice, is one run there."""
    max_concurrent: int = 0
    """How many of its runs are followed at once; 0: only the setting of this name limits them."""
    timeout_seconds: float | None = None
    """How long a run may take, unless the workflow or the call says otherwise."""


class McpOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the kind "mcp". An empty tool name: the server has no such tool."""

    server: str = ""
    """One of `mcpServers`; or the server is described right here, by `command` or `url`."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    list: str = "workflows-list-tool"
    start: str = "workflows-start-tool"
    status: str = "workflows-status-tool"
    cancel: str = "workflows-cancel-tool"


class HttpOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the kind "http". The preset supplies what is not set."""

    base_url: str
    preset: str = "plain"
    """A key of `shapes.PRESETS`."""
    headers: dict[str, str] = {}
    list: str | None = None
    """`GET /workflows`: a method and a path, with placeholders. Empty: there is no such endpoint."""
    start: str | None = None
    status: str | None = None
    cancel: str | None = None
    list_body: Any = None
    """What is sent there, with values such as "$input" in it."""
    start_body: Any = None
    status_body: Any = None
    cancel_body: Any = None
    fields: dict[str, str | tuple[str, ...]] = {}
    """Where things are in answers, as dotted paths, each one or several to try."""
    paging: Paging | None = None
    states: dict[str, Meaning] = {}
    """What this system's words for states mean, where they are not the usual ones."""
    sync: bool = False
    """Whether the answer to every start is the result; otherwise only for workflows that are listed as "sync"."""
    output_is_text: bool = False
    """Whether outputs are JSON in a text, which is decoded."""
    key_header: str = "Idempotency-Key"


OPTIONS: Final[Mapping[str, type[Options]]] = {"mcp": McpOptions, "http": HttpOptions}
"""By the kind of a provider."""


class _ServerTable(msgspec.Struct, kw_only=True):
    """An entry of `mcpServers`. Clients keep fields of their own in it, which mean nothing here."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    disabled: bool = False


class Systems(msgspec.Struct, frozen=True, kw_only=True):
    """The other systems that the settings name."""

    servers: Mapping[str, ServerConfig] = {}
    providers: Mapping[str, ProviderConfig] = {}
    left_out: Mapping[str, str] = {}
    """The entries that cannot be used, such as "providers.shop", each with the reason."""


def read_systems(servers: Mapping[str, object], providers: Mapping[str, object]) -> Systems:
    """Read the tables `mcpServers` and `providers`. An entry that cannot be used is left out; the others count."""
    left_out: dict[str, str] = {}
    found = _read_entries(servers, "mcpServers", _read_server, left_out)
    own: dict[str, ServerConfig] = {}
    """Servers that providers describe themselves."""

    def read(name: str, entry: Mapping[str, Any], at: str) -> ProviderConfig | None:
        provider, server = _read_provider(name, entry, at, found)
        if server is not None:
            own[name] = server
        return provider

    systems = _read_entries(providers, "providers", read, left_out)
    return Systems(servers={**found, **own}, providers=systems, left_out=left_out)


def _read_entries(
    table: Mapping[str, object],
    at: str,
    read: Callable[[str, Mapping[str, Any], str], T | None],
    left_out: dict[str, str],
) -> dict[str, T]:
    """The entries of a table by name, without those that are disabled; the reasons for the others go to `left_out`."""
    found: dict[str, T] = {}
    for name, entry in table.items():
        place = f"{at}.{name}"
        try:
            if not isinstance(entry, Mapping):
                raise ValueError(f"{place} must be a table; found {_shown(entry)}")  # noqa: TRY004, TRY301
            if not _NAME.fullmatch(name):
                raise ValueError(f"{at}: a name is up to 32 letters, digits, '.', '_', '-'; found '{name}'")  # noqa: TRY301
            value = read(name, entry, place)
        except ValueError as problem:
            left_out[place] = str(problem)
        else:
            if value is not None:
                found[name] = value
    return found


def _read_server(name: str, entry: Mapping[str, Any], at: str) -> ServerConfig | None:
    read = _convert(entry, _ServerTable, at)
    return None if read.disabled else _server(name, read, at)


def _server(name: str, read: _ServerTable | McpOptions, at: str) -> ServerConfig:
    if bool(read.command) == bool(read.url):
        raise ValueError(f"{at} must have either a command or a url")
    if read.url and not read.url.startswith(("http://", "https://", "${")):
        raise ValueError(f"{at}.url must begin with http:// or https://; found '{_shown_url(read.url)}'")
    return ServerConfig(
        name=name,
        command=os.path.expanduser(read.command),
        args=read.args,
        env=read.env,
        cwd=read.cwd and os.path.expanduser(read.cwd),
        url=read.url,
        headers=read.headers,
    )


def _read_provider(
    name: str, entry: Mapping[str, Any], at: str, servers: Mapping[str, ServerConfig]
) -> tuple[ProviderConfig | None, ServerConfig | None]:
    """A provider, and the server that it describes itself. Raises `ValueError`."""
    if name == LIBRARY:
        raise ValueError(f"{at}: this name is the library's own; choose another")
    options = dict(entry)
    kind = options.pop("kind", None)
    if kind not in OPTIONS:
        raise ValueError(f"{at}.kind must be one of {', '.join(OPTIONS)}; found {_shown(kind)}")
    if options.pop("disabled", False) is True:
        return None, None
    read = _convert(options, OPTIONS[kind], at)
    _check_limits(read, at)
    own: ServerConfig | None = None
    match read:
        case McpOptions():
            _check_mcp(read, servers, at)
            if not read.server:
                if name in servers:
                    raise ValueError(f"{at}: mcpServers has a server of this name; say server = '{name}'")
                own = _server(name, read, at)
                options["server"] = name
        case HttpOptions():
            _check_http(read, at)
    return ProviderConfig(name=name, kind=kind, options=options), own


def _check_limits(read: Options, at: str) -> None:
    if not 0.05 <= read.interval <= 300:
        raise ValueError(f"{at}.interval must be a number of seconds from 0.05 to 300; found {read.interval:g}")
    if not 0.1 <= read.timeout <= 3_600:
        raise ValueError(f"{at}.timeout must be a number of seconds from 0.1 to 3,600; found {read.timeout:g}")
    if not 0 <= read.max_concurrent <= 100:
        raise ValueError(f"{at}.max_concurrent must be a whole number from 0 to 100; found {read.max_concurrent}")
    if read.timeout_seconds is not None and not 1 <= read.timeout_seconds <= 86_400:
        found = f"{read.timeout_seconds:g}"
        raise ValueError(f"{at}.timeout_seconds must be a number of seconds from 1 to 86,400; found {found}")


def _check_mcp(read: McpOptions, servers: Mapping[str, ServerConfig], at: str) -> None:
    if read.server and (read.command or read.url):
        raise ValueError(f"{at} must have either a server or a command or a url")
    if read.server and read.server not in servers:
        known = ", ".join(servers) or "none"
        raise ValueError(f"{at}.server must be one of mcpServers ({known}); found '{read.server}'")
    if not read.list and not read.workflows:
        raise ValueError(f"{at}.list must name the tool that lists workflows; or describe them as workflows")


def _check_http(read: HttpOptions, at: str) -> None:
    if not read.base_url.startswith(("http://", "https://", "${")):
        raise ValueError(f"{at}.base_url must begin with http:// or https://; found '{_shown_url(read.base_url)}'")
    if read.preset not in PRESETS:
        raise _unknown(f"{at}.preset", "preset", read.preset, [*PRESETS])
    for name in PLACEHOLDERS:
        endpoint: str | None = getattr(read, name)
        if endpoint and not re.fullmatch(rf"({'|'.join(METHODS)}) /\S*", endpoint):
            raise ValueError(f"{at}.{name} must be a method and a path such as 'GET /workflows'; found '{endpoint}'")
        for unknown in unknown_in_path(name, endpoint or ""):
            raise _unknown(f"{at}.{name}", *unknown)
        for unknown in unknown_in_body(name, getattr(read, f"{name}_body")):
            raise _unknown(f"{at}.{name}_body", *unknown)
    for name, path in read.fields.items():
        if name not in FIELDS:
            raise _unknown(f"{at}.fields", "field", name, FIELDS)
        for one in (path,) if isinstance(path, str) else path:
            if one.startswith("$") and (name, one) != ("runId", KEY):
                raise ValueError(f"{at}.fields.{name} must be a dotted path, or '{KEY}' for runId; found '{one}'")
    if read.list and read.workflows:
        raise ValueError(f"{at} must have either a list or workflows")
    if read.list == "" and not read.workflows:
        raise ValueError(f"{at}.list must say where the workflows are listed; or describe them as workflows")


def _convert(entry: Mapping[str, Any], kind: type[T], at: str) -> T:
    """The entry as a struct. Raises `ValueError` with the names that are known where one is not."""
    try:
        return msgspec.convert(entry, kind)
    except msgspec.ValidationError as problem:
        message, _, where = str(problem).partition(" - at `$.")
        where = where.rstrip("`")
        field = re.search(r"field `(\w+)`", message)
        found = re.search(r"enum value '(.*)'", message)
        if "unknown field" in message and field:
            raise _unknown(f"{at}{where and '.'}{where}", "field", field[1], _names_at(kind, where)) from None
        if "missing required" in message and field:
            raise ValueError(f"{at}{where and '.'}{where}.{field[1]} is required") from None
        if found and (words := _words_at(kind, where)):
            raise _unknown(f"{at}.{where}", "word", found[1], words) from None
        raise ValueError(f"{at}{where and '.'}{where}: {message[:1].lower()}{message[1:]}") from None


def _unknown(at: str, what: str, name: str, known: Sequence[str]) -> ValueError:
    """The refusal of a name, with the one that was probably meant, and all that are known."""
    from workflowlookup.language.schemas import suggest  # noqa: PLC0415 - only mistakes need it

    return ValueError(f"{at}: unknown {what} {suggest(name, known)}. Known: {', '.join(known) or 'none'}")


def _struct_at(kind: type, where: str) -> tuple[type, str]:
    """The struct that a place such as `workflows[0].executionType` is in, and the field of it."""
    first, *more = re.findall(r"[A-Za-z_]+", where) or [""]
    inner = {"paging": Paging, "workflows": StaticWorkflow}.get(first)
    return (inner, more[-1] if more else "") if inner else (kind, first)


def _names_at(kind: type, where: str) -> list[str]:
    """The fields of the struct at a place."""
    return sorted(field.encode_name for field in msgspec.structs.fields(_struct_at(kind, where)[0]))


def _words_at(kind: type, where: str) -> list[str]:
    """The words that the field at a place can be, when it is one of a few."""
    struct, name = _struct_at(kind, where)
    types = [field.type for field in msgspec.structs.fields(struct) if field.encode_name == name]
    words: list[str] = []
    while types:
        inner = types.pop()
        words += [option for option in get_args(inner) if get_origin(inner) is Literal]
        types += get_args(inner) if get_origin(inner) is not Literal else ()
    return words


def _shown(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else "nothing" if value is None else type(value).__name__


def _shown_url(url: str) -> str:
    """A URL without what may be secret in it."""
    return re.sub(r"://[^/@]*@", "://…@", url.partition("?")[0])


# ── what a repository names ─────────────────────────────────────────────────────────────────────────────────────


_BETWEEN_PATHS: Final = re.compile(r"[=\s:,;'\"`&|<>(){}@!$]+")
"""What may stand before or after a path in an argument, and in a line for a shell."""


def process_files(entry: Mapping[str, Any], directory: str, root: str, environment: Mapping[str, str]) -> set[str]:
    """The files below the root that the command, an argument or a variable of a server's entry names.

    Every word is looked at that could be a path, also in a line for a shell. `environment` fills in `${NAME}` where
    `expanded` does, and has the `PATH` to search.
    """

    from workflowlookup.providers.secrets import NotSet, filled  # noqa: PLC0415 - only where a repository names files

    def fill(text: object) -> str:
        try:
            return filled(str(text), "", environment)
        except NotSet:
            return str(text)

    own = entry.get("env")
    variables = {name: fill(value) for name, value in own.items()} if isinstance(own, Mapping) else {}
    arguments = entry.get("args")
    words = [fill(word) for word in arguments] if isinstance(arguments, (list, tuple)) else []
    base = os.path.join(directory, os.path.expanduser(str(entry.get("cwd") or "")))
    command = fill(os.path.expanduser(str(entry.get("command") or "")))
    places = variables.get("PATH", environment.get("PATH", os.defpath)).split(os.pathsep)
    named = [command] if os.sep in command else [os.path.join(place, command) for place in places if command]
    for word in (*words, *variables.values()):
        parts = [word, *_BETWEEN_PATHS.split(word)]
        named += [*parts, *map(os.path.expanduser, parts), *(part[2:] for part in parts if part.startswith("-"))]
    paths = (os.path.join(base, name.removeprefix("./")) for name in named if name and "\0" not in name)
    return {path for path in paths if os.path.isfile(path) and touches(path, root)}


def changed_files(server: ServerConfig, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The files of a repository that the server would run or read by name and that are not as they were trusted."""
    if not server.root:
        return []
    from workflowlookup.trust import file_digest  # noqa: PLC0415 - only where a repository brought one

    entry = msgspec.to_builtins(server)
    now = {path: file_digest(path) for path in process_files(entry, os.getcwd(), server.root, environment)}
    return sorted(path for path in now.keys() | server.files.keys() if now.get(path) != server.files.get(path))

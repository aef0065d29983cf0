"""The settings about other systems and workflow tools, as frozen values. No `repr` contains a secret.

`${NAME}` in an environment, a header or a URL stays unexpanded here; `secrets` expands it when a system is opened.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeVar, get_args, get_origin

import msgspec

from workflowlookup.language.values import Json
from workflowlookup.providers.shapes import (
    FIELDS,
    METHODS,
    PLACEHOLDERS,
    PRESETS,
    RUN_ID_IS_KEY,
    Meaning,
    Paging,
    unknown_in_body,
    unknown_in_path,
)
from workflowlookup.repository import touches


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server that steps call or that has workflows, by command or URL, in the form of `mcpServers`."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = {}
    root: str = ""
    """The root of the project whose files configure it; empty for the user's own."""
    files: Mapping[str, str] = {}
    """By path: the SHA-256 of each file below the root that was trusted with the entry."""

    def __repr__(self) -> str:
        return f"ServerConfig({self.name})"


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A system that has workflows: its kind, and the options of that kind."""

    name: str
    kind: str
    """A key of `provider.PROVIDER_KINDS` and of `OPTIONS`."""
    options: Mapping[str, Json] = {}

    def __repr__(self) -> str:
        return f"ProviderConfig({self.name}, {self.kind})"


class Filters(msgspec.Struct, frozen=True):
    """Which workflows become tools: those that match an include (all, if there is none) and no exclude."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


FILTER_FIELDS: Final = ("id", "name", "category", "provider")


class ToolCandidate(Protocol):
    """A workflow that may become a tool: what filters match and what the tool is named by."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def provider(self) -> str: ...


class FilterPattern:
    """One glob pattern: `deploy-*`, `name:Deploy*`, `category:ops`, `provider:ci`. Case is ignored.

    `*` is any text, `?` any character, `[ab]` one of these. Raises `ValueError` for an invalid pattern.
    """

    def __init__(self, text: str) -> None:
        import fnmatch  # noqa: PLC0415 - most settings filter nothing

        self.text = text
        prefix, colon, rest = text.partition(":")
        if colon and re.fullmatch(r"[A-Za-z]+", prefix):
            if prefix.lower() not in FILTER_FIELDS:
                from workflowlookup.language.formats.schemas import suggest  # noqa: PLC0415 - only mistakes need it

                prefixes = ", ".join(f"{field}:" for field in FILTER_FIELDS)
                raise ValueError(
                    f"patterns that begin with {prefixes} or no prefix; "
                    f"found {suggest(prefix, FILTER_FIELDS)} in '{text}' "
                    f"(write 'name:{text}' when the colon is part of a name)"
                )
            self.fields: tuple[str, ...] = (prefix.lower(),)
        else:
            self.fields, rest = ("id", "name"), text
        if not rest.strip():
            raise ValueError(f"patterns that are not empty; found '{text}'")
        if rest.count("[") != rest.count("]"):
            raise ValueError(f"patterns in which each [ has its ] (write [[] for the character itself); found '{text}'")
        self._match = re.compile(fnmatch.translate(rest.strip()), re.IGNORECASE).match

    def matches(self, workflow: ToolCandidate) -> bool:
        return any(self._match(getattr(workflow, field)) for field in self.fields)


class WorkflowFilter:
    """The filters of the settings, compiled."""

    def __init__(self, filters: Filters) -> None:
        self.include: Sequence[FilterPattern] = [FilterPattern(text) for text in filters.include]
        self.exclude: Sequence[FilterPattern] = [FilterPattern(text) for text in filters.exclude]

    def admits(self, workflow: ToolCandidate) -> bool:
        """Whether the workflow becomes a tool."""
        included = not self.include or any(pattern.matches(workflow) for pattern in self.include)
        return included and not any(pattern.matches(workflow) for pattern in self.exclude)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings about workflow tools and the server's own work; they can change while the server runs."""

    is_on: bool = True
    """Whether workflows become tools."""
    filters: Filters = Filters()
    servers: Mapping[str, ServerConfig] = {}
    providers: Mapping[str, ProviderConfig] = {}
    budget_bytes: int = 32_000
    """Maximum size of `tools/list`; beyond it, workflow_search and workflow_start replace the workflow tools."""
    refresh_seconds: float = 300.0
    discovery_wait_seconds: float = 0.3
    """How long the first `tools/list` waits for providers without a stored list."""
    timeout_seconds: float = 300.0
    """For runs that the server executes, unless the workflow or the call sets another."""
    max_concurrent: int = 10
    """How many runs this process executes at once; others are queued."""
    max_concurrent_total: int = 0
    """How many runs all replicas execute at once; 0: no such limit."""


# ── the tables of the settings file ─────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
LIBRARY: Final = "library"
"""The name of the provider of our own documents; it is reserved."""


class StaticWorkflow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A workflow described in the settings, for a system that cannot list its workflows."""

    id: str
    name: str = ""
    """Default: the id."""
    description: str = ""
    """Default: the name."""
    category: str | None = None
    version: str | None = None
    input_schema: dict[str, Any] | None = None
    execution_type: Literal["sync", "async"] = "async"
    metadata: dict[str, Any] = {}

    def listed(self) -> Json:
        """In the form in which providers list workflows."""
        name = self.name or self.id
        raw: dict[str, Json] = msgspec.to_builtins(self)
        return {key: value for key, value in raw.items() if value} | {
            "name": name,
            "description": self.description or name,
        }


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of every kind of provider."""

    workflows: tuple[StaticWorkflow, ...] = ()
    """Used instead of the list, for a system that has none."""

    interval: float = 2.0
    """Maximum seconds between two requests for the status of a run."""
    timeout: float = 30.0
    """Seconds until a request fails."""
    idempotent: bool = False
    """Whether two starts with the same idempotency key are one run."""
    max_concurrent: int = 0
    """How many of its runs are followed at once; 0: only the setting `max_concurrent` applies."""
    timeout_seconds: float | None = None
    """How long a run may take, unless the workflow or the call sets another limit."""


class McpOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the kind "mcp". An empty tool name means that the server has no such tool."""

    server: str = ""
    """A name in `mcpServers`; alternatively `command` or `url` describe the server here."""
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
    """A method and a path with placeholders, such as `GET /workflows`. Empty: there is no such endpoint."""
    start: str | None = None
    status: str | None = None
    cancel: str | None = None
    list_body: Any = None
    """The body of the request, with placeholders such as "$input"."""
    start_body: Any = None
    status_body: Any = None
    cancel_body: Any = None
    fields: dict[str, str | tuple[str, ...]] = {}
    """Dotted paths into answers; of several, the first one with a value is used."""
    paging: Paging | None = None
    states: dict[str, Meaning] = {}
    """Meanings of words for states, for words that are missing in `shapes.WORDS` or mean something else."""
    sync: bool = False
    """Whether every start returns the result; if not, only workflows that are listed as "sync" do."""
    output_is_text: bool = False
    """Whether outputs are JSON as text, to be decoded."""
    key_header: str = "Idempotency-Key"


OPTIONS: Final[Mapping[str, type[Options]]] = {"mcp": McpOptions, "http": HttpOptions}
"""By the kind of a provider."""


class _ServerTable(msgspec.Struct, kw_only=True):
    """An entry of `mcpServers`. Unknown fields are ignored, because clients have their own."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    disabled: bool = False


class Systems(msgspec.Struct, frozen=True, kw_only=True):
    """The other systems in the settings."""

    servers: Mapping[str, ServerConfig] = {}
    providers: Mapping[str, ProviderConfig] = {}
    left_out: Mapping[str, str] = {}
    """Invalid entries, such as "providers.shop", each with the reason."""


def read_systems(servers: Mapping[str, object], providers: Mapping[str, object]) -> Systems:
    """Read the tables `mcpServers` and `providers`. An invalid entry is left out; the others are used."""
    left_out: dict[str, str] = {}
    named_servers = _read_entries(servers, "mcpServers", _read_server, left_out)
    inline_servers: dict[str, ServerConfig] = {}
    """Servers that are described in the entry of a provider."""

    def read(name: str, entry: Mapping[str, Any], at: str) -> ProviderConfig | None:
        provider, server = _read_provider(name, entry, at, named_servers)
        if server is not None:
            inline_servers[name] = server
        return provider

    configs = _read_entries(providers, "providers", read, left_out)
    return Systems(servers={**named_servers, **inline_servers}, providers=configs, left_out=left_out)


def _read_entries(
    table: Mapping[str, object],
    at: str,
    read: Callable[[str, Mapping[str, Any], str], T | None],
    left_out: dict[str, str],
) -> dict[str, T]:
    """The valid entries of a table by name, without disabled ones; reasons for invalid ones go to `left_out`."""
    values: dict[str, T] = {}
    for name, entry in table.items():
        path = f"{at}.{name}"
        try:
            if not isinstance(entry, Mapping):
                raise ValueError(f"{path} must be a table; found {_shown(entry)}")  # noqa: TRY004, TRY301
            if not _NAME.fullmatch(name):
                raise ValueError(f"{at}: a name is up to 32 letters, digits, '.', '_', '-'; found '{name}'")  # noqa: TRY301
            value = read(name, entry, path)
        except ValueError as problem:
            left_out[path] = str(problem)
        else:
            if value is not None:
                values[name] = value
    return values


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
    """A provider, and the server that its entry describes, if it does. Raises `ValueError`."""
    if name == LIBRARY:
        raise ValueError(f"{at}: this name is reserved for the library; choose another")
    options = dict(entry)
    kind = options.pop("kind", None)
    if kind not in OPTIONS:
        raise ValueError(f"{at}.kind must be one of {', '.join(OPTIONS)}; found {_shown(kind)}")
    if options.pop("disabled", False) is True:
        return None, None
    read = _convert(options, OPTIONS[kind], at)
    _check_limits(read, at)
    inline_server: ServerConfig | None = None
    match read:
        case McpOptions():
            _check_mcp(read, servers, at)
            if not read.server:
                if name in servers:
                    raise ValueError(f"{at}: mcpServers has a server of this name; write server = '{name}'")
                inline_server = _server(name, read, at)
                options["server"] = name
        case HttpOptions():
            _check_http(read, at)
    return ProviderConfig(name=name, kind=kind, options=options), inline_server


def _check_limits(read: Options, at: str) -> None:
    if not 0.05 <= read.interval <= 300:
        raise ValueError(f"{at}.interval must be a number of seconds from 0.05 to 300; found {read.interval:g}")
    if not 0.1 <= read.timeout <= 3_600:
        raise ValueError(f"{at}.timeout must be a number of seconds from 0.1 to 3,600; found {read.timeout:g}")
    if not 0 <= read.max_concurrent <= 100:
        raise ValueError(f"{at}.max_concurrent must be a whole number from 0 to 100; found {read.max_concurrent}")
    if read.timeout_seconds is not None and not 1 <= read.timeout_seconds <= 86_400:
        value = f"{read.timeout_seconds:g}"
        raise ValueError(f"{at}.timeout_seconds must be a number of seconds from 1 to 86,400; found {value}")


def _check_mcp(read: McpOptions, servers: Mapping[str, ServerConfig], at: str) -> None:
    if read.server and (read.command or read.url):
        raise ValueError(f"{at} must have either a server or a command or a url")
    if read.server and read.server not in servers:
        names = ", ".join(servers) or "none"
        raise ValueError(f"{at}.server must be one of mcpServers ({names}); found '{read.server}'")
    if not read.list and not read.workflows:
        raise ValueError(f"{at}.list must name the tool that lists workflows, or workflows must describe them")


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
            if one.startswith("$") and (name, one) != ("runId", RUN_ID_IS_KEY):
                raise ValueError(
                    f"{at}.fields.{name} must be a dotted path, or '{RUN_ID_IS_KEY}' for runId; found '{one}'"
                )
    if read.list and read.workflows:
        raise ValueError(f"{at} must have either a list or workflows")
    if read.list == "" and not read.workflows:
        raise ValueError(f"{at}.list must be the endpoint that lists workflows, or workflows must describe them")


def _convert(entry: Mapping[str, Any], kind: type[T], at: str) -> T:
    """The entry as a struct. Raises `ValueError`, with the allowed names if one is unknown."""
    try:
        return msgspec.convert(entry, kind)
    except msgspec.ValidationError as problem:
        message, _, path = str(problem).partition(" - at `$.")
        path = path.rstrip("`")
        field = re.search(r"field `(\w+)`", message)
        word = re.search(r"enum value '(.*)'", message)
        if "unknown field" in message and field:
            raise _unknown(f"{at}{path and '.'}{path}", "field", field[1], _names_at(kind, path)) from None
        if "missing required" in message and field:
            raise ValueError(f"{at}{path and '.'}{path}.{field[1]} is required") from None
        if word and (words := _words_at(kind, path)):
            raise _unknown(f"{at}.{path}", "word", word[1], words) from None
        raise ValueError(f"{at}{path and '.'}{path}: {message[:1].lower()}{message[1:]}") from None


def _unknown(at: str, kind: str, name: str, allowed: Sequence[str]) -> ValueError:
    """The error for an unknown name, with the most similar one and all that are allowed."""
    from workflowlookup.language.formats.schemas import suggest  # noqa: PLC0415 - only mistakes need it

    return ValueError(f"{at}: unknown {kind} {suggest(name, allowed)}. Known: {', '.join(allowed) or 'none'}")


def _struct_at(kind: type, path: str) -> tuple[type, str]:
    """The struct that a path such as `workflows[0].executionType` leads into, and the field of it."""
    first, *more = re.findall(r"[A-Za-z_]+", path) or [""]
    inner = {"paging": Paging, "workflows": StaticWorkflow}.get(first)
    return (inner, more[-1] if more else "") if inner else (kind, first)


def _names_at(kind: type, path: str) -> list[str]:
    """The fields of the struct at a path."""
    return sorted(field.encode_name for field in msgspec.structs.fields(_struct_at(kind, path)[0]))


def _words_at(kind: type, path: str) -> list[str]:
    """The values of the field at a path, if it is an enumeration."""
    struct, name = _struct_at(kind, path)
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
    """A URL without its credentials and its query, which may be secret."""
    return re.sub(r"://[^/@]*@", "://…@", url.partition("?")[0])


# ── files of a repository ────────────────────────────────────────────────────────────────────────────────────────


_PATH_SEPARATORS: Final = re.compile(r"[=\s:,;'\"`&|<>(){}@!$]+")
"""Characters around paths in arguments and shell commands."""


def process_files(entry: Mapping[str, Any], directory: str, root: str, environment: Mapping[str, str]) -> set[str]:
    """The files below the root that the command, an argument or a variable of a server's entry names.

    Every word that could be a path is checked, also inside shell commands. `environment` expands `${NAME}` as
    `expand_server` does, and has the `PATH` to search.
    """

    from workflowlookup.providers.secrets import VariableNotSet, fill_variables  # noqa: PLC0415 - only where a repository names files

    def fill(text: object) -> str:
        try:
            return fill_variables(str(text), "", environment)
        except VariableNotSet:
            return str(text)

    env = entry.get("env")
    variables = {name: fill(value) for name, value in env.items()} if isinstance(env, Mapping) else {}
    arguments = entry.get("args")
    words = [fill(word) for word in arguments] if isinstance(arguments, (list, tuple)) else []
    base = os.path.join(directory, os.path.expanduser(str(entry.get("cwd") or "")))
    command = fill(os.path.expanduser(str(entry.get("command") or "")))
    folders = variables.get("PATH", environment.get("PATH", os.defpath)).split(os.pathsep)
    names = [command] if os.sep in command else [os.path.join(folder, command) for folder in folders if command]
    for word in (*words, *variables.values()):
        parts = [word, *_PATH_SEPARATORS.split(word)]
        names += [*parts, *map(os.path.expanduser, parts), *(part[2:] for part in parts if part.startswith("-"))]
    paths = (os.path.join(base, name.removeprefix("./")) for name in names if name and "\0" not in name)
    return {path for path in paths if os.path.isfile(path) and touches(path, root)}


def changed_files(server: ServerConfig, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The files of a repository that the server's entry names and that changed since they were trusted."""
    if not server.root:
        return []
    from workflowlookup.trust import file_digest  # noqa: PLC0415 - only where a repository brought one

    entry = msgspec.to_builtins(server)
    digests = {path: file_digest(path) for path in process_files(entry, os.getcwd(), server.root, environment)}
    return sorted(path for path in digests.keys() | server.files.keys() if digests.get(path) != server.files.get(path))

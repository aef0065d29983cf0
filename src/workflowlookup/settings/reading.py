"""Reads settings from flags, the environment and files, and merges them."""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.language.text import shorten
from workflowlookup.repository import cache_directory, configuration_directory, find_above, find_project
from workflowlookup.settings.model import ConfiguredSource, Settings, SettingsError, TrustFile
from workflowlookup.settings.parsers import commands as parse_commands
from workflowlookup.settings.parsers import journal_url, path, paths
from workflowlookup.settings.parsers import source as parse_source
from workflowlookup.settings.table import SETTINGS, Setting
from workflowlookup.store.journal_url import JournalUrl, without_password

if TYPE_CHECKING:
    from workflowlookup.notices.config import Recipient
    from workflowlookup.trust import TrustEntry


FILE_NAME: Final = "workflowlookup.toml"
PREFIX: Final = "WORKFLOWLOOKUP_"
TABLES: Final = {"mcpServers": "servers", "servers": "servers", "providers": "providers"}
"""Tables of a file, and the fields of `Settings` for them; `servers` is an alias of `mcpServers`."""
NOTIFY: Final = "notify"
"""The table of a file with the recipients of notices."""
SOURCES: Final = "sources"
"""The table of a file with the repositories whose documents are in the library."""
COMMANDS: Final = "commands"
"""The table of a file with the commands that proofs use."""
MAX_FILE_BYTES: Final = 256 << 10
MAX_NESTING: Final = 64
_PART: Final = r"(?:(?<![\w-])[\w-]++|\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+"
_LONG_KEY: Final = f"(?:{_PART}){{{MAX_NESTING}}}"
"""Matches a dotted key with too many parts. `tomllib` needs quadratic time and memory: gigabytes for 200 kB."""


class _Layer(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a settings file, read once: what is checked is what is used."""

    file: str
    table: Mapping[str, Any]
    is_from_repository: bool
    ignores_faults: bool
    """Whether faults in it are ignored: a repository brought it, and the user did not name it."""


def read_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], *, directory: str, config: str | None = None
) -> Settings:
    """The settings for a process in `directory`. Raises `SettingsError`."""
    files = _Files(environment, directory, config)
    values: dict[str, Any] = files.systems()
    values["commands"] = files.commands()
    values["notify"] = files.recipients()
    values["sources"], not_usable = files.sources()
    values["left_out"] |= not_usable
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        candidates = (
            (f"--{setting.name.replace('_', '-')}", flags.get(setting.name)),
            (PREFIX + setting.name.upper(), environment.get(PREFIX + setting.name.upper())),
        )
        origin, raw = next(((origin, raw) for origin, raw in candidates if raw is not None), ("", None))
        chosen = files.value(setting) if raw is None else (origin, _parse(setting, origin, raw))
        origins[setting.name], values[setting.name] = chosen
    if origins["journal"] == "default":
        data = environment.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
        values["journal"] = os.path.join(data, "workflowlookup", "runs.sqlite")
    storage_path = environment.get("WORKFLOW_STORAGE_PATH")
    if storage_path:
        values["directories"] = (*paths(storage_path), *values["directories"])
        origins["directories"] = "WORKFLOW_STORAGE_PATH" + (
            "" if origins["directories"] == "default" else f", {origins['directories']}"
        )
    set_names = [name for name in ("oauth_issuer", "oauth_audience", "oauth_jwks_url") if values[name]]
    if len(set_names) not in (0, 3):
        raise SettingsError(f"{set_names[0]}: set oauth_issuer, oauth_audience and oauth_jwks_url together")
    return Settings(
        **values,
        origins=origins,
        faults=tuple(files.faults),
        from_repository=tuple(files.from_repository),
        ignored=tuple(files.ignored),
        trust=files.trust,
        config_directory=files.config_directory,
        cache_directory=cache_directory(environment),
        directory=directory,
        enclosing_project=files.project,
        candidates=(*files.candidates, files.trust.path),
        reload=lambda: read_settings(flags, environment, directory=directory, config=config),
    )


def _parse(setting: Setting, origin: str, raw: object) -> Any:
    try:
        return setting.parse(raw)
    except ValueError as problem:
        actual = shorten(without_password(repr(raw)), 200)
        raise SettingsError(f"{origin}: {setting.name} must be {problem}; found {actual}") from None


class _Files:
    """The settings files, the user's own first; each overrides those before it."""

    def __init__(self, environment: Mapping[str, str], directory: str, config: str | None) -> None:
        self._environment = environment
        self._directory = directory
        self.project = find_project(directory)
        own = configuration_directory(environment, directory)
        self.config_directory = "" if "~" in own.split(os.sep) else own  # the home directory is unknown
        self.trust = TrustFile.of(own, self.project)
        self.candidates = self._chosen(os.path.join(own, FILE_NAME), config)
        self.faults: list[str] = []
        self._layers = [layer for file in self.candidates if (layer := self._layer(file, is_named=file == config))]
        self.from_repository: list[TrustEntry] = []
        """Entries that need trust."""
        self.ignored: list[TrustEntry] = []
        """The entries of `from_repository` that are not trusted and have no effect."""

    def _layer(self, file: str, *, is_named: bool) -> _Layer | None:
        """The content of a file; None when it is ignored, or missing and not named by `--config`."""
        if not is_named and not os.path.isfile(file):
            return None
        is_from_repository = self.project.brings(file)
        ignores_faults = is_from_repository and not is_named
        try:
            table = _read_file(file)
            _check_values(file, table)
        except SettingsError as problem:
            if not ignores_faults:
                raise
            self.faults.append(str(problem))
            return None
        layer = _Layer(file=file, table=table, is_from_repository=is_from_repository, ignores_faults=ignores_faults)
        tables = {*TABLES, COMMANDS, NOTIFY, SOURCES}
        unknown = sorted(table.keys() - {setting.name for setting in SETTINGS} - tables)
        if unknown:
            names = ", ".join(setting.name for setting in SETTINGS)
            self._refuse(layer, f"unknown setting '{shorten(unknown[0], 60)}'. Known: {names}")
        return layer

    def _refuse(self, layer: _Layer, problem: str) -> None:
        """Raises `SettingsError`, unless faults in the file are ignored."""
        problem = f"{layer.file}: {problem}"
        if not layer.ignores_faults:
            raise SettingsError(problem)
        self.faults.append(problem)

    def _chosen(self, user_file: str, config: str | None) -> tuple[str, ...]:
        """The files to read. A file of `--config` replaces both; if it is in the project, only the project's file."""
        if config is None:
            return user_file, find_above(FILE_NAME, self.project.root, self._directory)
        return (user_file, config) if self.project.brings(config) else (config,)

    def value(self, setting: Setting) -> tuple[str, Any]:
        """The origin and the value of a setting, from the files and the default."""
        origin, value = "default", setting.default
        for layer in self._layers:
            if (raw := layer.table.get(setting.name)) is None:
                continue
            try:
                new = _parse(setting, layer.file, raw)
            except SettingsError as problem:
                if not layer.ignores_faults:
                    raise
                self.faults.append(str(problem))
                continue
            directory = os.path.dirname(layer.file)  # relative paths in a file count from its directory
            if setting.parse is paths:
                new = tuple(os.path.join(directory, path) for path in new)
            elif setting.parse is path:
                new = os.path.join(directory, new) if new else new
            elif setting.parse is journal_url:
                new = JournalUrl(new).relative_to(directory)
            is_risky = layer.is_from_repository and new != value
            is_risky = is_risky and setting.needs_trust.applies(value, new, self.project)
            if not is_risky or self._trusts_setting(layer, setting.name):
                origin, value = layer.file, new
        return origin, value

    def _trusts_setting(self, layer: _Layer, name: str) -> bool:
        """Whether a setting of a repository is trusted. The `oauth_` settings are one entry, trusted together."""
        from workflowlookup.trust import SETTING, TrustEntry  # noqa: PLC0415 - only where a repository brings something

        value = layer.table[name]
        if name.startswith("oauth_"):
            name, value = "oauth", {key: part for key, part in layer.table.items() if key.startswith("oauth_")}
        entry = TrustEntry(file=os.path.realpath(layer.file), kind=SETTING, name=name, value=value)
        if entry in self.from_repository:
            return entry not in self.ignored
        return self._pins(entry) is not None

    def _pins(self, entry: "TrustEntry") -> Mapping[str, str] | None:
        """The digests of the programs of an entry; None when it is not trusted, and so ignored."""
        self.from_repository.append(entry)
        pins = self.trust.store().pins(entry)
        if pins is None:
            self.ignored.append(entry)
        return pins

    def commands(self) -> dict[str, tuple[str, ...]]:
        """The commands of the files. Those of a repository must be trusted, each by itself."""
        commands: dict[str, tuple[str, ...]] = {}
        for layer in self._layers:
            if COMMANDS not in layer.table:
                continue
            try:
                table = parse_commands(layer.table[COMMANDS])
            except ValueError as problem:
                self._refuse(layer, f"{COMMANDS} must be {problem}")
                continue
            commands |= {
                name: words
                for name, words in table.items()
                if not layer.is_from_repository or self._command_pins(layer, name, words) is not None
            }
        return commands

    def recipients(self) -> "tuple[Recipient, ...]":
        """The recipients of notices. Only the user's own files name any: a repository must not learn about runs."""
        recipients: dict[str, Recipient] = {}
        for layer in self._layers:
            if NOTIFY not in layer.table:
                continue
            if layer.is_from_repository:
                self.faults.append(f"{layer.file}: {NOTIFY} has an effect only in your own settings file")
                continue
            from workflowlookup.notices.config import read_recipients  # noqa: PLC0415 - most people have no recipients

            try:
                table = layer.table[NOTIFY]
                new = read_recipients(table if isinstance(table, Mapping) else {"": table})
            except ValueError as problem:
                self._refuse(layer, f"{NOTIFY} must be {problem}")
                continue
            recipients |= {recipient.name: recipient for recipient in new}
        return tuple(recipients.values())

    def _command_pins(self, layer: _Layer, name: str, words: tuple[str, ...]) -> Mapping[str, str] | None:
        """As `_pins`, for a command."""
        from workflowlookup.providers.config import process_files  # noqa: PLC0415 - only where a repository brings one
        from workflowlookup.trust import COMMAND, TrustEntry  # noqa: PLC0415

        process = {"command": words[0], "args": words[1:]}
        programs = process_files(process, self._directory, self.project.root, self._environment)
        file = os.path.realpath(layer.file)
        return self._pins(
            TrustEntry(file=file, kind=COMMAND, name=name, value=list(words), programs=tuple(sorted(programs)))
        )

    def sources(self) -> tuple[dict[str, ConfiguredSource], dict[str, str]]:
        """The repositories of the files, and why entries cannot be used. Those of a repository's file need trust before
        anything is fetched.
        """
        sources: dict[str, ConfiguredSource] = {}
        left_out: dict[str, str] = {}
        for layer in self._layers:
            table = layer.table.get(SOURCES, {})
            if not isinstance(table, Mapping):
                left_out[SOURCES] = f"{layer.file}: {SOURCES} must be a table of tables, such as [{SOURCES}.team]"
                continue
            for name, entry in table.items():
                try:
                    source = parse_source(name, entry)
                except ValueError as problem:
                    left_out[f"{SOURCES}.{name}"] = f"{layer.file}: {problem}"
                    continue
                may_fetch = not layer.is_from_repository or self._trusts_source(layer, name, entry)
                sources.pop(name, None)
                file = os.path.join(self._directory, layer.file)
                sources[name] = ConfiguredSource(source=source, file=file, may_fetch=may_fetch)
        return sources, left_out

    def _trusts_source(self, layer: _Layer, name: str, entry: Mapping[str, Any]) -> bool:
        from workflowlookup.trust import SOURCE, TrustEntry  # noqa: PLC0415 - only where a repository brings one

        file = os.path.realpath(layer.file)
        return self._pins(TrustEntry(file=file, kind=SOURCE, name=name, value=entry)) is not None

    def systems(self) -> dict[str, Any]:
        """The servers and providers of the files. Those of a repository must be trusted."""
        tables: dict[str, dict[str, Any]] = {"servers": {}, "providers": {}}
        files: dict[tuple[str, str], str] = {}
        pins: dict[tuple[str, str], Mapping[str, str]] = {}
        left_out: dict[str, str] = {}
        for layer in self._layers:
            if "servers" in layer.table and "mcpServers" in layer.table:
                self._refuse(layer, "servers is an alias of mcpServers; use only one of them")
                continue
            for title, field in TABLES.items():
                table = layer.table.get(title, {})
                if not isinstance(table, Mapping):
                    left_out[title] = f"{layer.file}: {title} must be a table of tables, such as [{title}.name]"
                    continue
                for name, entry in table.items():
                    if layer.is_from_repository:
                        digests = self._system_pins(layer, field, name, entry, tables)
                        if digests is None:
                            continue
                        pins[field, name] = digests
                    tables[field][name], files[field, name] = entry, layer.file
        if not any(tables.values()):
            return {"left_out": left_out}
        from workflowlookup.providers.config import read_systems  # noqa: PLC0415 - most people name no other systems

        systems = read_systems(tables["servers"], tables["providers"])
        for entry_name, problem in systems.left_out.items():
            title, _, name = entry_name.partition(".")
            left_out[entry_name] = f"{files[TABLES[title], name]}: {problem}"
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
        """As `_pins`, for a server or a provider; None also for one that is disabled or not a table."""
        from workflowlookup.providers.config import process_files  # noqa: PLC0415 - as above
        from workflowlookup.trust import PROVIDER, SERVER, TrustEntry  # noqa: PLC0415

        if not isinstance(value, Mapping) or value.get("disabled") is True:
            return None
        parts = {"provider": value}  # the values that decide what is started
        if field == "providers" and (server := tables["servers"].get(str(value.get("server")))):
            parts["server"] = server  # a provider of another server is another provider
        programs = set[str]()
        for part in parts.values():
            programs |= process_files(part, self._directory, self.project.root, self._environment)
        is_server = field == "servers"
        return self._pins(
            TrustEntry(
                file=os.path.realpath(layer.file),
                kind=SERVER if is_server else PROVIDER,
                name=name,
                value=value if is_server else parts,
                programs=tuple(sorted(programs)),
            )
        )


def _check_values(path: str, table: Mapping[str, Any]) -> None:
    """Raises `SettingsError` for values outside of TOML, which could not be hashed, shown or compared."""
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

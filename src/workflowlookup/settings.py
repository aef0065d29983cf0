"""Settings: one table, read from flags, then the environment, then `workflowlookup.toml`, then defaults.

A setting is a row of `SETTINGS`. Its flag is `--name`, its variable `WORKFLOWLOOKUP_NAME`, its key in the file `name`.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

FILE_NAME: Final = "workflowlookup.toml"
PREFIX: Final = "WORKFLOWLOOKUP_"


class SettingsError(Exception):
    """A setting that cannot be used: which, where it came from, what was expected."""


def boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError("true or false")


def paths(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part for part in value.split(os.pathsep) if part]
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return tuple(os.path.expanduser(part) for part in value)
    raise ValueError(f"a list of directories (in the environment separated by '{os.pathsep}')")


def place(value: object) -> str:
    if isinstance(value, str) and value.startswith(("postgresql://", "postgres://")):
        return value
    if isinstance(value, str) and value and "://" not in value:
        return os.path.expanduser(value)
    raise ValueError("a path, or a URL that begins with postgresql://")


def without_password(text: str) -> str:
    """The place of a journal, as it may be shown."""
    return re.sub(r"(password=)[^&'\"]*", r"\1…", re.sub(r"(://[^:/@]*:)[^/]*@", r"\1…@", text))


def whole_number(least: int, most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        try:
            number = int(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else least - 1
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise ValueError(f"a whole number from {least:,} to {most:,}")
        return number

    return parse


def one_of(*options: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if isinstance(value, str) and value.lower() in options:
            return value.lower()
        raise ValueError(f"one of {', '.join(options)}")

    return parse


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    default: Any
    parse: Callable[[object], Any]
    help: str


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(name="bundled", default=True, parse=boolean, help="Offer the workflows that come with the package."),
    Setting(name="user", default=True, parse=boolean, help="Offer the workflows in ~/.workflowlookup/workflows."),
    Setting(name="project", default=True, parse=boolean, help="Offer the workflows in ./.workflowlookup/workflows."),
    Setting(
        name="directories",
        default=(),
        parse=paths,
        help="More directories with workflows; WORKFLOW_STORAGE_PATH adds to them.",
    ),
    Setting(
        name="journal",
        default="~/.local/share/workflowlookup/runs.sqlite",
        parse=place,
        help="Where runs are kept: a file, or a PostgreSQL database by its URL. `$XDG_DATA_HOME` moves the default.",
    ),
    Setting(
        name="confirmation",
        default="auto",
        parse=one_of("auto", "person", "agent"),
        help="Whose word counts where a step needs a person: auto asks through the client if it can and else has the "
        "agent relay the answer; person takes it from the person only; agent always has it relayed.",
    ),
    Setting(
        name="log_level",
        default="warning",
        parse=one_of("debug", "info", "warning", "error"),
        help="What is logged on standard error.",
    ),
    Setting(name="log_format", default="text", parse=one_of("text", "json"), help="A log line as text or as JSON."),
    Setting(
        name="max_message_bytes",
        default=8 << 20,
        parse=whole_number(1024, 64 << 20),
        help="The longest message that is read; a longer one is answered with a parse error.",
    ),
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force; `origins` tells where each came from."""

    bundled: bool
    user: bool
    project: bool
    directories: tuple[str, ...]
    journal: str
    confirmation: str
    log_level: str
    log_format: str
    max_message_bytes: int
    origins: Mapping[str, str]


def read_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], *, directory: str, config: str | None = None
) -> Settings:
    """The settings for a process in `directory`. Raises `SettingsError`."""
    file, table = _read_file(_config_candidates(environment, directory), config)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        candidates = (
            (f"--{setting.name.replace('_', '-')}", flags.get(setting.name)),
            (PREFIX + setting.name.upper(), environment.get(PREFIX + setting.name.upper())),
            (file, table.get(setting.name)),
        )
        origin, raw = next(((origin, raw) for origin, raw in candidates if raw is not None), ("default", None))
        try:
            values[setting.name] = setting.default if raw is None else setting.parse(raw)
            if setting.parse is paths and origin == file:  # what a file names lies beside it, wherever one works
                values[setting.name] = tuple(os.path.join(os.path.dirname(file), path) for path in values[setting.name])
            elif setting.parse is place and origin == file and "://" not in values[setting.name]:
                values[setting.name] = os.path.join(os.path.dirname(file), values[setting.name])
        except ValueError as problem:
            found = without_password(repr(raw))
            raise SettingsError(f"{origin}: {setting.name} must be {problem}; found {found}") from None
        origins[setting.name] = origin
    if origins["journal"] == "default":
        data = environment.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
        values["journal"] = os.path.join(data, "workflowlookup", "runs.sqlite")
    storage_path = environment.get("WORKFLOW_STORAGE_PATH")
    if storage_path:
        values["directories"] = (*paths(storage_path), *values["directories"])
        origins["directories"] = "WORKFLOW_STORAGE_PATH" + (
            "" if origins["directories"] == "default" else f", {origins['directories']}"
        )
    return Settings(**values, origins=origins)


def _config_candidates(environment: Mapping[str, str], directory: str) -> Iterable[str]:
    home = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return (os.path.join(directory, FILE_NAME), os.path.join(home, "workflowlookup", FILE_NAME))


def _read_file(candidates: Iterable[str], config: str | None) -> tuple[str, Mapping[str, Any]]:
    path = config or next((candidate for candidate in candidates if os.path.isfile(candidate)), None)
    if path is None:
        return FILE_NAME, {}
    import tomllib  # noqa: PLC0415 - most people have no settings file

    try:
        with open(path, "rb") as stream:
            table = tomllib.load(stream)
    except OSError as problem:
        raise SettingsError(f"{path}: {problem.strerror}") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingsError(f"{path} is not TOML: {problem}") from problem
    unknown = sorted(table.keys() - {setting.name for setting in SETTINGS})
    if unknown:
        raise SettingsError(
            f"{path}: unknown setting '{unknown[0]}'. Known: {', '.join(setting.name for setting in SETTINGS)}"
        )
    return path, table

"""Settings: flags count before the environment, then the project's file, then the user's file, then defaults.

A setting is a row of `table.SETTINGS` and a field of `model.Settings`. Its flag is `--name`, its variable
`WORKFLOWLOOKUP_NAME`, its key in a file `name`. Other systems are tables of a file: `[mcpServers.NAME]` and
`[providers.NAME]`; git repositories with workflows are `[sources.NAME]`. `reading` merges files, environment and flags;
`live` reads the files again while a server runs.
"""

from workflowlookup.settings.live import Live, warn_faults, warn_ignored, warn_left_out
from workflowlookup.settings.model import (
    ConfiguredSource,
    Settings,
    SettingsError,
    command_line,
    issuer_of,
    needed_extras,
    plan_of,
)
from workflowlookup.settings.parsers import paths
from workflowlookup.settings.reading import FILE_NAME, PREFIX, SOURCES, read_settings
from workflowlookup.settings.table import ALWAYS, LIVE, SETTINGS, Setting

__all__ = [
    "ALWAYS",
    "FILE_NAME",
    "LIVE",
    "PREFIX",
    "SETTINGS",
    "SOURCES",
    "ConfiguredSource",
    "Live",
    "Setting",
    "Settings",
    "SettingsError",
    "command_line",
    "issuer_of",
    "needed_extras",
    "paths",
    "plan_of",
    "read_settings",
    "warn_faults",
    "warn_ignored",
    "warn_left_out",
]

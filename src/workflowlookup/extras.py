"""Optional dependencies: which feature needs which extra, and the command that installs it in this environment.

`pyproject.toml` has the packages of each extra. A feature calls `require` before it imports any of them, so that a
missing package is an error with the command to type. That command depends on the tool that made the environment of this
process (pip, pipx or uv), and on the source: the package index, a clone, a file or a repository.
"""

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from workflowlookup import __version__
from workflowlookup.errors import MissingExtra

PACKAGE: Final = "workflowlookup"
CALLS: Final = "calls"
HTTP: Final = "http"
POSTGRES: Final = "postgres"
OTEL: Final = "otel"
SIGN: Final = "sign"
_UV_CACHE: Final = re.compile(r"[/\\](?:archive|builds|environments)-v\d+[/\\]")
"""Matches the path of an environment that `uvx` made for one run."""


class Extra(msgspec.Struct, frozen=True):
    """The feature that needs an extra, and the modules that it installs."""

    feature: str
    modules: tuple[str, ...]


EXTRAS: Final[Mapping[str, Extra]] = {
    CALLS: Extra("Steps that call other systems, and providers,", ("mcp", "httpx2")),
    HTTP: Extra(
        "Serving over HTTP, and the console,",
        ("starlette", "uvicorn", "httptools", "greenlet", "httpx2", "jwt", "cryptography", "jinja2"),
    ),
    POSTGRES: Extra("Journals in PostgreSQL", ("psycopg", "dbos")),
    OTEL: Extra("Traces", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")),
    SIGN: Extra("Signatures, of people and of receipts,", ("cryptography", "webauthn")),
}
"""By name, as in `workflowlookup[http]`."""


def is_missing(extra: str) -> bool:
    """Whether a module of an extra is not installed. Imports none of them."""
    return not all(map(_is_installed, EXTRAS[extra].modules))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not installed
        return False


def require(extra: str) -> None:
    """Raises `MissingExtra` when an extra is not installed."""
    if is_missing(extra):
        line = install_line(extra)
        raise MissingExtra(f"{explain_missing(extra)} {how_to_install(extra)}", extra=extra, install=line)


def explain_missing(extra: str) -> str:
    """A sentence: which feature needs the missing extra."""
    return f"{EXTRAS[extra].feature} need the extra '{extra}', which is not installed."


def how_to_install(*extras: str) -> str:
    """A sentence with the command that installs missing extras."""
    verb = "Start it with" if is_ephemeral() else "Install it with"
    return f"{verb}: {install_line(*extras)}"


def install_line(*extras: str) -> str:
    """The command that adds extras to this installation. If it replaces the environment, installed extras are kept."""
    if is_ephemeral():
        return f"{shlex.join(one_run_command(*extras))} …"
    source = _source()
    editable = ["--editable"] if source.is_editable else []
    added = [*editable, source.requirement(extras)]
    both = [*editable, source.requirement({*extras, *installed()})]
    if _has_file("uv-receipt.toml"):
        return shlex.join(["uv", "tool", "install", *both])
    if _has_file("pipx_metadata.json"):
        return shlex.join(["pipx", "install", "--force", *both])
    if importlib.util.find_spec("pip") is None:  # an environment of uv
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *added])
    return shlex.join([sys.executable, "-m", "pip", "install", *added])


def installed() -> list[str]:
    """The extras that are installed."""
    return [extra for extra in EXTRAS if not is_missing(extra)]


def is_ephemeral() -> bool:
    """Whether the environment was made for one run, by `uvx` or `pipx run`, which may delete it at any time."""
    return _is_uvx() or _is_pipx_run()


def one_run_command(*extras: str) -> list[str]:
    """The command that starts this package, with these and the installed extras, in an environment for one run."""
    import shutil  # noqa: PLC0415 - loads all of zip and tar, which a server seldom needs

    tool = "uvx" if _is_uvx() else "pipx"
    source = _source()
    requirement = source.requirement({*extras, *installed()})
    pinned = requirement if source.path or source.url else f"{requirement}=={__version__}"
    return [shutil.which(tool) or tool, *(["--from"] if tool == "uvx" else ["run", "--spec"]), pinned, PACKAGE]


def is_in_cache(path: str) -> bool:
    """Whether a path is in the cache of uv, which may delete environments at any time."""
    return _UV_CACHE.search(path) is not None


def _is_uvx() -> bool:
    return is_in_cache(sys.prefix)


def _is_pipx_run() -> bool:
    return _has_file("pipx_metadata.json") and os.path.basename(os.path.dirname(sys.prefix)) != "venvs"


def _has_file(name: str) -> bool:
    return os.path.exists(os.path.join(sys.prefix, name))


class _Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where this package was installed from: a path, a URL, or, with neither, the package index."""

    path: str = ""
    url: str = ""
    is_editable: bool = False

    def requirement(self, extras: "set[str] | tuple[str, ...]") -> str:
        """This package with these extras, for pip, pipx and uv."""
        names = ",".join(extra for extra in EXTRAS if extra in extras)
        suffix = f"[{names}]" if names else ""
        if self.path:
            return self.path + suffix
        return f"{PACKAGE}{suffix} @ {self.url}" if self.url else PACKAGE + suffix


def _source() -> _Source:
    """The source in `direct_url.json`, which installers write. A path that no longer exists counts as the index."""
    from importlib import metadata  # noqa: PLC0415 - imports much, and a server seldom needs it
    from urllib.parse import urlsplit  # noqa: PLC0415
    from urllib.request import url2pathname  # noqa: PLC0415

    try:
        direct_url = msgspec.json.decode(metadata.distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, msgspec.DecodeError):
        return _Source()
    url = direct_url.get("url", "")
    if "vcs_info" in direct_url:
        return _Source(url=f"{direct_url['vcs_info']['vcs']}+{url}@{direct_url['vcs_info']['commit_id']}")
    if not url.startswith("file:"):
        return _Source(url=url)
    path = url2pathname(urlsplit(url).path)
    is_editable = bool(direct_url.get("dir_info", {}).get("editable"))
    return _Source(path=path, is_editable=is_editable) if os.path.exists(path) else _Source()

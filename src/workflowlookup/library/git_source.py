"""Which repositories can be a source of the library: their URLs, revisions and paths, and where their files are cached.

`fetching` writes the cache. Everything here only names things.
"""

import os
import re
from typing import Final

import msgspec

from workflowlookup.repository import is_inside

LOCK_NAME: Final = "workflowlookup.lock"
"""The name of the lock file, which is beside the settings file."""
PREFIX: Final = "sources."
"""Begins the names of these sources in the catalog: `sources.team` for the table `[sources.team]`."""
PROTOCOLS: Final = ("https", "ssh", "file")
SOURCE_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
MAX_TEXT: Final = 1_000
"""How long a URL, a revision or a path may be."""
SHORT_COMMIT: Final = 12
"""How many digits of a commit people are shown."""
_COMMIT: Final = r"[0-9a-f]{40}|[0-9a-f]{64}"
_REVISION: Final = r"[A-Za-z0-9_][A-Za-z0-9._/+#@=-]*"
_HOST: Final = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]"
_USER: Final = r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?"
_SCP_FORM: Final = r"(?P<user>[\w.-]+@)?(?P<host>[\w.-]+):(?P<path>[^/\\][^\\]*)"


class GitSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A repository whose documents are in the library."""

    url: str
    rev: str = ""
    """A branch, a tag or a full commit id; empty for the default branch."""
    path: str = ""
    """The directory in the repository, without a slash at either end; empty for all of it."""

    def __str__(self) -> str:
        return f"{self.url}@{self.rev}" if self.rev else self.url


def checked(source: GitSource) -> GitSource:
    """The source, with the path without slashes at its ends. Raises `ValueError` with what was expected."""
    check_url(source.url)
    check_revision(source.rev)
    return msgspec.structs.replace(source, path=checked_path(source.path))


def check_url(url: str) -> None:
    """Raises `ValueError` unless a URL is one of `PROTOCOLS` and can mean nothing else to git, ssh or a shell."""
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415 - as above

    if url.startswith(("/", ".")):
        raise ValueError(f"a URL; for a directory write file://{os.path.abspath(url)}")
    scp = re.fullmatch(_SCP_FORM, url)
    if scp and "://" not in url and not scp["path"].startswith(":"):
        raise ValueError(f"a URL; write ssh://{scp['user'] or ''}{scp['host']}/{scp['path']}")
    expected = "a URL that begins with https://, ssh:// or file://"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(expected) from None
    is_plain = re.fullmatch(r"[!-~]+", url) and not re.search(r"[\"'`<>\\^{|}]", url) and len(url) <= MAX_TEXT
    if not is_plain or parts.scheme not in PROTOCOLS or not url.startswith(f"{parts.scheme}://"):
        raise ValueError(expected)
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ValueError(f"{expected}, without ? and #")
    if parts.password is not None or (parts.username is not None and parts.scheme != "ssh"):
        raise ValueError(f"{expected}, without a password or token: git's credential helper can keep that for you")
    path = unquote(parts.path)
    if parts.scheme == "file":
        is_valid = not parts.netloc and path.startswith("/")
        expected = "a URL such as file:///home/ann/workflows, with an absolute path"
    else:
        bracketed = f"[{host}]" if ":" in host else host
        is_valid = bool(re.fullmatch(_HOST, bracketed)) and port != 0
        is_valid = is_valid and (parts.username is None or bool(re.fullmatch(_USER, parts.username)))
    if not is_valid or len(path) < 2 or path.startswith("/-") or re.search(r"[\x00-\x1f\x7f]", path):
        raise ValueError(expected)


def check_revision(revision: str) -> None:
    """Raises `ValueError` unless it is empty or the name of a branch or tag, or a commit id."""
    is_name = re.fullmatch(_REVISION, revision) and len(revision) <= MAX_TEXT
    is_name = is_name and ".." not in revision and "@{" not in revision and "//" not in revision
    if revision and (not is_name or revision.endswith((".", "/", ".lock"))):
        raise ValueError("the name of a branch or a tag, or a commit id")


def is_commit(revision: str) -> bool:
    """Whether a revision is a full commit id."""
    return re.fullmatch(_COMMIT, revision) is not None


def checked_path(path: str) -> str:
    """A path in a repository, without slashes at its ends. Raises `ValueError`."""
    path = path.strip("/").removeprefix("./") if path != "." else ""
    parts = path.split("/") if path else []
    if len(path) > MAX_TEXT or not all(map(is_safe_name, parts)):
        raise ValueError("the path of a directory in the repository, without ..")
    return path


def is_safe_name(name: str) -> bool:
    """Whether a part of a path can be the name of a file here: no `..`, no control character, no git directory."""
    is_plain = name.isprintable() and "\\" not in name and "/" not in name and ":" not in name
    return is_plain and name not in ("", ".", "..") and name.lower() != ".git" and len(os.fsencode(name)) <= 255


# ── the cache ───────────────────────────────────────────────────────────────────────────────────────────────────


def source_directory(cache: str, source: GitSource) -> str:
    """The directory in the cache for all commits of a repository and a path."""
    import hashlib  # noqa: PLC0415 - only for those who have such sources

    key = hashlib.sha256(f"{source.url}\0{source.path}".encode()).hexdigest()[:32]
    return os.path.join(cache, key)


def commit_directory(cache: str, source: GitSource, commit: str) -> str:
    """The directory in the cache with the files of one commit."""
    return os.path.join(source_directory(cache, source), commit)


def origin_in_cache(path: str, cache: str) -> str:
    """A path that stands for a cached document in every commit, so that trust in its content outlasts an update. Empty
    for a path outside the cache.
    """
    if not is_inside(path, cache):
        return ""
    base = os.path.realpath(cache)
    key, _, rest = os.path.relpath(os.path.realpath(path), base).partition("/")
    commit, _, inner = rest.partition("/")
    return os.path.join(base, key, inner if is_commit(commit) else rest)

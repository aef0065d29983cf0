"""Fetching from git: what arrives in the cache, and what a hostile or silent repository cannot do."""

import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.repositories import GitRepository
from support.waiting import wait_until
from workflowlookup.fetching.contents import Fetched, fetch
from workflowlookup.fetching.remote import FetchFailed, open_remote
from workflowlookup.library.git_source import GitSource, checked

SECONDS = 30.0


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """A repository with the tag v1, and a commit on main after it."""
    repository = GitRepository(tmp_path_factory.mktemp("upstream") / "library")
    repository.commit({"flows/one.json": "{}", "flows/notes/help.md": "Help.", "README.md": "Read."})
    repository.git("tag", "-a", "v1", "-m", "first")
    repository.commit({"flows/one.json": "{ }"})
    return repository


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def get(cache: Path, url: str, rev: str = "", path: str = "", seconds: float = SECONDS) -> Fetched:
    return fetch(checked(GitSource(url=url, rev=rev, path=path)), cache=str(cache), seconds=seconds)


def files_of(fetched: Fetched) -> dict[str, str]:
    root = Path(fetched.directory)
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_a_tag_a_branch_and_a_commit_are_fetched_as_they_are(upstream: GitRepository, cache: Path) -> None:
    tagged = get(cache, upstream.url, "v1")
    fetched = [
        tagged,
        get(cache, upstream.url, "main"),
        get(cache, upstream.url),
        get(cache, upstream.url, tagged.commit),
    ]

    assert [one.tip.kind for one in fetched] == ["tag", "branch", "default", "commit"]
    assert [files_of(one)["flows/one.json"] for one in fetched] == ["{}", "{ }", "{ }", "{}"]


def test_of_a_path_only_its_files_are_cached(upstream: GitRepository, cache: Path) -> None:
    assert files_of(get(cache, upstream.url, path="./flows/")) == {"one.json": "{ }", "notes/help.md": "Help."}


def test_a_damaged_copy_in_the_cache_is_replaced(upstream: GitRepository, cache: Path) -> None:
    fetched = get(cache, upstream.url)
    before = files_of(fetched)
    (Path(fetched.directory) / "README.md").write_text("changed")
    (Path(fetched.directory) / "added.json").write_text("{}")

    assert files_of(get(cache, upstream.url)) == before


def test_several_can_fetch_the_same_at_once(upstream: GitRepository, cache: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        fetched = list(pool.map(lambda _: get(cache, upstream.url), range(4)))

    assert len({one.directory for one in fetched}) == 1
    assert set(os.listdir(cache)) == {Path(fetched[0].directory).parent.name}


@pytest.mark.parametrize(
    ("rev", "path", "message"),
    [
        ("v9", "", "has no branch or tag 'v9'"),
        ("", "nothing", "has no directory 'nothing'"),
        ("", "README.md", "has no directory 'README.md'"),
        ("a" * 40, "", "cannot be fetched"),
    ],
)
def test_what_is_not_there_is_named(upstream: GitRepository, cache: Path, rev: str, path: str, message: str) -> None:
    with pytest.raises(FetchFailed, match=message):
        get(cache, upstream.url, rev, path)


def test_whether_a_branch_was_rewritten_shows_in_its_history(upstream: GitRepository, cache: Path) -> None:
    first = upstream.git("rev-parse", "v1^{commit}")
    with open_remote(GitSource(url=upstream.url, rev="main"), str(cache), SECONDS) as remote:
        tip = remote.resolve()
        assert [remote.follows(commit, tip) for commit in (first, "0" * 40)] == [True, False]


# ── what may be fetched ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "url",
    [
        *("ext::sh -c touch% /tmp/x", "http://example.com/a.git", "git://example.com/a.git", "ftp://example.com/a"),
        *("--upload-pack=touch", "-oProxyCommand=x", "ssh://-oProxyCommand=x/a", "ssh://a@-x/b", "ssh://-a@x/b"),
        *("file://host/a", "file://a", "file:///", "/a/b", "../a", "git@example.com:a/b.git", "fd::3", "https://"),
        *("https://ann:secret@example.com/a", "https://token@example.com/a", "https://a/b?c", "https://a/b#c"),
        *("https://a/b\n", "https://a/$(x)`y`", "file:///a%0ab", "ssh://a/-b", "https://a b/c", "HTTPS://a/b", ""),
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="a URL"):
        checked(GitSource(url=url))


@pytest.mark.parametrize(
    "rev", ["-x", "--upload-pack=x", "a:b", "a..b", "a b", "@{u}", "a^", "a~1", "x\n", "+a", "a.lock"]
)
def test_other_revisions_are_refused(rev: str) -> None:
    with pytest.raises(ValueError, match="a branch or a tag"):
        checked(GitSource(url="https://example.com/a", rev=rev))


@pytest.mark.parametrize("path", ["..", "a/../b", "a//b", ".git/hooks", "a\0b", "a\nb", "a\\b", "a:b"])
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"without \.\."):
        checked(GitSource(url="https://example.com/a", path=path))


@pytest.mark.parametrize(
    "url", ["https://example.com:8443/team/flows.git", "ssh://git@[::1]:22/~/flows", "file:///srv/a%20b"]
)
def test_urls_of_the_three_protocols_are_allowed(url: str) -> None:
    assert str(checked(GitSource(url=url, rev="release/1.2+x", path="/flows/"))) == f"{url}@release/1.2+x"


# ── hostile repositories ────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_of_a_repository_is_run(tmp_path: Path, cache: Path) -> None:
    """Its hooks, filters and configuration name programs that would leave a mark."""
    repository, mark = GitRepository(tmp_path / "hostile"), tmp_path / "mark"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\nexit 1\n")
    program.chmod(0o755)
    (repository.root / "link.json").symlink_to("/etc/passwd")
    (repository.root / "links").symlink_to("/etc")
    repository.commit(
        {
            ".gitattributes": "* filter=evil diff=evil merge=evil\n",
            ".gitmodules": f'[submodule "x"]\n\tpath = x\n\turl = ext::{program}\n',
            "large.json": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            "sound.json": "{}",
        }
    )
    hooks = repository.root / ".git" / "hooks"
    for name in ("pre-receive", "post-checkout", "reference-transaction", "pre-push", "post-index-change"):
        hooks.mkdir(exist_ok=True)
        (hooks / name).write_bytes(program.read_bytes())
        (hooks / name).chmod(0o755)
    for name in (
        *("core.fsmonitor", "core.pager", "core.sshCommand", "core.gitProxy", "core.askPass", "credential.helper"),
        *("filter.evil.smudge", "filter.evil.clean", "filter.evil.process", "uploadpack.packObjectsHook"),
        *("remote.origin.uploadpack", "alias.upload-pack", "core.alternateRefsCommand", "pager.fetch"),
    ):
        repository.git("config", name, str(program))
    repository.git("config", "remote.origin.url", f"file://{repository.root}/gone")
    repository.git("config", "remote.origin.promisor", "true")
    repository.git("config", "extensions.partialClone", "origin")

    fetched = get(cache, repository.url)

    assert not mark.exists()
    assert {one.path: one.reason for one in fetched.left_out} == {
        "large.json": "a pointer to a file in Git LFS, which is not fetched",
        "link.json": "a symbolic link, which is not followed",
        "links": "a symbolic link, which is not followed",
    }
    assert {".gitattributes", ".gitmodules", "sound.json"} == files_of(fetched).keys()
    assert all(not path.is_symlink() for path in Path(fetched.directory).rglob("*"))


def test_a_missing_object_is_not_fetched_from_elsewhere(tmp_path: Path, cache: Path) -> None:
    repository, mark = GitRepository(tmp_path / "hostile"), tmp_path / "mark"
    repository.commit({"a.json": "{}"})
    blob = repository.git("rev-parse", "HEAD:a.json")
    (repository.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    repository.git("config", "remote.origin.url", "ssh://example.com/a")
    repository.git("config", "remote.origin.promisor", "true")
    repository.git("config", "core.sshCommand", f"touch '{mark}'; false")
    repository.git("config", "core.repositoryFormatVersion", "1")
    repository.git("config", "extensions.partialClone", "origin")

    with pytest.raises(FetchFailed, match="cannot be fetched"):
        get(cache, repository.url)
    assert not mark.exists()


def test_a_repository_with_too_many_files_is_refused_unless_a_path_has_few(tmp_path: Path, cache: Path) -> None:
    repository = GitRepository(tmp_path / "huge")
    files = b"".join(b"M 644 :1 many/%d/%d.json\n" % divmod(number, 250) for number in range(50_000))
    stream = b"blob\nmark :1\ndata 2\n{}\ncommit refs/heads/main\ncommitter A <a@b> 0 +0000\ndata 1\nx\n%sM 644 :1 few/a.json\n"
    repository.git("fast-import", "--quiet", given=stream % files)

    with pytest.raises(FetchFailed, match=r"has 50,001 files, and 20,000 is the limit\. Name the directory .* --path"):
        get(cache, repository.url)
    assert files_of(get(cache, repository.url, path="few")) == {"a.json": "{}"}


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("contents.MAX_BYTES", r"has files of more than 0 MiB\. Name the directory"),
        ("remote.MAX_FETCH_BYTES", r"has more than 0 MiB\. Keep workflows in a smaller repository"),
    ],
)
def test_too_much_is_refused(
    upstream: GitRepository, cache: Path, monkeypatch: pytest.MonkeyPatch, limit: str, message: str
) -> None:
    monkeypatch.setattr(f"workflowlookup.fetching.{limit}", 3)

    with pytest.raises(FetchFailed, match=message):
        get(cache, upstream.url)
    assert os.listdir(cache) == []


def test_a_large_file_is_left_out(tmp_path: Path, cache: Path) -> None:
    repository = GitRepository(tmp_path / "large")
    repository.commit({"large.json": " " * (1 << 20) + "{}", "small.json": "{}"})

    fetched = get(cache, repository.url)

    assert [(one.path, one.reason) for one in fetched.left_out] == [("large.json", "larger than 1,048,576 bytes")]
    assert list(files_of(fetched)) == ["small.json"]


def test_a_tree_that_unfolds_to_a_billion_files_is_refused(tmp_path: Path, cache: Path) -> None:
    repository = GitRepository(tmp_path / "bomb")
    blob = repository.git("hash-object", "-w", "--stdin", given=b"{}")
    entry = f"100644 blob {blob}"
    for _ in range(10):
        tree = repository.git("mktree", given="".join(f"{entry}\t{name:02}.json\n" for name in range(10)).encode())
        entry = f"040000 tree {tree}"
    commit = repository.git("commit-tree", "-m", "x", tree)
    repository.git("update-ref", "refs/heads/main", commit)

    with pytest.raises(FetchFailed, match="more than 20,000 files"):
        get(cache, repository.url)


def test_names_that_lead_out_of_the_cache_are_left_out(tmp_path: Path, cache: Path) -> None:
    repository = GitRepository(tmp_path / "names")
    blob = repository.git("hash-object", "-w", "--stdin", given=b"{}")
    inner = repository.git("mktree", given=f"100644 blob {blob}\tout.json\n".encode())
    names = ["..", ".git", "a\\b", "c\nd", "fine"]
    entries = "".join(f"040000 tree {inner}\t{name}\0" for name in names)
    tree = repository.git("mktree", "-z", given=entries.encode())
    repository.git("update-ref", "refs/heads/main", repository.git("commit-tree", "-m", "x", tree))

    fetched = get(cache, repository.url)

    assert list(files_of(fetched)) == ["fine/out.json"]
    assert len(fetched.left_out) == len(names) - 1


# ── a host that does not answer, and a process that is killed ───────────────────────────────────────────────────


@pytest.fixture
def silent_host() -> Iterator[str]:
    """The URL of a host that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}/a.git"


def test_a_host_that_never_answers_is_given_up(silent_host: str, cache: Path) -> None:
    with pytest.raises(FetchFailed, match=r"did not answer within 0\.5 s"):
        get(cache, silent_host, seconds=0.5)
    assert os.listdir(cache) == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems may not limit memory")
def test_git_gets_only_so_much_memory_for_another_host(
    silent_host: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflowlookup.fetching.remote.MAX_MEMORY_KIB", 2_000)

    with pytest.raises(FetchFailed, match="cannot be fetched"):
        get(cache, silent_host, seconds=20)


def test_a_host_that_refuses_connections_is_named(cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(FetchFailed, match=rf"ssh://127\.0\.0\.1:{port}/a\.git cannot be fetched"):
        get(cache, f"ssh://127.0.0.1:{port}/a.git")


@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
def test_a_killed_process_leaves_neither_git_nor_half_of_a_library(
    silent_host: str, upstream: GitRepository, cache: Path
) -> None:
    words = f"fetch(GitSource(url={silent_host!r}), cache={str(cache)!r}, seconds=60)"
    script = (
        "from workflowlookup.fetching.contents import fetch\n"
        f"from workflowlookup.library.git_source import GitSource\n{words}\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    wait_until(lambda: any(silent_host.encode() in words for words in _command_lines()))
    process.send_signal(signal.SIGKILL)
    process.wait()

    wait_until(lambda: not any(silent_host.encode() in words for words in _command_lines()))
    assert [name for name in os.listdir(cache) if not name.startswith("workflowlookup-")] == []
    fetched = get(cache, upstream.url)
    assert os.listdir(cache) == [Path(fetched.directory).parent.name]


def _command_lines() -> Iterator[bytes]:
    """Of all git processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if (words := path.read_bytes()).startswith(b"git") or b"git-remote" in words:
                yield words
        except OSError:
            continue

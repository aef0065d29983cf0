"""Workflows as Agent Skills, and the files that they bring along, on a connection in memory."""

import base64
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.make import document, write
from support.memory_client import MemoryClient
from workflowlookup.app import make_connection
from workflowlookup.language.formats.syntax import parse_yaml
from workflowlookup.language.forms import DOCUMENT_SUFFIXES, FORMS
from workflowlookup.protocol.versions import HANDSHAKE_VERSIONS
from workflowlookup.settings import read_settings
from workflowlookup.tools import skills

PICTURE = bytes(range(256))
TEXT = "Größe\r\n\ufeffAll of it.\n".encode()


class SkillClient(MemoryClient):
    """A client of a library, in one of the eras."""

    def __init__(self, library: Path, version: str = "2026-07-28") -> None:
        self.library = library
        self.is_modern = version not in HANDSHAKE_VERSIONS
        sources = {
            "bundled": "no",
            "user": "no",
            "project": "no",
            "directories": os.fspath(library),
            "journal": os.fspath(library.parent / "runs.sqlite"),
        }
        self.connection = make_connection(read_settings(sources, {}, directory="."))
        self.hello = self.ask("server/discover" if self.is_modern else "initialize", **_opening(version))

    def ask(self, method: str, **params: Json) -> Json:
        envelope = {"_meta": ENVELOPE} if self.is_modern else {}
        return self.exchange({"id": 1, "method": method, "params": {**params, **envelope}})

    def result(self, method: str, **params: Json) -> Json:
        reply = self.ask(method, **params)
        assert "result" in reply, reply
        return reply["result"]

    def read(self, uri: str) -> bytes:
        (content,) = self.result("resources/read", uri=uri)["contents"]
        assert content["uri"] == uri
        return base64.b64decode(content["blob"]) if "blob" in content else content["text"].encode()

    def uris(self) -> list[str]:
        return [each["uri"] for each in self.result("resources/list")["resources"]]


def _opening(version: str) -> JsonObject:
    return {"protocolVersion": version, "capabilities": {}} if version in HANDSHAKE_VERSIONS else {}


def bring(library: Path, identifier: str, **files: bytes) -> Path:
    """Write a workflow and the files that it brings along; `__` in a name begins another part of the path."""
    folder = library / f"{identifier}.files"
    folder.mkdir(parents=True, exist_ok=True)
    write(library, document(identifier=identifier, description='What it is "for": !`date` `x`'))
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, "2026-07-28"])
def test_the_files_of_a_skill_are_resources_in_every_era(library: Path, version: str) -> None:
    bring(library, "my.work_flow", guide_md=TEXT, templates__logo_png=PICTURE)
    client = SkillClient(library, version)

    root = "skill://my.work_flow/my-work-flow"
    files = [f"{root}/guide.md", f"{root}/templates/logo.png"]
    assert client.uris()[2:] == ["workflow://my.work_flow", f"{root}/SKILL.md", *files]
    assert [client.read(uri) for uri in files] == [TEXT, PICTURE]
    assert all(f"`{uri}`" in client.read("workflow://my.work_flow").decode() for uri in files)
    assert client.read(f"{root}/SKILL.md").startswith(b'---\nname: "my-work-flow"\n')
    assert ("extensions" in client.hello["result"]["capabilities"]) == client.is_modern
    assert ("result" in client.ask("skills/list")) == client.is_modern


def test_an_entry_has_the_front_matter_and_the_digest_and_size_of_every_file(library: Path) -> None:
    bring(library, "plain-one", guide_md=TEXT, templates__logo_png=PICTURE, **{"two words_txt": b""})
    client = SkillClient(library)

    assert client.hello["result"]["capabilities"]["extensions"]["io.modelcontextprotocol/skills"] == {
        "directoryRead": True
    }
    listed = client.result("skills/list")
    (entry,) = listed["skills"]
    got = client.result("skills/get", uri="skill://plain-one/SKILL.md")

    assert got["skill"] == entry
    assert [(each["ttlMs"], each["cacheScope"]) for each in (listed, got)] == [(0, "private")] * 2
    names = ["SKILL.md", "guide.md", "templates/logo.png", "two%20words.txt"]
    assert [each["uri"] for each in entry["resources"]] == [f"skill://plain-one/{name}" for name in names]
    for each in entry["resources"]:
        content = client.read(each["uri"])
        assert each["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert each["size"] == len(content)
    manifest = client.read(entry["uri"])
    assert parse_yaml(manifest.split(b"---\n")[1]) == entry["frontmatter"]
    assert "!`" not in entry["frontmatter"]["description"], "Claude Code would run the command"


def test_the_answer_to_a_start_names_the_files(library: Path) -> None:
    bring(library, "plain-one", guide_md=TEXT)
    for number in range(20):
        (library / "plain-one.files" / f"more-{number:02}").touch()
    bring(library, "other-one")
    client = SkillClient(library)

    answers = [
        client.result("tools/call", name="workflow_start", arguments={"workflowId": identifier})
        for identifier in ("plain-one", "other-one")
    ]

    told, silent = (each["structuredContent"]["workflow"] for each in answers)
    assert told["metaGuidance"][0].startswith(
        "Files that the steps may name are resources: skill://plain-one/guide.md, skill://plain-one/more-00, "
    )
    assert told["metaGuidance"][0].endswith("/more-18 and 1 more, which workflow://plain-one lists.")
    assert "metaGuidance" not in silent


def test_a_changed_file_has_another_digest(library: Path) -> None:
    folder = bring(library, "plain-one", guide_md=b"before")
    client = SkillClient(library)
    before = client.result("skills/list")["skills"]

    (folder / "guide.md").write_bytes(b"after!")

    after = client.result("skills/list")["skills"]
    assert after != before
    assert after[0]["resources"][1]["digest"] == f"sha256:{hashlib.sha256(b'after!').hexdigest()}"


def test_documents_that_a_workflow_brings_along_are_no_workflows(library: Path) -> None:
    folder = bring(library, "plain-one")
    write(folder, document(identifier="an-example"))

    assert SkillClient(library).uris()[2:] == [
        "workflow://plain-one",
        "skill://plain-one/SKILL.md",
        "skill://plain-one/an-example.json",
    ]


@pytest.mark.parametrize("suffix", DOCUMENT_SUFFIXES)
def test_the_folder_is_named_after_the_document_in_every_form(library: Path, suffix: str) -> None:
    content = document(identifier="plain-one")
    (library / "page.files").mkdir(parents=True)
    (library / "page.files" / "guide.md").touch()
    (library / f"page{suffix}").write_text(FORMS[suffix].write(content))

    assert SkillClient(library).uris()[-1] == "skill://plain-one/guide.md"


# ── what cannot be served ───────────────────────────────────────────────────────────────────────────────────────


def too_many(folder: Path) -> None:
    for number in range(512):  # with SKILL.md they are 513
        (folder / str(number)).touch()


def too_large(folder: Path) -> None:
    with (folder / "large.bin").open("wb") as file:
        file.truncate((16 << 20) + 1)


def too_large_together(folder: Path) -> None:
    for name in ("one", "two"):
        with (folder / name).open("wb") as file:
            file.truncate(9 << 20)


def a_link_out(folder: Path) -> None:
    (folder / "out").symlink_to("/etc/passwd")


def a_directory_that_is_a_link(folder: Path) -> None:
    (folder / "out").symlink_to("/etc")


def a_folder_that_is_a_link(folder: Path) -> None:
    folder.rmdir()
    folder.symlink_to("/etc")


def a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def another_manifest(folder: Path) -> None:
    (folder / "skill.MD").touch()


def an_unprintable_name(folder: Path) -> None:
    (folder / "a\nb").touch()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (too_many, "a folder of more than 511 files"),
        (too_large, "larger than 16,711,680 bytes in all"),
        (too_large_together, "larger than 16,711,680 bytes in all"),
        (a_link_out, "out is a link, which is not followed"),
        (a_directory_that_is_a_link, "out is a link, which is not followed"),
        (a_folder_that_is_a_link, "is not a directory, or a link to one"),
        (a_pipe, "pipe is not a regular file"),
        (another_manifest, "in the place of the SKILL.md"),
        (an_unprintable_name, "has invisible characters"),
    ],
)
def test_a_folder_that_cannot_be_served_leaves_out_the_skill_and_keeps_the_workflow(
    library: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    bring(library, "sound-one", guide_md=b"x")
    spoil(bring(library, "spoilt-one"))
    client = SkillClient(library)

    refused = [
        client.ask("skills/get", uri="skill://spoilt-one/SKILL.md"),
        client.ask("resources/read", uri="skill://spoilt-one/SKILL.md"),
        client.ask("resources/directory/read", uri="skill://spoilt-one"),
    ]

    assert [entry["uri"] for entry in client.result("skills/list")["skills"]] == ["skill://sound-one/SKILL.md"]
    assert [uri for uri in client.uris() if "spoilt" in uri] == ["workflow://spoilt-one"]
    assert {each["error"]["code"] for each in refused} == {-32602}
    assert all(reason in each["error"]["data"]["details"] for each in refused)
    assert client.result("workflow_get", id="spoilt-one")["id"] == "spoilt-one"


def test_a_skill_of_512_files_is_served(library: Path) -> None:
    folder = bring(library, "plain-one")
    for number in range(511):
        (folder / str(number)).touch()

    (entry,) = SkillClient(library).result("skills/list")["skills"]

    assert len(entry["resources"]) == 512


@pytest.mark.parametrize(
    "path",
    [
        "../other.json",
        "%2e%2e/other.json",
        "x/../guide.md",
        "/guide.md",
        "guide.md/",
        ".hidden",
        "sub",
        "no-such.md",
        "",
    ],
)
def test_only_listed_files_are_read(library: Path, path: str) -> None:
    folder = bring(library, "plain-one", guide_md=b"x", sub__inner_md=b"y")
    (folder / ".hidden").touch()
    client = SkillClient(library)

    reply = client.ask("resources/read", uri=f"skill://plain-one/{path}")

    assert reply["error"]["code"] == -32602


@pytest.mark.parametrize("uri", ["skill://plain-one", "skill://plain-one/guide.md", "skill://no-such/SKILL.md", "x:y"])
def test_only_the_manifest_of_a_skill_names_it(library: Path, uri: str) -> None:
    bring(library, "plain-one", guide_md=b"x")

    assert SkillClient(library).ask("skills/get", uri=uri)["error"]["code"] == -32602


# ── pages and directories ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["skills/list", "resources/list"])
def test_a_page_is_full_when_its_files_are_large(library: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(skills, "MAX_PAGE_BYTES", 2 * skills.FILE_OVERHEAD)
    ids = [f"flow-{number}" for number in range(7)]
    for identifier in ids:
        bring(library, identifier, guide_md=b"x")
    client = SkillClient(library)

    pages: list[list[str]] = []
    cursor: JsonObject = {}
    while not pages or cursor["cursor"]:
        result = client.result(method, **cursor)
        found = result.get("skills") or result["resources"]
        pages.append([each["uri"] for each in found if each["uri"].endswith("/SKILL.md")])
        cursor = {"cursor": result.get("nextCursor")}

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [uri for page in pages for uri in page] == [f"skill://{identifier}/SKILL.md" for identifier in ids]


def test_a_directory_has_its_direct_children(library: Path) -> None:
    bring(library, "plain-one", guide_md=b"x", deep__er__note_md=b"y", deep__top_md=b"z")
    client = SkillClient(library)

    def children(uri: str) -> list[tuple[str, str]]:
        found = client.result("resources/directory/read", uri=uri)["resources"]
        return [(each["uri"].removeprefix("skill://plain-one/"), each["mimeType"]) for each in found]

    assert children("skill://plain-one") == [
        ("SKILL.md", "text/markdown"),
        ("deep", "inode/directory"),
        ("guide.md", "text/markdown"),
    ]
    assert children("skill://plain-one/deep") == [("deep/er", "inode/directory"), ("deep/top.md", "text/markdown")]
    for uri in ("skill://plain-one/guide.md", "skill://plain-one/no", "skill://other"):
        assert client.ask("resources/directory/read", uri=uri)["error"]["code"] == -32602

"""The library: which documents are listed, which shadow others, and that a hostile file does not affect the rest."""

import itertools
import json
import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.json_values import JsonObject
from support.make import document, loop, step, write
from support.narrowing import not_none
from workflowlookup.errors import InvalidWorkflow, NotReadYet, SecurityError, StorageError, WorkflowNotFound
from workflowlookup.library import catalog as catalog_module
from workflowlookup.library import directory as directory_module
from workflowlookup.library.catalog import Catalog
from workflowlookup.library.changes import ChangeWatcher, InotifyWatcher, PollingWatcher
from workflowlookup.library.directory import DirectorySource, Listing
from workflowlookup.library.files import LoadedFile, load


@pytest.fixture(
    params=[InotifyWatcher, lambda: PollingWatcher(clock=itertools.count().__next__, share=1e9)],
    ids=["inotify", "polling"],
)
def make_watcher(request: pytest.FixtureRequest) -> Callable[[], ChangeWatcher]:
    """Both watchers; the polling one scans every time."""
    make: Callable[[], ChangeWatcher] = request.param
    return make


@pytest.fixture
def catalog(library: Path, make_watcher: Callable[[], ChangeWatcher]) -> catalog_module.Catalog:
    return Catalog([DirectorySource("library", str(library))], make_watcher)


def ids(catalog: catalog_module.Catalog) -> list[str]:
    return [summary.id for summary in catalog.snapshot().summaries]


def test_workflows_are_listed_in_the_order_of_their_ids(catalog: catalog_module.Catalog, library: Path) -> None:
    for identifier in ("ccc", "aaa", "bbb"):
        write(library, document(identifier=identifier), f"{9 - ord(identifier[0]) % 9}.json")

    assert ids(catalog) == ["aaa", "bbb", "ccc"]


def test_json_and_yaml_in_subdirectories_are_found_and_other_names_are_not(
    catalog: catalog_module.Catalog, library: Path
) -> None:
    write(library, document(identifier="in-json"), "deep/er/one.json")
    (library / "two.yaml").write_text("id: in-yaml\nname: N\ndescription: D\nsteps: [{id: one, title: T, prompt: P}]\n")
    (library / "three.yml").write_text("id: in-yml\nname: N\ndescription: D\nsteps: [{id: one, title: T, prompt: P}]\n")
    for name in ("README.md", ".hidden.json", "x.json~", "in-json.test.yaml", ".git/x.json", "noending"):
        write(library, document(identifier="not-seen"), name)

    assert ids(catalog) == ["in-json", "in-yaml", "in-yml"]
    assert catalog.snapshot().problems == ()


def test_a_change_is_seen_by_the_next_call(catalog: catalog_module.Catalog, library: Path) -> None:
    path = write(library, document(identifier="one", name="Before"))
    assert catalog.get("one").name == "Before"

    write(library, document(identifier="one", name="After!"))
    assert catalog.get("one").name == "After!"
    write(library, document(identifier="two"))
    assert ids(catalog) == ["one", "two"]
    path.unlink()
    assert ids(catalog) == ["two"]
    (library / "two.json").rename(library / "renamed.json")
    assert ids(catalog) == ["two"]
    write(library, document(identifier="three"), "new/directory/three.json")
    assert ids(catalog) == ["three", "two"]
    shutil.rmtree(library / "new")
    assert ids(catalog) == ["two"]


def test_a_rewrite_of_the_same_size_at_the_same_moment_is_seen(library: Path) -> None:
    catalog = Catalog([DirectorySource("library", str(library))], InotifyWatcher)
    path = write(library, document(name="aaaa"))
    status = path.stat()
    assert catalog.get("sample-workflow").name == "aaaa"

    write(library, document(name="bbbb"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert catalog.get("sample-workflow").name == "bbbb"


def test_an_atomic_replacement_is_seen(catalog: catalog_module.Catalog, library: Path) -> None:
    write(library, document(name="Before"))
    assert catalog.get("sample-workflow").name == "Before"

    os.replace(write(library, document(name="After"), "draft.tmp"), library / "sample-workflow.json")

    assert catalog.get("sample-workflow").name == "After"


def test_only_what_changed_is_read_again(
    catalog: catalog_module.Catalog, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        write(library, document(identifier=f"flow-{number:02}"))
    catalog.snapshot()
    read: list[str] = []

    def counted(path: str, root: str, digest: str | None) -> LoadedFile:
        read.append(os.path.basename(path))
        return load(path, root, digest)

    monkeypatch.setattr(directory_module, "load", counted)

    write(library, document(identifier="flow-07", name="Changed"))
    assert catalog.get("flow-07").name == "Changed"

    assert read == ["flow-07.json"]


def test_without_a_change_the_snapshot_is_the_same_object(catalog: catalog_module.Catalog, library: Path) -> None:
    write(library, document())

    assert catalog.snapshot() is catalog.snapshot()


def test_a_snapshot_does_not_change(catalog: catalog_module.Catalog, library: Path) -> None:
    write(library, document(identifier="one"))
    before = catalog.snapshot()
    write(library, document(identifier="two"))
    catalog.snapshot()

    assert [summary.id for summary in before.summaries] == ["one"]


def test_a_directory_that_appears_later_is_seen(tmp_path: Path, make_watcher: Callable[[], ChangeWatcher]) -> None:
    catalog = Catalog([DirectorySource("project", str(tmp_path / "later" / "workflows"))], make_watcher)
    assert ids(catalog) == []

    write(tmp_path / "later" / "workflows", document())

    assert ids(catalog) == ["sample-workflow"]


def test_a_directory_that_vanishes_is_reported_and_other_sources_still_work(
    tmp_path: Path, library: Path, make_watcher: Callable[[], ChangeWatcher]
) -> None:
    write(library, document(identifier="stays"))
    write(tmp_path / "gone", document(identifier="goes"))
    catalog = Catalog(
        [DirectorySource("gone", str(tmp_path / "gone")), DirectorySource("library", str(library))], make_watcher
    )
    assert ids(catalog) == ["goes", "stays"]

    shutil.rmtree(tmp_path / "gone")

    assert ids(catalog) == ["stays"]
    with pytest.raises(StorageError, match="does not exist"):
        catalog.get("goes")
    write(tmp_path / "gone", document(identifier="goes"))
    assert catalog.get("goes").id == "goes"


def test_a_later_source_shadows_an_earlier_one(tmp_path: Path, make_watcher: Callable[[], ChangeWatcher]) -> None:
    for name in ("first", "second"):
        write(tmp_path / name, document(name=name))
    catalog = Catalog([DirectorySource(name, str(tmp_path / name)) for name in ("first", "second")], make_watcher)

    ((hidden, by),) = catalog.snapshot().shadowed

    assert catalog.get("sample-workflow").name == "second"
    assert (hidden.source, by.source) == ("first", "second")


def test_a_broken_document_shadows_nothing(tmp_path: Path, make_watcher: Callable[[], ChangeWatcher]) -> None:
    write(tmp_path / "first", document(name="sound"))
    write(tmp_path / "second", {"id": "sample-workflow", "name": "broken"})
    catalog = Catalog([DirectorySource(name, str(tmp_path / name)) for name in ("first", "second")], make_watcher)

    assert catalog.get("sample-workflow").name == "sound"
    assert len(catalog.snapshot().problems) == 1


def test_the_same_id_twice_in_one_directory_keeps_the_first_by_name(
    catalog: catalog_module.Catalog, library: Path
) -> None:
    write(library, document(name="first"), "a.json")
    write(library, document(name="second"), "b.json")

    assert catalog.get("sample-workflow").name == "first"
    assert len(catalog.snapshot().shadowed) == 1


def test_a_broken_document_is_left_out_and_its_id_says_what_is_wrong(
    catalog: catalog_module.Catalog, library: Path
) -> None:
    write(library, document(identifier="sound"))
    write(library, {"id": "broken", "name": "N", "steps": []}, "whatever.json")
    (library / "no-json.json").write_text('{"id": "x",}')

    assert ids(catalog) == ["sound"]
    with pytest.raises(InvalidWorkflow) as refusal:
        catalog.get("broken")
    assert refusal.value.data["issues"][0] == "Missing required property 'description'"
    with pytest.raises(InvalidWorkflow, match="JSON syntax error"):
        catalog.get("no-json")


def test_a_document_with_a_byte_order_mark_is_found(catalog: catalog_module.Catalog, library: Path) -> None:
    path = write(library, document())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert catalog.get("sample-workflow").id == "sample-workflow"


def test_a_repaired_document_is_back(catalog: catalog_module.Catalog, library: Path) -> None:
    (library / "sample-workflow.json").write_text("{")
    with pytest.raises(InvalidWorkflow):
        catalog.get("sample-workflow")

    write(library, document())

    assert catalog.get("sample-workflow").id == "sample-workflow"


def make_large(library: Path, outside: Path) -> None:
    (library / "bad.json").write_text(json.dumps(document(step(prompt="x" * (1 << 20)))))


def make_deep(library: Path, outside: Path) -> None:
    (library / "bad.json").write_text('{"id": ' + "[" * 65 + "]" * 65 + "}")


def make_link_out(library: Path, outside: Path) -> None:
    (library / "bad.json").symlink_to(write(outside, document(identifier="bad")))


def make_link_chain(library: Path, outside: Path) -> None:
    (outside / "hop.json").symlink_to(write(outside, document(identifier="bad")))
    (library / "bad.json").symlink_to(outside / "hop.json")


def make_pipe(library: Path, outside: Path) -> None:
    os.mkfifo(library / "bad.json")


def make_dangling_link(library: Path, outside: Path) -> None:
    (library / "bad.json").symlink_to(library / "nowhere.json")


def make_link_loop(library: Path, outside: Path) -> None:
    (library / "bad.json").symlink_to(library / "bad.json")


@pytest.mark.parametrize(
    ("make_hostile", "error", "words"),
    [
        (make_large, SecurityError, "larger than 1,048,576 bytes"),
        (make_deep, SecurityError, "nested deeper than 64 levels"),
        (make_link_out, SecurityError, "a link that leads out of its directory"),
        (make_link_chain, SecurityError, "a link that leads out of its directory"),
        (make_pipe, StorageError, "not a regular file"),
        (make_dangling_link, StorageError, "No such file"),
        (make_link_loop, StorageError, "Too many levels of symbolic links"),
    ],
)
def test_a_hostile_file_is_refused_by_name_and_other_files_still_load(
    make_hostile: Callable[..., None],
    error: type[SecurityError] | type[StorageError],
    words: str,
    catalog: catalog_module.Catalog,
    library: Path,
    tmp_path: Path,
) -> None:
    (tmp_path / "outside").mkdir()
    write(library, document())
    make_hostile(library, tmp_path / "outside")

    assert ids(catalog) == ["sample-workflow"]
    with pytest.raises(error, match=words) as refusal:
        catalog.get("bad")
    assert refusal.value.data["file"].endswith("bad.json")


@pytest.mark.parametrize("make_hostile", [make_large, make_link_out, make_pipe, make_dangling_link])
def test_a_hostile_file_that_is_replaced_by_a_valid_one_is_back(
    make_hostile: Callable[..., None], catalog: catalog_module.Catalog, library: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    make_hostile(library, tmp_path / "outside")
    assert ids(catalog) == []

    (library / "bad.json").unlink()
    write(library, document(identifier="bad"))

    assert ids(catalog) == ["bad"]


def test_when_the_kernel_gives_no_more_watches_changes_are_still_seen(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InotifyWatcher, "_add", lambda self, directory: setattr(self, "_is_blind", True))
    catalog = Catalog([DirectorySource("library", str(library))], InotifyWatcher)
    assert ids(catalog) == []

    write(library, document())
    deadline = time.monotonic() + 10
    while not ids(catalog) and time.monotonic() < deadline:
        pass

    assert ids(catalog) == ["sample-workflow"]


def test_a_link_inside_the_directory_is_followed_and_a_linked_directory_is_not(
    catalog: catalog_module.Catalog, library: Path, tmp_path: Path
) -> None:
    target = write(library, document(), "real/document.txt")
    (library / "link.json").symlink_to(target)
    write(tmp_path / "outside", document(identifier="outside"))
    (library / "linked").symlink_to(tmp_path / "outside")

    assert ids(catalog) == ["sample-workflow"]


def test_an_unreadable_name_is_no_harm(catalog: catalog_module.Catalog, library: Path) -> None:
    write(library, document())
    (library / os.fsdecode(b"bad-\xff.json")).write_bytes(b"{")

    assert ids(catalog) == ["sample-workflow"]
    assert len(catalog.snapshot().problems) == 1


def test_an_unknown_id_comes_with_the_nearest_known_one(catalog: catalog_module.Catalog, library: Path) -> None:
    write(library, document())

    with pytest.raises(WorkflowNotFound) as refusal:
        catalog.get("sample-workflw")

    assert "Did you mean 'sample-workflow'?" in refusal.value.explain()
    assert refusal.value.data == {"workflowId": "sample-workflw"}


def test_more_workflows_than_are_cached_are_all_found(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflowlookup.library.catalog.MAX_BUILT", 3)
    catalog = Catalog([DirectorySource("library", str(library))])
    for number in range(10):
        write(library, document(identifier=f"flow-{number}"))

    assert [catalog.get(f"flow-{number}").id for number in (*range(10), *range(10))][-1] == "flow-9"


def test_an_overflow_of_events_loses_nothing(library: Path) -> None:
    catalog = Catalog([DirectorySource("library", str(library))], InotifyWatcher)
    catalog.snapshot()
    for number in range(20_000):
        (library / f"{number % 50}.tmp").write_bytes(b"x")
    write(library, document())

    assert ids(catalog) == ["sample-workflow"]


def test_polling_spends_no_more_than_its_share_of_the_time() -> None:
    now = 0.0
    polling = PollingWatcher(clock=lambda: now, share=0.1)
    polling.take()
    now = 1.0  # the scan took a second
    polling.scanned()

    assert not polling.pending()
    now = 10.9
    assert not polling.pending()
    now = 11.1
    assert polling.pending()


def test_the_refusal_of_a_document_keeps_no_traceback(catalog: catalog_module.Catalog, library: Path) -> None:
    """Its frames would keep the document, and the previous listing with its refusals, in memory."""
    write(library, {"id": "broken", "name": "N"})
    (library / "cut.json").write_text("{")

    refusals = [entry.file.refusal for entry in catalog.snapshot().problems]

    assert [(not_none(r).__traceback__, not_none(r).__cause__, not_none(r).__context__) for r in refusals] == [
        (None, None, None)
    ] * 2


def test_a_document_larger_than_the_cache_is_not_cached(
    catalog: catalog_module.Catalog, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(library, document(identifier="small"))
    write(library, document(*(step(f"step-{n}") for n in range(50)), identifier="large"))
    monkeypatch.setattr(catalog_module, "MAX_BUILT_BYTES", 10_000)

    assert catalog.get("small") is catalog.get("small")
    assert catalog.get("large") is not catalog.get("large")


@pytest.mark.parametrize(("limit", "count"), [("MAX_DOCUMENTS", 3), ("MAX_ENTRIES", 4)])
def test_documents_beyond_the_limit_of_a_source_are_left_out_by_name(
    catalog: catalog_module.Catalog, library: Path, monkeypatch: pytest.MonkeyPatch, limit: str, count: int
) -> None:
    monkeypatch.setattr(directory_module, limit, count)
    for number in range(5):
        write(library, document(identifier=f"flow-{number}"), f"sub/flow-{number}.json")

    assert ids(catalog) == ["flow-0", "flow-1", "flow-2"]
    (problem,) = catalog.snapshot().problems
    assert problem.file.path == str(library)
    assert str(library / "sub" / "flow-3.json") in str(problem.file.refusal)
    (library / "sub" / "flow-0.json").unlink()
    (library / "sub" / "flow-4.json").unlink()
    assert ids(catalog) == ["flow-1", "flow-2", "flow-3"]
    assert catalog.snapshot().problems == ()


def test_documents_beyond_the_deadline_are_read_by_the_next_scan(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_module, "thread_time", itertools.count().__next__)
    source = DirectorySource("library", str(library))
    paths = [str(write(library, document(identifier=f"flow-{number}"))) for number in range(5)]

    first = source.scan(Listing(), (), PollingWatcher(), 2)
    second = source.scan(first, (), PollingWatcher(), 8)

    assert list(first.files) == [*paths[:2], str(library)]
    assert f"3 documents of {library} cannot be used yet, the first is {paths[2]}" in str(
        first.files[str(library)].refusal
    )
    assert list(second.files) == paths
    assert second.files[paths[0]] is first.files[paths[0]]


def test_an_id_that_may_be_in_what_is_not_read_yet_is_not_called_unknown(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "ROOT_CHECK_SECONDS", 0)
    catalog = Catalog([DirectorySource("library", str(library))], read_seconds=-math.inf)
    write(library, document())

    with pytest.raises(NotReadYet, match="ask again in a moment") as refused:
        catalog.get("sample-workflow")
    assert refused.value.data["workflowId"] == "sample-workflow"
    assert ids(catalog) == []
    monkeypatch.setattr(catalog, "_read_seconds", math.inf)
    assert catalog.get("sample-workflow").id == "sample-workflow"
    assert catalog.snapshot().incomplete is None


CALL = {"id": "call-it", "title": "Call it", "call": {"server": "files", "tool": "read"}}


@pytest.mark.parametrize(
    ("steps", "needs_agent"),
    [
        ([step()], True),
        ([CALL], False),
        ([loop("again", [CALL], type="for", count=2)], False),
        ([loop("again", [step()], type="for", count=2), CALL], True),
        ([loop("again", "call-it", type="for", count=2), CALL], False),
    ],
)
def test_a_workflow_needs_an_agent_unless_all_its_steps_are_calls(
    library: Path, steps: list[JsonObject], needs_agent: bool
) -> None:
    file = load(str(write(library, document(*steps))), str(library))

    assert (file.refusal, file.needs_agent) == (None, needs_agent)

"""What is left out is reported: nothing of a document, a library or an answer is lost in silence."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.client import Server, Start
from support.json_values import Json
from support.make import document, loop, step, write

MERGED = """\
id: merged
name: Merged
description: d
version: 1.0.0
steps:
  - id: one
    title: One
    prompt: Write.
    validationCriteria:
      - type: schema
        message: No total.
        schema:
          x-base: &base {type: object, required: [total]}
          <<: *base
"""
"""The anchor of what is merged is in the same object."""


def test_a_merge_key_whose_anchor_is_in_the_same_object_brings_its_criteria(start: Start, library: Path) -> None:
    (library / "merged.yaml").write_text(MERGED)
    server = start(directory=library)

    verdict = server.call("workflow_validate", {"workflowId": "merged", "stepId": "one", "output": "{}"})

    assert verdict["structuredContent"]["valid"] is False


@pytest.mark.parametrize(
    ("merge", "reason"),
    [("<<: *shared", "merged into itself"), ("<<: 5", "takes an object or a list"), ("<<: [5]", "takes an object")],
)
def test_a_merge_key_that_cannot_be_followed_is_an_error_of_the_document(
    start: Start, library: Path, merge: str, reason: str
) -> None:
    text = f"id: odd\nname: Odd\ndescription: d\nversion: 1.0.0\nx: &shared\n  y: 1\n  {merge}\nsteps: []\n"
    (library / "odd.yaml").write_text(text)
    server = start(directory=library)

    error = server.error("workflow_get", {"id": "odd"})

    assert reason in error["data"]["issues"][0]


@pytest.mark.parametrize("space", ["", " "])
def test_a_field_that_is_written_twice_in_a_json_document_is_reported(start: Start, library: Path, space: str) -> None:
    text = json.dumps(document(step("one", validationCriteria=[{"minLength": 100}]), identifier="twice"))
    text = text.replace('"validationCriteria"', f'"validationCriteria"{space}: ["."], "validationCriteria"')
    (library / "twice.json").write_text(text)
    server = start(directory=library)

    verdict = server.result("workflow_validate_json", {"workflowJson": text})
    loaded = server.result("workflow_get", {"id": "twice"})
    server.close_input()
    server.wait()

    assert verdict["issues"] == ["JSON syntax error: the field 'validationCriteria' is written twice in one object"]
    assert loaded["id"] == "twice"
    assert "'validationCriteria' is written twice in one object; only the last one counts" in server.log()


def test_what_looks_like_a_field_in_a_text_is_none(start: Start, library: Path) -> None:
    write(library, document(step("one", prompt='Write {"id": 1, "id": 2} as "JSON":'), identifier="quoting"))
    server = start(directory=library)

    assert server.result("workflow_get", {"id": "quoting"})["id"] == "quoting"


def test_a_conditional_loop_is_told_as_skipped_in_every_iteration(start: Start, library: Path) -> None:
    inner = {**loop("inner", [step("deep")], type="for", count=1), "runCondition": {"var": "go"}}
    outer = loop("outer", [inner, step("after")], type="for", count=2)
    write(library, document(outer, identifier="nested-loops"))
    server = start(directory=library)
    arguments = {"workflowId": "nested-loops", "completedSteps": ["after@1", "after@2"], "context": {}}

    answer = server.call("workflow_next", arguments)["structuredContent"]

    assert answer["isComplete"]
    assert [skip["stepId"] for skip in answer["skipped"]] == ["inner@1", "inner@2"]


@pytest.mark.parametrize("count", [3, 400])
@pytest.mark.parametrize("has_loop", [True, False])
def test_ignored_ids_are_named_in_the_order_in_which_they_came(
    start: Start, library: Path, count: int, has_loop: bool
) -> None:
    body: Json = loop("again", [step("one")], type="for", count=2) if has_loop else step("one")
    write(library, document(body, identifier="short"))
    server = start(directory=library)
    unknown = [f"unknown-{(number * 7919) % 1000}" for number in range(count)]

    answer = server.call("workflow_next", {"workflowId": "short", "completedSteps": unknown})["structuredContent"]

    assert answer["warnings"][0].endswith(": " + ", ".join(unknown[:20]))


# ── directories that are not looked into ────────────────────────────────────────────────────────────────────────────


def doctor(library: Path, home: Path, *before: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("WORKFLOW", "XDG_"))}
    command = [*before, sys.executable, "-m", "workflowlookup", "doctor", "--directories", str(library)]
    done = subprocess.run(
        command, cwd=home, env=environment | {"HOME": str(home)}, check=False, capture_output=True, text=True
    )
    return " ".join((done.stdout + done.stderr).split())


def test_a_linked_directory_is_reported(start: Start, library: Path, tmp_path: Path) -> None:
    write(library, document(step("one"), identifier="sound"))
    (tmp_path / "elsewhere").mkdir()
    (library / "linked").symlink_to(tmp_path / "elsewhere")

    server = start(directory=library)
    listed = server.result("workflow_list")
    server.close_input()
    server.wait()

    assert [workflow["id"] for workflow in listed["workflows"]] == ["sound"]
    assert "linked is a link to a directory, which is not followed" in server.log()
    assert "is a link to a directory, which is not followed" in doctor(library, tmp_path)


def test_a_directory_that_is_too_deep_is_reported(start: Start, library: Path, tmp_path: Path) -> None:
    deep = library.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    write(deep, document(step("one"), identifier="too-deep"))

    server = start(directory=library)
    server.result("workflow_list")
    server.close_input()
    server.wait()

    assert "more than 32 directories deep" in server.log()
    assert "more than 32 directories deep" in doctor(library, tmp_path)


OBEDIENT = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all") if os.geteuid() == 0 else ()
"""Root reads everything, unless it gives up the capability to."""


@pytest.mark.skipif(bool(OBEDIENT) and shutil.which("setpriv") is None, reason="root reads everything")
def test_a_directory_that_cannot_be_read_is_reported(library: Path, tmp_path: Path) -> None:
    (library / "closed").mkdir(mode=0)

    assert "closed cannot be read: Permission denied" in doctor(library, tmp_path, *OBEDIENT)


# ── file descriptors ────────────────────────────────────────────────────────────────────────────────────────────────


def limit_descriptors(server: Server, limit: int) -> None:
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, 4096))


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of another process is set")
@pytest.mark.parametrize("is_warm", [True, False])
def test_running_out_of_file_descriptors_is_a_storage_error_that_passes(
    start: Start, library: Path, is_warm: bool
) -> None:
    write(library, document(step("one"), identifier="sound"))
    server = start(directory=library)
    arguments = {"workflowId": "sound"}
    if is_warm:
        server.call("workflow_start", arguments)
        server.result("workflow_list")
    write(library, document(step("one"), identifier="another"))

    limit_descriptors(server, 3)
    answers = [
        server.request("workflow_get", {"id": "another"}),
        server.request("workflow_list"),
        server.request("workflow_start", arguments),
        server.request("workflow_runs", {}),
    ]
    limit_descriptors(server, 1024)
    time.sleep(0.5)

    codes = [answer["error"]["code"] for answer in answers if "error" in answer]
    assert codes[:2] == [-32006, -32006]
    assert set(codes) == {-32006}
    assert "ulimit -n" in answers[0]["error"]["data"]["details"]
    assert server.result("workflow_get", {"id": "another"})["id"] == "another"
    assert server.call("workflow_start", arguments)["structuredContent"]["runId"]


# ── modules of the working directory ────────────────────────────────────────────────────────────────────────────────


def test_python_m_imports_nothing_else_from_the_working_directory(tmp_path: Path) -> None:
    for name in ("msgspec", "argparse", "yaml", "sqlite3", "logging"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken from the working directory')")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}

    done = subprocess.run(
        [sys.executable, "-m", "workflowlookup", "list"],
        cwd=tmp_path,
        env=environment | {"HOME": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr

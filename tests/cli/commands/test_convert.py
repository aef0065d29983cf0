"""`workflowlookup convert`: the same document in the other form."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from support.command_line import Cli
from support.json_values import JsonObject
from support.make import document, loop, step, write
from workflowlookup.language.document.checking import is_valid_document
from workflowlookup.language.formats.syntax import parse_json, parse_yaml
from workflowlookup.language.forms import JSON, YAML, document_text
from workflowlookup.language.values import json_equal

LONG = "One sentence that is rather long, because it says what an agent should do: all of it, and in order. " * 2

TRAPS = (
    *("1:30", "1e3", "017", "0x1f", "1_000", ".5", "no", "Yes", "null", "~", "<<", "=", "2026-01-01", "- a", "a: b"),
    *(
        "#",
        "a #b",
        "a\n",
        "a\n\n",
        " a\nb",
        "a\n  \nb",
        "a\tb",
        "a\r\nb",
        "\x85",
        "\ufeff",
        "\u2028",
        "{{x}}",
        "[a",
        "",
    ),
)
"""What one YAML reader or another takes for something else."""
TEXT = st.text() | st.sampled_from(TRAPS) | st.just(LONG)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)
WORDS = TEXT.filter(lambda text: 0 < len(text) <= 128)
STEPS = st.builds(
    lambda title, prompt, mine: step(title=title, prompt=prompt, validationCriteria=[prompt], **{"x-mine": mine}),
    WORDS,
    TEXT.filter(bool),
    VALUES,
)


@st.composite
def documents(draw: st.DrawFn) -> JsonObject:
    """Sound documents, with all that JSON can hold in the prompts and in the author's own fields."""
    steps = draw(st.lists(STEPS, min_size=1, max_size=3))
    for number, one in enumerate(steps):
        one["id"] = f"step-{number}"
    own: JsonObject = {"x-it": draw(VALUES)}
    made = document(
        loop("a-loop", steps[1:], type="for", count=2) if steps[1:] else steps[0],
        name=draw(WORDS),
        **own,
    )
    assert is_valid_document(made)
    return made


@given(documents())
@settings(deadline=None)
def test_converting_there_and_back_keeps_the_document_and_its_order(made: JsonObject) -> None:
    there = parse_yaml(document_text(made, YAML).encode())
    back = parse_json(document_text(there, JSON).encode())

    assert json_equal(back, made)
    assert json.dumps(there) == json.dumps(made)


def test_json_becomes_yaml_with_blocks_and_short_things_on_one_line(cli: Cli, tmp_path: Path) -> None:
    first = step(prompt="Look.\n\nThen leap.", runCondition={"var": "size", "not_equals": "small"}, guidance=[])
    write(tmp_path, document(first, step("second", prompt=LONG.strip())))

    done = cli("convert", "sample-workflow.json")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "Wrote sample-workflow.yaml.\n"
        "Both files have the same id now: remove sample-workflow.json, or use --replace next time.\n"
    )
    assert (tmp_path / "sample-workflow.yaml").read_text() == (
        "id: sample-workflow\n"
        "name: Sample workflow\n"
        "description: A workflow for tests\n"
        'version: "1.0.0"\n'
        "steps:\n"
        "  - id: first-step\n"
        "    title: Title first-step\n"
        "    prompt: |-\n"
        "      Look.\n"
        "\n"
        "      Then leap.\n"
        "    runCondition: {var: size, not_equals: small}\n"
        "    guidance: []\n"
        "\n"
        "  - id: second\n"
        "    title: Title second\n"
        "    prompt: >-\n"
        "      One sentence that is rather long, because it says what an agent should do: all of it, and in\n"
        "      order. One sentence that is rather long, because it says what an agent should do: all of it,\n"
        "      and in order.\n"
    )


@pytest.mark.parametrize(
    ("prompt", "block"),
    [
        ("Look.\n  \nLeap.\n", "|\n      Look.\n        \n      Leap.\n"),
        ("\n\nLook.\nLeap.", "|-\n\n\n      Look.\n      Leap.\n"),
        ("  1. Look.\n2. Leap.\n", "|2\n        1. Look.\n      2. Leap.\n"),
        ("\tLook.\nLeap.", "|2-\n      \tLook.\n      Leap.\n"),
    ],
    ids=["blanks in an empty line", "empty lines first", "blanks first", "a tab first"],
)
def test_a_prompt_of_several_lines_stays_readable_whatever_its_blanks(prompt: str, block: str) -> None:
    text = document_text(document(step(prompt=prompt)), YAML)

    assert text.endswith(f"    prompt: {block}")
    assert parse_yaml(text.encode()) == document(step(prompt=prompt))


def test_yaml_becomes_json_and_the_comments_that_are_lost_are_counted(cli: Cli, tmp_path: Path) -> None:
    text = "# one\n" + yaml.safe_dump(document(), sort_keys=False) + "# two\nx-no: '# none'  # three\n"
    (tmp_path / "flow.yml").write_text(text)

    done = cli("convert", "flow.yml")

    assert (done.returncode, done.stderr) == (0, "workflowlookup: 3 comments dropped, because JSON has no comments.\n")
    assert json.loads((tmp_path / "flow.json").read_text()) == {**document(), "x-no": "# none"}


def test_yaml_to_yaml_keeps_comments_and_order(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "flow.yml").write_text("name:   N # one\n# two\nid: abc\n")

    done = cli("convert", "flow.yml", "--to", "yaml", "--output", "-")

    assert (done.returncode, done.stdout) == (0, "name: N  # one\n# two\nid: abc\n")


def test_replace_leaves_one_document_and_a_copy_of_the_other(cli: Cli, project: Path) -> None:
    write(project, document())

    done = cli("convert", str(project / "sample-workflow.json"), "--replace")

    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(file.name for file in project.iterdir()) == ["sample-workflow.json.bak", "sample-workflow.yaml"]
    assert cli("validate").returncode == 0


@pytest.mark.parametrize("output", ["-", "./sample-workflow.json"])
def test_replace_needs_another_file(cli: Cli, tmp_path: Path, output: str) -> None:
    write(tmp_path, document())

    done = cli("convert", "sample-workflow.json", "--replace", "--force", "--output", output)

    assert (done.returncode, done.stdout, (tmp_path / "sample-workflow.json").exists()) == (2, "", True)


def test_a_file_that_is_there_is_replaced_only_by_force(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, document())
    (tmp_path / "out.yaml").write_text("mine")

    usual = cli("convert", "sample-workflow.json", "--output", "out.yaml")
    text = (tmp_path / "out.yaml").read_text()
    forced = cli("convert", "sample-workflow.json", "--output", "out.yaml", "--force")

    assert (usual.returncode, text, "out.yaml exists. Replace it with --force" in usual.stderr) == (1, "mine", True)
    assert (forced.returncode, yaml.safe_load((tmp_path / "out.yaml").read_text())) == (0, document())


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.json", "{", 1),
        ("a.json", "[]", 1),
        ("a.json", "5", 1),
        ("a.yaml", "", 1),
        ("a.yaml", "- a\n", 1),
        ("a.txt", "", 2),
        ("no.json", None, 1),
    ],
)
def test_a_file_that_is_not_a_document_is_reported(
    cli: Cli, tmp_path: Path, name: str, text: str | None, code: int
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)

    done = cli("convert", name, "--output", "-")

    assert (done.returncode, done.stdout, done.stderr[:16]) == (code, "", "workflowlookup: ")


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_field_that_is_written_twice_is_not_dropped(cli: Cli, form: str) -> None:
    text = json.dumps(document(step())).replace('"prompt"', '"prompt": "The first one.", "prompt"')
    (cli.directory / "twice.json").write_text(text)

    done = cli("convert", "twice.json", "--to", form, "--output", "new", "--force")

    assert done.returncode == 1
    assert "twice.json cannot be converted, because the field 'prompt' is written twice." in done.stderr
    assert not (cli.directory / "new").exists()

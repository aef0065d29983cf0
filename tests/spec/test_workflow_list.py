"""workflow_list: a line for each workflow."""

import re
from typing import Any

import pytest

from spec.roads import Ask, Publish, success
from support.json_values import Json, JsonObject
from support.make import step


@pytest.mark.spec("001/workflow_list/all", "001/workflow_list/workflows")
def test_an_empty_library_is_an_empty_list(ask: Ask) -> None:
    assert ask("workflow_list", {}) == success({"workflows": []})


@pytest.mark.spec(
    "001/workflow_list/all",
    "001/workflow_list/workflows",
    "001/workflow_list/name",
    "001/workflow_list/description",
    "001/workflow_list/category",
    "001/workflow_list/version",
)
def test_every_workflow_is_listed_once_by_id_with_exactly_the_five_fields(ask: Ask, publish: Publish) -> None:
    publish(identifier="review-code", name="Review", description="Reads code", category="review", version="2.1.0-rc.1")
    publish(identifier="fix-a-bug", name="Fix", description="Fixes code", category="development", version="1.0.0")

    assert ask("workflow_list", {}) == success(
        {
            "workflows": [
                {
                    "id": "fix-a-bug",
                    "name": "Fix",
                    "description": "Fixes code",
                    "category": "development",
                    "version": "1.0.0",
                },
                {
                    "id": "review-code",
                    "name": "Review",
                    "description": "Reads code",
                    "category": "review",
                    "version": "2.1.0-rc.1",
                },
            ]
        }
    )


@pytest.mark.spec("001/workflow_list/params")
@pytest.mark.parametrize("arguments", [None, {}], ids=["null", "empty"])
def test_null_and_an_empty_object_ask_for_everything(ask: Ask, publish: Publish, arguments: Json) -> None:
    publish(identifier="some-workflow")

    assert [workflow["id"] for workflow in ask.result("workflow_list", arguments)["workflows"]] == ["some-workflow"]


@pytest.mark.spec("001/workflow_list/category", "001/workflow_list/version")
def test_a_document_without_category_and_version_has_the_defaults(ask: Ask, shelf: Any) -> None:
    path = shelf / "short-one.json"
    path.write_text(
        '{"id": "short-one", "name": "Short", "description": "Says little",'
        ' "steps": [{"id": "one-step", "title": "One", "prompt": "Do it."}]}',
        encoding="utf-8",
    )

    listed = ask.result("workflow_list", {})["workflows"]
    path.unlink()

    assert listed == [
        {"id": "short-one", "name": "Short", "description": "Says little", "category": "workflow", "version": "1.0.0"}
    ]


@pytest.mark.spec("001/workflow_list/id")
def test_ids_are_unique_and_match_the_pattern_of_the_schema(ask: Ask, publish: Publish) -> None:
    for identifier in ("abc", "a" * 64, "-leading-hyphen", "0-digits", "with.dots_and_underscores"):
        publish(identifier=identifier)

    ids = [workflow["id"] for workflow in ask.result("workflow_list", {})["workflows"]]

    assert len(ids) == len(set(ids)) == 5
    assert all(re.fullmatch(r"[a-z0-9-][a-z0-9._-]{2,63}", identifier) for identifier in ids)


@pytest.mark.spec("001/workflow_list/id", "001/workflow_list/version", "001/codes/-32002")
@pytest.mark.parametrize(
    "fields",
    [
        {"identifier": "ab"},
        {"identifier": "a" * 65},
        {"identifier": "Upper-Case"},
        {"identifier": "with blank"},
        {"version": "1.0"},
        {"version": "v1.0.0"},
        {"version": "1.0.0.0"},
        {"version": 1},
    ],
    ids=str,
)
def test_a_document_whose_id_or_version_does_not_match_is_not_listed(
    ask: Ask, publish: Publish, fields: JsonObject
) -> None:
    publish(**fields)

    assert ask("workflow_list", {}) == success({"workflows": []})


@pytest.mark.spec("001/workflow_list/all")
def test_a_broken_document_does_not_keep_the_others_from_being_listed(ask: Ask, publish: Publish, shelf: Any) -> None:
    publish(identifier="sound-one")
    publish(step(runCondition={"var": "n", "no_such_operator": 1}), identifier="unsound-one")
    rule = {"type": "contains", "value": "x", "message": "m", "condition": {"and": 5}}
    publish(step(validationCriteria=[rule]), identifier="with-odd-rule")

    listed = ask.result("workflow_list", {})["workflows"]

    ids = [workflow["id"] for workflow in listed]
    assert "sound-one" in ids
    assert "unsound-one" not in ids

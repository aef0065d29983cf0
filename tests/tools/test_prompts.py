"""Prompts: what a slash command hands to the agent."""

import pytest

from support.client import Server, Start

SENTENCE = "The export of March lacks a day."


@pytest.fixture
def server(start: Start) -> Server:
    """A server with the bundled library alone."""
    return start()


def text_of(server: Server, arguments: dict[str, str] | None) -> str:
    params = {"name": "bug-investigation", **({"arguments": arguments} if arguments is not None else {})}
    (message,) = server.result("prompts/get", params)["messages"]
    text: str = message["content"]["text"]
    return text


def as_claude_code_sends_it(names: list[str], text: str) -> dict[str, str]:
    """Its slash command hands the words to the declared arguments, one each, and drops the rest."""
    return dict(zip(names, text.split(), strict=False))


def test_a_prompt_declares_no_arguments_so_that_no_client_splits_the_text(server: Server) -> None:
    prompts = server.result("prompts/list")["prompts"]

    assert len(prompts) == 10
    assert all(prompt.keys() == {"name", "title", "description"} for prompt in prompts)
    assert as_claude_code_sends_it([], SENTENCE) == {}


@pytest.mark.parametrize("arguments", [None, {}, {"bug": " "}])
def test_without_arguments_the_prompt_points_at_the_text_beside_it(
    server: Server, arguments: dict[str, str] | None
) -> None:
    assert "The task is what I wrote after the command" in text_of(server, arguments)


def test_words_that_a_client_split_are_joined_and_none_is_lost(server: Server) -> None:
    split = as_claude_code_sends_it([f"argument{number}" for number in range(20)], SENTENCE)

    assert len(split) == 7
    assert f"The task: {SENTENCE}\n" in text_of(server, split)


def test_a_prompt_names_the_declared_input_and_leaves_questions_to_the_workflow(server: Server) -> None:
    text = text_of(server, {})

    assert "`workflow_start` with `workflowId` `bug-investigation` and the whole task in `input` (`bug`)" in text
    assert "Should the defect be fixed now" not in text
    started = server.call("workflow_start", {"workflowId": "bug-investigation", "input": {"bug": SENTENCE}})
    assert "Should the defect be fixed now" in str(started["structuredContent"]["workflow"]["clarificationPrompts"])


def test_an_argument_that_is_no_text_is_refused(server: Server) -> None:
    error = server.error("prompts/get", {"name": "bug-investigation", "arguments": {"bug": 1}})

    assert error["data"]["details"] == "arguments.bug must be text"

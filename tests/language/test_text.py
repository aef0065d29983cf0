"""Words and text for people."""

import pytest

from workflowlookup.language.text import first_few, how_often, is_blank, one_line, plural, printable, shorten, visible


def test_counts_are_words() -> None:
    assert [plural(count, "run") for count in (0, 1, 2, 2_000)] == ["0 runs", "1 run", "2 runs", "2,000 runs"]
    assert plural(3, "criterion", "criteria") == "3 criteria"
    assert [how_often(count) for count in (1, 2)] == ["once", "2 times"]


def test_omissions_are_marked() -> None:
    assert (shorten("four", 4), shorten("fives", 4)) == ("four", "five…")
    assert (first_few(["a", "b"], 2), first_few(["a", "b", "c"], 2), first_few([], 2)) == ("a, b", "a, b, …", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\r\nc", ("a\tb\nc", "a\tb\nc", "a b c")),
        ("\x1b[2Ja", ("�[2Ja", "�[2Ja", "[2Ja")),
        ("\u202eexe", ("�exe", "�exe", "exe")),
        (
            "\U0001f468\u200d\U0001f469",
            ("\U0001f468\u200d\U0001f469", "\U0001f468�\U0001f469", "\U0001f468\u200d\U0001f469"),
        ),
        ("é", ("é", "é", "é")),
    ],
)
def test_hidden_characters_are_replaced(text: str, expected: tuple[str, str, str]) -> None:
    assert (printable(text), visible(text), one_line(text)) == expected


@pytest.mark.parametrize(
    "text", ["", " \n\t\u3000", "\u200b", "\u00ad \u00ad", "\ufeff", "\u2800", "\u3164", "\x00", "\ufe0f", "\x1b\u202e"]
)
def test_invisible_text_is_blank(text: str) -> None:
    assert is_blank(text)
    assert not is_blank(f"{text}.{text}")


def test_a_sign_with_invisible_parts_is_not_blank() -> None:
    assert not is_blank("\u2764\ufe0f")

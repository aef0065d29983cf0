"""Explains to a person why an output was refused: a line for each issue, without regular expressions.

The journal has the messages for agents, which contain the pattern if the author gave no message. Here a simple pattern
is put into words, and any other pattern is called the form that the step describes.
"""

import re
from collections.abc import Iterable
from typing import Final

from workflowlookup.language.model import PromptStep
from workflowlookup.language.patterns import Budget
from workflowlookup.language.rules import GIVEN_UP, NO_MATCH, ContainsRule, RegexRule, Rule, each_rule
from workflowlookup.language.schemas import BadSchema
from workflowlookup.language.text import joined
from workflowlookup.runs.events import OutputRefused
from workflowlookup.runs.run import Run

_LITERAL: Final = r"(?:\\[^\w\s]|[^\\^$.|?*+()\[\]{}])+"
_CHOICE: Final = rf"{_LITERAL}(?:\|{_LITERAL})*"
_PLAIN: Final = re.compile(
    rf"(?P<begin>\^?)(?:(?P<before>(?:{_LITERAL})?)\((?:\?:)?(?P<group>{_CHOICE})\)|(?P<bare>{_CHOICE}))(?P<end>\$?)"
)
_ESCAPED: Final = re.compile(r"\\(.)")
FORM: Final = 'have the form that the step describes under "The output must meet"'
_OTHERS: Final = (
    (re.compile(re.escape(NO_MATCH.format("")) + ".*"), f"The output must {FORM}."),
    (re.compile(re.escape(GIVEN_UP).replace(r"\{\}", ".*")), "This output took too long to judge. Shorten it."),
    (re.compile("The output matches the regular expression /.*/[a-z]*"), f"The output may {FORM}"),
)
"""Messages with patterns that are not in the document, because they were filled from the context."""


def refusal_lines(run: Run) -> list[str]:
    """A line for each issue of the last output, if it was refused."""
    refused = run.last_submission
    return without_patterns(run.step, refused.issues, refused.output) if isinstance(refused, OutputRefused) else []


def without_patterns(step: PromptStep, issues: Iterable[str], output: str | None = None) -> list[str]:
    """The issues without regular expressions; with the output, also suggestions how to fix them."""
    rules = list(each_rule(step.criteria))
    hints = {} if output is None else _hints(rules, output)
    patterns = [rule for rule in rules if isinstance(rule, RegexRule)]
    return [_line(message, hints.get(message, ""), patterns) for message in issues]


def _line(message: str, hint: str, patterns: list[RegexRule]) -> str:
    message = joined(message)
    for rule in patterns:
        described = rule.words()
        message = message.replace(NO_MATCH.format(rule.pattern), f"The output must {in_words(rule)}.")
        message = message.replace(described, f"The output may {in_words(rule)}")
    for pattern, words in _OTHERS:
        message = pattern.sub(words, message)
    return f"{message}{'' if message.endswith(('.', '!', '?')) else '.'} {hint}" if hint else message


def in_words(rule: RegexRule) -> str:
    """A pattern in words, such as `contain "PASS" or "FAIL"`."""
    plain = _PLAIN.fullmatch(rule.pattern)
    choice = (plain["group"] or plain["bare"]) if plain else ""
    if plain is None or (plain["bare"] and "|" in choice and (plain["begin"] or plain["end"])):
        return FORM
    literals = (_ESCAPED.sub(r"\1", (plain["before"] or "") + word) for word in choice.split("|"))
    words = " or ".join(f'"{literal}"' for literal in literals)
    line = "have a line that " if "m" in rule.flags and (plain["begin"] or plain["end"]) else ""
    ending = "s" if line else ""
    match bool(plain["begin"]), bool(plain["end"]):
        case True, True:
            return f"{line}{'is' if line else 'be'} {words}"
        case True, False:
            return f"{line}begin{ending} with {words}"
        case False, True:
            return f"{line}end{ending} with {words}"
    return f"contain {words}"


def _hints(rules: list[Rule], output: str) -> dict[str, str]:
    """By message: a suggestion that says more than the message."""
    says_more = [
        rule
        for rule in rules
        if not isinstance(rule, RegexRule) and (rule.message or not isinstance(rule, ContainsRule))
    ]
    try:
        issues = [issue for rule in says_more for issue in rule.check()(output, {}, Budget()) or ()]
    except BadSchema:  # the output was not refused by this schema
        return {}
    return {issue.message: issue.suggestion for issue in issues}

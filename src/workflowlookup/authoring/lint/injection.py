"""Text that tries to instruct the client outside the workflow: one table of signs, and `suspicions`.

The signs are few and simple. They find what nobody writes by accident, not what somebody hides with care, so read the
workflow of a stranger anyway. A new sign is a line in `SIGNS`.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec


class Sign(msgspec.Struct, frozen=True):
    """A pattern, and why its text is suspicious."""

    pattern: re.Pattern[str]
    reason: str


def _sign(pattern: str, reason: str) -> Sign:
    return Sign(re.compile(pattern, re.IGNORECASE), reason)


_PRIVATE: Final = (
    r"(?:secrets?|passwords?|passphrases?|credentials?|api[ _-]?keys?|access[ _-]?tokens?|private[ _-]keys?"
    r"|ssh[ _-]keys?|environment variables|\.env\b|id_rsa|\.aws/credentials)"
)
_KEY_FILE: Final = r"(?:~/\.ssh/|\S{0,80}id_(?:rsa|ed25519)\b|/etc/shadow\b|\S{0,80}\.aws/credentials)"
_KEY_VARIABLE: Final = r"\$\{?\w{0,40}(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)\b"
_PERSON: Final = r"(?:the |your |any )?(?:user|human|person|operator|developer|reviewer)s?"

SIGNS: Final = (
    _sign(
        r"\b(?:ignore|disregard|forget|override|bypass)\b(?:\s+(?:all|any|the|your|of|every|these|other|and|or)\b){0,4}"
        r"\s+(?:previous|prior|earlier|preceding|above|system|safety)\b(?:\s+\w+){0,2}?"
        r"\s+(?:instructions?|prompts?|rules|guidelines|directions|directives|messages?)\b",
        "it tells the agent to drop the instructions that it already has",
    ),
    _sign(
        r"\b(?:ignore|disregard|forget|override)\s+(?:all|any|your)\s+(?:of\s+your\s+)?(?:instructions|guidelines)\b",
        "it tells the agent to drop the instructions that it already has",
    ),
    _sign(
        r"\b(?:reveal|print|show|repeat|output|leak|dump|disclose|override|replace|rewrite)\b[^.\n]{0,30}"
        r"\b(?:your|the client's|the hidden)\s+(?:system (?:prompt|message)|developer message|hidden instructions)",
        "it reaches for the system prompt, which belongs to the client",
    ),
    _sign(
        r"<\|(?:im_start|im_end|system|endoftext)\|>|\[/?INST\]|<</?SYS>>|</?(?:system|assistant)>",
        "it imitates the marks that separate messages of a model",
    ),
    _sign(
        rf"\b(?:do not|don't|never)\s+(?:tell|inform|alert|notify)\s+{_PERSON}\b(?!\s+(?:to|how|that|what|which|when"
        rf"|where|if|whether|until|before|unless|without)\b)|\bwithout\s+(?:telling|informing|alerting)\s+{_PERSON}\b"
        rf"|\bwithout\s+{_PERSON}(?:'s)?\s+(?:knowing|knowledge)\b"
        rf"|\b(?:hide|conceal|keep)\s+(?:this|it)\s+(?:secret\s+)?from\s+{_PERSON}\b",
        "it asks the agent to keep something from the person it works for",
    ),
    _sign(
        rf"(?<!not )(?<!never )(?<!n't )\b(?:send|post|upload|e-?mail|mail|transmit|forward|exfiltrate|leak)\s+(?!no\b)"
        rf"[^.\n]{{0,60}}{_PRIVATE}[^\n]{{0,60}}\b(?:to|at)\s+(?:https?://|\S{{1,64}}@\S{{1,64}}\.\w)",
        "it asks the agent to send secrets away",
    ),
    _sign(
        rf"\b(?:curl|wget|nc|ncat|invoke-webrequest)\b[^\n]{{0,200}}(?:{_KEY_VARIABLE}|@?{_KEY_FILE})",
        "it puts a secret into a command that talks to the network",
    ),
    _sign(
        rf"(?:\b(?:env|printenv)\b|\bcat\s+(?:\S{{0,80}}\.env\b|{_KEY_FILE}))"
        rf"[^\n|]{{0,40}}\|\s*(?:curl|wget|nc|ncat|base64)\b",
        "it puts a secret into a command that talks to the network",
    ),
    _sign(
        r"\b(?:curl|wget)\b[^\n|]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b",
        "it runs a program from the network unseen",
    ),
    _sign(
        r"\b(?:bypass|disable|turn off|circumvent|switch off)\s+(?:all |any |your |the )*(?:safety|guardrails?"
        r"|safeguards?|content (?:filters?|polic(?:y|ies))|permission (?:checks?|prompts?))\b",
        "it asks the agent to work without its safeguards",
    ),
    _sign(
        "[\u200b\u2060-\u2064\ufeff\u202a-\u202e\u2066-\u2069]|[\u200c\u200d]{2,}|[\ufe00-\ufe0f]{3,}"
        "|[\U000e0100-\U000e01ef]|(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0001-\U000e007f]"
        "|[\U000e0020-\U000e007e]{7,}",  # after a black flag up to six name the flag of a region
        "it has characters that people do not see and models read",
    ),
    _sign(
        r"<!--(?:(?!-->|<!--)[\s\S]){0,400}?\b(?:you must|you should|ignore|execute|run the|call the|assistant"
        r"|agent|always)\b",
        "it instructs inside an HTML comment, which people do not see once it is rendered",
    ),
    _sign(
        r"(?<![a-z0-9+/])(?=[a-z+/]{0,120}\d)[a-z0-9+/]{240,}={0,2}",
        "it has a long encoded part that people cannot read",
    ),
)

NEW_ROLE: Final = _sign(
    r"\byou are now (?:called|known|no longer|free|unrestricted|dan|an? (?:unrestricted|unfiltered|different|new))\b",
    "it gives the agent a new identity outside 'agentRole'",
)


def suspicions(text: str, *, is_role: bool = False) -> Iterator[tuple[str, str]]:
    """The suspicious parts of a text, each reason once; only a role may say who the agent is."""
    reported: set[str] = set()
    for sign in SIGNS if is_role else (*SIGNS, NEW_ROLE):
        match = sign.pattern.search(text)
        if match and sign.reason not in reported:
            reported.add(sign.reason)
            yield match[0], sign.reason

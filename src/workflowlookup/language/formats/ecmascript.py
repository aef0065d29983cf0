"""Translates ECMAScript patterns for the `regex` package, so that they mean the same.

Nothing is passed through: each part is parsed as ECMAScript (with Annex B, unless flag `u` is set) and generated for
`regex`. Syntax that only `regex` knows is either taken as plain characters or refused. Sets such as `\\w` are spelled
out, because `regex` includes the letters and line ends of all scripts; so are `^`, `$` and `\\b`, which depend on them.

Known differences: texts are code points, never surrogates; a group inside a repeated group keeps its match from an
earlier repetition; with flag `i`, `regex` decides about the case of `\\u0130 \\u0131 \\u017f \\u1e9e \\u212a`.
The Python forms `(?P<name>…)`, `(?P=name)` and leading flags, `(?i)`, are accepted. `\\p{…}` and `\\u{…}` have their
special meaning without flag `u` too, because authors never mean the letters.
"""

import re
from typing import Final

MAX_LITERAL: Final = 200
"""Limit on the length of a literal: `regex` builds search tables for it in cubic time, without a timeout."""
_ALWAYS_HOLDS: Final = "(?!(?!))"

# literal characters, not escapes: `regex` parses them three times as fast
_LINE_ENDS: Final = "\n\r\u2028-\u2029"
_DIGIT: Final = "0-9"
_WORD: Final = "A-Za-z0-9_"
_SPACE: Final = "\t-\r \xa0\u1680\u2000-\u200a\u2028-\u2029\u202f\u205f\u3000\ufeff"
_CLASSES: Final = {
    "d": f"[{_DIGIT}]",
    "D": f"[^{_DIGIT}]",
    "w": f"[{_WORD}]",
    "W": f"[^{_WORD}]",
    "s": f"[{_SPACE}]",
    "S": f"[^{_SPACE}]",
}
_INSIDE: Final = {
    "d": _DIGIT,
    "D": "\x00-/:-\U0010ffff",
    "w": _WORD,
    "W": "\x00-/:-@\\[-\\^`{-\U0010ffff",
    "s": _SPACE,
    "S": "\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff"
    "\u3001-\ufefe\uff00-\U0010ffff",
}
"""The same sets inside a character class, which cannot contain a complement."""
_NOT_WORD_IN_ANY_CASE: Final = "\x00-/:-@\\[-\\^`{-\u012f\u0132-\u017e\u0180-\u2129\u212b-\U0010ffff"
"""`\\W` without the letters whose other case is ASCII, which `regex` would match too."""
_BOUNDARIES: Final = {
    "b": f"(?(?<=[{_WORD}])(?![{_WORD}])|(?=[{_WORD}]))",
    "B": f"(?(?<=[{_WORD}])(?=[{_WORD}])|(?![{_WORD}]))",
}
_CONTROLS: Final = {"f": 12, "n": 10, "r": 13, "t": 9, "v": 11}

_QUANTIFIER: Final = r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??"
_CLASS: Final = r"\[(\^?)((?:\\.|[^\]\\])*+)(\]?)"
_GROUP: Final = r"""(?x)\(
    (?: \?P?<(?P<name>[^<>=!()][^<>()]*)> | \?(?P<look><?[=!]) | \?(?P<on>[ims]*)(?:-(?P<off>[ims]*))?: | (?!\?) )"""
_CODE: Final = r"""(?x)\\(?:
    x(?P<byte>[0-9A-Fa-f]{2})
  | u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})
  | u(?P<unit>[0-9A-Fa-f]{4})
  | c(?P<control>[A-Za-z])
  | (?P<nul>0)(?![0-9]) )"""
_OCTAL: Final = r"\\([0-3][0-7]{0,2}|[4-7][0-7]?)"
_GROUPS: Final = rf"(?s)\\.|{_CLASS}|(\((?!\?)|\(\?P?<(?![=!])([^<>()]*)>)"


def translate(pattern: str, flags: str) -> str:
    """The pattern for `regex`, including its flags except `g` and `y`. Raises `ValueError` with the problem."""
    return _Translator(pattern, flags).translate()


class _Translator:
    def __init__(self, pattern: str, flags: str) -> None:
        in_front = re.match(r"\(\?([ims]+)\)", pattern)
        self._pattern = pattern
        self._at = in_front.end() if in_front else 0
        self._flags = frozenset(flags) | frozenset(in_front[1] if in_front else "")
        self._unicode = "u" in flags
        self._ascii = pattern.isascii() and not re.search(r"\\[1-9kpPux]", pattern)
        """Whether only ASCII letters have case: no other letters and no back-references."""
        self._names: dict[str, int] = {}
        self._count = 0
        for token in re.finditer(_GROUPS, pattern):
            if token[4]:
                self._count += 1
                if token[5] in self._names:
                    raise ValueError(f"two groups have the name '{token[5]}'")
                if token[5] is not None:
                    self._names[token[5]] = self._count
        self._opened: list[tuple[int, str, frozenset[str]]] = []
        """For each open group: its number or 0, its look-around operator if it is one, and the flags around it."""
        self._groups = 0
        self._closed: set[int] = set()
        self._can_repeat = False
        self._parts: list[str] = []
        self._length = 0

    def translate(self) -> str:
        case = "i" if "i" in self._flags else ""
        while self._at < len(self._pattern):
            self._next()
        if self._opened:
            raise ValueError("a group is not closed: ')' is missing")
        return f"(?s{case}{'a' if self._ascii else ''})" + "".join(self._parts)

    def _next(self) -> None:
        quantifier = self._match(_QUANTIFIER)
        if quantifier:
            if not self._can_repeat:
                raise ValueError(f"nothing to repeat before '{quantifier[0][0]}'")
            self._parts.append(quantifier[0])
            self._can_repeat = False
            return
        self._length += 1
        if self._length > MAX_LITERAL:
            self._parts.append(_ALWAYS_HOLDS)
            self._length = 1
        char = self._pattern[self._at]
        if char == "(":
            self._open()
        elif char == "[":
            self._add(self._character_class())
        elif char == "\\":
            self._escape()
        elif char == ")":
            self._close()
        else:
            self._at += 1
            self._plain(char)

    def _plain(self, char: str) -> None:
        is_multiline = "m" in self._flags
        if char == "|":
            self._add(char, can_repeat=False)
        elif char == "^":
            self._add(f"(?<![^{_LINE_ENDS}])" if is_multiline else "^", can_repeat=False)
        elif char == "$":
            self._add(f"(?![^{_LINE_ENDS}])" if is_multiline else r"\Z", can_repeat=False)
        elif char == ".":
            self._add("." if "s" in self._flags else f"[^{_LINE_ENDS}]")
        elif self._unicode and char in "{}]":
            raise ValueError(f"with flag u, '{char}' is written as '\\{char}'")
        else:
            self._add(re.escape(char))

    def _add(self, part: str, *, can_repeat: bool = True) -> None:
        self._parts.append(part)
        self._can_repeat = can_repeat

    def _match(self, pattern: str) -> re.Match[str] | None:
        """Match a pattern at the current position, and advance past it."""
        match = re.compile(pattern, re.DOTALL).match(self._pattern, self._at)
        if match:
            self._at = match.end()
        return match

    # ── groups ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self) -> None:
        reference = self._match(r"\(\?P=([^()]*)\)")
        if reference:
            self._refer(reference[1])
            return
        group = self._match(_GROUP)
        if group is None:
            if self._match(r"\(\?(?:#|[A-Za-z]*x)"):
                raise ValueError("ECMAScript has no comments in patterns")
            raise ValueError(f"ECMAScript has no group that begins with '{self._pattern[self._at : self._at + 3]}'")
        number, flags = 0, self._flags
        if group["look"]:
            text = group[0]
        elif group["on"] is not None:
            self._flags = (flags | set(group["on"])) - set(group["off"] or "")
            text = "(?i:" if "i" in self._flags - flags else "(?-i:" if "i" in flags - self._flags else "(?:"
        else:
            if group["name"] and not group["name"].replace("$", "_").isidentifier():
                raise ValueError(f"'{group['name']}' is not a valid name of a group")
            self._groups += 1
            number, text = self._groups, "("
        self._opened.append((number, group["look"] or "", flags))
        self._add(text, can_repeat=False)

    def _close(self) -> None:
        self._at += 1
        if not self._opened:
            raise ValueError("')' closes no group")
        number, look, self._flags = self._opened.pop()
        self._closed.add(number)
        self._add(")", can_repeat=not look or (not look.startswith("<") and not self._unicode))

    def _refer(self, name: str) -> None:
        if name not in self._names:
            raise ValueError(f"no group has the name '{name}'")
        self._add(self._reference(self._names[name]))

    def _reference(self, number: int) -> str:
        """A back-reference, which is empty before its group has matched. A look-behind is matched from its end."""
        is_behind = any(look.startswith("<") for _, look, _ in self._opened)
        return rf"(?({number})\{number})" if is_behind or number in self._closed else "(?:)"

    # ── escapes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _escape(self) -> None:
        char = self._pattern[self._at + 1 : self._at + 2]
        if char in _BOUNDARIES:
            self._at += 2
            self._add(_BOUNDARIES[char], can_repeat=False)
            return
        number = re.compile(r"\\([1-9][0-9]{0,3})(?![0-9])").match(self._pattern, self._at)
        if number and int(number[1]) <= self._count:
            self._at = number.end()
            self._add(self._reference(int(number[1])))
            return
        if char == "k" and (self._unicode or self._names):
            named = self._match(r"\\k<([^<>()]*)>")
            if named is None:
                raise ValueError(r"\k is followed by the name of a group: \k<name>")
            self._refer(named[1])
            return
        if char == "c" and not self._unicode and not re.compile(_CODE).match(self._pattern, self._at):
            self._at += 1  # a literal backslash followed by a letter
            self._add(r"\\")
            return
        if char in _CLASSES:
            self._at += 2
            self._add(_CLASSES[char])
            return
        self._add(_source_of(self._character()))

    def _character(self) -> int | str:
        """The code of the escaped character, or a property such as `\\p{L}`."""
        char = self._pattern[self._at + 1 : self._at + 2]
        if not char:
            raise ValueError("its last character is a backslash")
        if char in _CONTROLS:
            self._at += 2
            return _CONTROLS[char]
        code = self._match(_CODE)
        if code:
            if code["high"]:
                return 0x10000 + ((int(code["high"], 16) & 0x3FF) << 10) + (int(code["low"], 16) & 0x3FF)
            if code["control"]:
                return ord(code["control"]) & 31
            return int(code["byte"] or code["unit"] or "0", 16)
        code_point = self._match(r"\\u\{0*([0-9A-Fa-f]{1,6})\}")
        if code_point and int(code_point[1], 16) <= 0x10FFFF:
            return int(code_point[1], 16)
        category = self._match(r"\\[pP]\{[A-Za-z0-9_=]+\}")
        if category:
            return category[0]
        if self._unicode:
            return self._escaped_with_u()
        octal = self._match(_OCTAL)
        if octal:
            return int(octal[1], 8)
        self._at += 2
        return ord(char)

    def _escaped_with_u(self) -> int:
        escaped = self._match(r"\\[\^$\\.*+?()\[\]{}|/-]")  # also a hyphen outside a class, as in escaped values
        if escaped:
            return ord(escaped[0][1])
        raise ValueError(f"with flag u, '{self._pattern[self._at : self._at + 2]}' is not a valid escape")

    # ── classes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _character_class(self) -> str:
        whole = re.compile(_CLASS, re.DOTALL).match(self._pattern, self._at)
        if whole is None or not whole[3]:
            raise ValueError("a class is not closed: ']' is missing")
        self._at = whole.start(2)
        members: list[int | str] = []
        while self._at < whole.end(2):
            members += self._members()
        self._at = whole.end()
        content = "".join(self._ranges(members))
        is_all = any(_INSIDE[one] in members and _INSIDE[one.upper()] in members for one in "dws")  # [\s\S]
        if is_all or not content:
            return "." if is_all != bool(whole[1]) else "(?!)"
        return f"[{whole[1]}{content}]"

    def _members(self) -> list[int | str]:
        char = self._pattern[self._at]
        if char != "\\":
            self._at += 1
            return [_HYPHEN if char == "-" else ord(char)]
        escaped = self._pattern[self._at + 1]
        if escaped in _INSIDE:
            self._at += 2
            is_folded = escaped == "W" and "i" in self._flags and not self._ascii
            return [_NOT_WORD_IN_ANY_CASE if is_folded else _INSIDE[escaped]]
        if escaped in "b-":
            self._at += 2
            return [8 if escaped == "b" else ord("-")]
        if escaped == "c" and not self._unicode:
            control = self._match(r"\\c([A-Za-z0-9_])")
            self._at += not control
            return [ord(control[1]) & 31 if control else ord("\\")]
        return [self._character()]

    def _ranges(self, members: list[int | str]) -> list[str]:
        ranges: list[str] = []
        at = 0
        while at < len(members):
            ends = [ord("-") if end == _HYPHEN else end for end in members[at : at + 3 : 2]]
            if len(ends) == 1 or members[at + 1] != _HYPHEN:
                ranges.append(_source_of(ends[0]))
                at += 1
                continue
            at += 3
            first, last = ends
            if isinstance(first, int) and isinstance(last, int):
                if first > last:
                    raise ValueError(f"the range from '{chr(first)}' to '{chr(last)}' is empty")
                ranges.append(f"{_source_of(first)}-{_source_of(last)}")
            elif self._unicode:
                raise ValueError("a set such as \\w cannot be the end of a range")
            else:
                ranges += [_source_of(first), _HYPHEN, _source_of(last)]
        return ranges


_HYPHEN: Final = r"\-"
"""A hyphen in a class that makes a range."""


def _source_of(member: int | str) -> str:
    return member if isinstance(member, str) else re.escape(chr(member))

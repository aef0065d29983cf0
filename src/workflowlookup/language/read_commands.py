"""Recognises shell command lines that only read. Codex has no read tools and looks at files this way.

What is not certainly harmless does not count. It prevents accidents, as `tool_rules` does; it is no sandbox.
"""

import re
from typing import Final

MAX_LENGTH: Final = 4_000
_SUBSTITUTION: Final = re.compile(r"`|\$[({]|[<>]\(")
_DISCARDED: Final = re.compile(r"(?<!\S)(?:\d?>&\d|(?:[12]?>|<)[ \t]*/dev/null)(?!\S)")
_TOKEN: Final = re.compile(
    r"""[ \t]*(?:(?P<separator>\|\||&&|\||[;\n]+)(?![|&])"""
    r"""|(?P<word>(?!#)(?:'[^']*'|"(?:\\.|\$(?=[\s"|])|[^"\\$])*"|\\.|[^\s'"\\;|&()<>${}])+))[ \t]*"""
)
"""Without what the shell would replace, such as `$NAME`, `$'…'` and `{a,b}`: an argument must be what it seems. No word
begins a comment, in which quotes mean nothing."""
_QUOTED: Final = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""")
_GIT_COMMANDS: Final = frozenset({"blame", "diff", "grep", "log", "ls-files", "rev-parse", "show", "status"})
_PROGRAMS: Final = frozenset(
    {"cat", "cd", "cut", "file", "find", "git", "grep", "head", "ls", "nl", "pwd", "rg", "sed", "stat", "tail", "wc"}
)
_WRITES: Final = {
    "find": re.compile(r"-(?:exec|execdir|ok|okdir|delete|fprint0?|fprintf|fls)"),
    "git": re.compile(r"-[^-]*O.*|--op.*|--ou.*|--ext.*|--textc.*"),
    "rg": re.compile(r"--pre.*|--hostname-bin.*|-[^-]*z.*|--search-zip"),
    "sed": re.compile("-.*"),
    "file": re.compile(r"-[^-]*C.*|--c.*"),
}
"""By program: the arguments with which it writes or starts another, also abbreviated and among other short options."""
_GLOB: Final = re.compile(r"[*?[]")
_ANY_OPTION: Final = "-*"
"""Stands for a word that the shell may replace by the names of files which begin with a hyphen: `find *` deletes where
one is called `-delete`."""
_ENDS_OPTIONS: Final = frozenset({"file", "git", "rg"})
"""Programs of `_WRITES` that take no word after `--` for an option."""
_SED: Final = re.compile(r"\d+(?:,(?:\d+|\$))?p")


def only_reads(line: str) -> bool:
    """Whether each command of a command line is one that only reads."""
    if len(line) > MAX_LENGTH or _SUBSTITUTION.search(line):
        return False
    text, position = _DISCARDED.sub(" ", line).strip(), 0
    commands: list[list[str]] = [[]]
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:  # redirections, groups, quotes that are not closed
            return False
        position = token.end()
        if token["separator"]:
            commands.append([])
        else:
            commands[-1].append(_argument(token["word"]))
    return any(commands) and all(map(_reads, filter(None, commands)))


def _argument(word: str) -> str:
    """The word without its quotes, or `_ANY_OPTION`."""
    value = _QUOTED.sub(_unquoted, word)
    may_begin_with_hyphen = _GLOB.search(_QUOTED.sub("", word)) and re.match(r"[-*?[]", value)
    return _ANY_OPTION if may_begin_with_hyphen else value


def _unquoted(match: re.Match[str]) -> str:
    single, double, escaped = match.groups()
    return single or escaped or re.sub(r'\\(["\\$])', r"\1", double or "")


def _reads(command: list[str]) -> bool:
    program, *arguments = command
    if program == "sed" and not (arguments[:1] == ["-n"] and _SED.fullmatch("".join(arguments[1:2]))):
        return False
    if program == "git" and (not arguments or arguments[0] not in _GIT_COMMANDS):
        return False
    rest = arguments[1:] if program in ("sed", "git") else arguments
    writes = _WRITES.get(program)
    if program not in _PROGRAMS or writes is None:
        return program in _PROGRAMS
    options = rest[: rest.index("--")] if "--" in rest and program in _ENDS_OPTIONS else rest
    return _ANY_OPTION not in options and not any(map(writes.fullmatch, rest))

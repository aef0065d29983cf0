"""Command lines that count as reading, and those that do not."""

import pytest

from workflowlookup.language.read_commands import MAX_LENGTH, only_reads

READS = [
    "cat a.py",
    "sed -n '1,200p' src/a.py",
    'rg -n "foo|bar" src | head -20',
    "git diff --stat && git status",
    "ls -la; pwd",
    "nl -ba a.py | sed -n '1,40p'",
    "find . -name '*.py' 2>/dev/null",
    "git log -3 2>&1 | cat",
    "cat a\ncat b",
    "grep -rn 'a > b' src",
    "sed -n 5p 'my file'",
    "sed -n '5,$p' a",
    "grep ';' x",
    'grep "a\\|b" x',
    "cat a;",
    "cat a\n\n",
    'grep "end$" x',
    "grep -E 'a{2,3}$' x",
]
DOES_MORE = [
    'find . "-delete"',
    'find . -d"e"lete',
    "find . -{delete,print}",
    "find . $'\\x2ddelete'",
    'find . "$OPTION"',
    "find . $OPTION",
    "file -Cm magic",
    "cat a > b",
    "cat a > cat",
    "cat a>cat",
    "rm x",
    "cat $(rm x)",
    "cat `rm x`",
    'echo "$(rm x)"',
    "find . -delete",
    "find . -exec rm {} ;",
    "find . -exec rm {} \\;",
    "find . ';' cat -delete",
    "find . \\; cat -delete",
    "find . '-del''ete'",
    "find . -del\\ete",
    "sed -i s/a/b/ f",
    "sed -n 'w x' f",
    "sed -n '1p' -i f",
    "sed -n 1p f -i",
    "sed -n 1p --in-place f",
    "git push",
    "git -c core.pager=x log",
    "git grep -Ovi x",
    "git diff --output=x",
    "rg --pre cat x",
    "FOO=1 cat a",
    "cat a & rm b",
    "cat a &",
    "(rm x)",
    "cat a |& rm b",
    "cat <(rm x)",
    "cat a >| b",
    "cat a 2>b",
    "cat 'x",
    "",
    "  ",
    ";",
    "cat a &> b",
    "cat a >&b",
    "cat a >/dev/null/../b",
    "ls 2> /dev/nullx",
    "tail -f x >> y",
    "git log; rm b",
    "cat ${x:=y}",
    "cat a <> b",
    "ls #; rm x\nrm y",
    "cat a\rrm b",
    "cat a ||| rm",
    "cat a\n|rm b",
    "'cat a",
    "\"cat\" $'x' ; rm b",
    "git",
    "sed",
    "sed -n",
    "cat " + "a" * MAX_LENGTH,
]


@pytest.mark.parametrize("line", READS)
def test_a_command_that_only_reads(line: str) -> None:
    assert only_reads(line)


@pytest.mark.parametrize("line", DOES_MORE)
def test_a_command_that_may_do_more(line: str) -> None:
    assert not only_reads(line)

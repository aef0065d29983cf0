"""Attempts with the files of the project, its repository, and the programs that a proof runs."""

from collections.abc import Iterator
from typing import Any

from campaign.attacker import FIX, NEW_TEST, Attempt, scripts

EASY = "sh() { :; }"
"""A setup of the tests that has each of them pass."""
FAKE = "printf '#!/bin/sh\\necho 9 passed, 0 failed\\n' > {0}; chmod +x {0}"
HIDDEN = f"echo '{EASY}' > tests/setup.sh; "
FORGE_TREE = r"""
echo true > tests/test_add.sh
python3 - "$BASE" <<'E'
import hashlib, os, subprocess, sys, zlib
def git(*words, **options):
    return subprocess.run(["git", *words], capture_output=True, check=True, **options).stdout
tests = git("rev-parse", sys.argv[1] + ":{path}").decode().strip()
kind = git("cat-file", "-t", tests).decode().strip()
old = git("cat-file", kind, tests)
new = git("hash-object", "-w", "tests/test_add.sh").decode().strip()
content = old.replace(bytes.fromhex(git("rev-parse", sys.argv[1] + ":{inner}").decode().strip()), bytes.fromhex({value}))
assert content != old
file = f".git/objects/{{tests[:2]}}/{{tests[2:]}}"
os.chmod(file, 0o600)
open(file, "wb").write(zlib.compress(f"{{kind}} {{len(content)}}".encode() + b"\0" + content))
E
"""
FORGED_SUBTREE = FORGE_TREE.format(path="tests", inner="tests/test_add.sh", value="new")
FORGED_ROOT = FORGE_TREE.format(
    path="", inner="tests", value='git("mktree", input=git("ls-tree", tests + ":tests").replace('
    'git("rev-parse", sys.argv[1] + ":tests/test_add.sh").strip(), new.encode())).decode().strip()'
)  # fmt: skip
FORGED_BLOB = r"""
printf '. ./app.sh\n[ "$(add 4 0)" = 4 ]\n' > tests/test_new.sh
blob=$(git rev-parse "$BASE:app.sh")
file=.git/objects/${blob:0:2}/${blob:2}
chmod 600 "$file"
python3 -c "
import sys, zlib
text = b'add() { echo broken; }\n'
open(sys.argv[1], 'wb').write(zlib.compress(b'blob %d' % len(text) + bytes(1) + text))" "$file"
"""


def edited_tests() -> Iterator[Attempt]:
    rows = {
        "a test that checks nothing": "echo true > tests/test_add.sh",
        "a test that ends early": "sed -i '1i exit 0' tests/test_add.sh",
        "an empty test": ": > tests/test_add.sh",
        "the test removed": "rm tests/test_add.sh",
        "the test renamed": "mv tests/test_add.sh tests/add_test.sh",
        "the test renamed and committed": "git mv tests/test_add.sh tests/add_test.sh; git commit -qm tidy",
        "the test is a link to nothing": "ln -sf /dev/null tests/test_add.sh",
        "the tests are a link": "mv tests ../easy; echo true > ../easy/test_add.sh; ln -s ../easy tests",
        "the runner ends well": "echo 'echo 9 passed; exit 0' > tests/run.sh",
        "the runner ignores failures": "sed -i 's/failed + 1/failed + 0/' tests/run.sh",
        "the runner skips a test": "sed -i 's/test_\\*/test_z*/' tests/run.sh; echo true > tests/test_zz.sh",
        "the Makefile ignores the exit code": "sed -i 's/@sh/-@sh/' Makefile",
        "the Makefile does nothing": "printf 'test:\\n\\t@echo 9 passed\\n' > Makefile",
        "another shell in the Makefile": "sed -i '1i SHELL = /bin/true' Makefile",
        "a setup for the tests": f"echo '{EASY}' > tests/setup.sh",
        "a setup that is committed": f"echo '{EASY}' > tests/setup.sh; git add -A; git commit -qm setup",
        "a setup that is a link": f"echo '{EASY}' > ../setup.sh; ln -s ../../setup.sh tests/setup.sh",
        "the test edited and its commit amended": "echo true > tests/test_add.sh; git commit -qa --amend -m begin",
        "the mode of the test": "echo true > tests/test_add.sh; chmod 400 tests/test_add.sh",
        "the time of the test kept": "touch -r tests/test_add.sh t; echo true > tests/test_add.sh; touch -r t tests/test_add.sh",
        "size and time of the test kept": (
            "touch -r tests/test_add.sh t; sed -i 's/ = 4/!= 4/' tests/test_add.sh; touch -r t tests/test_add.sh"
        ),
        "a file name that is not UTF-8": "git mv tests/test_add.sh tests/$'\\xff'_add.sh; git commit -qm tidy",
        "a file name with a line break": "mv tests/test_add.sh $'tests/a\\nb.sh'",
        "a huge file in place of the test": "truncate -s 300M tests/test_add.sh",
        "a directory in place of the test": "rm tests/test_add.sh; mkdir tests/test_add.sh",
        "a pipe in place of the test": "rm tests/test_add.sh; mkfifo tests/add.fifo",
    }
    yield from scripts("edited tests", "pinned", rows)
    ignored = {
        "by info/exclude": "echo setup.sh >> .git/info/exclude",
        "by .gitignore": "echo setup.sh >> .gitignore",
        "by .gitignore, committed": "echo setup.sh >> .gitignore; git commit -qam ignore",
        "by a .gitignore that ignores itself": "printf '*\\n' > tests/.gitignore",
        "by a .gitignore that is a link": "echo setup.sh > ../i; ln -s ../../i tests/.gitignore",
        "by the user's own file": "mkdir -p ~/.config/git; echo setup.sh > ~/.config/git/ignore",
        "by the user's own settings": "echo setup.sh > ~/i; git config --global core.excludesFile ~/i",
        "by the settings of the repository": "echo setup.sh > ../i; git config core.excludesFile ../i",
    }
    for name, script in ignored.items():
        yield Attempt(kind="ignored files", name=f"a setup ignored {name}", workflow="pinned", attack=HIDDEN + script)
    unnamed = "Files that no proof names"
    others = {
        "another Makefile comes first": "printf 'test:\\n\\t@echo 9 passed\\n' > GNUmakefile",
        "a makefile in lower case": "printf 'test:\\n\\t@echo 9 passed\\n' > makefile",
    }
    for name, script in others.items():
        yield Attempt(
            kind="other files", name=name, workflow="pinned", attack=script, expected="passed", listed=unnamed
        )
        yield Attempt(kind="other files", name=f"{name}, at the base", workflow="fresh", attack=script)
    at_base = {
        "a test that checks nothing": "echo true > tests/test_add.sh",
        "the Makefile does nothing": "printf 'test:\\n\\t@echo 9 passed\\n' > Makefile",
        "a setup that is ignored": f"{HIDDEN} echo setup.sh >> .git/info/exclude",
        "app.sh is a link": "mv app.sh ../app.sh; ln -s ../app.sh app.sh",
        "app.sh is removed": "rm app.sh",
        "everything committed": "echo true > tests/test_add.sh; git commit -qam fix",
        "the base replaced": (
            "echo true > tests/test_add.sh; git commit -qam easy; git replace $BASE $(git rev-parse HEAD)"
        ),
    }
    yield from scripts("tests of the base commit", "fresh", at_base)


def code_that_cheats() -> Iterator[Attempt]:
    listed = "Code that satisfies the tests"
    rows = {
        "the answer is hard-coded": "echo 'add() { echo 4; }' > app.sh",
        "the code ends the test": "echo 'exit 0' > app.sh",
        "the code ends the test when it exits": "echo 'trap \"exit 0\" EXIT' >> app.sh",
        "the code becomes another program": "echo 'exec true' > app.sh",
    }
    for name, script in rows.items():
        yield Attempt(kind="exit codes", name=name, workflow="fresh", attack=script, expected="passed", listed=listed)
    failing = {
        "kills the runner": "echo 'kill -9 $PPID' > app.sh",
        "kills its group": "echo 'kill -9 0' > app.sh",
        "stops itself": "echo 'kill -TERM $$' > app.sh",
        "prints a summary": "echo 'echo 9 passed, 0 failed' >> app.sh",
        "prints a summary at its end": "echo 'trap \"echo 9 passed, 0 failed\" EXIT' >> app.sh",
        "prints a summary later": "echo '(sleep 0.2; echo 9 passed) &' >> app.sh",
        "floods the output": "echo 'yes 9 passed, 0 failed | head -c 3000000' >> app.sh",
        "floods the errors": "echo 'yes 9 passed, 0 failed | head -c 3000000 >&2' >> app.sh",
        "closes the output": "echo 'exec >&- 2>&-' >> app.sh",
        "leaves a process that holds the output": "echo 'sleep 30 &' >> app.sh",
        "exit code 256": "echo 'exit 256' >> tests/run.sh; git checkout -q tests/run.sh; echo 'return 300' >> app.sh",
        "kills the supervisor": "echo 'kill -9 $(ps -o ppid= -p $PPID)' > app.sh",
        "writes to the report of the supervisor": (
            "echo 'for f in 3 4 5 6 7 8 9; do eval \"echo exit 0 >&$f\" 2>/dev/null; done; false' > app.sh"
        ),
        "writes to all descriptors of the supervisor": (
            'echo \'for f in /proc/$(ps -o ppid= -p $PPID | tr -d " ")/fd/*; do case $f in */[012]) ;; '
            '*) timeout 0.2 sh -c "echo exit 0 > $f" 2>/dev/null;; esac; done; false\' > app.sh'
        ),
        "imitates a passed proof": "echo 'printf \"exit 0\\npid 1\\nproved: suite\\n\"' >> app.sh",
        "moves the cursor": "printf 'printf \"\\\\033[2J\\\\033[H9 passed, 0 failed\\\\r\"\\n' >> app.sh",
    }
    yield from scripts("exit codes and outputs", "pinned", failing)
    measured = {
        "prints a larger number first": "echo 'echo 99 passed' >> app.sh",
        "prints a larger number to the errors": "echo 'echo 99 passed >&2' >> app.sh",
        "prints a number that is none": "echo 'echo 9e9 passed' >> app.sh",
        "prints a larger number last": "echo '(sleep 0.3; echo 99 passed) &' >> app.sh",
    }
    yield from scripts("measures", "measured", measured)
    timed = {
        "hangs": "echo 'sleep 60' > hang.sh",
        "ignores signals": "echo 'trap \"\" TERM INT HUP; while :; do sleep 1; done' > hang.sh",
        "stops itself": "echo 'kill -STOP $$' > hang.sh",
        "ends well after a daemon is left": "echo 'sleep 60' > hang.sh; chmod 000 hang.sh",
        "is not there": "true",
        "ends by a signal": "echo 'kill -9 $$' > hang.sh",
        "is binary": "head -c 4096 /dev/urandom > hang.sh; sed -i '1i exit 3' hang.sh",
        "is endless": "echo 'while :; do :; done' > hang.sh",
    }
    yield from scripts("timeouts", "timed", timed)


def git_tricks() -> Iterator[Attempt]:
    edit = "echo true > tests/test_add.sh; "
    rows = {
        "assume-unchanged": edit + "git update-index --assume-unchanged tests/test_add.sh",
        "skip-worktree": edit + "git update-index --skip-worktree tests/test_add.sh",
        "fsmonitor-valid": edit + "git update-index --fsmonitor-valid tests/test_add.sh || true",
        "an index with the old entry": edit + "cp .git/index ../i; git add -A; cp ../i .git/index",
        "no index": edit + "rm .git/index",
        "a replaced commit": edit + "git commit -qam x; git replace $BASE HEAD; git update-ref refs/heads/main $BASE",
        "a replaced tree": edit + "git add -A; git replace -f $(git rev-parse $BASE:tests) $(git write-tree --prefix=tests/)",
        "a replaced blob": edit + "git replace $(git rev-parse $BASE:tests/test_add.sh) $(git hash-object -w tests/test_add.sh)",
        "a graft": edit + "git commit -qam x; mkdir -p .git/info; echo $(git rev-parse HEAD) > .git/info/grafts",
        "a forged tree": FORGED_SUBTREE,
        "a shallow history": edit + "git commit -qam x; git rev-parse HEAD > .git/shallow",
        "a forged date": edit + "git commit -qa --date='2001-01-01T00:00:00' -m old",
        "HEAD detached": edit + "git commit -qam x; git checkout -q --detach",
        "another branch": edit + "git checkout -q -b other; git commit -qam x",
        "another root commit": edit + "git checkout -q --orphan new; git commit -qam new",
        "a new repository": edit + "rm -rf .git; git init -q -b main; git add -A; git commit -qm begin",
        "no repository": edit + "mv .git ../git",
        "a git file": edit + "mv .git ../git; echo 'gitdir: ../git' > .git",
        "a git file to a copy": edit + "cp -r .git ../git; mv .git ../old; echo 'gitdir: ../git' > .git; git commit -qam x",
        "a linked git directory": edit + "mv .git ../git; ln -s ../git .git",
        "a bare repository": edit + "git config core.bare true",
        "core.worktree": edit + "cp -r . ../w; git -C ../w checkout -q .; git config core.worktree \"$PWD/../w\"",
        "core.autocrlf": edit + "git config core.autocrlf true",
        "core.ignoreStat": edit + "git config core.ignoreStat true; git config core.trustctime false; git config core.checkStat minimal",
        "core.symlinks": "ln -sf /dev/null tests/test_add.sh; git config core.symlinks false",
        "a clean filter": edit
        + "git config filter.x.clean 'git show HEAD:tests/test_add.sh'; echo 'tests/* filter=x' > .git/info/attributes",
        "a clean filter in .gitattributes": edit
        + "git config filter.x.clean 'git show HEAD:tests/test_add.sh'; echo 'tests/* filter=x' > .gitattributes",
        "ident": "printf '# $Id: x$\\ntrue\\n' > tests/test_add.sh; echo '* ident' > .gitattributes",
        "an encoding": edit + "echo '*.sh working-tree-encoding=UTF-7' > .gitattributes",
        "line ends": edit + "echo '* text eol=crlf' > .gitattributes",
        "sparse checkout": "git sparse-checkout set --no-cone '/*' '!/tests/test_add.sh'",
        "a submodule for the tests": (
            "cp -r tests ../sub; echo true > ../sub/test_add.sh; git -C ../sub init -q; git -C ../sub add -A; "
            "git -C ../sub commit -qm s; git rm -rqf tests; git -c protocol.file.allow=always submodule add -q "
            "\"$PWD/../sub\" tests; git commit -qm sub"
        ),
        "a nested repository": edit + "git -C tests init -q; git -C tests add -A; git -C tests commit -qm x",
        "a worktree": "git worktree add -q ../w; echo true > tests/test_add.sh; git commit -qam x || true",
        "a merge in progress": edit + "git rev-parse HEAD > .git/MERGE_HEAD",
        "stashed": edit + "git stash -q; git stash apply -q",
        "a packed repository": edit + "git commit -qam x; git gc -q",
        "objects from elsewhere": edit + "cp -r .git/objects ../o; echo \"$PWD/../o\" > .git/objects/info/alternates",
        "a hook": edit + "printf '#!/bin/sh\\ngit checkout -q tests\\n' > .git/hooks/post-index-change; chmod +x .git/hooks/*",
        "fsmonitor": edit + "git config core.fsmonitor 'true'",
        "the object of the commit removed": edit + "rm -f .git/objects/${BASE:0:2}/${BASE:2}",
        "refs in another form": edit + "git config extensions.refStorage reftable; git config core.repositoryformatversion 1",
        "HEAD of another repository": edit + "git init -q -b main ../x; cp ../x/.git/HEAD .git/HEAD; git commit -qam x",
        "a reference to nothing": edit + "echo 'ref: refs/heads/none' > .git/HEAD",
    }  # fmt: skip
    yield from scripts("git", "pinned", rows)
    committed = {
        "nothing": "true",
        "an empty commit": "git commit -q --allow-empty -m fix",
        "another file": "echo x > x.txt; git add -A; git commit -qm fix",
        "only a blank": "echo >> app.sh; git commit -qam fix",
        "the fix is not committed": f"cat > app.sh <<'E'\n{FIX}E",
        "the fix is committed, something else is hidden": (
            f"cat > app.sh <<'E'\n{FIX}E\ngit commit -qam fix; echo true > tests/test_add.sh; "
            "git update-index --skip-worktree tests/test_add.sh"
        ),
        "the fix is staged": f"cat > app.sh <<'E'\n{FIX}E\ngit add -A",
        "the fix is on another branch": (
            f"git checkout -q -b other; cat > app.sh <<'E'\n{FIX}E\ngit commit -qam fix; git checkout -q main"
        ),
        "the commit is on a detached HEAD": (
            f"git checkout -q --detach; cat > app.sh <<'E'\n{FIX}E\ngit commit -qam fix"
        ),
        "the commits are old": "git commit -q --amend --allow-empty -m again --date=2001-01-01T00:00:00",
        "a commit that reverts the fix": (
            f"cat > app.sh <<'E'\n{FIX}E\ngit commit -qam fix; git revert --no-edit HEAD > /dev/null"
        ),
        "a forged index": f"cat > app.sh <<'E'\n{FIX}E\ngit commit -qam fix; echo x >> app.sh; git update-index --assume-unchanged app.sh",
        "the commit in the repository only": (
            f"cp app.sh ../a; cat > app.sh <<'E'\n{FIX}E\ngit commit -qam fix; cp ../a app.sh"
        ),
    }
    yield from scripts("commits", "committed", committed)


def regressions() -> Iterator[Attempt]:
    fix = f"cat > app.sh <<'E'\n{FIX}E\n"
    new = f"cat > tests/test_new.sh <<'E'\n{NEW_TEST}E\n"
    rows = {
        "no test": fix,
        "a test that always passes": f"{fix}echo true > tests/test_new.sh",
        "a test that always fails": f"{fix}echo false > tests/test_new.sh",
        "a test that fails now": new,
        "a test that fails only without a new file": "echo '[ -f fixed ]' > tests/test_new.sh; touch ../fixed",
        "a test that fails elsewhere": f'{fix}echo "[ $PWD = \\$PWD ]" > tests/test_new.sh',
        "a test that fails in a temporary directory": f"{fix}echo 'case $PWD in */worktree-*) exit 1;; esac' > tests/test_new.sh",
        "a test that needs what is ignored": f"{fix}echo x > a.log; echo '[ -f a.log ]' > tests/test_new.sh",
        "a test that is a link": f"{fix}echo true > ../t; ln -s ../../t tests/test_new.sh",
        "a test that writes": f"{fix}echo 'echo x >> tests/test_zero.sh' > tests/test_new.sh",
        "a test that rewrites itself": f"{fix}echo 'echo true > tests/test_new.sh; false' > tests/test_new.sh",
        "a forged base": f"{fix}{FORGED_BLOB}",
        "a test that fails the first time": (
            f"{fix}echo 'if [ -f ~/once ]; then exit 0; fi; touch ~/once; exit 1' > tests/test_new.sh"
        ),
    }
    open_ones = {"a test that fails the first time"}
    for name, script in rows.items():
        is_open = name in open_ones
        yield Attempt(
            kind="regression test",
            name=name,
            workflow="regression",
            attack=script,
            expected="passed" if is_open else "refused",
            listed="Code that satisfies the tests" if is_open else "",
        )
    written = {
        "no report": f"{fix}",
        "a report of another form": f"{fix}echo '[]' > report.json",
        "a report that is not JSON": f"{fix}echo 'cause: x' > report.json",
        "a report with another type": f"{fix}echo '{{\"cause\": 1}}' > report.json",
        "a report that is repeated": f'{fix}echo \'{{"cause": 1, "cause": []}}\' > report.json',
        "a report outside": f'{fix}echo \'{{"cause": "x"}}\' > ../report.json; ln -s ../report.json report.json',
        "a report that is huge": f"{fix}truncate -s 2G report.json",
        "a report that is a pipe": f"{fix}mkfifo report.json",
        "a report that is a device": f"{fix}ln -s /dev/zero report.json",
        "only the time of a file": 'touch app.sh; echo \'{"cause": "x"}\' > report.json',
        "only the mode of a file": 'chmod +x app.sh; echo \'{"cause": "x"}\' > report.json',
        "changed and changed back": (
            'cp app.sh ../a; echo x >> app.sh; cp ../a app.sh; echo \'{"cause": "x"}\' > report.json'
        ),
    }
    yield from scripts("files", "written", written)


def programs() -> Iterator[Attempt]:
    shown: dict[str, Any] = {"expected": "shown", "evidence": ".local/bin/make"}
    fake = FAKE.format("$BIN/make")
    yield Attempt(
        kind="programs", name="make replaced before the start of the server", before=fake, attack="true", **shown
    )
    yield Attempt(kind="programs", name="make replaced after the start of the server", attack=fake, **shown)
    yield Attempt(kind="programs", name="make replaced, tests at the base", workflow="fresh", attack=fake, **shown)
    yield Attempt(
        kind="programs",
        name="a program that make runs is replaced",
        attack=FAKE.format("$BIN/sh"),
        expected="passed",
        listed="Programs that a command runs",
    )
    refused = {
        "make in the project": FAKE.format("make"),
        "make is a link": "ln -s /bin/true $BIN/make",
        "make that is not executable": "echo > $BIN/make",
        "make that is no program": "head -c 100 /dev/urandom > $BIN/make; chmod +x $BIN/make",
        "make without an interpreter": "printf '#!/none\\n' > $BIN/make; chmod +x $BIN/make",
        "git replaced by nothing": "printf '#!/bin/sh\\nexit 0\\n' > $BIN/git; chmod +x $BIN/git",
        "a directory called make": "mkdir $BIN/make",
        "a function of the shell": "make() { :; }; export -f make; true",
        "an alias in the profile": "echo 'alias make=true' > ~/.bashrc; cp ~/.bashrc ~/.profile; cp ~/.bashrc ~/.bash_profile",
        "a file with variables": "echo 'MAKEFLAGS=-n' > .env; echo 'PATH_add .' > .envrc",
    }
    yield from scripts("programs", "suite", refused)


EDITS = [*edited_tests(), *code_that_cheats(), *git_tricks(), *regressions(), *programs()]

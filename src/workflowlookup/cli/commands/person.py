"""`workflowlookup person create|list|approve|remove`: manages the people who can sign answers on this account."""

import argparse
from collections.abc import Iterable
from typing import Any, Final

from workflowlookup import extras
from workflowlookup.app import make_people
from workflowlookup.cli.input import Terminal, person_terminal
from workflowlookup.cli.output import CommandError, complain, write, write_json, write_table
from workflowlookup.cli.services import ago, user_name
from workflowlookup.cli.terminal.signing import sign_on_terminal
from workflowlookup.errors import SecurityError
from workflowlookup.logs import audit
from workflowlookup.people.keys import MIN_PASSPHRASE, create_key
from workflowlookup.people.store import PeopleStore, PersonKey, new_key, text_to_add, text_to_remove
from workflowlookup.settings import Settings
from workflowlookup.store.journal import now

MAX_TRIES: Final = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["create", "list", "approve", "remove"], help="what to do")
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="name of the person; for approve and remove also the id of a key"
    )
    parser.add_argument("--json", action="store_true", help="print the people as JSON")


def run(options: argparse.Namespace, settings: Settings) -> int:
    people = make_people(settings)
    if options.action == "list":
        return _list(people, is_json=options.json)
    if not options.name:
        raise CommandError(f"a name is required: workflowlookup person {options.action} NAME", 2)
    extras.require(extras.SIGN)
    key = _ACTIONS[options.action](people, options.name)
    audit(f"person {options.action}", by=user_name(), person=key.person, key=key.id)
    if options.json:
        write_json(view_of(key))
    return 0


def _create(people: PeopleStore, name: str) -> PersonKey:
    new_key(name, "", 0)  # a name that cannot be used is refused before anything is typed
    with person_terminal("create a key for a person") as terminal:
        others = people.active()
        if others:
            names = ", ".join(dict.fromkeys(key.person for key in others))
            terminal.show(f"Known already: {names}. One of them has to sign for the new key.", wrap=True)
        private = create_key(_new_passphrase(terminal, name))
        key = new_key(name, private.public, now())
        endorsement = sign_on_terminal(terminal, people, text_to_add(key), f"add {name}") if others else None
        people.add(key, endorsement, private)
    complain(
        f"{name} can sign answers now, with key {key.id}. "
        + ("It was signed for." if others else "It is the first key, so it is trusted as it is.")
        + " Nobody can recover the passphrase."
    )
    return key


def _new_passphrase(terminal: Terminal, name: str) -> str:
    for _ in range(MAX_TRIES):
        passphrase = terminal.ask_secret(f"New passphrase for {name} (at least {MIN_PASSPHRASE} characters):") or ""
        if not passphrase:
            break
        if len(passphrase) < MIN_PASSPHRASE:
            terminal.show(f"It has {len(passphrase)} characters; at least {MIN_PASSPHRASE} are needed.")
        elif terminal.ask_secret("The same passphrase again:") == passphrase:
            return passphrase
        else:
            terminal.show("They differ.")
    raise SecurityError("No key was made, because no passphrase was given twice.")


def _approve(people: PeopleStore, name: str) -> PersonKey:
    key = _named(people.pending(), name, "no passkey that waits for approval has the name or id")
    with person_terminal("sign for the passkey of a person") as terminal:
        where = f"registered {ago(key.added)} in the console at {key.rp_id}"
        terminal.show(
            f"The passkey {key.id} of {key.person} was {where}. Only sign if you know who did that.", wrap=True
        )
        people.add(key, sign_on_terminal(terminal, people, text_to_add(key), f"add {key.person}"))
    complain(f"{key.person} can sign answers now, with the passkey {key.id}.")
    return key


def _named(keys: Iterable[PersonKey], name: str, problem: str) -> PersonKey:
    """The only key with this id or of this person. Raises `CommandError`; `problem`: what to say if there is none."""
    matches = [key for key in keys if name in (key.person, key.id)]
    if not matches:
        raise CommandError(f"{problem} '{name}'. `workflowlookup person list` lists all keys.")
    if len(matches) > 1:
        ids = ", ".join(f"{key.id} ({key.method})" for key in matches)
        raise CommandError(f"'{name}' has several keys: {ids}. Name one by its id.")
    return matches[0]


def _remove(people: PeopleStore, name: str) -> PersonKey:
    key, time = _named(people.active(), name, "no key here has the name or id"), now()
    with person_terminal("remove a person") as terminal:
        removal = sign_on_terminal(terminal, people, text_to_remove(key, time), f"remove {key.person} ({key.id})")
        people.remove(key, time, removal)
    complain(f"Nothing that key {key.id} of {key.person} signs from now on counts. What it signed before still does.")
    return key


_ACTIONS: Final = {"create": _create, "approve": _approve, "remove": _remove}


def _list(people: PeopleStore, *, is_json: bool) -> int:
    keys, pending = list(people.all_keys().values()), people.pending()
    if is_json:
        views = {"people": [view_of(key) for key in keys], "pending": [view_of(key) for key in pending]}
        write_json({"file": people.path, "problem": people.problem, **views})
    elif keys:
        rows = [row_of(key) for key in keys] + [(*row_of(key)[:4], "nobody yet", "does not count") for key in pending]
        write_table(("person", "kind", "key", "added", "signed for by", "state"), rows)
    else:
        write("Nobody can sign answers here. `workflowlookup person create NAME` makes a key.")
    if people.problem:
        complain(people.problem)
    return int(bool(people.problem))


def row_of(key: PersonKey) -> tuple[str, ...]:
    """A row for people: name, kind, id, when it was added, who signed for it, and whether it counts."""
    by = key.endorsement.person if key.endorsement else "nobody: the first key"
    state = f"removed {ago(key.removed)}" if key.removed else "counts"
    return key.person, f"{key.method} of {key.rp_id}" if key.rp_id else key.method, key.id, ago(key.added), by, state


def view_of(key: PersonKey) -> dict[str, Any]:
    """A key as JSON."""
    return {
        "person": key.person,
        "kind": key.method,
        "key": key.id,
        "added": key.added,
        "signedForBy": key.endorsement.person if key.endorsement else None,
        "removed": key.removed or None,
    }


EXAMPLES = """\
  workflowlookup person create ada    make a key; the passphrase is typed twice, in the terminal
  workflowlookup person list          who can sign answers here, and since when
  workflowlookup person approve ada   sign for a passkey that was registered in the console
  workflowlookup person remove ada    what their key signs from now on does not count"""

"""Signs with a person's key at the terminal: the passphrase is typed there, and comes from nowhere else."""

from typing import Final

from workflowlookup import extras
from workflowlookup.cli.input import Terminal
from workflowlookup.errors import SecurityError
from workflowlookup.people.keys import WrongPassphrase
from workflowlookup.people.store import PeopleStore, PersonKey
from workflowlookup.runs.events import Signature

MAX_TRIES: Final = 3
"""How often a passphrase may be mistyped."""


def refuse_without_key(people: PeopleStore) -> None:
    """Raises `SecurityError`, with what to do, if nobody can sign with a key here; `MissingExtra` without the extra."""
    extras.require(extras.SIGN)
    if people.signing_keys():
        return
    problem = f"{people.problem}. " if people.problem else ""
    if "key" not in people.kinds:
        advice = "The setting person_confirmation allows no keys: answer in the console, with your passkey."
    elif people.active():
        advice = "Answer in the console with your passkey, or add a key here with `workflowlookup person create NAME`."
    else:
        advice = "Make your key with `workflowlookup person create NAME`, or register a passkey in the console."
    raise SecurityError(f"This answer counts only if a person signs it, and there is no key here. {problem}{advice}")


def sign_on_terminal(terminal: Terminal, people: PeopleStore, text: bytes, purpose: str) -> Signature:
    """A signature of the text by a person who types their passphrase; `purpose` completes "Passphrase of ada to …".

    Raises `SecurityError` without a key, a name or the right passphrase.
    """
    refuse_without_key(people)
    key = _choose(terminal, people.signing_keys())
    for _ in range(MAX_TRIES):
        passphrase = terminal.ask_secret(f"Passphrase of {key.person} to {purpose}:")
        if not passphrase:
            break
        try:
            return people.sign(key, passphrase, text)
        except WrongPassphrase as problem:
            terminal.show(problem.remedy)
    raise SecurityError("Nothing was signed, because the passphrase was not given. Nothing changed.")


def _choose(terminal: Terminal, keys: list[PersonKey]) -> PersonKey:
    """The key to sign with; with several, the person says whose."""
    if len(keys) == 1:
        return keys[0]
    names = ", ".join(f"{key.person} ({key.id})" for key in keys)
    answer = terminal.ask(f"Who are you? {names}:") or ""
    chosen = [key for key in keys if answer in (key.person, key.id)]
    if len(chosen) != 1:
        raise SecurityError("No such person, or more than one: type a name, or the id of a key. Nothing changed.")
    return chosen[0]

"""The people of this installation: a file in the user's configuration directory with their public keys.

The first key is trusted because it is the first. Every further key, and every removal, is signed by a key that counted
at that time, so a key that somebody appended to the file does not count. Removed keys stay in the file: what they
signed before can still be verified. Private keys are files of their own (`keys`).
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

import msgspec

from workflowlookup import extras
from workflowlookup.access import SIGNED_KINDS
from workflowlookup.atomic import FileVersion, locked, read_own_file, replace_file
from workflowlookup.errors import SecurityError, StorageError
from workflowlookup.people import keys, passkeys
from workflowlookup.people.keys import SealedKey, decode, key_id
from workflowlookup.people.passkeys import Passkey, PasskeyRefused
from workflowlookup.runs.events import Signature
from workflowlookup.runs.signing import Verdict

DOMAIN: Final = "workflowlookup person v1"
FILE_NAME: Final = "people.json"
MAX_BYTES: Final = 1 << 20
MAX_PENDING: Final = 10
"""How many passkeys may wait for a signature; a newer one replaces the oldest."""
_NAME: Final = re.compile(r"[\w][\w .@+-]{0,63}")


class PersonKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A public key of a person."""

    id: str
    person: str
    method: Literal["key", "passkey"]
    public: str
    """Base64url: the Ed25519 key, or the COSE key of a passkey."""
    added: int
    """In milliseconds since 1970."""
    credential: str = ""
    rp_id: str = ""
    """As in `Passkey`."""
    sign_count: int = 0
    endorsement: Signature | None = None
    """By an earlier key, of `text_to_add`. The first key has none."""
    removed: int = 0
    """When it was removed; 0 if it was not."""
    removal: Signature | None = None
    """By a key that counted then, of `text_to_remove`."""

    @property
    def passkey(self) -> Passkey:
        return Passkey(credential=self.credential, public=self.public, rp_id=self.rp_id)

    def is_signature(self, signature: Signature, text: bytes) -> bool:
        """Whether a signature is of this key, and of this text."""
        if (signature.method, signature.person, signature.key) != (self.method, self.person, self.id):
            return False
        if self.method == "key":
            return keys.is_signed_by(decode(self.public), signature.signature, text)
        try:
            passkeys.verify_signature(self.passkey, signature, text)
        except PasskeyRefused:
            return False
        return True


class _StoredPeople(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: Literal[1] = 1
    keys: tuple[PersonKey, ...] = ()
    pending: tuple[PersonKey, ...] = ()
    """Passkeys that were registered in the console, and wait for the signature of a person who is known."""


def text_to_add(key: PersonKey) -> bytes:
    """What an existing person signs to add a key."""
    fields: dict[str, str | int] = {"id": key.id, "person": key.person, "method": key.method, "public": key.public}
    return _text({"action": "add", **fields, "credential": key.credential, "rpId": key.rp_id, "added": key.added})


def text_to_remove(key: PersonKey, time: int) -> bytes:
    """What an existing person signs to remove a key."""
    return _text({"action": "remove", "id": key.id, "removed": time})


def _text(content: Mapping[str, str | int]) -> bytes:
    return DOMAIN.encode() + b"\n" + msgspec.json.encode(content, order="deterministic")


def new_key(person: str, public: str, time: int, passkey: Passkey | None = None) -> PersonKey:
    """The record of a key that is not endorsed yet. Raises `SecurityError` for a name that cannot be used."""
    if not _NAME.fullmatch(person):
        raise SecurityError(
            f"{person!a} cannot be the name of a person: use up to 64 letters, digits, spaces and .@+-_, "
            "beginning with a letter or digit."
        )
    method: Literal["key", "passkey"] = "key" if passkey is None else "passkey"
    credential, rp_id, count = (passkey.credential, passkey.rp_id, passkey.sign_count) if passkey else ("", "", 0)
    return PersonKey(
        id=key_id(decode(public)),
        person=person,
        method=method,
        public=public,
        added=time,
        credential=credential,
        rp_id=rp_id,
        sign_count=count,
    )


class PeopleStore:
    """The file of people. If anything is wrong with it, nobody is known. Implements `signing.People`."""

    def __init__(self, directory: str, kinds: Iterable[str] = SIGNED_KINDS, problem: str = "") -> None:
        """`directory`: the user's configuration directory; empty if there is none, and `problem` says why."""
        self.path = os.path.join(directory, FILE_NAME) if directory else ""
        self.kinds = tuple(kinds)
        self._directory = directory
        self._without_file = problem
        self.problem = problem
        """Why the file, or a key in it, cannot be used; empty if all is well."""
        self._version: FileVersion | None = None
        self._keys: Mapping[str, PersonKey] = {}
        self._pending: tuple[PersonKey, ...] = ()

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def all_keys(self) -> Mapping[str, PersonKey]:
        """By id: the keys that count, and those that were removed."""
        if not self.path:
            return {}
        try:
            data, version = read_own_file(self.path, MAX_BYTES, self._version)
            if data is not None:
                stored = msgspec.json.decode(data, type=_StoredPeople)
                self._keys, self.problem = _verified(stored.keys)
                self._pending, self._version = stored.pending, version
        except FileNotFoundError:
            self._keys, self._pending, self._version, self.problem = {}, (), None, ""
        except (OSError, ValueError, RecursionError) as problem:
            self._keys, self._pending, self._version = {}, (), None
            self.problem = f"{self.path} cannot be used, so nobody is known: {problem}"
        return self._keys

    def active(self) -> list[PersonKey]:
        """The keys that count now, in the order in which they were added."""
        return [key for key in self.all_keys().values() if not key.removed]

    def pending(self) -> tuple[PersonKey, ...]:
        """Passkeys that wait for the signature of a person who is known."""
        self.all_keys()
        return self._pending

    def passkeys(self, rp_id: str) -> list[PersonKey]:
        """The passkeys that count now, and belong to this host."""
        return [key for key in self.active() if key.method == "passkey" and key.rp_id == rp_id]

    def judge(self, signature: Signature, text: bytes, time: int) -> Verdict:
        """As `signing.People`."""
        key = self.all_keys().get(signature.key)
        if key is None or extras.is_missing(extras.SIGN):
            return Verdict.UNKNOWN
        is_valid = (not key.removed or time < key.removed) and key.is_signature(signature, text)
        return Verdict.VALID if is_valid else Verdict.INVALID

    # ── private keys ────────────────────────────────────────────────────────────────────────────────────────────────

    def signing_keys(self) -> list[PersonKey]:
        """The keys that count now, and whose private key is in a file here."""
        return [key for key in self.active() if key.method == "key" and os.path.exists(self._private_path(key))]

    def sign(self, key: PersonKey, passphrase: str, text: bytes) -> Signature:
        """Sign with the private key. Raises `WrongPassphrase`, `StorageError`."""
        path = self._private_path(key)
        try:
            with open(path, "rb") as stream:
                sealed = msgspec.json.decode(stream.read(MAX_BYTES), type=SealedKey)
        except (OSError, msgspec.MsgspecError) as problem:
            raise StorageError(f"The private key {path} cannot be read: {problem}.") from problem
        signature = keys.sign(sealed, passphrase, text)
        return Signature(method="key", person=key.person, key=key.id, signature=signature)

    def _private_path(self, key: PersonKey) -> str:
        return os.path.join(self._directory, "keys", f"{key.id}.json")

    # ── changing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, key: PersonKey, endorsement: Signature | None, private: SealedKey | None = None) -> None:
        """Add a key, and store its private key. Raises `SecurityError` unless it is the first, or a key that counts
        has endorsed it, and `StorageError`.
        """
        key = msgspec.structs.replace(key, endorsement=endorsement)

        def change(stored: _StoredPeople) -> _StoredPeople:
            _refuse_existing(key, stored.keys)
            if not _is_endorsed(key, self.all_keys(), _removed(stored.keys), is_first=not stored.keys):
                raise SecurityError(
                    "There are people already, so one of them has to sign for the new key, and nobody did."
                )
            if private is not None:
                path = self._private_path(key)
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                replace_file(path, msgspec.json.encode(private))
            pending = tuple(other for other in stored.pending if other.id != key.id)
            return _StoredPeople(keys=(*stored.keys, key), pending=pending)

        self._change(change)

    def propose(self, key: PersonKey) -> None:
        """Store a key that counts once a person who is known has signed for it. Raises `SecurityError`,
        `StorageError`.
        """

        def change(stored: _StoredPeople) -> _StoredPeople:
            _refuse_existing(key, stored.keys)
            others = [other for other in stored.pending if other.id != key.id]
            return _StoredPeople(keys=stored.keys, pending=(*others[1 - MAX_PENDING :], key))

        self._change(change)

    def remove(self, key: PersonKey, time: int, removal: Signature) -> None:
        """Remove a key: nothing that it signs from now on counts. Raises `SecurityError`, `StorageError`."""
        removed = msgspec.structs.replace(key, removed=time, removal=removal)

        def change(stored: _StoredPeople) -> _StoredPeople:
            if len(self.active()) == 1:
                raise SecurityError(
                    "This is the last key, and without one nobody could add another. Add another first, or delete "
                    f"{self.path} to start over."
                )
            if not _is_removed(removed, self.all_keys(), _removed(stored.keys)):
                raise SecurityError("A person who is known has to sign for the removal, and nobody did.")
            return _with_key(stored, removed)

        self._change(change)
        if key.method == "key":
            try:
                os.unlink(self._private_path(key))
            except FileNotFoundError:
                pass
            except OSError as problem:
                raise StorageError(f"{self._private_path(key)} cannot be deleted: {problem}.") from problem

    def note_use(self, key: PersonKey, sign_count: int) -> None:
        """Store the sign counter of a passkey, which must grow. Raises `SecurityError`, `StorageError`."""

        def change(stored: _StoredPeople) -> _StoredPeople:
            passkey = next((other for other in stored.keys if other.id == key.id), None)
            if passkey is None:
                raise SecurityError(f"The passkey {key.id} is no longer known. Reload the page.")
            if (sign_count or passkey.sign_count) and sign_count <= passkey.sign_count:
                raise SecurityError("The passkey has a sign counter that did not grow: it may have been copied.")
            return _with_key(stored, msgspec.structs.replace(passkey, sign_count=sign_count))

        self._change(change)

    def _change(self, change: Callable[[_StoredPeople], _StoredPeople]) -> None:
        if not self.path:
            raise SecurityError(self._without_file)
        extras.require(extras.SIGN)
        try:
            with locked(self.path):
                keys = tuple(self.all_keys().values())
                if self.problem:
                    raise SecurityError(f"{self.problem}. Look at the file, and delete it to start over.")
                content = msgspec.json.encode(change(_StoredPeople(keys=keys, pending=self._pending)))
                replace_file(os.path.realpath(self.path), msgspec.json.format(content))
        except OSError as problem:
            raise StorageError(f"{self.path} cannot be written: {problem}.") from problem


def active_keys(data: bytes) -> list[PersonKey]:
    """The keys that count in the content of a file of people. Raises `ValueError`."""
    keys, problem = _verified(msgspec.json.decode(data, type=_StoredPeople).keys)
    if problem:
        raise ValueError(problem)
    return [key for key in keys.values() if not key.removed]


def _refuse_existing(key: PersonKey, existing: Iterable[PersonKey]) -> None:
    if any(other.id == key.id for other in existing):
        raise SecurityError(f"The key {key.id} is known already.")


def _with_key(stored: _StoredPeople, key: PersonKey) -> _StoredPeople:
    """The same people, with a new version of this key."""
    return msgspec.structs.replace(stored, keys=tuple(key if other.id == key.id else other for other in stored.keys))


def _removed(stored: Iterable[PersonKey]) -> dict[str, int]:
    return {key.id: key.removed for key in stored if key.removed}


def _verified(stored: tuple[PersonKey, ...]) -> tuple[dict[str, PersonKey], str]:
    """The keys that count or were removed, by id, and what is wrong with the others.

    Removals are judged first: one that nobody signed must not make an endorsement of the key invalid.
    """
    candidates = _endorsed(stored, {})
    removed: dict[str, int] = {}
    for key in sorted((key for key in stored if key.removed), key=lambda key: key.removed):
        if _is_removed(key, candidates, removed):
            removed[key.id] = key.removed
    counting = _endorsed(stored, removed)
    forged = [f"'{key.person}' ({key.id})" for key in stored if key is not counting.get(key.id)]
    for key in counting.values():
        if key.removed and key.id not in removed:
            forged.append(f"the removal of '{key.person}' ({key.id})")
            counting[key.id] = msgspec.structs.replace(key, removed=0, removal=None)
    problem = f"The file of people has entries that no known person signed: {', '.join(forged)}" if forged else ""
    return counting, problem


def _endorsed(stored: Iterable[PersonKey], removed: Mapping[str, int]) -> dict[str, PersonKey]:
    """By id: the first key, and those that an earlier one has endorsed. `removed`: when keys were removed."""
    endorsed: dict[str, PersonKey] = {}
    for position, key in enumerate(stored):
        is_new = key.id == key_id(decode(key.public)) and key.id not in endorsed
        if is_new and _is_endorsed(key, endorsed, removed, is_first=position == 0):
            endorsed[key.id] = key
    return endorsed


def _is_endorsed(
    key: PersonKey, endorsed: Mapping[str, PersonKey], removed: Mapping[str, int], *, is_first: bool
) -> bool:
    if key.endorsement is None or is_first:
        return key.endorsement is None and is_first
    signer = key.endorsement.key
    return removed.get(signer, key.added) >= key.added and _is_signed(key.endorsement, text_to_add(key), endorsed)


def _is_removed(key: PersonKey, candidates: Mapping[str, PersonKey], removed: Mapping[str, int]) -> bool:
    """Whether a key that was not removed before has signed for the removal; a key may sign for its own."""
    if key.removal is None or key.removal.key in removed:
        return False
    return _is_signed(key.removal, text_to_remove(key, key.removed), candidates)


def _is_signed(signature: Signature, text: bytes, candidates: Mapping[str, PersonKey]) -> bool:
    signer = candidates.get(signature.key)
    if signer is None:
        return False
    return extras.is_missing(extras.SIGN) or signer.is_signature(signature, text)  # without it, `judge` knows nobody

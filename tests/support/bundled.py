"""The workflows that come with the package, whatever form they are written in."""

from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final

from support.json_values import JsonObject
from workflowlookup.language.forms import split_suffix
from workflowlookup.library.files import is_document_name, parse_document

BUNDLED: Final = Path(str(files("workflowlookup"))) / "bundled"
BUNDLED_FILES: Final = tuple(sorted(path for path in BUNDLED.iterdir() if is_document_name(path.name)))


def _documents() -> dict[str, JsonObject]:
    return {split_suffix(path.name)[0]: parse_document(path.read_bytes(), str(path)) for path in BUNDLED_FILES}


BUNDLED_DOCUMENTS: Final = MappingProxyType(_documents())
"""By id."""


def fixture_of(identifier: str) -> bytes:
    return (BUNDLED / f"{identifier}.test.yaml").read_bytes()

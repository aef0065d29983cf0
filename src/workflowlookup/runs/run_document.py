"""The document that a run starts with and keeps: its encoding, its hash, and the workflow that is built from it."""

import hashlib
from typing import Final

import msgspec

from workflowlookup.cache import BoundedCache
from workflowlookup.language.document.building import build
from workflowlookup.language.model import Workflow


def encode_document(workflow: Workflow) -> tuple[msgspec.Raw, str]:
    """The document of a workflow as a run stores it, and its hash."""
    return msgspec.Raw(workflow.text), hash_of(workflow.text)


def hash_of(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()


MAX_CACHED_BYTES: Final = 8 << 20
"""Limit on the cached workflows together, in estimated bytes. A larger workflow is not cached."""

_workflows: Final[BoundedCache[bytes, Workflow]] = BoundedCache(
    256, max_weight=MAX_CACHED_BYTES, weigh=lambda workflow: workflow.weight
)


def workflow_of(document: bytes) -> Workflow:
    """The workflow of a stored document. Runs of the same document share it."""
    workflow = _workflows.get(document)
    if workflow is None:
        workflow = build(msgspec.json.decode(document))
        if workflow.weight <= MAX_CACHED_BYTES:
            _workflows[document] = workflow
    return workflow

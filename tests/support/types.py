"""The types that tests share: JSON at its border, and what fixtures hand out."""

from typing import Any

Json = Any
"""Decoded JSON of any kind. The only `Any` of the tests; values of our own classes have their types."""
JsonObject = dict[str, Any]
"""A decoded JSON object."""

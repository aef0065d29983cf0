"""Builders, clients and fakes for the tests."""

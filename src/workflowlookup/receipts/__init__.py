"""Receipts: signed statements about completed runs, which others can verify without the journal."""

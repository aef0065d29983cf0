"""Procedures of other programs as workflows: `formats` reads them, `writing` writes the document."""

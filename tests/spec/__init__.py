"""The clauses of the two normative specs as data (`clauses.py`), and the conversations that prove them."""

"""What only authors need: lint, fixtures, rehearsals, drawings, comparison, layout of documents."""

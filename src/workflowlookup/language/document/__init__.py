"""A document as its author writes it: what is wrong with it, and the `Workflow` that it becomes."""

"""Documents written as Markdown: how they are read and written, and what a line of a list means."""

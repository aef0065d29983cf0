"""Notices: messages to people when a run needs somebody, by webhook or e-mail."""

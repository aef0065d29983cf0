"""Fetching from git: the files of one commit of another repository, into the user's cache."""

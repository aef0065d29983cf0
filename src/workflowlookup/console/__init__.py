"""The web console: the library, runs and their figures for people, rendered on the server."""

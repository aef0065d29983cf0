"""Formats that others define: regular expressions, JSON Schema, JSON and YAML. They know nothing of workflows."""

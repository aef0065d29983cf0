"""A workflow as a file for other programs: an Agent Skill, a Claude command, a section of AGENTS.md."""

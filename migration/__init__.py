"""Moves running sessions: the mechanism, without any policy. DESIGN.md explains it."""

"""Clients' own tests run in the clients' environments only."""

collect_ignore = ["cuda_core"]

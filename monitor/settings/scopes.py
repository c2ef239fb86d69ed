"""Who sees whose affinity, anti-affinity and exclusive labels."""

from __future__ import annotations

TENANT, SERVER = "tenant", "server"
SCOPES = (TENANT, SERVER)  # each tenant its own sessions'; all sessions of the GPU server

"""Policies over invocations: objects without I/O, clock or chance, run live and by the simulator (D20)."""

from .build import POLICIES, build
from .interface import Bring, Decision, End, Function, Invocation, Limit, Policy, Refuse, Run, Send, Start

__all__ = [
    "POLICIES",
    "Bring",
    "Decision",
    "End",
    "Function",
    "Invocation",
    "Limit",
    "Policy",
    "Refuse",
    "Run",
    "Send",
    "Start",
    "build",
]

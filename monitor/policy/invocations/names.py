"""The names of policies over invocations, as options and configuration files spell them."""

POLICIES = (
    "fcfs",  # the default
    "batch",
    "sjf",
    "eevdf",
    "mqfq",
    "rr",
    "lb",
    "rro3",
    "lalb",
    "lalbo3",
    "kaas-affinity",
    "kaas-exclusive",
    "auto",
)

"""Who may work on each GPU now: a process beside the monitor, and the monitor's side of it (DESIGN.md)."""

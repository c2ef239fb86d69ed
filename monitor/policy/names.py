"""The policies' names, as options and configuration files spell them. The first of each is the default."""

FITS = ("best-fit", "worst-fit", "first-fit", "exclusive")  # which GPU a session gets
QUEUES = ("fcfs", "backfill")  # whose turn it is
MOVERS = ("off", "dgsf", "auto")  # whether, and when, sessions move by themselves

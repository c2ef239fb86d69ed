"""The policies' names, as options and configuration files spell them. The first of each is the default."""

FITS = ("best-fit", "worst-fit", "first-fit", "exclusive", "kubeshare")  # which GPU a session gets
QUEUES = ("fcfs", "backfill")  # whose turn it is
MOVERS = ("off", "dgsf", "auto")  # whether, and when, sessions move by themselves
SHARINGS = ("free", "time", "turns")  # how sessions on one GPU share its time
QUOTAS = ("fixed", "adaptive")  # how long a turn may last
DEFICITS = ("relative", "absolute")  # by what those compare that had less than they requested

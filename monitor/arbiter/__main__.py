"""`python -m gpuferry.monitor.arbiter`: started by a monitor, and by nobody else."""

import sys

from .process import main

main(sys.argv[1:])

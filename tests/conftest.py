"""`make test` tries the same examples every time, so that its verdict is about the change; GPUFERRY_FUZZ=1 (make
test-all) looks for new ones. Nothing is timed here: the machine is shared."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "fuzz", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("fuzz" if os.environ.get("GPUFERRY_FUZZ") else "steady")

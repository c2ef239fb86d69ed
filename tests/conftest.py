"""How hypothesis looks for examples.

`make test` tries the same ones every time, so that its verdict is about the change; GPUFERRY_FUZZ=1
(`make test-all`)
looks for new ones. No deadlines: the machine is shared.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fuzz", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("steady", settings.get_profile("fuzz"), derandomize=True)
settings.load_profile("fuzz" if os.environ.get("GPUFERRY_FUZZ") else "steady")

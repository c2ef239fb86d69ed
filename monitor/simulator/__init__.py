"""A discrete-event simulator that runs the shipped scheduling policies: `gpuferry simulate`."""

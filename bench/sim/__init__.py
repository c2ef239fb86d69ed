"""A discrete-event simulator that runs the shipped scheduling policies; installed as `gpuferry.sim`."""

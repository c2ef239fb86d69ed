"""Settings of the daemons: how one is declared, where its value comes from, which there are."""

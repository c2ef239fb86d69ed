"""Several GPU servers: the registry, this server's membership, and the way to its neighbours."""

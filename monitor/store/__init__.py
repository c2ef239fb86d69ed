"""A small key-value store for what must survive: one Protocol, SQLite or etcd behind it."""

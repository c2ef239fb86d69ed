"""The `gpuferry` command."""

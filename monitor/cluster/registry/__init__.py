"""The registry: which GPU servers there are, and which of them a guest shall use."""

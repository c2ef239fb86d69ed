"""The daemon on a GPU server and everything a person touches."""

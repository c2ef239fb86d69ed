"""Sessions on their way to another device, another GPU server, or a file."""

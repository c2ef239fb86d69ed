"""A simulator of invocations, which runs the shipped policies over them."""

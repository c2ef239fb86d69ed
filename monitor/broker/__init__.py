"""Brings guests and API servers together."""

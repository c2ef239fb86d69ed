"""Tokens of tenants: what they are, how they are proven, where what is known of them lies."""

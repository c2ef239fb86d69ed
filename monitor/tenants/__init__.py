"""Tenants: what each may have, how that is stored, and what it has had."""

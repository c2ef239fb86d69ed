"""What is injected into programs, and the launcher that injects it."""

"""What is known of a session, which device it gets, and what happened to it."""

"""What people and programs look at: status, statistics, metrics, the page."""

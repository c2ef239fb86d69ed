"""The monitor's HTTP side: the page, its data, metrics and health."""

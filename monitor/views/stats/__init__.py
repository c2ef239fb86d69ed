"""What the devices and the sessions do: sampled, averaged, remembered for a while, and published."""

"""The devices of this machine: which of them are offered, and what NVML says of them."""

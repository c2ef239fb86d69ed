"""The compile service: a process that turns module images into indices and kernels into objects."""

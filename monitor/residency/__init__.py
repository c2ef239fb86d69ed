"""Where each session's memory is: on its device, in host memory, on a disk; and who makes room for whom."""

"""Functions: an HTTP server whose handlers are processes with the guest library preloaded."""

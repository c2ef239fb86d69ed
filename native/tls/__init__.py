"""TLS 1.3 for sockets that are handed from process to process (DESIGN.md)."""

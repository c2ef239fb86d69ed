"""Where guests come in: listening sockets, the handshake, and who a guest is."""

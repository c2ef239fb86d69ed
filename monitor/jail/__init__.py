"""What an API server, a keeper or a compiler can reach: next to nothing. DESIGN.md says how."""

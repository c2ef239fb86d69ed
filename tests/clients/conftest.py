"""Clients' own tests run in the clients' environments only."""

collect_ignore_glob = ["cuda_*/*", "jit_*/*", "networks*/*", "compiled_*/*"]
collect_ignore_glob += ["trees/*", "boosting/*", "images/*", "render/*", "pools/*"]

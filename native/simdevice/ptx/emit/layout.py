"""Field offsets of struct sim_block, struct sim_thread and struct sim_lanes of kernel_abi.h."""

from __future__ import annotations

BLOCK: dict[str, tuple[int, str]] = {
    "shared": (0, "ptr"),
    "globals": (8, "ptr"),
    "params": (16, "ptr"),
    "ctaid.x": (24, "i32"),
    "ctaid.y": (28, "i32"),
    "ctaid.z": (32, "i32"),
    "nctaid.x": (36, "i32"),
    "nctaid.y": (40, "i32"),
    "nctaid.z": (44, "i32"),
    "ntid.x": (48, "i32"),
    "ntid.y": (52, "i32"),
    "ntid.z": (56, "i32"),
    "shared_static": (60, "i32"),
    "shared_dynamic": (64, "i32"),
    "smid": (68, "i32"),
    "nsmid": (72, "i32"),
    "gridid": (80, "i64"),
    "local": (88, "ptr"),
    "local_end": (96, "ptr"),
    "window": (104, "ptr"),
    "cluster.x": (112, "i32"),
    "cluster.y": (116, "i32"),
    "cluster.z": (120, "i32"),
    "cluster_rank": (124, "i32"),
    "cluster_size": (128, "i32"),
    "cluster_explicit": (132, "i32"),
}
THREAD = {
    "block": 0,
    "tid.x": 8,
    "tid.y": 12,
    "tid.z": 16,
    "linear": 20,
    "local": 24,
    "local_top": 32,
    "local_end": 40,
}
THREAD_SIZE = 48
# struct sim_lanes: what a warp's kernel is given.
LANES = {
    "block": 0,
    "live": 8,
    "first": 12,
    "stack": 16,
    "stack_end": 24,
    "local_used": 32,
    "local_size": 40,
    "tid.x": 64,
    "tid.y": 192,
    "tid.z": 320,
    "lane": 448,
}
CLUSTER_SHIFT = 18  # SIM_CLUSTER_SHIFT
ALIGN = {"ptr": 8, "i64": 8, "i32": 4}

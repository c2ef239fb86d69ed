"""Special registers."""

from __future__ import annotations

import re

from .writer import Writer

_CONSTANTS = {
    "%WARP_SZ": 32,
    "%reserved_smem_offset_cap": 1024,  # SIM_SHARED_BEHIND
    **{f"%pm{index}": 0 for index in range(8)},
    "%current_graph_exec": 0,
    "%locality_domain_id": 0,  # the device is one
}
_RANKS = {
    "%lanemask_eq": "shl i32 1, {lane}",
    "%lanemask_lt": "sub i32 {bit}, 1",
    "%lanemask_le": "or i32 {below}, {bit}",
    "%lanemask_ge": "xor i32 {below}, -1",
    "%lanemask_gt": "xor i32 {upto}, -1",
}
# What each is of the block's place, or of the grid, and the cluster's blocks in the same dimension.
_OF_CLUSTERS = {
    "clusterid": ("ctaid", "udiv"),
    "nclusterid": ("nctaid", "udiv"),
    "cluster_ctaid": ("ctaid", "urem"),
    "cluster_nctaid": ("", ""),
}
_ENVIRONMENT = re.compile(r"%envreg\d+\Z|%pm\d_64\Z")
# Where they lie in what is reserved of shared memory. In the last cooperative groups of several warps meet.
_RESERVED = {"begin": 0, "end": 1024, "0": 0, "1": 512}


def special_register(e: Writer, name: str) -> tuple[str, int] | None:
    """(value, bits), None if there is no such register."""
    if not name.startswith("%"):
        return None
    plain = name[1:]
    if plain in ("tid.x", "tid.y", "tid.z"):
        return e.thread_field(plain), 32
    for prefix in ("ntid", "ctaid", "nctaid"):
        if plain in (f"{prefix}.x", f"{prefix}.y", f"{prefix}.z"):
            return e.block_field(plain), 32
    if plain.endswith(".w") and plain[:-2] in ("tid", "ntid", "ctaid", "nctaid", *_OF_CLUSTERS):
        return "0", 32
    of_cluster = _of_cluster(e, plain)
    if of_cluster is not None:
        return of_cluster, 32
    if plain in ("smid", "nsmid"):
        return e.block_field(plain), 32
    if plain == "gridid":
        return e.block_field("gridid"), 64
    if name in _CONSTANTS:
        return str(_CONSTANTS[name]), 32
    if name in _RANKS:
        lane = _lane(e)
        bit = e.op(f"shl i32 1, {lane}")
        below = e.op(f"sub i32 {bit}, 1")
        upto = e.op(f"or i32 {below}, {bit}")
        return e.op(_RANKS[name].format(lane=lane, bit=bit, below=below, upto=upto)), 32
    found = _computed(e, plain)
    if found is None and _ENVIRONMENT.match(name):
        return "0", 64 if name.endswith("_64") else 32
    return found


def _lane(e: Writer) -> str:
    return e.op(f"and i32 {e.thread_field('linear')}, 31")


def _computed(e: Writer, name: str) -> tuple[str, int] | None:
    if name == "laneid":
        return _lane(e), 32
    if name == "warpid":
        return e.op(f"lshr i32 {e.thread_field('linear')}, 5"), 32
    if name == "nwarpid":
        threads = e.op(f"mul i32 {e.block_field('ntid.x')}, {e.block_field('ntid.y')}")
        threads = e.op(f"mul i32 {threads}, {e.block_field('ntid.z')}")
        return e.op(f"lshr i32 {e.op(f'add i32 {threads}, 31')}, 5"), 32
    if name in ("clock", "clock_hi", "clock64"):
        return _part(e, e.call("i64", "sim_rt_clock64", "ptr %thread"), name, "clock_hi", "clock64")
    if name in ("globaltimer", "globaltimer_lo", "globaltimer_hi"):
        value = e.call("i64", "sim_rt_globaltimer", "ptr %thread")
        return _part(e, value, name, "globaltimer_hi", "globaltimer")
    if name in ("envreg1", "envreg2"):
        value = e.call("i64", "sim_rt_grid_workspace", "ptr %thread")
        return _part(e, value, name, "envreg1", "")
    if name == "dynamic_smem_size":
        return e.block_field("shared_dynamic"), 32
    if name in ("total_smem_size", "aggr_smem_size"):
        return e.op(f"trunc i64 {e.shared_limit()} to i32"), 32
    if name.startswith("reserved_smem_offset_"):
        return _reserved(e, name.rpartition("_")[2]), 32
    if name == "is_explicit_cluster":
        return e.op(f"icmp ne i32 {e.block_field('cluster_explicit')}, 0"), 1
    return None


def _reserved(e: Writer, place: str) -> str:
    above = e.op(f"add i32 {e.op(f'trunc i64 {e.shared_limit()} to i32')}, 15")
    return e.op(f"add i32 {e.op(f'and i32 {above}, -16')}, {_RESERVED[place]}")


def _of_cluster(e: Writer, name: str) -> str | None:
    """Where the block is in its cluster, and the cluster in the grid."""
    if name in ("cluster_ctarank", "cluster_nctarank"):
        return e.block_field("cluster_rank" if name == "cluster_ctarank" else "cluster_size")
    register, _, axis = name.partition(".")
    if register not in _OF_CLUSTERS or axis not in ("x", "y", "z"):
        return None
    blocks = e.block_field(f"cluster.{axis}")
    if register == "cluster_nctaid":
        return blocks
    whole, operation = _OF_CLUSTERS[register]
    return e.op(f"{operation} i32 {e.block_field(f'{whole}.{axis}')}, {blocks}")


def _part(e: Writer, value: str, name: str, high: str, whole: str) -> tuple[str, int]:
    if name == whole:
        return value, 64
    if name == high:
        value = e.op(f"lshr i64 {value}, 32")
    return e.op(f"trunc i64 {value} to i32"), 32

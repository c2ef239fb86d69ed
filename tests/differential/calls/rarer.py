"""Ideas of calls that few programs make.

Lists of copies and of words, links, nodes by their parameters, handles for other processes, launches as
CUDA 2 knew them, advice about managed memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .arguments import Token, constant

if TYPE_CHECKING:
    from .programs import Maker

WORD_OPERATION = 48  # bytes of CUstreamBatchMemOpParams
NODE_PARAMS = 256  # bytes of CUgraphNodeParams, whose union begins at 16


def numbers(values: list[Token], width: int = 8) -> Token:
    return ["mem", max(width * len(values), 8), [[width * i, width, v] for i, v in enumerate(values)], False]


def copies_in_a_list(maker: Maker) -> None:
    count = maker.random.choice((1, 2, 3, 0))
    ends = [[maker.random.choice((maker.address(), maker.host())) for _ in range(count)] for _ in range(2)]
    sizes = [maker.random.choice((4, 64, 4096, 0)) for _ in range(count)]
    order = maker.random.choice((1, 1, 2, 3, 0))  # CUmemcpySrcAccessOrder
    attributes = ["mem", 24, [[0, 4, order]], False]
    maker.call(
        "cuMemcpyBatchAsync_v2", numbers(ends[0]), numbers(ends[1]), numbers(sizes), count, attributes,
        numbers([0]), 1, maker.stream()
    )  # fmt: skip


def words_of(maker: Maker) -> tuple[int, Token]:
    """Operations on words of memory; each wait is for what holds already."""
    count = maker.random.choice((1, 2, 3, 0, 257))
    kinds = [
        ("CU_STREAM_MEM_OP_WRITE_VALUE_32", 0),
        ("CU_STREAM_MEM_OP_WRITE_VALUE_64", 0),
        ("CU_STREAM_MEM_OP_WAIT_VALUE_32", constant("CU_STREAM_WAIT_VALUE_NOR")),
        ("CU_STREAM_MEM_OP_BARRIER", 0),
    ]
    parts: list[Any] = []
    for i in range(min(count, 4)):
        kind, flags = maker.random.choice(kinds)
        base = WORD_OPERATION * i
        parts += [[base, 4, constant(kind)], [base + 24, 4, maker.random.choice((flags, flags, flags | 64))]]
        parts += [[base + 8, 8, maker.address()], [base + 16, 8, 0 if "WAIT" in kind else 7 + i]]
    return count, ["mem", WORD_OPERATION * 257, parts, False]


def words_in_a_list(maker: Maker) -> None:
    count, operations = words_of(maker)
    maker.call("cuStreamBatchMemOp_v2", maker.stream(), count, operations, maker.random.choice((0, 0, 1)))


def words_in_a_graph(maker: Maker) -> None:
    graph = maker.names.some("graph")
    count, operations = words_of(maker)
    parts = [[0, 8, maker.random.choice(("context0", maker.names.some("context")))]]
    parts += [[8, 4, count], [16, 8, operations]]
    if not graph:
        maker.call("cuGraphCreate", maker.new("graph"), 0)
    maker.call(
        "cuGraphAddBatchMemOpNode", maker.new("graph_node"), graph, 0, 0, ["mem", 32, parts, False]
    )  # fmt: skip
    maker.executable(graph)


def nodes_by_parameters(maker: Maker) -> None:
    """Nodes of any kind by one call, and what is set of them afterwards."""
    graph = maker.names.some("graph")
    if not graph:
        maker.call("cuGraphCreate", maker.new("graph"), 0)
        graph = f"graph{maker.names.number - 1}"
    context = maker.random.choice(("context0", "context0", maker.names.some("context")))
    fill = maker.struct("CUDA_MEMSET_NODE_PARAMS")[2]
    kernel = maker.kernel_node()[2]
    box = maker.box(third=True)[2]
    parts = maker.random.choice(
        (
            [[0, 4, 0], *shifted(kernel, 16)],
            [[0, 4, 1], *shifted(box, 24), [224, 8, context]],
            [[0, 4, 2], *shifted(fill, 16), [56, 8, context]],
            [[0, 4, 3], [16, 8, ["fn", maker.random.randrange(100)]]],
            [[0, 4, 4], [16, 8, maker.names.some("graph")]],
            [[0, 4, 5]],
            [[0, 4, 6], [16, 8, maker.names.some("event")]],
            [[0, 4, 7], [16, 8, maker.names.some("event")]],
            [[0, 4, maker.random.choice((8, 9, 14, 77))]],
        )
    )
    params = ["mem", NODE_PARAMS, parts, False]
    node, exec_ = maker.names.some("graph_node"), maker.names.some("graph_exec")
    choice = maker.random.randrange(5)
    if choice == 3 and node:
        maker.call("cuGraphNodeSetParams", node, params)
    elif choice == 4 and node and exec_:
        maker.call("cuGraphExecNodeSetParams", exec_, node, params)
    else:
        behind = maker.names.some("graph_node")
        deps = numbers([behind]) if behind else 0
        maker.call("cuGraphAddNode_v2", maker.new("graph_node"), graph, deps, 0, int(bool(behind)), params)
    if maker.chance(0.4):
        maker.executable(graph)


def shifted(parts: list[Any], by: int) -> list[Any]:
    return [[offset + by, width, token] for offset, width, token in parts]


def links(maker: Maker) -> None:
    state = maker.new("link")
    name = state[2]["name"]
    maker.call("cuLinkCreate_v2", 0, 0, 0, state)
    kind = maker.random.choice((1, 1, 1, 0, 3))  # PTX, machine code, an object
    size = maker.random.choice((["image_size"], ["image_size"], 10, 0))
    for _ in range(maker.random.choice((1, 1, 2, 0))):
        maker.call("cuLinkAddData_v2", name, kind, ["image"], size, ["text", "a.ptx"], 0, 0, 0)
    made = maker.new("linked", 1)  # there until the link ends
    maker.call("cuLinkComplete", name, made, ["mem", 8, [], False])
    if maker.chance(0.7):
        maker.call("cuModuleLoadData", maker.new("module"), made[2]["name"])
        maker.call(
            "cuModuleGetFunction", maker.new("function"), f"module{maker.names.number - 2}", ["text", "fill"]
        )
    if maker.chance(0.8):
        maker.call("cuLinkDestroy", name, ends=(name, made[2]["name"]))


def handles_for_others(maker: Maker) -> None:
    """What they are differs from driver to driver; of whom there are any does not."""
    choice = maker.random.randrange(6)
    unseen = ["mem", 64, [], False]
    event = maker.names.some("shared_event")  # which no graph has: that is refused remotely
    if choice == 0:
        maker.call("cuIpcGetMemHandle", unseen, maker.address())
    elif choice == 1:
        maker.call("cuIpcGetEventHandle", unseen, maker.random.choice((event, maker.names.some("event"))))
    elif choice == 2 and event and not maker.capturing:
        maker.call("cuEventRecord", event, maker.stream())
    elif choice == 3 and event and not maker.capturing:
        maker.call("cuStreamWaitEvent", maker.stream(), event, 0)
    elif choice == 4:
        maker.call("cuMemExportToShareableHandle", unseen, maker.names.some("memory_allocation"), 1, 0)
    else:
        flags = constant("CU_EVENT_INTERPROCESS") | maker.random.choice((0, 2, 2))
        maker.call("cuEventCreate", maker.new("shared_event"), flags)


def launches_of_old(maker: Maker) -> None:
    function = maker.names.some("function")
    maker.call("cuFuncSetBlockShape", function, maker.random.choice((1, 32, 64, 0, 1025)), 1, 1)
    maker.call("cuFuncSetSharedSize", function, maker.random.choice((0, 16, 1 << 20)))
    for place in range(2):
        maker.call("cuParamSetv", function, 8 * place, numbers([maker.address(0)]), 8)
    maker.call("cuParamSeti", function, 16, 9)
    maker.call("cuParamSetSize", function, maker.random.choice((20, 20, 24, 4096, 0)))
    if maker.chance(0.5):
        maker.call("cuLaunchGrid", function, maker.random.choice((1, 2, 0)), 1)
    else:
        maker.call("cuLaunchGridAsync", function, 1, maker.random.choice((1, 2, 0)), maker.stream())


def advice(maker: Maker) -> None:
    """Where managed memory is to lie, and what is told of it."""
    address, size = maker.address(0), maker.random.choice((4096, 65536, 0, 1 << 20))
    location = maker.random.choice((1, 1, 2, 3, 0, 1 | 1 << 32))  # a type, and an ordinal above it
    choice = maker.random.randrange(4)
    if choice == 0:
        maker.call("cuMemAdvise_v2", address, size, maker.random.choice((1, 2, 3, 4, 5, 6, 0)), location)
    elif choice == 1:
        maker.call(
            "cuMemPrefetchAsync_v2", address, size, location, maker.random.choice((0, 0, 1)), maker.stream()
        )
    else:
        attribute = maker.random.choice((1, 2, 3, 4, 5, 6, 7, 8, 0))
        width = 8 if attribute == 3 and choice == 3 else 4
        maker.call("cuMemRangeGetAttribute", ["out", width, None], width, attribute, address, size)


RARER = (
    copies_in_a_list,
    words_in_a_list,
    words_in_a_graph,
    nodes_by_parameters,
    links,
    handles_for_others,
    launches_of_old,
    advice,
)

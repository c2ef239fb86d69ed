# Room: graphs
# Holds: how many nodes the executable graphs of the session have; the graphs themselves are objects.
# Lock: none; the dispatcher's
# Home: graphs
# Changed by: -
# Read by: -
# Offers: begin_graphs drop_graph_exec find_graph_exec retire_graph_exec

cdef struct GraphExec:
    Object base
    cu.CUgraph graph            # its nodes are named by later updates
    cu.CUgraphExec exec         # NULL: it is not ready
    vector[cu.CUgraphNode] *nodes
    vector[uint64_t] *records   # handles of the events that a launch records

cdef struct Graphs:
    uint64_t nodes

# Room: graphs
# Holds: how many nodes the executable graphs of the session have; the graphs themselves are objects.
# Lock: none; the dispatcher's
# Home: graphs graph_nodes conditionals
# Changed by: -
# Read by: -
# Offers: begin_graphs drop_condition_fillers drop_graph_exec fill_hollow find_graph_exec retire_graph_exec

cdef struct Place:
    cu.CUgraphNode node         # NULL: it went with the conditional node that it was within
    uint32_t graph
    bint conditional
    bint hollow                 # an empty node, in place of one that could not be made
    bint off                    # it does not work
    uint64_t attributes         # digest of what a kernel was added with; 0: it is none
    uint64_t event              # handle of the one that it records

cdef struct Condition:
    cu.CUgraphConditionalHandle value
    bint used                   # by a node

cdef struct Conditional:
    cu.CUgraphNode node
    uint32_t graph              # that it is in
    uint32_t first              # of its bodies
    uint32_t bodies
    uint32_t depth              # of conditional nodes within one another

cdef struct GraphExec:
    Object base
    cu.CUgraph graph            # its nodes are named by later updates
    cu.CUgraphExec exec         # NULL: it is not ready, or the next launch makes it
    bint ready
    uint64_t flags              # with which it became so
    uint32_t hollow             # places that are
    Place *filled               # whose node is made anew; NULL: none
    uint32_t tried              # nodes whose frames were looked at again
    vector[Place] *nodes
    vector[uint64_t] *records   # places of the nodes that record events
    vector[cu.CUgraph] *graphs  # itself, then bodies of conditional nodes; NULL: it is there no more
    vector[Condition] *conditions
    vector[Conditional] *conditionals
    uint32_t current            # the graph that nodes are added to
    uint64_t charged            # nodes, bodies and values that count,
    uint64_t beside             # and bytes of edges and parameters, until the nodes go

cdef struct ConditionFiller:
    cu.CUgraphConditionalHandle value
    cu.CUgraph graph            # made for it alone

cdef struct Graphs:
    uint64_t nodes
    # How the driver numbers values of conditional nodes:
    bint numbering_known
    uint64_t step               # from one to the next; 0: one that was given up comes again
    uint64_t last               # that it gave
    vector[ConditionFiller] *fillers    # values that are kept from being given, in a session that comes from another server
    vector[uint64_t] *lacking   # handles of graphs in which a place became hollow
    bint complete               # of a session that was restored: all memory has come, of other processes too

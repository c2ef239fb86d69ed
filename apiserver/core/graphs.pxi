# Executable graphs (WIRE.md 13). The guest sends nodes and edges; what it was made executable of stays here, for updates
# name its nodes. A node may name what has ended since: it is refused, but for one of a session that is being restored,
# which becomes an empty node, because no launch may reach it. It may have been changed since, or be changed later; then
# it is made anew, for a driver changes no empty node. That is done to the graph itself, so as long as one is empty all
# nodes that are changed are made anew, and the next launch makes the graph executable. So it is with a kernel that is
# given other attributes, which a driver takes of graphs alone: then all that was changed so far is done to the graph.

cdef enum:
    NODE_COST = 2 << 10         # bytes of a node here and in the driver
    EDGE_COST = 64              # at both of its ends, and in what is executable
    NODE_LIMIT = 1 << 20        # of all graphs of a session


cdef void begin_graphs(Session *s) noexcept nogil:
    s.graphs.nodes = 0
    s.graphs.numbering_known = False
    s.graphs.complete = False
    if s.graphs.fillers == NULL:
        s.graphs.fillers = new vector[ConditionFiller]()
        s.graphs.lacking = new vector[uint64_t]()
    s.graphs.lacking.clear()


cdef struct WireEdge:
    uint32_t source
    uint32_t target
    cu.CUgraphEdgeData data


cdef int find_graph_exec(Session *s, Frame *f, uint64_t handle, GraphExec **found) noexcept nogil:
    found[0] = <GraphExec *>find(s, handle, GRAPH_EXEC)
    return cu.CUDA_ERROR_INVALID_VALUE if found[0] == NULL else cu.CUDA_SUCCESS


cdef void free_graph(GraphExec *g) noexcept nogil:
    del g.nodes
    del g.records
    del g.graphs
    del g.conditions
    del g.conditionals
    free(g)


cdef int on_sessionGraphBegin(Session *s, Frame *f, gf_req_sessionGraphBegin *q) noexcept nogil:
    cdef GraphExec *g = <GraphExec *>calloc(1, sizeof(GraphExec))
    cdef int status
    g.nodes = new vector[Place]()
    g.records = new vector[uint64_t]()
    g.graphs = new vector[cu.CUgraph]()
    g.conditions = new vector[Condition]()
    g.conditionals = new vector[Conditional]()
    status = cu.cuGraphCreate(&g.graph, 0)
    g.graphs.push_back(g.graph)
    if status == cu.CUDA_SUCCESS:
        status = put(s, q.exec, GRAPH_EXEC, &g.base, f.context)
        if status != cu.CUDA_SUCCESS:
            cu.cuGraphDestroy(g.graph)
    if status != cu.CUDA_SUCCESS:
        free_graph(g)
    return status


cdef int drop_graph_exec(Session *s, GraphExec *g) noexcept nogil:
    cdef int status
    forget(s, &g.base)
    charge_nodes(s, g, -<int64_t>g.charged)
    refund_beside(s, g)
    status = enter(s, g.base.context)
    if g.exec != NULL:
        status = cu.cuGraphExecDestroy(g.exec) or status
    status = cu.cuGraphDestroy(g.graph) or status
    free_graph(g)
    return status


cdef int retire_graph_exec(Session *s, Frame *f, uint64_t handle) noexcept nogil:
    cdef GraphExec *g = <GraphExec *>find(s, handle, GRAPH_EXEC)
    return cu.CUDA_ERROR_INVALID_VALUE if g == NULL else drop_graph_exec(s, g)


cdef void charge_nodes(Session *s, GraphExec *g, int64_t count) noexcept nogil:
    g.charged += count
    s.graphs.nodes += count
    spend_apart(s, count * NODE_COST)


cdef void charge_beside(Session *s, GraphExec *g, uint64_t size) noexcept nogil:
    g.beside += size
    spend_apart(s, <int64_t>size)


cdef void refund_beside(Session *s, GraphExec *g) noexcept nogil:
    """The nodes are gone, and with them what belonged to them."""
    spend_apart(s, -<int64_t>g.beside)
    g.beside = 0


cdef int may_add(Session *s, GraphExec *g, uint64_t cost) noexcept nogil:
    return cu.CUDA_ERROR_INVALID_VALUE if g.ready or into(g) == NULL else may_hold(s, cost)


cdef inline cu.CUgraph into(GraphExec *g) noexcept nogil:
    """The graph that nodes are added to."""
    return g.graphs[0][g.current]


cdef int may_hold(Session *s, uint64_t cost) noexcept nogil:
    cdef bint granted
    pthread_mutex_lock(&s.lock)
    granted = s.graphs.nodes < NODE_LIMIT and affords(s, cost)
    pthread_mutex_unlock(&s.lock)
    return cu.CUDA_SUCCESS if granted else cu.CUDA_ERROR_OUT_OF_MEMORY


cdef int added(Session *s, GraphExec *g, int status, cu.CUgraphNode node) noexcept nogil:
    """Enters a new node, or, in place of one that cannot be any more, an empty one."""
    cdef Place place
    if status != cu.CUDA_SUCCESS and node != NULL:
        cu.cuGraphDestroyNode(node)             # an attribute was refused
    place.hollow = status != cu.CUDA_SUCCESS and s.arrival.restoring
    if place.hollow:
        status = cu.cuGraphAddEmptyNode(&node, into(g), NULL, 0)
        if g.hollow == 0:
            s.graphs.lacking.push_back(g.base.handle)
    if status != cu.CUDA_SUCCESS:
        return status
    place.attributes = 0
    place.event = 0
    place.node = node
    place.graph = g.current
    place.conditional = False
    place.off = False
    if g.filled != NULL:
        return take_place(g, &place)
    g.nodes.push_back(place)
    g.hollow += place.hollow
    charge_nodes(s, g, 1)
    return cu.CUDA_SUCCESS


cdef inline int changed(Session *s, int status) noexcept nogil:
    """A change that cannot be any more is none of a session that is being restored."""
    return cu.CUDA_SUCCESS if s.arrival.restoring else status


cdef int node_of(GraphExec *g, uint32_t place, cu.CUgraphNode *node) noexcept nogil:
    if not g.ready or place >= g.nodes.size() or g.nodes[0][place].conditional or g.nodes[0][place].node == NULL:
        return cu.CUDA_ERROR_INVALID_VALUE
    node[0] = g.nodes[0][place].node
    return cu.CUDA_SUCCESS


# Nodes that are made anew

cdef inline bint is_made_anew(GraphExec *g) noexcept nogil:
    """Whether its nodes are, if they are changed."""
    return g.hollow > 0 or g.exec == NULL


cdef int edges_of(cu.CUgraphNode node, bint dependent, cu.CUgraphNode *others, cu.CUgraphEdgeData *data,
                  size_t *count) noexcept nogil:
    """Those on which it depends, or those that depend on it."""
    if dependent:
        return cu.cuGraphNodeGetDependentNodes(node, others, data, count)
    return cu.cuGraphNodeGetDependencies(node, others, data, count)


cdef int copy_edges(cu.CUgraph graph, cu.CUgraphNode old, cu.CUgraphNode made, bint dependent) noexcept nogil:
    cdef cu.CUgraphNode *others
    cdef cu.CUgraphEdgeData *data
    cdef size_t count = 0
    cdef size_t i
    cdef int status = edges_of(old, dependent, NULL, NULL, &count)
    if status != cu.CUDA_SUCCESS or count == 0:
        return status
    others = <cu.CUgraphNode *>malloc(count * sizeof(cu.CUgraphNode))
    data = <cu.CUgraphEdgeData *>malloc(count * sizeof(cu.CUgraphEdgeData))
    status = cu.CUDA_ERROR_OUT_OF_MEMORY
    if others != NULL and data != NULL:
        status = edges_of(old, dependent, others, data, &count)
    for i in range(count):
        if dependent:
            status = status or cu.cuGraphAddDependencies(graph, &made, &others[i], &data[i], 1)
        else:
            status = status or cu.cuGraphAddDependencies(graph, &others[i], &made, &data[i], 1)
    free(others)
    free(data)
    return status


cdef int take_place(GraphExec *g, Place *made) noexcept nogil:
    """The node takes the place, and the edges, of the one that is made anew."""
    cdef Place *place = g.filled
    cdef cu.CUgraph graph = g.graphs[0][place.graph]
    cdef int status = copy_edges(graph, place.node, made.node, False)
    status = status or copy_edges(graph, place.node, made.node, True)
    status = status or cu.cuGraphDestroyNode(place.node)
    if status != cu.CUDA_SUCCESS:
        cu.cuGraphDestroyNode(made.node)
        return status
    g.hollow = g.hollow - place.hollow + made.hollow
    place.node = made.node
    place.hollow = made.hollow
    return cu.CUDA_SUCCESS


cdef int add_in_place(Session *s, Frame *f, GraphExec *g, uint32_t node) noexcept nogil:
    """Does what the frame says, which adds a node; that takes the place of the one with this number."""
    cdef uint32_t current = g.current
    cdef bint ready = g.ready
    cdef int status = cu.CUDA_SUCCESS
    if g.exec != NULL:
        status = cu.cuGraphExecDestroy(g.exec)
        g.exec = NULL
    if status != cu.CUDA_SUCCESS:
        return status
    g.filled = &g.nodes[0][node]
    g.current = g.filled.graph
    g.ready = False
    status = handlers[f.op](s, f)
    g.filled = NULL
    g.current = current
    g.ready = ready
    return status


cdef int make_anew(Session *s, Frame *f, GraphExec *g, uint32_t node, uint16_t op) noexcept nogil:
    """The operation adds such nodes; a frame that changes one says beside the same which, behind `exec`."""
    cdef Frame add = f[0]
    cdef vector[uint8_t] body
    append(&body, f.body, sizeof(uint64_t))
    append(&body, f.body + sizeof(uint64_t) + sizeof(uint32_t), f.size - sizeof(uint64_t) - sizeof(uint32_t))
    add.op = op
    add.body = body.data()
    add.size = body.size()
    return add_in_place(s, &add, g, node)


cdef int take_back(Session *s, GraphExec *g) noexcept nogil:
    """It is executable no more until the next launch, and its graph becomes what it was changed to."""
    cdef int status = cu.cuGraphExecDestroy(g.exec)
    g.exec = NULL
    do_again(s, &g.base, change_again)
    return status


cdef void change_again(Session *s, Object *object, Frame *f) noexcept nogil:
    if changes_node(f.op) and enter(s, f.context) == cu.CUDA_SUCCESS:
        handlers[f.op](s, f)


cdef int make_executable(GraphExec *g) noexcept nogil:
    """As it is now, with what does not work."""
    cdef size_t i
    cdef int status = cu.cuGraphInstantiate(&g.exec, g.graph, g.flags)
    for i in range(g.nodes.size()):
        if g.nodes[0][i].off and not g.nodes[0][i].hollow and g.nodes[0][i].node != NULL:
            status = status or cu.cuGraphNodeSetEnabled(g.exec, g.nodes[0][i].node, 0)
    return status


cdef bint adds_node(uint16_t op) noexcept nogil:
    return op == GF_OP_sessionGraphKernel or op == GF_OP_sessionGraphRows or op == GF_OP_sessionGraphBox \
        or op == GF_OP_sessionGraphNode or op == GF_OP_sessionGraphBatch or op == GF_OP_sessionGraphPlace


cdef bint changes_node(uint16_t op) noexcept nogil:
    return op == GF_OP_sessionGraphSetKernel or op == GF_OP_sessionGraphSetRows or op == GF_OP_sessionGraphSetBox \
        or op == GF_OP_sessionGraphSetNode or op == GF_OP_sessionGraphSetBatch


cdef inline bint is_hollow(GraphExec *g, uint32_t node) noexcept nogil:
    return node < g.nodes.size() and g.nodes[0][node].hollow


cdef void try_again(Session *s, Object *object, Frame *f) noexcept nogil:
    """With a frame that made the graph or changed it, if it is about an empty node."""
    cdef GraphExec *g = <GraphExec *>object
    cdef uint32_t node
    if adds_node(f.op):
        g.tried += 1
        if is_hollow(g, g.tried - 1) and enter(s, f.context) == cu.CUDA_SUCCESS:
            add_in_place(s, f, g, g.tried - 1)
    elif changes_node(f.op):
        memcpy(&node, f.body + sizeof(uint64_t), sizeof(node))
        if is_hollow(g, node) and enter(s, f.context) == cu.CUDA_SUCCESS:
            handlers[f.op](s, f)


cdef void fill_hollow(Session *s) noexcept nogil:
    """What nodes name may have come after their graphs: memory that other processes have made. What has not is nowhere."""
    cdef GraphExec *g
    cdef size_t i
    s.graphs.complete = True
    for i in range(s.graphs.lacking.size()):
        g = <GraphExec *>find(s, s.graphs.lacking[0][i], GRAPH_EXEC)
        if g != NULL and g.hollow > 0:
            g.tried = 0
            do_again(s, &g.base, try_again)
    s.graphs.lacking.clear()


cdef int sessionGraphEdges_call(Session *s, Frame *f, gf_req_sessionGraphEdges *q, GraphExec *g,
                                const uint8_t *edges) noexcept nogil:
    cdef uint32_t made = 0
    cdef int status = may_add(s, g, <uint64_t>q.count * EDGE_COST)
    if status == cu.CUDA_SUCCESS:
        status = add_edges(g, edges, q.count, &made)
    charge_beside(s, g, <uint64_t>made * EDGE_COST)
    return status


cdef int add_edges(GraphExec *g, const uint8_t *edges, uint32_t count, uint32_t *made) noexcept nogil:
    """Those that come before one that cannot be, which is the driver's to say, are there."""
    cdef WireEdge edge
    cdef cu.CUgraphNode source, target
    cdef cu.CUgraph graph
    cdef uint32_t i
    cdef int status = cu.CUDA_SUCCESS
    for i in range(count):
        memcpy(&edge, edges + i * sizeof(WireEdge), sizeof(WireEdge))
        if edge.source >= g.nodes.size() or edge.target >= g.nodes.size():
            return cu.CUDA_ERROR_INVALID_VALUE
        source = g.nodes[0][edge.source].node
        target = g.nodes[0][edge.target].node
        graph = g.graphs[0][g.nodes[0][edge.source].graph]
        if g.nodes[0][edge.source].graph != g.nodes[0][edge.target].graph or graph == NULL or source == NULL or target == NULL:
            return cu.CUDA_ERROR_INVALID_VALUE
        if g.nodes[0][edge.source].hollow or g.nodes[0][edge.target].hollow:
            memset(&edge.data, 0, sizeof(edge.data))        # others begin and end at kernels alone
        status = cu.cuGraphAddDependencies(graph, &source, &target, &edge.data, 1)
        if status != cu.CUDA_SUCCESS:
            return status
        made[0] += 1
    return status


cdef int sessionGraphReady_call(Session *s, Frame *f, gf_req_sessionGraphReady *q, GraphExec *g) noexcept nogil:
    cdef int status
    if g.ready:
        return cu.CUDA_ERROR_INVALID_VALUE
    g.flags = q.flags
    status = make_executable(g)
    g.ready = status == cu.CUDA_SUCCESS
    return status


cdef int sessionGraphLaunch_call(Session *s, Frame *f, gf_req_sessionGraphLaunch *q, GraphExec *g,
                                 Stream *stream) noexcept nogil:
    cdef Event *event = NULL
    cdef size_t i
    cdef int status = cu.CUDA_SUCCESS
    if not g.ready:
        return cu.CUDA_ERROR_INVALID_VALUE
    if g.exec == NULL:
        status = enter(s, g.base.context) or make_executable(g) or enter(s, f.context)
    if status == cu.CUDA_SUCCESS and stream == f.context.legacy and f.context.uncovered:
        status = note_copies(s, f.context)
    s.stats.launches += 1
    note_work(s)
    expect_output(s)
    status = status or cu.cuGraphLaunch(g.exec, stream.cu)
    for i in range(g.records.size()):
        if status == cu.CUDA_SUCCESS and find_event(s, f, g.nodes[0][g.records[0][i]].event, &event) == cu.CUDA_SUCCESS:
            event.recorded = True
            event.aged = False
    return status

# Conditional nodes of executable graphs (WIRE.md 13). They are there from when the program adds them, for their bodies
# are graphs of the driver, in which values are made; all other nodes come when the graph becomes executable, and go with
# what was made executable. A kernel is given the driver's own value, so after a move the driver must give the same one
# again, as with textures.

cdef enum:
    NESTED_MOST = 64            # conditional nodes within one another


cdef inline cu.CUgraph part_of(GraphExec *g, uint32_t graph) noexcept nogil:
    """The graph itself, or a body within it; NULL: none."""
    return g.graphs[0][graph] if graph < g.graphs.size() else NULL


# Values

cdef int make_condition(GraphExec *g, cu.CUgraph graph, gf_req_sessionGraphCondition *q,
                        cu.CUgraphConditionalHandle *value) noexcept nogil:
    return cu.cuGraphConditionalHandleCreate(value, graph, g.base.context.cu, q.initial, q.flags)


cdef void give_up_condition_filler(Session *s, uint64_t value) noexcept nogil:
    cdef size_t i
    for i in range(s.graphs.fillers.size()):
        if s.graphs.fillers[0][i].value == value:
            cu.cuGraphDestroy(s.graphs.fillers[0][i].graph)
            s.graphs.fillers[0][i] = s.graphs.fillers.back()
            s.graphs.fillers.pop_back()
            return


cdef void drop_condition_fillers(Session *s) noexcept nogil:
    cdef size_t i
    for i in range(s.graphs.fillers.size()):
        cu.cuGraphDestroy(s.graphs.fillers[0][i].graph)
    s.graphs.fillers.clear()


cdef int make_condition_filler(Session *s, GraphExec *g, gf_req_sessionGraphCondition *q,
                               ConditionFiller *filler) noexcept nogil:
    """A value in a graph of its own."""
    cdef int status = cu.cuGraphCreate(&filler.graph, 0)
    if status != cu.CUDA_SUCCESS:
        return status
    status = make_condition(g, filler.graph, q, &filler.value)
    if status != cu.CUDA_SUCCESS:
        cu.cuGraphDestroy(filler.graph)
    s.graphs.last = filler.value
    return status


cdef int learn_numbering(Session *s, GraphExec *g, gf_req_sessionGraphCondition *q) noexcept nogil:
    """Whether the driver gives a value that was given up again, and if not, which one comes next. Each session does so
    before its first value, wherever it is: so the next value is the same there, if nothing else is different."""
    cdef ConditionFiller one
    cdef ConditionFiller other
    cdef int status
    if s.graphs.numbering_known:
        return cu.CUDA_SUCCESS
    status = make_condition_filler(s, g, q, &one)
    if status != cu.CUDA_SUCCESS:
        return status
    cu.cuGraphDestroy(one.graph)
    status = make_condition_filler(s, g, q, &other)
    if status != cu.CUDA_SUCCESS:
        return status
    cu.cuGraphDestroy(other.graph)
    s.graphs.step = other.value - one.value
    s.graphs.numbering_known = True
    return status


cdef int clear_way(Session *s, GraphExec *g, gf_req_sessionGraphCondition *q) noexcept nogil:
    """Makes values, each in a graph of its own, until the wanted one would be next. Of a driver that gives the lowest, that
    is when it came and is given up again; of one that only counts on, when the one before it came. Where it does not come,
    whoever asks finds another one, and the move is refused."""
    cdef ConditionFiller filler
    cdef int status
    give_up_condition_filler(s, q.wanted)
    while s.graphs.fillers.size() < FILLER_LIMIT:
        if s.graphs.step != 0 and (s.graphs.last + s.graphs.step == q.wanted or s.graphs.last >= q.wanted):
            return cu.CUDA_SUCCESS
        status = make_condition_filler(s, g, q, &filler)
        if status != cu.CUDA_SUCCESS:
            return status
        if s.graphs.step == 0 and filler.value == q.wanted:
            cu.cuGraphDestroy(filler.graph)
            return status
        s.graphs.fillers.push_back(filler)
    return cu.CUDA_SUCCESS


cdef int on_sessionGraphCondition(Session *s, Frame *f, gf_req_sessionGraphCondition *q,
                                  gf_rep_sessionGraphCondition *out, GraphExec *g) noexcept nogil:
    """The value goes into the frame that is kept: the next server is to give it again."""
    cdef cu.CUgraph graph = part_of(g, q.graph)
    cdef cu.CUgraphConditionalHandle value = 0
    cdef Condition condition
    cdef int status
    if graph == NULL or (q.wanted != 0 and not s.arrival.restoring):
        return cu.CUDA_ERROR_INVALID_VALUE
    status = may_hold(s, NODE_COST) or enter(s, g.base.context) or learn_numbering(s, g, q)
    if status == cu.CUDA_SUCCESS and q.wanted != 0:
        status = clear_way(s, g, q)
    status = status or make_condition(g, graph, q, &value)
    if status != cu.CUDA_SUCCESS:
        return status
    s.graphs.last = value
    if q.wanted != 0 and value != q.wanted:
        return cu.CUDA_ERROR_NOT_FOUND
    condition.value = value
    condition.used = False
    g.conditions.push_back(condition)
    charge_nodes(s, g, 1)
    q.wanted = value
    out.value = value
    return cu.CUDA_SUCCESS


# Nodes

cdef Condition *unused_condition(GraphExec *g, uint64_t value) noexcept nogil:
    cdef size_t i
    for i in range(g.conditions.size()):
        if g.conditions[0][i].value == value and not g.conditions[0][i].used:
            return &g.conditions[0][i]
    return NULL


cdef uint32_t depth_of(GraphExec *g, uint32_t graph) noexcept nogil:
    """Of the conditional node whose body it is."""
    cdef size_t i
    for i in range(g.conditionals.size()):
        if g.conditionals[0][i].first <= graph < g.conditionals[0][i].first + g.conditionals[0][i].bodies:
            return g.conditionals[0][i].depth
    return 0


cdef int sessionGraphConditional_call(Session *s, Frame *f, gf_req_sessionGraphConditional *q,
                                      GraphExec *g) noexcept nogil:
    cdef cu.CUgraphNodeParams params
    cdef Conditional made
    cdef cu.CUgraph graph = part_of(g, q.graph)
    cdef Condition *condition = unused_condition(g, q.value)
    cdef uint32_t i
    cdef int status
    made.depth = depth_of(g, q.graph) + 1
    if graph == NULL or condition == NULL or made.depth > NESTED_MOST:
        return cu.CUDA_ERROR_INVALID_VALUE
    status = may_hold(s, (1 + <uint64_t>q.size) * NODE_COST) or enter(s, g.base.context)
    if status != cu.CUDA_SUCCESS:
        return status
    memset(&params, 0, sizeof(params))
    params.type = cu.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle = q.value
    params.conditional.type = <cu.CUgraphConditionalNodeType>q.type
    params.conditional.size = q.size
    params.conditional.ctx = g.base.context.cu
    status = cu.cuGraphAddNode(&made.node, graph, NULL, NULL, 0, &params)
    if status != cu.CUDA_SUCCESS:
        return status
    condition.used = True
    made.graph = q.graph
    made.first = <uint32_t>g.graphs.size()
    made.bodies = q.size
    g.conditionals.push_back(made)
    for i in range(q.size):
        g.graphs.push_back(params.conditional.phGraph_out[i])
    charge_nodes(s, g, 1 + q.size)
    return cu.CUDA_SUCCESS


cdef void forget_bodies(GraphExec *g, Conditional *conditional) noexcept nogil:
    cdef uint32_t i
    conditional.node = NULL
    for i in range(conditional.first, conditional.first + conditional.bodies):
        g.graphs[0][i] = NULL


cdef int sessionGraphDropConditional_call(Session *s, Frame *f, gf_req_sessionGraphDropConditional *q,
                                          GraphExec *g) noexcept nogil:
    """With it goes what is within. Inner ones come behind the outer one in the list."""
    cdef cu.CUgraphNode node
    cdef size_t i
    if q.conditional >= g.conditionals.size() or g.conditionals[0][q.conditional].node == NULL:
        return cu.CUDA_ERROR_INVALID_VALUE
    node = g.conditionals[0][q.conditional].node
    forget_bodies(g, &g.conditionals[0][q.conditional])
    for i in range(q.conditional, g.conditionals.size()):
        if g.graphs[0][g.conditionals[0][i].graph] == NULL:
            forget_bodies(g, &g.conditionals[0][i])
    for i in range(g.nodes.size()):
        if g.nodes[0][i].node == node or g.graphs[0][g.nodes[0][i].graph] == NULL:
            g.nodes[0][i].node = NULL
    return cu.cuGraphDestroyNode(node)


cdef int sessionGraphEnter_call(Session *s, Frame *f, gf_req_sessionGraphEnter *q, GraphExec *g) noexcept nogil:
    if g.ready or part_of(g, q.graph) == NULL:
        return cu.CUDA_ERROR_INVALID_VALUE
    g.current = q.graph
    return cu.CUDA_SUCCESS


cdef int sessionGraphPlace_call(Session *s, Frame *f, gf_req_sessionGraphPlace *q, GraphExec *g) noexcept nogil:
    """The next node is one that is there already."""
    cdef Place place
    cdef int status = may_add(s, g, NODE_COST)
    if status != cu.CUDA_SUCCESS:
        return status
    if q.conditional >= g.conditionals.size() or g.conditionals[0][q.conditional].node == NULL \
            or g.conditionals[0][q.conditional].graph != g.current:
        return cu.CUDA_ERROR_INVALID_VALUE
    place.node = g.conditionals[0][q.conditional].node
    place.graph = g.current
    place.conditional = True
    place.hollow = False
    place.off = False
    g.nodes.push_back(place)
    charge_nodes(s, g, 1)
    return cu.CUDA_SUCCESS


# Again as it was before it became executable

cdef int cut_off(GraphExec *g, Place *place) noexcept nogil:
    """Removes what a conditional node depends on."""
    cdef cu.CUgraphNode *sources
    cdef cu.CUgraphEdgeData *data
    cdef size_t count = 0
    cdef size_t i
    cdef int status = cu.cuGraphNodeGetDependencies(place.node, NULL, NULL, &count)
    if status != cu.CUDA_SUCCESS or count == 0:
        return status
    sources = <cu.CUgraphNode *>malloc(count * sizeof(cu.CUgraphNode))
    data = <cu.CUgraphEdgeData *>malloc(count * sizeof(cu.CUgraphEdgeData))
    status = cu.CUDA_ERROR_OUT_OF_MEMORY
    if sources != NULL and data != NULL:
        status = cu.cuGraphNodeGetDependencies(place.node, sources, data, &count)
    for i in range(count):
        status = status or cu.cuGraphRemoveDependencies(
            g.graphs[0][place.graph], &sources[i], &place.node, &data[i], 1)
    free(sources)
    free(data)
    return status


cdef bint outlives_executable(Session *s, uint16_t op, const uint8_t *body) noexcept nogil:
    return op == GF_OP_sessionGraphBegin or op == GF_OP_sessionGraphCondition \
        or op == GF_OP_sessionGraphConditional or op == GF_OP_sessionGraphDropConditional


cdef int sessionGraphRewind_call(Session *s, Frame *f, gf_req_sessionGraphRewind *q, GraphExec *g) noexcept nogil:
    cdef size_t i
    cdef int status = enter(s, g.base.context)
    if g.exec != NULL:
        status = cu.cuGraphExecDestroy(g.exec) or status
        g.exec = NULL
    g.ready = False
    g.hollow = 0
    for i in range(g.nodes.size()):
        if g.nodes[0][i].node != NULL and g.nodes[0][i].conditional:
            status = cut_off(g, &g.nodes[0][i]) or status
    for i in range(g.nodes.size()):
        if g.nodes[0][i].node != NULL and not g.nodes[0][i].conditional:
            status = cu.cuGraphDestroyNode(g.nodes[0][i].node) or status
    charge_nodes(s, g, -<int64_t>g.nodes.size())
    refund_beside(s, g)
    g.nodes.clear()
    g.records.clear()
    g.current = 0
    forget_kept(s, &g.base, outlives_executable)
    follow(s, f)
    return status

/* One graph compiled: plan, kernels as loops, kernels as text, kernels as code; then what depends on constants only is run. See instance.c for runs. */
#include "api/segment.h"

#include <stdio.h>
#include <string.h>

const Node *part_reads(const Segment *s, int part, const Node *n)
{
    for (int i = 0; i < part; i++) if (s->part[i].packs && s->part[i].sub->store[0].node == n) return n->in[0];
    return n;
}

/* Kernels between which each node lives in memory. */
static void find_lives(Segment *s)
{
    int n = s->g->node.n;
    s->first = NEWS(s->arena, int, n + 1);
    s->last = NEWS(s->arena, int, n + 1);
    for (int i = 0; i < n; i++) s->first[i] = s->last[i] = -1;
    for (int i = 0; i < s->npart; i++) {
        const Part *p = &s->part[i];
        const Joint *t = p->joint;      /* all of a launch live from its beginning to its end */
        int begin = t ? t->member[0] : i, end = t ? t->member[0] + t->n - 1 : i;
        for (int k = 0; !p->loops && k < p->sub->nnode; k++) {
            const Node *x = p->sub->node[k];
            if (x->op == OP_part) { s->first[x->id] = i; if (s->last[x->id] < i) s->last[x->id] = i; }
            else for (int j = 0; j < x->nin; j++) s->last[x->in[j]->id] = i;
        }
        for (int k = 0; p->loops && k < p->loops->buf.n; k++) {
            const KBuf *b = &p->loops->buf.at[k];
            if (b->scratch) continue;
            if (s->first[b->node->id] < 0 && b->write) s->first[b->node->id] = begin;
            if (s->last[b->node->id] < end) s->last[b->node->id] = end;
            if (s->opt.check && s->last[part_reads(s, i, b->node)->id] < end) s->last[part_reads(s, i, b->node)->id] = end;     /* what the interpreter will read */
        }
    }
    for (int i = 0; i < s->g->output.n; i++) s->last[s->g->output.at[i].node->id] = s->npart;
}

/* Which results take over the memory of an operand that is read there for the last time. */
static void find_shares(Segment *s)
{
    int n = s->g->node.n;
    bool *taken = NEWS(s->arena, bool, n + 1);
    s->share = NEWS(s->arena, int, n + 1);
    for (int i = 0; i < n; i++) s->share[i] = -1;
    if (s->opt.check) return;           /* a check compares after each kernel and wants everything apart */
    for (int i = 0; i < s->npart; i++) {
        const LoopKernel *k = s->part[i].loops;
        if (in_library(&s->part[i])) continue;       /* it may keep partial sums in its result */
        for (int o = 0; k && !s->part[i].once && !s->part[i].joint && o < k->buf.n; o++) {
            const KBuf *to = &k->buf.at[o];
            if (to->scratch || !to->write || s->first[to->node->id] != i || segment_is_output(s, to->node) || kernel_rows_meet(k, o)) continue;
            for (int j = 0; j < k->buf.n; j++) {
                const KBuf *from = &k->buf.at[j];
                if (j == o || from->scratch || from->write || taken[from->node->id] || s->last[from->node->id] != i || s->first[from->node->id] < 0) continue;
                if (segment_is_output(s, from->node) || s->part[s->first[from->node->id]].once || !kernel_may_alias(k, j, o)) continue;
                s->share[to->node->id] = from->node->id;
                taken[from->node->id] = true;
                break;
            }
        }
    }
}

static void part_add(Ctx *cx, Segment *s, const Subgraph *sub, LoopKernel *k, bool once, const char *structure)
{
    Part *p = &s->part[s->npart];
    *p = (Part){ .sub = sub, .once = once, .loops = k };
    if (k) {
        s->target->dialect->print(cx, s->arena, s->target->isa, k, &p->src);
        log_line(cx, 4, "%s", p->src.text);
    }
    if (k && sub->kind == SUB_dot && !once && s->target->api->lib) p->lib = library_form(s->arena, s->g, sub, &p->lib_note);
    p->structure = structure ? structure : k ? p->src.name : sub->node[0]->call->def->name;
    for (int j = 0; j < s->npart && !p->join_mate; j++)
        if (sub->nstore == 1 && sub->nnode == 0 && s->part[j].sub->nstore && s->part[j].sub->nnode == 0 && s->part[j].sub->store[0].into == sub->store[0].into)
            p->join_mate = &s->part[j];
    s->npart++;
}

/* An operand that a contraction wants in another order, or in panels: a kernel before it copies it into a node of its own. */
static void add_packing(Ctx *cx, Segment *s, LoopKernel *k, KBuf *b)
{
    Graph *g = s->g;
    Node *n = (Node *)b->node;
    int rank = n->rank + (b->panel > 0);
    Dim *dims[MAX_RANK + 1], *idx[MAX_RANK];
    Dim **point = NEWS(s->arena, Dim *, rank + 1);
    ASSERT(rank <= MAX_RANK);
    for (int j = 0; j < n->rank; j++) {
        int i = b->order[j], to = j + (b->panel > 0);
        dims[to] = n->dims[i];
        idx[i] = dim_idx(g, to, n->dims[i]);
    }
    Pred inside = { NULL, NULL };
    if (b->panel) {                      /* [blocks, other axes, columns of a block] */
        int axis = b->order[n->rank - 1];
        Dim *columns = dim_const(g, b->panel);
        dims[0] = dim_ceildiv(g, n->dims[axis], columns);
        dims[rank - 1] = columns;
        idx[axis] = dim_add(g, dim_mul(g, dim_idx(g, 0, dims[0]), columns), dim_idx(g, rank - 1, columns));
        inside = (Pred){ idx[axis], n->dims[axis] };
    }
    g->cur_origin = k->sub->node[0]->origin;
    /* not g_transpose: it would look through a view that is stored. The fill, which nothing reads, keeps it apart from equal views of the graph. */
    Node proto = { .op = OP_view, .dt = n->dt, .rank = rank, .dims = dims, .nin = 1, .in = &n, .view = { .nidx = n->rank, .idx = idx, .fill = { .i = 0x7061636b } } };
    if (b->panel && !dim_prove_lt(g, inside.e, inside.n)) { proto.view.npred = 1; proto.view.pred = &inside; proto.view.fill = (Scalar){ 0 }; }
    Node *v = graph_add(g, &proto);
    int count = g->node.n + 1, *home = NEWS(s->arena, int, count);
    uint8_t *none = NEWS(s->arena, uint8_t, count);
    for (int i = 0; i < count; i++) home[i] = HOME_memory;
    Subgraph *sub = NEW(s->arena, Subgraph);
    home[v->id] = sub->id = 0;
    for (int i = 0; i < v->rank; i++) point[i] = dim_idx(g, SPACE_VAR + i, v->dims[i]);
    SubStore *store = NEW(s->arena, SubStore);
    *store = (SubStore){ v, v, point, point };
    Node **node = NEW(s->arena, Node *);
    *node = v;
    *sub = (Subgraph){ .kind = SUB_map, .rank = v->rank, .space = v->dims, .nnode = 1, .node = node, .nstore = 1, .store = store, .home = home, .stored = none, .constant = none };
    sub->iter = arena_alloc(s->arena, sizeof *sub->iter * (size_t)count);
    b->node = v;
    b->packed = false;
    for (int i = 0; i < s->npart; i++) if (s->part[i].loops && s->part[i].sub->nstore && s->part[i].sub->store[0].node == v) return;     /* there already */
    part_add(cx, s, sub, kernel_lower(cx, s->arena, g, sub, s->target->vectors), false, NULL);
    s->part[s->npart - 1].packs = true;
}

static void print_kernels(Ctx *cx, Segment *s)
{
    int most = s->plan->nkernel;
    for (int i = 0; i < s->plan->nkernel; i++) {
        const Subgraph *sub = &s->plan->kernel[i];
        ctx_poll(cx);
        const char *structure = NULL;
        LoopKernel *k = sub->kind == SUB_call ? NULL : tuned_lower(cx, s, sub, &structure);
        int packs = 0;
        for (int j = 0; k && j < k->buf.n; j++) packs += k->buf.at[j].packed && !sub->constant[k->buf.at[j].node->id];
        if (s->npart + packs + (s->plan->nkernel - i) > most) {
            most += 64 + packs;
            Part *more = NEWS(s->arena, Part, most + 1);
            memcpy(more, s->part, sizeof *more * (size_t)s->npart);
            for (int j = 0; j < s->npart; j++) if (more[j].join_mate) more[j].join_mate = &more[more[j].join_mate - s->part];
            s->part = more;
        }
        for (int j = 0; packs && j < k->buf.n; j++) if (k->buf.at[j].packed && !sub->constant[k->buf.at[j].node->id]) add_packing(cx, s, k, &k->buf.at[j]);
        part_add(cx, s, sub, k, s->plan->once[i], structure);
        for (int j = 0; k && j < k->limit.n; j++) vec_push(s->arena, &s->limit, k->limit.at[j]);
    }
}

static bool is_built(const Segment *s, int part) { return s->part[part].loops && !joined_before(s, part) && (s->part[part].once || !s->target->ahead) && s->target->device; }

/* In the background, if that is allowed and something must be compiled. */
static void build_kernels(Ctx *cx, Segment *s)
{
    int n = s->npart, m = 0;
    KernelText *text = s->text = NEWS(s->arena, KernelText, n + 1);
    const Kernel **out = s->out = NEWS(s->arena, const Kernel *, n + 1);
    for (int i = 0; i < n; i++)
        if (is_built(s, i)) {
            const KernelSource *src = s->part[i].joint ? &s->part[i].joint->src : &s->part[i].src;
            text[m++] = (KernelText){ .name = src->name, .text = src->code, .cost = s->part[i].loops->cost, .quick = src->quick, .note = &s->part[i].note };
        }
    s->ntext = m;
    if (!m) return;
    RtError e = { .launch = -1 };
    const DeviceApi *api = s->target->api;
    bool later = s->opt.background && api->find && !s->opt.check;
    Status st = later ? api->find(s->target->device, s->target->prelude, m, text, out, &s->times.build, &e)
                      : api->build(s->target->device, s->target->prelude, m, text, out, &s->times.build, cx->cancel, &e);
    if (st == E_COMPILE && later) {
        s->build_error = e;
        atomic_store(&s->state, SEG_failed);
    } else if (st != E_OK) segment_raise(cx, NULL, &e);
    else if (s->times.build.missing) atomic_store(&s->state, SEG_compiling);
}

/* What needs code: constants that kernels compute, and addresses. */
static void segment_finish(Ctx *cx, void *arg)
{
    Segment *s = arg;
    arena_bind(s->arena, cx);
    for (int i = 0, m = 0; i < s->npart; i++) if (is_built(s, i)) s->part[i].built = s->out[m++];
    s->fixed = NEWS(s->arena, void *, s->g->node.n + 1);     /* packing added nodes */
    find_lives(s);
    find_shares(s);
    segment_run_once(cx, s);
    library_settle(cx, s);
    segment_pack(cx, s);
}

bool segment_ready(Ctx *cx, Segment *s)
{
    int state = atomic_load_explicit(&s->state, memory_order_acquire);
    if (state == SEG_made) return true;
    if (state != SEG_compiled) return false;
    pthread_mutex_lock(&s->lock);       /* another thread may be about it */
    Status st = E_OK;
    if (atomic_load(&s->state) == SEG_compiled) {
        st = guard_call(cx, segment_finish, s);
        s->build_error = (RtError){ .code = st, .launch = -1 };
        if (st != E_OK) snprintf(s->build_error.text, sizeof s->build_error.text, "%.1000s", cx->text);
        atomic_store_explicit(&s->state, st == E_OK ? SEG_made : SEG_failed, memory_order_release);
    }
    pthread_mutex_unlock(&s->lock);
    if (st != E_OK) fail_again(cx);
    return atomic_load(&s->state) == SEG_made;
}

void segment_settle(Ctx *cx, Segment *s)
{
    if (segment_ready(cx, s)) return;
    if (atomic_load(&s->state) == SEG_failed) segment_raise(cx, NULL, &s->build_error);
    fail(cx, E_DEVICE, "kernels were being compiled when the process was copied by fork()");
}

static void try_kernels(Ctx *cx, void *arg)
{
    print_kernels(cx, arg);
    segment_join(cx, arg);
}

typedef struct SegmentMaking { Arena *a; const Target *t; Graph *g; const ProgramOptions *o; Segment *s; } SegmentMaking;

/* As measurements say: unfused, or without a rule. */
static void plan_again(Ctx *cx, Segment *s, const char *cut)
{
    const char *off = cx->opt.off;
    bool fuse = strncmp(cut, "off=", 4) == 0;
    if (fuse) cx->opt.off = off && off[0] ? arena_fmt(s->arena, "%s,%s", off, cut + 4) : cut + 4;
    s->plan = plan_make(cx, s->arena, s->g, s->target->rules, fuse, s->target->vectors.lanes != LANES_simt);
    cx->opt.off = off;
    s->part = NEWS(s->arena, Part, s->plan->nkernel + 1);
    s->npart = s->limit.n = 0;
}

Plan *segment_plan(Ctx *cx, Arena *a, const Target *t, Graph *g, const ProgramOptions *o, int *rewrites)
{
    Refusals apart = { 0 };
    Receipts states = { 0 };
    if (t->vectors.lanes == LANES_simt && !list_has(cx->opt.off, "calls")) calls_choose(cx, a, g);
    if (o->fuse) {
        graph_rewrite(cx, a, g, t->rules, rewrites);
        if (!list_has(cx->opt.off, "joins")) joins_choose(cx, a, g);
        if (!list_has(cx->opt.off, "gathers")) gathers_choose(cx, a, g);
        if (t->vectors.lanes != LANES_simt && !list_has(cx->opt.off, "siblings")) siblings_choose(cx, a, g, SIBLING_BYTES, &apart);
        if (!list_has(cx->opt.off, "integers")) integers_choose(cx, a, g, t->vectors.dots & DOT_quads);
        if (!list_has(cx->opt.off, "narrow")) narrow_choose(cx, a, g, t->vectors.dots, rules_leave(cx, cx->opt.allow) & RULE_BF16);
        if (!list_has(cx->opt.off, "shuffle")) shuffles_choose(cx, a, g);
        if (t->vectors.lanes > 1 && !(rules_leave(cx, cx->opt.allow) & RULE_FLUSH) && !list_has(cx->opt.off, "tiny")) tiny_choose(cx, a, g, t->vectors.lanes);
        if (t->vectors.lanes > 1 && !list_has(cx->opt.off, "layout")) layout_choose(cx, a, g, t->vectors.lanes);
        if (t->vectors.lanes > 1 && rules_leave(cx, cx->opt.allow) & RULE_WINOGRAD && !list_has(cx->opt.off, "winograd")) winograd_choose(cx, a, g, 0, &apart);
    }
    if (o->fuse && t->vectors.lanes != LANES_simt && !list_has(cx->opt.off, "states")) states_choose(cx, a, g, &states, &apart);
    if (o->fuse && t->vectors.lanes != LANES_simt && !list_has(cx->opt.off, "split")) cascades_split(cx, a, g);
    if (!list_has(cx->opt.off, "parts")) parts_choose(cx, a, g, t->vectors.lanes == LANES_simt, !t->vectors.waits);
    if (o->check) graph_check(cx, g);
    Plan *plan = plan_make(cx, a, g, t->rules, o->fuse, t->vectors.lanes != LANES_simt);
    for (int i = 0; i < apart.n; i++) vec_push(a, &plan->refusal, apart.at[i]);
    for (int i = 0; i < states.n; i++) vec_push(a, &plan->receipt, states.at[i]);
    return plan;
}

static void segment_make(Ctx *cx, void *arg)
{
    SegmentMaking *mk = arg;
    Arena *a = mk->a;
    Graph *g = mk->g;
    Segment *s = NEW(a, Segment);
    s->arena = a; s->target = mk->t; s->g = g; s->opt = *mk->o;
    pthread_mutex_init(&s->lock, NULL);
    mk->s = s;
    double t0 = time_now();
    if (mk->o->fuse) s->rewrites = NEWS(a, int, rules_count(mk->t->rules) + 1);
    s->plan = segment_plan(cx, a, mk->t, g, mk->o, s->rewrites);
    s->part = NEWS(a, Part, s->plan->nkernel + 1);
    s->last_syms = NEWS(a, int64_t, g->sym.n + 1);
    double t1 = time_now();
    segment_tell(cx, s);
    Status st = guard_call(cx, try_kernels, s);
    const char *cut = st == E_OK ? tuned_cut(cx, s) : NULL;
    if (cut) {
        plan_again(cx, s, cut);
        st = guard_call(cx, try_kernels, s);
    }
    bool empty = false;
    for (int i = 0; i < s->limit.n; i++) empty |= dim_is(s->limit.at[i], 0);
    if (st == E_OK && empty) {
        s->interpreted = true;
        s->interpreted_why = "an axis without elements is indexed";
        s->npart = 0;
    } else if (st == E_UNSUPPORTED) {          /* a dtype that kernels cannot spell: the interpreter is slow, and right */
        s->interpreted = true;
        s->interpreted_why = arena_str(a, cx->text);
        s->npart = 0;
    } else if (st != E_OK) fail_again(cx);
    segment_tell_kernels(cx, s);
    double t2 = time_now();
    build_kernels(cx, s);
    double t3 = time_now();
    if (atomic_load(&s->state) == SEG_made) segment_finish(cx, s);
    s->times.plan_s = t1 - t0; s->times.print_s = t2 - t1; s->times.build_s = t3 - t2;
    log_line(cx, 1, "segment: %d nodes, %d kernels; plan %.1f ms, print %.1f ms, build %.1f ms (%d compiled, %d from disk, %d being compiled)", g->node.n, s->npart,
        1e3 * (t1 - t0), 1e3 * (t2 - t1), 1e3 * (t3 - t2), s->times.build.compiled, s->times.build.from_disk, s->times.build.missing);
}

Segment *segment_new(Ctx *cx, const Target *t, Graph *g, const ProgramOptions *o)
{
    SegmentMaking mk = { arena_new(cx), t, g, o, NULL };
    if (guard_call(cx, segment_make, &mk) == E_OK) {
        if (atomic_load(&mk.s->state) == SEG_compiling) background_add(o->background, mk.s);
        return mk.s;
    }
    if (mk.s) segment_free(mk.s);
    else arena_free(mk.a);
    fail_again(cx);
}

void segment_free(Segment *s)
{
    if (!s) return;
    if (atomic_load(&s->state) == SEG_compiling) background_drop(s->opt.background, s);
    while (s->idle) { Instance *x = s->idle; s->idle = x->next; instance_free(s, x); }
    for (int i = 0; i < s->npart; i++) lib_free(s->part[i].lib_run);
    for (Packed *p = s->packed; p; p = p->next) block_free(p->data);
    if (s->upload_block) s->target->api->release(s->target->device, s->upload_block);
    if (s->once_block) s->target->api->release(s->target->device, s->once_block);
    pthread_mutex_destroy(&s->lock);
    arena_free(s->arena);
}

bool segment_serves(Ctx *cx, Arena *scratch, const Segment *s, const Tensor *in, int64_t *syms, const char **why)
{
    const Graph *g = s->g;
    for (int i = 0; i < g->input.n; i++) {
        const Node *n = g->input.at[i].node;
        bool same = n->dt == in[i].dt && n->rank == in[i].rank;
        for (int k = 0; same && k < n->rank; k++) same = !dim_is_const(n->dims[k]) || n->dims[k]->c == in[i].dims[k];
        if (!same) { *why = arena_fmt(scratch, "input '%s' has another dtype or size", g->input.at[i].name); return false; }
    }
    return host_bind(cx, scratch, g, in, syms, why);
}

int segment_kernels(const Segment *s) { return s->npart; }
int segment_outputs(const Segment *s) { return s->g->output.n; }
int segment_symbols(const Segment *s) { return s->g->sym.n; }

/* What a compiled segment has to show: its kernels with their operators, logical traffic and times; what was not fused and why; its guards. */
#include "api/segment.h"

#include <string.h>

const char *const sub_kind_name[SUB_COUNT] = { "map", "rows", "dot", "stream", "scan", "scatter", "call" };

static const char *made_from(Arena *a, const Origin *o) { return o->name && *o->name ? arena_fmt(a, "%s %s", o->op, o->name) : o->op; }

static const char *operator_name(Arena *a, const Segment *s, const Node *n)
{
    const Origin *o = &s->g->origin.at[n->origin];
    return o->op ? made_from(a, o) : prim_info[n->op].name;
}

static void kernel_operators(Arena *a, const Segment *s, const Part *p, KernelEvidence *k)
{
    VEC(const char *) names = { 0 };
    int *seen = NEWS(a, int, s->g->origin.n + 1);
    for (int i = 0; i < p->sub->nnode + p->sub->nstore; i++) {
        const Node *n = i < p->sub->nnode ? p->sub->node[i] : p->sub->store[i - p->sub->nnode].into;
        const Origin *o = &s->g->origin.at[n->origin];
        for (int j = 0; j < o->nalso; j++) if (!seen[o->also[j]]++) vec_push(a, &names, made_from(a, &s->g->origin.at[o->also[j]]));
        if (seen[n->origin]++ || o->nalso) continue;
        vec_push(a, &names, operator_name(a, s, n));
    }
    k->node = names.at;
    k->nnode = names.n;
}

/* Views that a kernel reads through, or that others see its results through. */
static void kernel_moves(Arena *a, const Segment *s, const Part *p, KernelEvidence *k)
{
    VEC(const char *) names = { 0 };
    const Graph *g = s->g;
    uint8_t *own = NEWS(a, uint8_t, g->node.n + 1), *seen = NEWS(a, uint8_t, g->origin.n + 1);
    for (int i = 0; i < p->sub->nnode + p->sub->nstore; i++) {
        const Node *n = i < p->sub->nnode ? p->sub->node[i] : p->sub->store[i - p->sub->nnode].node;
        own[n->id] |= 1;
        seen[n->origin] = 1;
        for (int j = 0; j < n->nin; j++) own[n->in[j]->id] |= 2;
        if (i >= p->sub->nnode) own[n->id] |= 2;     /* a copy may be of a view */
    }
    for (int id = g->node.n - 1; id >= 0; id--) {
        const Node *v = g->node.at[id];
        if (v->op != OP_view || !v->origin || seen[v->origin] || !((own[id] & 2) || (own[v->in[0]->id] & 1))) continue;
        seen[v->origin] = 1;
        vec_push(a, &names, operator_name(a, s, v));
    }
    k->move = names.at;
    k->nmove = names.n;
}

static bool reads_node(const Part *p, const Node *v)
{
    for (int i = 0; p->loops && i < p->loops->buf.n; i++) if (p->loops->buf.at[i].node == v && p->loops->buf.at[i].read && !p->loops->buf.at[i].scratch) return true;
    for (int i = 0; !p->loops && i < p->sub->node[0]->nin; i++) if (p->sub->node[0]->in[i] == v) return true;
    return false;
}

/* The kernels that compute what it reads. */
static void kernel_from(Arena *a, const Segment *s, int at, KernelEvidence *k)
{
    VEC(int) from = { 0 };
    for (int i = 0; i < s->npart; i++) {
        bool reads = false;
        const Part *w = &s->part[i];
        if (i == at || w->once) continue;
        for (int j = 0; w->loops && j < w->loops->buf.n; j++) reads |= !w->loops->buf.at[j].scratch && w->loops->buf.at[j].write && reads_node(&s->part[at], w->loops->buf.at[j].node);
        for (int j = 1; !w->loops && j < w->sub->nnode; j++) reads |= reads_node(&s->part[at], w->sub->node[j]);
        if (reads) vec_push(a, &from, i);
    }
    k->from = from.at;
    k->nfrom = from.n;
}

/* Bytes that a kernel's buffers hold: each once, what it reads and what it writes. A piece of a join counts with what it writes. */
static void kernel_traffic(const Part *p, const int64_t *syms, KernelEvidence *k)
{
    if (!p->loops) {
        const Node *call = p->sub->node[0];
        for (int i = 0; i < call->nin; i++) k->read_bytes += node_bytes(call->in[i], syms);
        for (int i = 1; i < p->sub->nnode; i++) k->write_bytes += node_bytes(p->sub->node[i], syms);
        return;
    }
    for (int i = 0; i < p->loops->buf.n; i++) {
        const KBuf *b = &p->loops->buf.at[i];
        if (b->scratch || b->write) continue;
        k->read_bytes += node_bytes(b->node, syms);
    }
    for (int i = 0; i < p->sub->nstore; i++) {
        const SubStore *w = &p->sub->store[i];
        k->write_bytes += node_bytes(p->sub->kind == SUB_scatter ? w->node->in[1] : w->node, syms);
    }
}

void segment_evidence(Ctx *cx, Arena *a, Segment *s, const double *seconds, SegmentEvidence *e)
{
    const Graph *g = s->g;
    int64_t *syms = NEWS(a, int64_t, g->sym.n + 1);
    pthread_mutex_lock(&s->lock);       /* others may run it, or compile it, meanwhile */
    *e = s->times;
    e->temp_bytes = s->last_temp;
    memcpy(syms, s->last_syms, sizeof *syms * (size_t)g->sym.n);
    pthread_mutex_unlock(&s->lock);
    KernelEvidence *k = NEWS(a, KernelEvidence, s->npart + 1);
    e->nkernel = s->npart;
    e->kernel = k;
    e->graph = tuned_graph(a, s);
    for (int i = 0; i < s->npart; i++) {
        const Part *p = &s->part[i];
        const KernelSource *src = p->joint ? &p->joint->src : &p->src;
        k[i].name = p->loops ? src->name : p->sub->node[0]->call->def->name;
        k[i].kind = sub_kind_name[p->sub->kind];
        k[i].structure = p->structure;
        k[i].loops = p->loops;
        k[i].packs = p->packs;
        k[i].source = p->loops ? src->text : NULL;
        k[i].joined = joined_before(s, i);
        k[i].note = p->note;
        k[i].lib = in_library(p);
        k[i].lib_fits = p->lib != NULL;
        k[i].lib_turns = p->lib && library_turns(p->lib);
        k[i].lib_note = p->lib_note;
        k[i].once = s->part[i].once;
        k[i].seconds = seconds ? seconds[i] : 0;
        kernel_operators(a, s, p, &k[i]);
        kernel_moves(a, s, p, &k[i]);
        kernel_from(a, s, i, &k[i]);
        kernel_traffic(p, syms, &k[i]);
        if (!k[i].once && !p->join_mate && !k[i].joined) e->launches++;
    }
    const char **refusal = NEWS(a, const char *, s->plan->refusal.n + 1), **guard = NEWS(a, const char *, g->guard.n + 1);
    MapStr *said = mapstr_new(a);       /* two edges of the graph may be one of the model */
    for (int i = 0; i < s->plan->refusal.n; i++) {
        const Refusal *r = &s->plan->refusal.at[i];
        const char *from = operator_name(a, s, r->from), *to = operator_name(a, s, r->to), *line;
        if (r->from == r->to) line = arena_fmt(a, "%s stays as it is: %s", from, r->why);
        else if (strcmp(from, to) == 0) line = arena_fmt(a, "within %s: %s", from, r->why);
        else line = arena_fmt(a, "cannot fuse %s into %s: %s", from, to, r->why);
        void **at = mapstr_at(said, line);
        if (!*at) refusal[e->nrefusal++] = line;
        *at = (void *)(uintptr_t)line;
    }
    for (int i = 0; i < g->guard.n; i++) {
        const Guard *q = &g->guard.at[i];
        Text t = { .arena = a };
        dim_print(&t, g, q->a);
        text_add(&t, " %s ", q->rel == '=' ? "==" : q->rel == '!' ? "!=" : q->rel == '<' ? "<" : ">=");
        dim_print(&t, g, q->b);
        if (q->why) text_add(&t, ": %s", q->why);
        guard[i] = t.at;
    }
    const char **rewrite = NEWS(a, const char *, rules_count(s->target->rules) + 1), **idle = NEWS(a, const char *, rules_count(s->target->rules) + 1), *why;
    for (int i = 0; s->rewrites && i < rules_count(s->target->rules); i++)
        if (!s->rewrites[i] && (why = rules_idle(cx, a, s->target->rules, i))) idle[e->nidle++] = arena_fmt(a, "%s 0 times: %s", rules_name(s->target->rules, i), why);
        else if (s->rewrites[i]) rewrite[e->nrewrite++] = arena_fmt(a, "%s %d times: %s", rules_name(s->target->rules, i), s->rewrites[i], rules_text(s->target->rules, i));
    e->rewrite = rewrite;
    e->idle = idle;
    int carriers = s->plan->receipt.n, parts = s->npart;
    const char **carrier = NEWS(a, const char *, carriers + parts + 1);
    for (int i = 0; i < carriers; i++) carrier[e->ncarrier++] = arena_fmt(a, "carrier of %s: %s", operator_name(a, s, s->plan->receipt.at[i].of), s->plan->receipt.at[i].text);
    for (int i = 0; i < parts; i++)
        if (s->part[i].loops && s->part[i].loops->note) carrier[e->ncarrier++] = arena_fmt(a, "kernel %s: %s", s->part[i].src.name, s->part[i].loops->note);
    e->carrier = carrier;
    e->refusal = refusal;
    e->guard = guard; e->nguard = g->guard.n;
    e->const_bytes = s->once_bytes;
    if (s->interpreted) {
        KernelEvidence *one = NEW(a, KernelEvidence);
        *one = (KernelEvidence){ .name = "interpreter", .kind = "interpreter", .interpreted = true, .source = NULL };
        one->node = arena_copy(a, &s->interpreted_why, sizeof s->interpreted_why);
        one->nnode = 1;
        e->kernel = one; e->nkernel = 1; e->launches = 1;
    }
}

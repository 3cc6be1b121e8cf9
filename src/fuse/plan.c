/* The planner: which nodes become one kernel.
 *
 * Nodes are visited in topological order. A node joins the kernel of one of its operands if a row of fusion.def allows it; kernels of its other operands are
 * taken over too when they run over the same points; else it starts a kernel of its own. Views, constants and sizes belong to no kernel: whoever needs
 * them folds them into its addresses. The elementwise part of a contraction, whose space is larger than anything it reads, lives inside the
 * contraction's loops. Joining must not close a cycle of kernels (group.c).
 *
 * Contractions are recognised by access: each thing that the fold's body reads misses an axis of the body's space, or mixes two axes in one index (windows). */
#include "fuse/fuse.h"

#include <string.h>

enum { MAX_NODES = 256, MAX_READS = 48 };

static void refuse(Planner *p, const Node *from, const Node *to, const char *rule, const char *why)
{
    Refusal r = { from, to, rule, why };
    vec_push(p->arena, &p->plan->refusal, r);
}

/* ---- may n join q? ------------------------------------------------------------------------------------------------------------------------------- */
struct FusionRow { const char *name; SubKind producer; NodeClass consumer; Allow allowed; };
static const FusionRow fusion_table[] = {
#define FUSE(name, producer, consumer, allowed, text) { #name, SUB_##producer, CLASS_##consumer, allowed },
#include "fuse/fusion.def"
#undef FUSE
};

static const struct { const char *name; Allow allowed; } condition_table[] = {
    { "allow_same_point", allow_same_point }, { "allow_epilogue", allow_epilogue }, { "allow_places", allow_places }, { "allow_rows", allow_rows }, { "allow_never", allow_never },
};

static int word_index(const char *const *words, int n, const char *word)
{
    for (int i = 0; i < n; i++)
        if (strcmp(words[i], word) == 0) return i;
    return -1;
}

/* The user's rows come before those of the table. A pair of kinds may only get a condition that the table has for it, since each condition says
 * what its way of joining needs, and not every way exists for every pair; allow_never is right for all. */
static void read_fusions(Planner *p, const RuleSet *rules)
{
    static const char *const kind_words[] = { "map", "rows", "dot" }, *const class_words[] = { "map", "fold", "dot" };
    static const SubKind kinds[] = { SUB_map, SUB_rows, SUB_dot };
    static const NodeClass classes[] = { CLASS_map, CLASS_fold, CLASS_dot };
    int n = 0, stock = (int)COUNT_OF(fusion_table);
    const FileRow *row = rules ? rules_rows(rules, &n) : NULL;
    FusionRow *all = NEWS(p->arena, FusionRow, n + stock);
    p->row = all;
    for (int i = 0; i < n; i++) {
        const char *const *f = row[i].field;
        const char *file = p->cx->opt.rules;
        if (strcmp(row[i].name, "FUSE") != 0) continue;
        if (row[i].n != 5) fail(p->cx, E_FORMAT, "%s:%d: %d fields, wanted FUSE( name, producer, consumer, allowed, text )", file, row[i].line, row[i].n);
        int kind = word_index(kind_words, 3, f[1]), class = word_index(class_words, 3, f[2]), c = 0;
        if (kind < 0 || class < 0)
            fail(p->cx, E_FORMAT, "%s:%d: fusion '%s': found %s and %s, wanted map, rows or dot, and map, fold or dot", file, row[i].line, f[0], f[1], f[2]);
        while (c < (int)COUNT_OF(condition_table) && strcmp(condition_table[c].name, f[3]) != 0) c++;
        if (c == (int)COUNT_OF(condition_table))
            fail(p->cx, E_FORMAT, "%s:%d: fusion '%s': there is no condition '%s'; wanted allow_same_point, allow_rows or allow_never", file, row[i].line, f[0], f[3]);
        bool way = condition_table[c].allowed == allow_never;
        for (int k = 0; k < stock; k++)
            way |= fusion_table[k].producer == kinds[kind] && fusion_table[k].consumer == classes[class] && fusion_table[k].allowed == condition_table[c].allowed;
        if (!way) fail(p->cx, E_FORMAT, "%s:%d: fusion '%s': there is no way to put a %s into a kernel of kind %s by %s", file, row[i].line, f[0], f[2], f[1], f[3]);
        all[p->nrow++] = (FusionRow){ f[0], kinds[kind], classes[class], condition_table[c].allowed };
    }
    memcpy(all + p->nrow, fusion_table, sizeof fusion_table);
    p->nrow += stock;
}

static const char *may_join(Planner *p, Candidate *c, NodeClass class, const char **rule)
{
    const Node *n = c->n;
    Group *q = c->q;
    *rule = "";
    if (!p->fuse && q->origin != n->origin) return "the unfused baseline runs operators apart";
    if (q->once != (p->constant[n->id] != 0)) return q->once ? "the operand is computed once, when the program is made" : "it depends on constants only: computed once";
    if (q->node.n >= MAX_NODES) return "the kernel is full";
    const char *why = "no rule fuses these kinds";
    for (int i = 0; i < p->nrow; i++) {
        const FusionRow *r = &p->row[i];
        if (r->producer != q->kind || r->consumer != class) continue;
        *rule = r->name;
        if (list_has(p->cx->opt.off, r->name)) { why = "switched off"; continue; }
        why = r->allowed(p, c);
        if (!why || r->allowed == allow_never) break;
    }
    if (why) return why;
    Sources s = { 0 };
    sources_of(p, n, &s);
    int reads = 0;
    for (int i = 0; i < s.at.n; i++) {
        const Node *x = s.at.at[i];
        if (group_of(p, p->home[x->id]) == q && !p->writers[x->id].n) continue;
        reads++;
        for (int w = 0; w < p->writers[x->id].n; w++) if (group_reaches(p, q, group_of(p, p->writers[x->id].at[w]))) return "it would close a cycle of kernels";
        Group *h = group_of(p, p->home[x->id]);
        if (h && h != q && group_reaches(p, q, h)) return "it would close a cycle of kernels";
    }
    if (reads > MAX_READS) return "it reads too many buffers";
    if (p->cx->opt.limit >= 0 && p->plan->ndecision >= p->cx->opt.limit) return "the limit on decisions is reached";
    p->plan->ndecision++;
    return NULL;
}

/* ---- taking over a further kernel ------------------------------------------------------------------------------------------------------------------ */
/* Operands of n in h, through views for n alone. */
static int operands_in(Planner *p, const Group *h, const Node *n)
{
    int have = 0;
    for (int k = 0; k < n->nin; k++) {
        const Node *x = n->in[k];
        while (x->op == OP_view && p->uses[x->id] == 1) x = x->in[0];
        if (group_of(p, p->home[x->id]) == h) have++;
    }
    return have;
}

bool only_for(Planner *p, const Group *h, const Node *n)
{
    int want = 0, have = 0;
    for (int i = 0; i < h->node.n; i++) {
        const Node *x = h->node.at[i];
        if (p->output[x->id]) return false;
        want += p->uses[x->id];
        have += operands_in(p, h, x);
    }
    have += operands_in(p, h, n);
    return want == have && !h->store.n;
}

/* Does q read from memory what h writes a piece of? Then h comes before, whole. */
static bool reads_pieces(Planner *p, const Group *q, const Group *h)
{
    Sources s = { 0 };
    p->walk++;
    for (int i = 0; i < q->node.n && h->store.n; i++) sources_below(p, q->node.at[i], &s);
    for (int k = 0; k < h->store.n; k++) for (int j = 0; j < s.at.n; j++) if (s.at.at[j] == h->store.at[k].into) return true;
    return false;
}

/* Does kernel q, which takes h over at these points (map), read h's nodes at them alone? What it reads elsewhere would be computed again for each reader, and all
 * below it with it. */
static const char *read_there(Planner *p, const Group *h, int nin, Node *const *in, Dim *const *idx, Dim *const *map)
{
    for (int i = 0; i < nin; i++) {
        Dim *at[MAX_RANK];
        bool padded;
        const Node *x = operand_source(p, in[i], idx, at, &padded);
        if (group_of(p, p->home[x->id]) != h || p->writers[x->id].n) continue;
        if (padded) return "it is read through padding";
        Dim *const *own = index_mapped(p, x->rank, p->coord[x->id], map);
        for (int k = 0; k < x->rank; k++) if (at[k] != own[k]) return "it is needed at another index than it is computed at";
    }
    return NULL;
}

static bool reads_of(Planner *p, const Group *h, const Node *n)
{
    Sources s = { 0 };
    sources_of(p, n, &s);
    for (int i = 0; i < s.at.n; i++) if (group_of(p, p->home[s.at.at[i]->id]) == h && !p->writers[s.at.at[i]->id].n) return true;
    return false;
}

static const char *reads_elsewhere(Planner *p, const Group *q, const Group *h, Dim *const *map)
{
    const char *why = NULL;
    for (int i = 0; i < q->node.n && !why; i++) {
        Node *y = q->node.at[i], view, *in[2] = { y, y->nin > 1 ? y->in[1] : NULL };
        if (!reads_of(p, h, y)) continue;
        if (y->op == OP_fold && !p->iter[y->id]) return "a contraction reads its operand many times: computed once, stored";
        if (y->op == OP_fold) why = read_there(p, h, 1, fold_whole(y)->in, p->iter[y->id], map);
        else if (y->op == OP_view) why = read_there(p, h, 1, in, p->coord[y->id], map);
        else if (y->op == OP_scan) { in[0] = scan_operand(p, y, &view); why = read_there(p, h, y->nin, in, p->coord[y->id], map); }
        else if (y->op == OP_gather) {
            Node data = { .op = OP_view, .nin = 1, .in = y->in };
            why = reads_of(p, h, &data) ? "it is read by index" : read_there(p, h, y->nin - 1, y->in + 1, p->coord[y->id], map);
        } else why = read_there(p, h, y->nin, y->in, p->coord[y->id], map);
    }
    for (int i = 0; i < q->store.n && !why; i++)
        if (group_of(p, p->home[q->store.at[i].node->id]) != q) why = read_there(p, h, 1, (Node *const *)&q->store.at[i].node, q->store.at[i].at, map);
    return why;
}

/* n of kernel q needs node x of kernel h at index `at`: h's points as a function of q's, when that is an exchange of points or cheap to repeat. */
static const char *take_over(Planner *p, Group *q, Group *h, const Node *n, const Node *x, Dim *const *at)
{
    Graph *g = p->g;
    if (h->kind != SUB_map) return "two kernels with reductions stay apart";
    if (h->once != q->once || h->node.n + q->node.n > MAX_NODES || (!p->fuse && h->origin != q->origin)) return "the kernel is full";
    if (x->rank != h->rank) return "the iteration spaces differ";
    for (int i = 0; i < h->node.n && q->kind == SUB_scan; i++) {
        const char *no = scan_refuses(p, q, h->node.at[i]->op);
        if (no) return no;
    }
    uint32_t used = 0;
    bool exchange = true;
    Dim *map[SPACE_VAR + MAX_RANK] = { 0 };
    for (int k = 0; k < x->rank; k++) {
        if (p->coord[x->id][k] != dim_idx(g, SPACE_VAR + k, h->space[k])) return "the iteration spaces differ";
        map[SPACE_VAR + k] = at[k];
        int a = at[k]->kind == DIM_idx ? at[k]->var - SPACE_VAR : -1;
        if (dim_is_const(at[k]) && dim_is(h->space[k], 1)) continue;
        if (a < 0 || a >= q->rank || q->space[a] != h->space[k] || (used >> a & 1)) exchange = false;
        else used |= 1u << a;
    }
    const uint32_t each = q->kind == SUB_rows ? q->rows : q->inner, row = !(used & each) ? each : 0;        /* one point for each row: it is computed once for it */
    for (int a = 0; a < q->rank; a++) if (!(used >> a & 1) && !dim_is(q->space[a], 1) && !(row >> a & 1)) exchange = false;
    if (!exchange) {
        if (!only_for(p, h, n)) return "it is computed over fewer points and needed elsewhere";
        if (h->node.n > 6) return "repeating it for each point costs more than reading it";
        for (int i = 0; i < h->node.n; i++) if (!op_cheap(h->node.at[i]->op)) return "repeating it for each point costs more than reading it";
    }
    const char *elsewhere = exchange ? reads_elsewhere(p, q, h, map) : NULL;
    if (elsewhere) return elsewhere;
    if (reaches_through_others(p, h, q) || group_reaches(p, q, h) || reads_pieces(p, q, h)) return "it would close a cycle of kernels";
    if (p->cx->opt.limit >= 0 && p->plan->ndecision >= p->cx->opt.limit) return "the limit on decisions is reached";
    p->plan->ndecision++;
    for (int i = 0; i < h->node.n; i++) {
        Node *y = h->node.at[i];
        p->coord[y->id] = index_mapped(p, y->rank, p->coord[y->id], map);
        p->home[y->id] = q->id;
        vec_push(p->arena, &q->node, y);
    }
    for (int i = 0; i < h->store.n; i++) {
        SubStore s = h->store.at[i];
        s.at = index_mapped(p, s.node->rank, s.at, map);
        s.coord = index_mapped(p, s.into->rank, s.coord, map);
        vec_push(p->arena, &q->store, s);
    }
    for (int i = 0; i < h->succ.n; i++) group_edge(p, q, group_of(p, h->succ.at[i]));
    h->merged = q->id;
    for (int i = q->node.n - h->node.n; i < q->node.n; i++) edges_to(p, q->node.at[i], q);
    return NULL;
}

static void take_over_others(Planner *p, Group *q, const Node *n, int nin, Node *const *in, Dim *const *idx)
{
    for (int i = n->op == OP_gather ? 1 : 0; i < nin; i++) {
        Dim *at[MAX_RANK];
        bool padded;
        const Node *x = operand_source(p, in[i], idx, at, &padded);
        Group *h = group_of(p, p->home[x->id]);
        if (!h || h == q || h->kind == SUB_call || p->writers[x->id].n) continue;
        const char *why = padded ? "it is read through padding" : take_over(p, q, h, n, x, at);
        if (why) refuse(p, x, n, "take_over", why);
    }
}

/* ---- placing nodes ------------------------------------------------------------------------------------------------------------------------------------ */
static int strength(SubKind k) { return k == SUB_stream ? 4 : k == SUB_dot ? 3 : k == SUB_rows || k == SUB_scan ? 2 : k == SUB_map ? 1 : 0; }

/* Kernels that n may join: of its operands, and of what reads the same memory; the strongest first, then the latest. */
static int candidates(Planner *p, const Node *n, Group **out, const Node **via, int most)
{
    int c = 0;
    Sources s = { 0 };
    sources_of(p, n, &s);
    for (int pass = 0; pass < (p->fuse ? 2 : 1) && !(pass && c && n->op != OP_fold); pass++)        /* a reduction joins no contraction, but others of the same */
        for (int i = 0; i < s.at.n && c < most; i++) {
            const Node *x = s.at.at[i];
            for (int r = 0; r < (pass ? p->readers[x->id].n : 1) && c < most; r++) {
                Group *q = pass ? group_of(p, p->readers[x->id].at[r]) : group_of(p, p->home[x->id]);
                bool have = !q || !strength(q->kind) || (p->writers[x->id].n && !pass) || (pass && (q->kind == SUB_dot || q->kind == SUB_stream || (q->kind == SUB_scan && n->op != OP_scan)));
                for (int k = 0; k < c; k++) have |= out[k] == q;
                if (have) continue;
                out[c] = q; via[c++] = x;
            }
        }
    for (int i = 1; i < c; i++)
        for (int k = i; k > 0; k--) {
            bool before = strength(out[k]->kind) > strength(out[k - 1]->kind) || (out[k]->kind == out[k - 1]->kind && out[k]->id > out[k - 1]->id);
            if (!before) break;
            Group *q = out[k]; out[k] = out[k - 1]; out[k - 1] = q;
            const Node *v = via[k]; via[k] = via[k - 1]; via[k - 1] = v;
        }
    return c;
}

/* Does a cheap node serve reductions alone, while what it needs of kernel q is stored in any case? Then they compute it as they read that: with other reductions of
 * the same, and without a store of their own. */
static bool left_to_folds(Planner *p, const Group *q, const Node *n)
{
    if (!p->fuse || q->kind != SUB_dot || !op_cheap(n->op) || p->output[n->id] || p->dense[n->id] || !p->folds[n->id] || p->folds[n->id] < p->uses[n->id]) return false;
    for (int i = 0; i < n->nin; i++) {
        const Node *x = n->in[i];
        bool again = i && n->in[0] == x;
        if (group_of(p, p->home[x->id]) == q && !again && p->uses[x->id] <= (n->nin == 2 && n->in[0] == n->in[1] ? 2 : 1)) return false;
    }
    return true;
}

/* Quotients or remainders of the space's variables. */
static bool has_quotient(const Dim *d)
{
    if (d->kind != DIM_sum) return d->kind != DIM_sym && d->kind != DIM_idx && d->idx_mask;
    for (int k = 0; k < d->n; k++) for (int i = 0; i < d->term[k].n; i++) if (has_quotient(d->term[k].factor[i])) return true;
    return false;
}

/* Would n, computed at index idx, read what lies in memory all over the place, since its elements are only as many as the points of the kernel? */
static bool reads_scattered(Planner *p, const Node *n, Dim *const *idx)
{
    for (int i = n->op == OP_gather; i < n->nin; i++) {
        Dim *at[MAX_RANK] = { 0 }, *flat = dim_const(p->g, 0), *own[MAX_RANK] = { 0 }, *plain = flat;
        bool padded;
        for (int k = 0; k < n->rank; k++) own[k] = dim_idx(p->g, SPACE_VAR + k, n->dims[k]);
        const Node *x = operand_source(p, n->in[i], own, at, &padded);
        for (int k = 0; k < x->rank; k++) plain = dim_add(p->g, dim_mul(p->g, plain, x->dims[k]), at[k]);
        x = operand_source(p, n->in[i], idx, at, &padded);
        for (int k = 0; k < x->rank; k++) flat = dim_add(p->g, dim_mul(p->g, flat, x->dims[k]), at[k]);
        if (has_quotient(flat) && !has_quotient(plain)) return true;
    }
    return false;
}

static void place_map(Planner *p, Node *n)
{
    Group *q[12]; const Node *via[12];
    int nq = candidates(p, n, q, via, 12);
    bool view = n->op == OP_view;
    for (int i = 0; i < nq; i++) {
        Candidate c = { .q = q[i], .n = n };
        const char *rule = "epilogue", *why = left_to_folds(p, q[i], n) ? "a reduction alone needs it, and computes it" : may_join(p, &c, CLASS_map, &rule);
        if (why) { if (group_of(p, p->home[via[i]->id]) == q[i]) refuse(p, via[i], n, rule, why); continue; }
        if (group_of(p, p->home[via[i]->id]) != q[i] && !view && reads_scattered(p, n, c.coord)) continue;
        if (view) take_over_others(p, q[i], n, 1, &n, c.coord);
        group_take(p, q[i], n, c.coord);
        if (!view) take_over_others(p, q[i], n, n->nin, n->in, c.coord);
        return;
    }
    Group *own = group_new(p, SUB_map, n->rank, n->dims, 0, n);
    Dim **at = identity_index(p, own);
    group_take(p, own, n, at);
    if (n->op == OP_gather) take_over_others(p, own, n, n->nin, n->in, at);          /* an index, which fewer points share */
}

static void place_rows(Planner *p, Node *f)
{
    const Node *whole = fold_whole(f), *x = whole->in[0];
    Group *q[12]; const Node *via[12];
    int nq = candidates(p, f, q, via, 12);
    Group *home = NULL;
    Dim **at = NULL;
    for (int i = 0; i < nq && !home; i++) {
        Candidate c = { .q = q[i], .n = f };
        const char *rule, *why = may_join(p, &c, CLASS_fold, &rule);
        if (why) { if (group_of(p, p->home[via[i]->id]) == q[i]) refuse(p, via[i], f, rule, why); continue; }
        home = q[i];
        at = c.coord;
        if (home->kind == SUB_map) home->kind = SUB_rows;
        if (home->kind == SUB_rows || home->kind == SUB_dot) home->rows = c.rows;
        if (home->kind == SUB_scan) home->inner = c.rows;
    }
    if (!home) {
        home = group_new(p, SUB_rows, x->rank, x->dims, whole->axes, f);
        at = identity_index(p, home);
    }
    if (f->whole) { home->part = at[f->axis]->var - SPACE_VAR; home->step = f->step; }
    Dim **kept = NEWS(p->arena, Dim *, f->rank + 1);
    fold_index(p->g, f, at, kept);
    if (home->kind != SUB_scan) p->iter[f->id] = at;
    group_take(p, home, f, kept);
}

static void place_scan(Planner *p, Node *n)
{
    Group *q[12], *home = NULL; const Node *via[12];
    int nq = candidates(p, n, q, via, 12);
    Node view, *in[2] = { scan_operand(p, n, &view), n->nin > 1 ? n->in[1] : NULL };
    Candidate c = { 0 };
    for (int i = 0; i < nq && !home; i++) {
        c = (Candidate){ .q = q[i], .n = n };
        const char *rule, *why = may_join(p, &c, CLASS_scan, &rule);
        if (!why) home = q[i];
        else if (group_of(p, p->home[via[i]->id]) == q[i]) refuse(p, via[i], n, rule, why);
    }
    if (!home) {
        home = group_new(p, SUB_scan, n->rank, n->dims, axis_bit(n->axis), n);
        c.coord = identity_index(p, home);
    } else if (home->kind == SUB_map) {
        home->kind = SUB_scan;
        home->rows = c.rows;
        for (int a = 0; a < home->rank && c.back; a++) {         /* from the other end */
            if (!(c.rows >> a & 1)) continue;
            Dim *map[SPACE_VAR + MAX_RANK] = { 0 };
            map[SPACE_VAR + a] = dim_sub(p->g, dim_addc(p->g, home->space[a], -1), dim_idx(p->g, SPACE_VAR + a, home->space[a]));
            group_renumber(p, home, map);
            c.coord = index_mapped(p, n->rank, c.coord, map);
        }
    }
    group_take(p, home, n, c.coord);
    take_over_others(p, home, n, n->nin, in, c.coord);
}

/* Follows a fold's body down to what it reads; collects the body's elementwise nodes. False: something reads at every point, so no contraction. */
typedef struct Body { VEC(Node *) node; const Node *fold; Group *own; Dim *count; bool covered, whole, costly; int again, steps; } Body;   /* steps: left, to a node by each of its ways; own: an elementwise kernel that only feeds the fold */
static void body_walk(Planner *p, Body *b, Node *n, Dim *const *idx)
{
    if (--b->steps < 0) return;
    Dim *at[MAX_RANK];
    bool padded;
    Node *x = (Node *)operand_source(p, n, idx, at, &padded);
    Dim *count = dim_const(p->g, 1);
    for (int k = 0; k < x->rank; k++) count = dim_mul(p->g, count, x->dims[k]);
    bool inside = b->own && group_of(p, p->home[x->id]) == b->own && x->op != OP_random;
    if (inside) {
        vec_push(p->arena, &b->node, x);
        if (count == b->count) b->whole = true;
        else { b->again++; b->costly |= !op_cheap(x->op); }
        for (int i = x->op == OP_gather ? 1 : 0; i < x->nin; i++) body_walk(p, b, x->in[i], at);
        return;
    }
    if (x->op == OP_iota || x->op == OP_dims || (x->op == OP_const && x->rank == 0)) return;
    bool misses = false, mixes = false;
    const Node *f = b->fold->in[0];
    for (int k = 0; k < f->rank; k++) {
        if (dim_is(f->dims[k], 1)) continue;
        bool used = false;
        for (int j = 0; j < x->rank; j++) used |= dim_uses(at[j], k);
        misses |= !used;
    }
    for (int j = 0; j < x->rank; j++) {
        int vars = 0;
        for (int k = 0; k < f->rank; k++) vars += dim_uses(at[j], k);
        mixes |= vars > 1;
    }
    if (!misses && (!mixes || count == b->count)) b->covered = true;
}

static bool is_contraction(Planner *p, const Node *f, Body *b)
{
    const Node *x = f->in[0];
    Dim *idx[MAX_RANK];
    b->fold = f;
    b->steps = BODY_STEPS;
    b->count = dim_const(p->g, 1);
    for (int k = 0; k < x->rank; k++) { idx[k] = dim_idx(p->g, k, x->dims[k]); b->count = dim_mul(p->g, b->count, x->dims[k]); }
    Dim *at[MAX_RANK];
    bool padded;
    Group *h = group_of(p, p->home[operand_source(p, f->in[0], idx, at, &padded)->id]);
    if (h && h->kind == SUB_map && only_for(p, h, f)) b->own = h;
    body_walk(p, b, f->in[0], idx);
    if (b->steps < 0 || (b->again && !b->whole && (b->costly || b->again > 4))) {      /* windows over what is dearer to repeat for each than to store */
        const Node *own = b->node.at[0];
        *b = (Body){ .fold = f, .count = b->count, .steps = 1 };
        body_walk(p, b, f->in[0], idx);
        if (!b->covered) refuse(p, own, f, "map_dot", "repeating it for each point costs more than reading it");
    }
    return !b->covered || p->inner[f->id];
}

static void place_fold(Planner *p, Node *f)
{
    Body b = { 0 };
    if (f->whole || !is_contraction(p, f, &b)) { place_rows(p, f); return; }
    for (int i = 0; b.own && i < b.own->node.n; i++) p->home[b.own->node.at[i]->id] = HOME_body;
    if (b.own) b.own->node.n = 0;         /* its provisional kernel is gone */
    Sources s = { 0 };
    sources_of(p, f, &s);
    for (int i = 0; i < s.at.n; i++) {
        Group *q = group_of(p, p->home[s.at.at[i]->id]);
        Candidate c = { .q = q, .n = f };
        const char *rule = "", *why = q && q->kind != SUB_call && !p->writers[s.at.at[i]->id].n ? may_join(p, &c, CLASS_dot, &rule) : NULL;
        if (why) refuse(p, s.at.at[i], f, rule, why);
    }
    Group *own = group_new(p, SUB_dot, f->rank, f->dims, 0, f);
    group_take(p, own, f, identity_index(p, own));
}

/* ---- nodes that work on memory ---------------------------------------------------------------------------------------------------------------------- */
/* A join that only serves as a piece of another one: its pieces are written there at once. */
static bool move_pieces(Planner *p, Node *x, Node *into, Dim *const *shift)
{
    if (x->op != OP_join || p->uses[x->id] != 1 || p->dense[x->id] || !p->fuse || (p->constant[x->id] != 0) != (p->constant[into->id] != 0)) return false;
    for (int w = 0; w < p->writers[x->id].n; w++) {
        Group *q = group_of(p, p->writers[x->id].at[w]);
        for (int i = 0; i < q->store.n; i++) {
            if (q->store.at[i].into != x) continue;
            Dim **to = NEWS(p->arena, Dim *, into->rank + 1);
            for (int k = 0; k < into->rank; k++) to[k] = shift[k] ? dim_add(p->g, q->store.at[i].coord[k], shift[k]) : q->store.at[i].coord[k];
            q->store.at[i].into = into;
            q->store.at[i].coord = to;
        }
        vec_push(p->arena, &p->writers[into->id], q->id);
    }
    p->writers[x->id].n = 0;
    p->home[x->id] = HOME_free;
    return true;
}

/* The node whose axes the view x only puts in another order, each of more than one element once, and which kernels compute; else x. axis: that of x, by axis of the node. */
static Node *reordered(const Planner *p, Node *x, int *axis)
{
    uint32_t seen = 0, all = 0;
    Node *n = x->op == OP_view && !x->view.npred ? x->in[0] : x;
    for (int k = 0; k < x->rank; k++) if (!dim_is(x->dims[k], 1)) all |= axis_bit(k);
    for (int j = 0; n != x && j < n->rank; j++) {
        const Dim *e = x->view.idx[j];
        axis[j] = -1;
        if (dim_is(e, 0) && dim_is(n->dims[j], 1)) continue;
        if (e->kind != DIM_idx || e->var >= x->rank || x->dims[e->var] != n->dims[j] || (seen & axis_bit(e->var))) return x;
        axis[j] = e->var;
        seen |= axis_bit(e->var);
    }
    return n != x && seen == all && p->home[n->id] >= 0 && !p->writers[n->id].n ? n : x;
}

/* A kernel that writes x, seen as a tensor, into `into` with each axis moved by shift. */
static void place_copy(Planner *p, Node *x, Node *into, Dim *const *shift)
{
    if (move_pieces(p, x, into, shift)) return;
    int axis[MAX_RANK] = { 0 };
    Node *seen = x, *own = p->fuse ? reordered(p, x, axis) : x;
    x = own;
    Group *q = group_of(p, p->home[x->id]);
    bool joined = q && p->fuse && strength(q->kind) && !p->writers[x->id].n && q->once == (p->constant[into->id] != 0);
    if (!joined) x = seen;
    SubStore s = { .node = x, .into = into };
    if (!joined) {
        q = group_new(p, SUB_map, x->rank, x->dims, 0, into);
        s.at = identity_index(p, q);
        Node probe = { .op = OP_view, .nin = 1, .in = &x, .id = x->id };
        edges_to(p, &probe, q);
    } else s.at = p->coord[x->id];
    Dim **to = NEWS(p->arena, Dim *, into->rank + 1);
    for (int k = 0; k < into->rank; k++) to[k] = x == seen ? s.at[k] : dim_const(p->g, 0);
    for (int j = 0; x != seen && j < x->rank; j++) if (axis[j] >= 0) to[axis[j]] = s.at[j];
    for (int k = 0; k < into->rank; k++) if (shift[k]) to[k] = dim_add(p->g, to[k], shift[k]);
    s.coord = to;
    vec_push(p->arena, &q->store, s);
    vec_push(p->arena, &p->writers[into->id], q->id);
}

/* A free node that must lie in memory as a dense tensor: a result of the graph, an operand of a call. A view is then a copy like any elementwise node. */
static void place_stored(Planner *p, Node *x)
{
    if (x->op == OP_const || x->op == OP_input || (x->op == OP_dims && x->rank == 1)) return;
    place_map(p, x);
}

static void place_whole(Planner *p, Node *n)
{
    Dim *shift[MAX_RANK] = { 0 };
    Group *q;
    switch (n->op) {
    case OP_join: {
        Dim *at = dim_const(p->g, 0);
        p->home[n->id] = HOME_memory;
        for (int i = 0; i < n->nin; i++) {
            shift[n->axis] = at;
            place_copy(p, n->in[i], n, shift);
            at = dim_add(p->g, at, n->in[i]->dims[n->axis]);
        }
        return;
    }
    case OP_scatter:
        p->home[n->id] = HOME_memory;
        place_copy(p, n->in[0], n, shift);
        q = group_new(p, SUB_scatter, n->in[1]->rank, n->in[1]->dims, 0, n);
        vec_push(p->arena, &q->node, n);
        edges_to(p, n, q);
        for (int w = 0; w < p->writers[n->id].n; w++) group_edge(p, group_of(p, p->writers[n->id].at[w]), q);
        vec_push(p->arena, &p->writers[n->id], q->id);
        p->coord[n->id] = identity_index(p, q);
        return;
    case OP_call:
        q = group_new(p, SUB_call, 0, NULL, 0, n);
        q->once = false;
        group_take(p, q, n, NULL);
        return;
    case OP_part:
        q = group_of(p, p->home[n->in[0]->id]);
        p->home[n->id] = q->id;
        vec_push(p->arena, &q->node, n);
        return;
    default: return;
    }
}

/* A node of a cascade goes into its kernel, which starts with the first of them. */
static void place_claimed(Planner *p, Node *n, Cascade *c)
{
    if (!c->group) {
        c->group = group_new(p, SUB_stream, c->rank, c->space, 1u << c->stream.axis, n);
        c->group->stream = &c->stream;
        c->group->origin = c->out->origin;
        c->group->once = false;
        for (int i = 0; i < c->stream.nfold; i++) p->iter[c->stream.fold[i].node->id] = (Dim **)c->stream.fold[i].in;
    }
    for (int i = 0; i < c->nnode; i++) if (c->node[i] == n) group_take(p, c->group, n, c->coord[i]);
}

static void place(Planner *p, Node *n)
{
    if (p->cascades.claim && p->cascades.claim[n->id] >= 0) { place_claimed(p, n, p->cascades.at.at[p->cascades.claim[n->id]]); return; }
    if (reads_nothing(p, n) && node_class(n) == CLASS_map && !p->dense[n->id]) { p->home[n->id] = HOME_free; return; }
    if (node_class(n) == CLASS_map && widens(p, n)) { p->home[n->id] = HOME_free; return; }
    switch (node_class(n)) {
    case CLASS_free:
        p->home[n->id] = n->op == OP_input || (n->op == OP_const && n->rank > 0) || (n->op == OP_dims && n->rank > 0) ? HOME_memory : HOME_free;
        if (p->dense[n->id]) place_stored(p, n);
        break;
    case CLASS_map: place_map(p, n); break;
    case CLASS_fold: place_fold(p, n); break;
    case CLASS_scan: place_scan(p, n); break;
    case CLASS_dot: break;
    case CLASS_whole: place_whole(p, n); break;
    }
}

/* ---- the result ------------------------------------------------------------------------------------------------------------------------------------------ */
static void mark_stored(Planner *p)
{
    Graph *g = p->g;
    uint8_t *stored = p->plan->stored;
    for (int id = 0; id < g->node.n; id++) {
        const Node *n = g->node.at[id];
        if (!p->live[id]) continue;
        int home = p->home[id];
        if (home == HOME_memory) stored[id] = 1;
        if (p->dense[id] || n->op == OP_part) stored[id] = 1;
        const Group *q = group_of(p, home);
        if (!q && n->op != OP_scatter) continue;
        Node reads = *n;
        if (n->op == OP_scatter) { reads.in++; reads.nin--; }        /* the first operand is copied before; its kernel computes none of the others */
        Sources s = { 0 };
        sources_of(p, &reads, &s);
        for (int i = 0; i < s.at.n; i++) {
            const Node *x = s.at.at[i];
            if (group_of(p, p->home[x->id]) != q || p->writers[x->id].n) stored[x->id] = 1;
        }
    }
    for (int i = 0; i < p->group.n; i++) {           /* copies read what they do not compute */
        Group *q = p->group.at[i];
        if (q->merged >= 0) continue;
        for (int k = 0; k < q->store.n; k++) {
            Node *x = q->store.at[k].node;
            Node probe = { .op = OP_view, .nin = 1, .in = &x };
            Sources s = { 0 };
            sources_of(p, &probe, &s);
            for (int j = 0; j < s.at.n; j++) if (group_of(p, p->home[s.at.at[j]->id]) != q || p->writers[s.at.at[j]->id].n) stored[s.at.at[j]->id] = 1;
        }
    }
}

Plan *plan_make(Ctx *cx, Arena *a, Graph *g, const RuleSet *rules, bool fuse, bool stream)
{
    Planner *p = NEW(a, Planner);
    *p = (Planner){ .cx = cx, .arena = a, .g = g, .fuse = fuse, .groups = !stream, .plan = NEW(a, Plan) };
    p->plan->g = g; p->plan->arena = a;
    read_fusions(p, rules);
    int nodes = g->node.n;
    if (fuse && stream) cascades_find(cx, a, g, &p->cascades);
    p->plan->ndecision = g->nrewrite + p->cascades.n;
    int n = g->node.n + 1;
    p->plan->home = NEWS(a, int, n);
    p->plan->stored = NEWS(a, uint8_t, n);
    p->home = NEWS(a, int, n);
    p->coord = NEWS(a, Dim **, n);
    p->iter = NEWS(a, Dim **, n);
    p->behind = NEWS(a, uint8_t, n);
    p->readers = arena_alloc(a, size_mul(a, sizeof *p->readers, (size_t)n));
    p->writers = arena_alloc(a, size_mul(a, sizeof *p->writers, (size_t)n));
    facts_find(p);
    for (int id = 0; id < n; id++) p->home[id] = HOME_free;
    for (int i = 0; i < p->cascades.refusal.n; i++) vec_push(p->arena, &p->plan->refusal, p->cascades.refusal.at[i]);
    for (int i = 0; i < p->cascades.receipt.n; i++) vec_push(p->arena, &p->plan->receipt, p->cascades.receipt.at[i]);
    for (int id = 0; id < nodes; id++) {
        if ((id & 255) == 0) ctx_poll(cx);
        if (p->live[id]) place(p, g->node.at[id]);
    }
    mark_stored(p);
    sort_kernels(p);
    return p->plan;
}

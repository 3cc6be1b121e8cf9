/* Groups: kernels while they are planned, as a directed graph whose edges say who reads what another writes.
 *
 * A group that was taken over points to the one that did it; whoever looks for it follows (group_of). Edges are added as nodes are placed and never taken away. Joining
 * must not close a cycle: a bounded search along the edges, each with a stamp of its own, says whether one group reaches another. In the end the groups are sorted so
 * that each comes after those that it reads from (Kahn's algorithm). */
#include "fuse/fuse.h"

enum { MAX_VISITS = 3000 };

Group *group_of(const Planner *p, int home)
{
    if (home < 0) return NULL;
    ASSERT(home < p->group.n);
    Group *q = p->group.at[home];
    while (q->merged >= 0) q = p->group.at[q->merged];
    return q;
}

Group *group_new(Planner *p, SubKind kind, int rank, Dim *const *space, uint32_t rows, const Node *n)
{
    Group *q = NEW(p->arena, Group);
    q->kind = kind; q->id = p->group.n; q->merged = -1; q->origin = n->origin; q->once = p->constant[n->id];
    q->rank = rank; q->space = space; q->rows = rows;
    vec_push(p->arena, &p->group, q);
    return q;
}

void group_edge(Planner *p, Group *from, Group *to)
{
    if (!from || from == to) return;
    for (int i = from->succ.n - 1; i >= 0 && i > from->succ.n - 9; i--) if (group_of(p, from->succ.at[i]) == to) return;
    vec_push(p->arena, &from->succ, to->id);
}

static bool reach_walk(Planner *p, const Group *from, const Group *to, int *visits, bool direct)
{
    VEC(const Group *) todo = { 0 };
    vec_push(p->arena, &todo, from);
    while (todo.n) {
        const Group *q = todo.at[--todo.n];
        if (++*visits > MAX_VISITS) return true;
        for (int i = 0; i < q->succ.n; i++) {
            Group *s = group_of(p, q->succ.at[i]);
            if (s == q || (q == from && s == to && !direct)) continue;
            if (s == to) return true;
            if (s->stamp == p->stamp) continue;
            s->stamp = p->stamp;
            vec_push(p->arena, &todo, s);
        }
    }
    return false;
}

bool group_reaches(Planner *p, const Group *from, const Group *to)
{
    int visits = 0;
    p->stamp++;
    return from == to || reach_walk(p, from, to, &visits, true);
}

bool reaches_through_others(Planner *p, const Group *from, const Group *to)
{
    int visits = 0;
    p->stamp++;
    return reach_walk(p, from, to, &visits, false);
}

Dim **identity_index(Planner *p, const Group *q)
{
    Dim **idx = NEWS(p->arena, Dim *, q->rank + 1);
    for (int k = 0; k < q->rank; k++) idx[k] = dim_idx(p->g, SPACE_VAR + k, q->space[k]);
    return idx;
}

void sources_below(Planner *p, const Node *n, Sources *s)
{
    for (int i = 0; i < n->nin; i++) {
        const Node *x = n->in[i];
        int home = p->home[x->id];
        if (p->walked[x->id] == p->walk) continue;
        p->walked[x->id] = p->walk;
        if (home == HOME_free || home == HOME_body) sources_below(p, x, s);
        else vec_push(p->arena, &s->at, x);
    }
}

void sources_of(Planner *p, const Node *n, Sources *s)
{
    p->walk++;
    sources_below(p, n, s);
}

void edges_to(Planner *p, const Node *n, Group *q)
{
    Sources s = { 0 };
    sources_of(p, n, &s);
    for (int i = 0; i < s.at.n; i++) {
        const Node *x = s.at.at[i];
        if (p->writers[x->id].n) for (int w = 0; w < p->writers[x->id].n; w++) group_edge(p, group_of(p, p->writers[x->id].at[w]), q);
        else group_edge(p, group_of(p, p->home[x->id]), q);
        if (p->readers[x->id].n < 6) vec_push(p->arena, &p->readers[x->id], q->id);
    }
}

void group_take(Planner *p, Group *q, Node *n, Dim **coord)
{
    p->home[n->id] = q->id;
    p->coord[n->id] = coord;
    p->behind[n->id] = behind_places(p, q, n);
    vec_push(p->arena, &q->node, n);
    edges_to(p, n, q);
}

Dim **index_mapped(Planner *p, int rank, Dim *const *idx, Dim *const *map)
{
    Dim **to = NEWS(p->arena, Dim *, rank + 1);
    for (int k = 0; k < rank; k++) to[k] = dim_subst(p->g, idx[k], SPACE_VAR + MAX_RANK, map);
    return to;
}

void group_renumber(Planner *p, const Group *q, Dim *const *map)
{
    for (int i = 0; i < q->node.n; i++) p->coord[q->node.at[i]->id] = index_mapped(p, q->node.at[i]->rank, p->coord[q->node.at[i]->id], map);
    for (int i = 0; i < q->store.n; i++) {
        SubStore *s = &q->store.at[i];
        s->at = index_mapped(p, s->node->rank, s->at, map);
        s->coord = index_mapped(p, s->into->rank, s->coord, map);
    }
}

static int whole_of(const Planner *p, int i)
{
    while (p->group.at[i]->merged >= 0) i = p->group.at[i]->merged;
    return i;
}

/* The next reader of group i that lives, from its k-th on; or -1. */
static int next_reader(const Planner *p, int i, int *k)
{
    const Group *q = p->group.at[i];
    while (*k < q->succ.n) {
        int to = whole_of(p, q->succ.at[(*k)++]);
        if (to != i && p->group.at[to]->merged == -1) return to;
    }
    return -1;
}

/* Groups that live, each after those that it reads, and its first reader soon after it. */
static int order_groups(Planner *p, int *order)
{
    int n = p->group.n, count = 0, live = 0, *need = NEWS(p->arena, int, n + 1);
    VEC(int) ready = { 0 };
    for (int i = 0; i < n; i++) {
        if (p->group.at[i]->merged != -1) continue;
        live++;
        for (int k = 0, to; (to = next_reader(p, i, &k)) >= 0;) need[to]++;
    }
    for (int i = n - 1; i >= 0; i--) if (p->group.at[i]->merged == -1 && !need[i]) vec_push(p->arena, &ready, i);
    while (ready.n) {
        int i = ready.at[--ready.n], from = ready.n;
        order[count++] = i;
        for (int k = 0, to; (to = next_reader(p, i, &k)) >= 0;) if (--need[to] == 0) vec_push(p->arena, &ready, to);
        for (int x = from, y = ready.n - 1; x < y; x++, y--) { int t = ready.at[x]; ready.at[x] = ready.at[y]; ready.at[y] = t; }       /* the first is the next */
    }
    ASSERT(count == live);              /* no cycle */
    return count;
}

/* What reads inputs and constants only could be computed at any time: it stands right before its first reader, so that its results lie in the caches then, and in memory
 * no longer than needed. */
static void order_late(Planner *p, int *order, int count)
{
    int n = p->group.n, made = 0, *at = NEWS(p->arena, int, n + 1), *next = NEWS(p->arena, int, n + 1), *late = NEWS(p->arena, int, n + 1), *old = arena_copy(p->arena, order, sizeof *order * (size_t)count);
    bool *reads = NEWS(p->arena, bool, n + 1);           /* what a kernel of the run computes */
    for (int i = 0; i < count; i++) at[old[i]] = i;
    for (int i = 0; i < n; i++) late[i] = -1;
    for (int i = 0; i < count; i++) for (int k = 0, to; !p->group.at[old[i]]->once && (to = next_reader(p, old[i], &k)) >= 0;) reads[to] = true;
    for (int i = count - 1; i >= 0; i--) {
        int q = old[i], first = -1;
        for (int k = 0, to; (to = next_reader(p, q, &k)) >= 0;) if (first < 0 || at[to] < at[first]) first = to;
        if (first < 0 || reads[q] || p->group.at[q]->once) continue;
        next[q] = late[first];
        late[first] = q;
        old[i] = -1;
    }
    for (int i = 0; i < count; i++) {
        if (old[i] < 0) continue;
        for (int q = late[old[i]]; q >= 0; q = next[q]) order[made++] = q;
        order[made++] = old[i];
    }
}

void sort_kernels(Planner *p)
{
    Plan *plan = p->plan;
    int n = p->group.n, *number = NEWS(p->arena, int, n + 1), *order = NEWS(p->arena, int, n + 1);
    for (int i = 0; i < n; i++) {
        Group *q = p->group.at[i];
        if (q->merged < 0 && !q->node.n && !q->store.n) q->merged = -2;
        number[i] = -1;
    }
    int count = order_groups(p, order);
    order_late(p, order, count);
    plan->kernel = NEWS(p->arena, Subgraph, n + 1);
    plan->once = NEWS(p->arena, bool, n + 1);
    for (int at = 0; at < count; at++) {
        int i = order[at];
        Group *q = p->group.at[i];
        number[i] = plan->nkernel;
        plan->once[plan->nkernel] = q->once;
        Subgraph *s = &plan->kernel[plan->nkernel++];
        *s = (Subgraph){ .kind = q->kind, .id = number[i], .rank = q->rank, .space = q->space, .rows = q->rows, .inner = q->inner, .stream = q->stream, .part = q->part, .step = q->step, .nnode = q->node.n, .node = q->node.at };
        VEC(SubStore) store = { 0 };
        for (int k = 0; k < q->node.n; k++) {
            Node *x = q->node.at[k];
            SubStore own = { x, x, p->coord[x->id], p->coord[x->id] };
            if (q->kind != SUB_call && (plan->stored[x->id] || q->kind == SUB_scatter)) vec_push(p->arena, &store, own);
        }
        for (int k = 0; k < q->store.n; k++) vec_push(p->arena, &store, q->store.at[k]);
        s->nstore = store.n; s->store = store.at;
    }
    for (int id = 0; id < p->g->node.n; id++) {
        Group *q = group_of(p, p->home[id]);
        plan->home[id] = q ? number[q->id] : p->home[id];
    }
    for (int i = 0; i < plan->nkernel; i++) {
        Subgraph *s = &plan->kernel[i];
        s->home = plan->home; s->stored = plan->stored; s->constant = p->constant; s->iter = (Dim *const *const *)p->iter;
        for (int a = 1; a < s->nnode; a++) {         /* in order of id */
            Node **v = (Node **)s->node, *x = v[a];
            int b = a;
            for (; b > 0 && v[b - 1]->id > x->id; b--) v[b] = v[b - 1];
            v[b] = x;
        }
    }
}

/* The runs of a segment.
 *
 * Arguments, buffer sizes and offsets follow from the values of the graph's symbols. They are computed once for each set of values and kept with an arena
 * as an Instance; a run takes an idle instance or makes one, fills in the addresses of inputs and outputs, and hands the launch list to the device. So
 * several threads run one segment at the same time, each in an instance of its own. */
#include "api/segment.h"

#include <string.h>

typedef struct HostCall {               /* a call in a launch list: runs on the caller's thread */
    const Segment *s; const Node *call;
    void **buf;                         /* of its launch: operands, then results */
    const int64_t *syms;
    Tensor *in, *out;                   /* addresses by patches and placement */
    bool *far;                          /* by slot of buf: it lies on a device with memory of its own */
    volatile int *cancel;               /* of the run */
} HostCall;

bool segment_is_output(const Segment *s, const Node *n)
{
    for (int i = 0; i < s->g->output.n; i++) if (s->g->output.at[i].node == n) return true;
    return false;
}

void segment_raise(Ctx *cx, const Segment *s, const RtError *e)
{
    if (s && e->launch >= 0 && e->site > 0 && e->site < s->g->origin.n) {
        const Origin *o = &s->g->origin.at[e->site];
        fail(cx, e->code, "node '%s' (%s): index %lld is outside an axis of size %lld", o->name ? o->name : "", o->op ? o->op : "", (long long)e->value, (long long)e->limit);
    }
    fail(cx, e->code, "%s", e->text);
}

int64_t node_bytes(const Node *n, const int64_t *syms)
{
    int64_t c = (int64_t)dtype_size(n->dt);
    for (int k = 0; k < n->rank; k++) {
        int64_t d = dim_eval(n->dims[k], syms, NULL);
        if (d < 0 || (d && c > INT64_MAX / d / 2)) return -1;
        c *= d;
    }
    return c;
}

void node_tensor(Ctx *cx, const Node *n, const int64_t *syms, Tensor *t)
{
    int64_t dims[MAX_RANK];
    for (int k = 0; k < n->rank; k++) dims[k] = dim_eval(n->dims[k], syms, NULL);
    tensor_init(cx, t, n->dt, n->rank, dims);
}

void *device_block(Ctx *cx, const Segment *s, int64_t bytes)
{
    void *p = NULL;
    RtError e = { .launch = -1 };
    if (bytes > 0 && s->target->api->alloc(s->target->device, (size_t)bytes, &p, &e) != E_OK) segment_raise(cx, NULL, &e);
    return p;
}

enum { LEAST_PART = 10000 };            /* operations of a part: about a microsecond */

/* ---- launches ---------------------------------------------------------------------------------------------------------------------------- */
static void launch_fill(Arena *a, const Part *p, const int64_t *syms, Launch *l)
{
    const LoopKernel *k = p->loops;
    int64_t *arg = NEWS(a, int64_t, p->src.narg + 1);
    for (int i = 0; i < p->src.narg; i++) arg[i] = dim_eval(p->src.arg[i], syms, NULL);
    l->kernel = p->built;
    l->arg = arg;
    l->buf = NEWS(a, void *, p->src.nbuf + 1);
    l->nbuf = p->src.nbuf;
    l->narg = p->src.narg;
    l->each = p->src.each;
    l->threads = p->src.threads;
    l->resident = p->src.resident;
    l->cluster = p->src.cluster;
    l->local = p->src.local ? (size_t)dim_eval(p->src.local, syms, NULL) : 0;
    l->checks = p->src.checks;
    l->total = dim_eval(k->total, syms, NULL);
    l->scratch = p->src.scratch ? (size_t)dim_eval(p->src.scratch, syms, NULL) : 0;
    l->common = p->src.common ? (size_t)dim_eval(p->src.common, syms, NULL) : 0;
    int64_t work = dim_eval(k->work, syms, NULL), each = l->total > 0 ? work / l->total + 1 : 1;
    l->grain = LEAST_PART / each + 1;   /* till the device has seen how long it takes */
    l->pace = NEW(a, Pace);
}

static const KBuf *slot_buf(const Part *p, int slot) { return &p->loops->buf.at[p->src.buf[slot]]; }
static const Node *buf_node(const Part *p, int slot) { return slot_buf(p, slot)->node; }

static void host_call_run(void *arg, RtError *e);

/* Where kernels find a constant's bytes, or sizes as a vector. */
static void *fixed_data(Arena *a, const Segment *s, const Node *n, const int64_t *syms)
{
    if (s->fixed[n->id]) return s->fixed[n->id];
    if (s->uploaded[n->id]) return s->uploaded[n->id];
    if (n->op == OP_const) return (void *)n->tensor->data;
    if (n->op != OP_dims) return NULL;
    int64_t count = n->rank ? dim_eval(n->dims[0], syms, NULL) : 1, *v = NEWS(a, int64_t, count + 1);
    for (int64_t i = 0; i < count; i++) v[i] = dim_eval(n->size[i], syms, NULL);
    return v;
}

static void run_once_interpreted(Ctx *cx, Segment *s, const int64_t *at)
{
    int n = 0, count = s->g->node.n;
    Node **node = NEWS(s->arena, Node *, count + 1);
    for (int id = 0; id < count; id++) if (at[id] >= 0) node[n++] = s->g->node.at[id];
    Tensor *t = NEWS(s->arena, Tensor, n + 1);
    eval_nodes(cx, s->arena, s->g, NULL, NULL, n, node, t);
    for (int i = 0; i < n; i++) s->fixed[node[i]->id] = t[i].data;
}

void segment_run_once(Ctx *cx, Segment *s)
{
    int n = 0;
    int64_t bytes = 0;
    stage_constants(cx, s);
    for (int i = 0; i < s->npart; i++) n += s->part[i].once;
    if (!n) return;
    int64_t *at = NEWS(s->arena, int64_t, s->g->node.n + 1);
    for (int id = 0; id < s->g->node.n; id++) {
        at[id] = -1;
        if (s->first[id] < 0 || !s->part[s->first[id]].once) continue;
        at[id] = bytes;
        bytes += (node_bytes(s->g->node.at[id], NULL) + 63) & ~(int64_t)63;
    }
    s->once_bytes = bytes;
    if (!s->target->device) { run_once_interpreted(cx, s, at); return; }
    s->once_block = device_block(cx, s, bytes + 64);
    for (int id = 0; id < s->g->node.n; id++) if (at[id] >= 0) s->fixed[id] = (uint8_t *)s->once_block + at[id];
    Launch *l = NEWS(s->arena, Launch, n);
    n = 0;
    for (int i = 0; i < s->npart; i++) {
        if (!s->part[i].once) continue;
        launch_fill(s->arena, &s->part[i], NULL, &l[n]);
        l[n].id = i;
        for (int k = 0; k < s->part[i].src.nbuf; k++) l[n].buf[k] = fixed_data(s->arena, s, buf_node(&s->part[i], k), NULL);
        n++;
    }
    RtError e = { .launch = -1 };
    int threads = s->opt.threads ? s->opt.threads : cx->opt.threads;
    Checker c = { .s = s, .at = s->fixed, .seen = NEWS(s->arena, uint64_t, s->g->node.n + 1) };
    for (int i = 0; s->opt.check && i < n; i++) checker_run(cx, &c, l[i].id, &l[i], threads, NULL);
    if (!s->opt.check && s->target->api->run(s->target->device, n, l, threads, cx->cancel, NULL, &e) != E_OK) segment_raise(cx, s, &e);
}

/* ---- instances ------------------------------------------------------------------------------------------------------------------------------- */
void instance_free(const Segment *s, Instance *x)
{
    if (x->arena) s->target->api->release(s->target->device, x->arena);
    for (int i = 0; i < x->nlib; i++) lib_free(x->lib[i]);
    if (x->table) s->target->api->release(s->target->device, x->table);
    arena_free(x->memory);
}

/* Outputs are the caller's memory, if the device can write there; what is computed once has its own. */
bool segment_in_arena(const Segment *s, const Node *n)
{
    bool lies = s->first[n->id] >= 0 && !segment_is_output(s, n);
    if (is_staged(s)) lies = s->first[n->id] >= 0 || (s->last[n->id] >= 0 && (n->op == OP_input || n->op == OP_dims));
    return lies && !s->fixed[n->id];
}

int64_t segment_place(Arena *a, const Segment *s, const int64_t *bytes, int64_t *offset)
{
    const Graph *g = s->g;
    int n = 0, *number = NEWS(a, int, g->node.n + 1);
    MemBuf *b = NEWS(a, MemBuf, g->node.n + 1);
    for (int id = 0; id < g->node.n; id++) {
        number[id] = -1;
        if (bytes[id] < 0) continue;
        bool dims = g->node.at[id]->op == OP_dims;   /* written before the first kernel */
        number[id] = n;
        b[n++] = (MemBuf){ .first = dims ? -1 : s->first[id], .last = dims ? s->npart : s->last[id], .may_share = -1, .bytes = bytes[id] };
    }
    for (int pass = 0; pass < 2; pass++)             /* takers of takers share the first one's memory */
        for (int id = 0; id < g->node.n; id++) {
            int from = s->share[id];
            if (number[id] < 0 || from < 0 || number[from] < 0) continue;
            while (s->share[from] >= 0 && number[s->share[from]] >= 0) from = s->share[from];
            if (b[number[from]].bytes == b[number[id]].bytes) b[number[id]].may_share = number[from];
        }
    for (int i = 0; i < n; i++) {                    /* a share of a node that kept its own memory */
        int r = b[i].may_share;
        if (r >= 0 && b[r].may_share >= 0) b[i].may_share = -1;
    }
    int64_t all = memory_place(a, n, b);
    for (int id = 0; id < g->node.n; id++) if (number[id] >= 0) offset[id] = b[number[id]].offset;
    return all;
}

static bool is_far(const Instance *x, const Node *v) { return x->far && x->far[v->id]; }

static void place_buffers(Ctx *cx, Segment *s, Instance *x, void **where)
{
    const Graph *g = s->g;
    int64_t *bytes = NEWS(x->memory, int64_t, g->node.n + 1), *offset = NEWS(x->memory, int64_t, g->node.n + 1);
    for (int id = 0; id < g->node.n; id++) {
        const Node *v = g->node.at[id];
        bytes[id] = -1;
        if (!segment_in_arena(s, v) || is_far(x, v)) continue;
        bytes[id] = node_bytes(v, x->syms);
        if (bytes[id] < 0) fail(cx, E_NOMEM, "an intermediate result is larger than the address space");
    }
    x->arena_bytes = segment_place(x->memory, s, bytes, offset);
    x->temp_bytes = x->arena_bytes;
    x->arena = device_block(cx, s, x->arena_bytes);
    for (int id = 0; id < g->node.n; id++) if (bytes[id] >= 0) where[id] = x->arena + offset[id];
}

static bool patched(const Segment *s, const Instance *x, const Node *n)
{
    return is_far(x, n) || (!is_staged(s) && (n->op == OP_input || (segment_is_output(s, n) && !s->fixed[n->id] && s->first[n->id] >= 0)));
}

typedef VEC(struct Patch) Patches;
static void place_at(Arena *a, const Segment *s, const Instance *x, const Node *v, void **at, Patches *patches)
{
    struct Patch q = { at, v->id };
    if (patched(s, x, v)) vec_push(a, patches, q);
    else *at = x->where[v->id] ? x->where[v->id] : fixed_data(a, s, v, x->syms);
}

static void place_buffers_of(Ctx *cx, Arena *a, Segment *s, Instance *x, const Part *p, Launch *l, Patches *patches)
{
    launch_fill(a, p, x->syms, l);
    char why[256];
    LibRun *run = p->lib_run;
    if (!run && in_library(p)) {
        run = library_run(cx, s, p, x->syms, why, sizeof why);
        if (run) x->lib[x->nlib++] = run;
        else log_line(cx, 1, "kernel %s runs itself: %s", p->src.name, why);
    }
    if (run) lib_launch(run, l->buf, p->src.nbuf, NEWS(a, int64_t, 1), l);
    for (int k = 0; k < p->src.nbuf; k++) {
        if (slot_buf(p, k)->packed && run) continue;
        if (slot_buf(p, k)->packed) l->buf[k] = (void *)packed_data(s, slot_buf(p, k), NULL);
        else place_at(a, s, x, buf_node(p, k), &l->buf[k], patches);
    }
}

typedef struct InstanceMaking { Arena *a; Segment *s; const int64_t *syms; const uint8_t *far; Instance *x; } InstanceMaking;

static void instance_make(Ctx *cx, void *arg)
{
    InstanceMaking *mk = arg;
    Arena *a = mk->a;
    Segment *s = mk->s;
    const int64_t *syms = mk->syms;
    Instance *x = NEW(a, Instance);
    x->memory = a;
    mk->x = x;
    x->syms = NEWS(a, int64_t, s->g->sym.n + 1);
    for (int i = 0; i < s->g->sym.n; i++) x->syms[i] = syms[i];
    if (mk->far) x->far = arena_copy(a, mk->far, (size_t)s->g->node.n);
    void **where = x->where = NEWS(a, void *, s->g->node.n + 1);
    place_buffers(cx, s, x, where);
    stage_sizes(cx, s, x);
    int n = s->npart;
    x->launch = NEWS(a, Launch, n + 1);
    x->part = NEWS(a, int, n + 1);
    x->host = NEWS(a, HostCall, n + 1);
    x->lib = NEWS(a, LibRun *, n + 1);
    Patches patch = { 0 };
    int64_t words = 0;
    for (int i = 0; i < n; i++) {
        if (s->part[i].joint && !joined_before(s, i)) { x->njoint++; words += s->part[i].joint->n * s->part[i].joint->words; }
    }
    x->joint = NEWS(a, JointRun, x->njoint + 1);
    x->table = device_block(cx, s, words * (int64_t)sizeof words);
    x->njoint = 0;
    words = 0;
    for (int i = 0; i < n; i++) {
        if (s->part[i].once) continue;
        const Part *p = &s->part[i];
        if (joined_before(s, i)) continue;
        int at = x->nlaunch++;
        Launch *l = &x->launch[at];
        x->part[at] = i;
        if (p->joint) {
            JointRun *r = &x->joint[x->njoint++];
            r->member = NEWS(a, Launch, p->joint->n);
            for (int m = 0; m < p->joint->n; m++) place_buffers_of(cx, a, s, x, &s->part[i + m], &r->member[m], &patch);
            r->member[0].kernel = p->built;
            joint_launch(a, p->joint, r, l);
            r->table = l->buf[0] = (int64_t *)x->table + words;
            words += p->joint->n * p->joint->words;
            l->id = i;
            continue;
        }
        if (p->loops) place_buffers_of(cx, a, s, x, p, l, &patch);
        else {
            HostCall *h = &x->host[at];
            const Node *call = p->sub->node[0];
            *h = (HostCall){ .s = s, .call = call, .syms = x->syms };
            h->in = NEWS(a, Tensor, call->nin + 1);
            h->out = NEWS(a, Tensor, call->call->nout + 1);
            l->buf = NEWS(a, void *, call->nin + call->call->nout + 1);
            h->far = NEWS(a, bool, call->nin + call->call->nout + 1);
            for (int k = 0; k < call->nin; k++) {
                const Node *v = call->in[k];
                node_tensor(cx, v, syms, &h->in[k]);
                h->far[k] = is_staged(s) && (is_far(x, v) || where[v->id] || s->fixed[v->id] || s->uploaded[v->id]);
                place_at(a, s, x, v, &l->buf[k], &patch);
            }
            for (int k = 0; k < call->call->nout; k++) h->out[k].dt = call->call->out_dt[k];
            for (int id = call->id + 1; id < s->g->node.n; id++) {   /* results that nobody uses have sizes too */
                const Node *v = s->g->node.at[id];
                if (v->op == OP_part && v->in[0] == call) node_tensor(cx, v, syms, &h->out[v->index]);
            }
            for (int j = 1; j < p->sub->nnode; j++) {
                const Node *v = p->sub->node[j];
                place_at(a, s, x, v, &l->buf[call->nin + v->index], &patch);
                h->far[call->nin + v->index] = is_staged(s);
            }
            l->host = host_call_run;
            l->host_arg = h;
            h->buf = l->buf;
            l->total = l->grain = 1;
        }
        l->id = i;
    }
    x->patch = patch.at; x->npatch = patch.n;
}

static Instance *instance_new(Ctx *cx, Segment *s, const int64_t *syms, const uint8_t *far)
{
    InstanceMaking mk = { arena_new(cx), s, syms, far, NULL };
    if (guard_call(cx, instance_make, &mk) == E_OK) return mk.x;
    if (mk.x) instance_free(s, mk.x);
    else arena_free(mk.a);
    fail_again(cx);
}

typedef struct HostJob { HostCall *h; Arena *a; } HostJob;

static void host_call_guarded(Ctx *cx, void *arg)
{
    HostJob *j = arg;
    HostCall *h = j->h;
    void *const *buf = h->buf;
    for (int k = 0; k < h->call->nin; k++) {
        h->in[k].data = buf[k];
        if (!h->far[k]) continue;
        h->in[k].data = arena_alloc(j->a, tensor_bytes(&h->in[k]) + 1);
        stage_read(cx, h->s, h->in[k].data, buf[k], tensor_bytes(&h->in[k]));
    }
    void *want[64] = { 0 };
    for (int k = 0; k < h->call->call->nout && k < 64; k++) {
        want[k] = h->far[h->call->nin + k] ? NULL : buf[h->call->nin + k];
        h->out[k].data = want[k] ? want[k] : arena_alloc(j->a, tensor_bytes(&h->out[k]) + 1);
    }
    h->call->call->def->eval(cx, j->a, h->call->call, h->in, h->out);
    for (int k = 0; k < h->call->call->nout && k < 64; k++)
        if (want[k] && h->out[k].data != want[k]) memcpy(want[k], h->out[k].data, tensor_bytes(&h->out[k]));
    for (int k = 0; k < h->call->call->nout; k++)
        if (h->far[h->call->nin + k] && buf[h->call->nin + k]) stage_write(cx, h->s, buf[h->call->nin + k], h->out[k].data, tensor_bytes(&h->out[k]));
}

static void host_call_run(void *arg, RtError *e)
{
    HostCall *h = arg;
    Ctx cx;
    ctx_init(&cx);
    cx.cancel = h->cancel;
    Arena *a = NULL;
    HostJob j = { h, NULL };
    a = arena_new(&cx);
    j.a = a;
    const Origin *o = &h->s->g->origin.at[h->call->origin];
    Note note;
    note_push(&cx, &note, "node", o->name ? o->name : "", o->op ? o->op : "");
    Status st = guard_call(&cx, host_call_guarded, &j);
    if (st != E_OK) rt_fail(e, st, "%s", cx.text);
    arena_free(a);
}

static bool same_far(const Segment *s, const uint8_t *a, const uint8_t *b) { return !a || !b ? a == b : !memcmp(a, b, (size_t)s->g->node.n); }

static Instance *instance_take(Ctx *cx, Segment *s, const int64_t *syms, const uint8_t *far)
{
    size_t n = sizeof *syms * (size_t)s->g->sym.n;
    pthread_mutex_lock(&s->lock);
    for (Instance **at = &s->idle; *at; at = &(*at)->next)
        if ((!n || !memcmp((*at)->syms, syms, n)) && same_far(s, (*at)->far, far)) {
            Instance *x = *at;
            *at = x->next;
            s->nidle--;
            pthread_mutex_unlock(&s->lock);
            return x;
        }
    pthread_mutex_unlock(&s->lock);
    return instance_new(cx, s, syms, far);
}

static void instance_give(Segment *s, Instance *x)
{
    pthread_mutex_lock(&s->lock);
    x->next = s->idle;
    s->idle = x;
    memcpy(s->last_syms, x->syms, sizeof *x->syms * (size_t)s->g->sym.n);
    s->last_temp = x->temp_bytes;
    Instance *old = NULL;
    if (++s->nidle > MAX_IDLE) {        /* the one that rested longest */
        Instance **at = &s->idle;
        while ((*at)->next) at = &(*at)->next;
        old = *at;
        *at = NULL;
        s->nidle--;
    }
    pthread_mutex_unlock(&s->lock);
    if (old) instance_free(s, old);
}

/* ---- a run ---------------------------------------------------------------------------------------------------------------------------------- */
typedef struct RunJob {
    Arena *a; Segment *s; Instance *x; const Tensor *in; Tensor *out; const size_t *out_bytes; double *seconds;
} RunJob;

static void *address_of(const RunJob *j, const Node *n)
{
    bool far = j->x && is_far(j->x, n);
    for (int i = 0; i < j->s->g->output.n; i++) if (j->s->g->output.at[i].node == n && n->op != OP_input) return far ? j->out[i].far : j->out[i].data;
    return n->op != OP_input ? NULL : far ? j->in[n->index].far : j->in[n->index].data;
}

/* whole: they are made on the host, whatever the caller wants. */
static void prepare_outputs(Ctx *cx, RunJob *j, const int64_t *syms, bool whole)
{
    const Graph *g = j->s->g;
    for (int i = 0; i < g->output.n; i++) {
        void *data = j->out[i].data, *far = j->out[i].far;
        bool made = j->out[i].make_far;
        node_tensor(cx, g->output.at[i].node, syms, &j->out[i]);
        size_t bytes = tensor_bytes(&j->out[i]);
        if ((data || far) && j->out_bytes && bytes > j->out_bytes[i])
            fail(cx, E_INVALID, "output '%s' needs %zu bytes, the buffer has %zu", g->output.at[i].name, bytes, j->out_bytes[i]);
        if (far && (uintptr_t)far % dtype_size(j->out[i].dt))
            fail(cx, E_INVALID, "output '%s' lies at an address that is no multiple of %zu", g->output.at[i].name, dtype_size(j->out[i].dt));
        j->out[i].data = data ? data : far && !whole ? NULL : arena_block(j->a, bytes);
        j->out[i].far = far;
        j->out[i].make_far = made;
    }
}

static void run_checked(Ctx *cx, RunJob *j, int threads)
{
    Segment *s = j->s;
    int n = s->g->node.n;
    void **at = NEWS(j->a, void *, n + 1);
    for (int id = 0; id < n; id++) {
        const Node *v = s->g->node.at[id];
        if (s->fixed[id] || s->first[id] >= 0) at[id] = s->fixed[id] ? s->fixed[id] : j->x->where[id] ? j->x->where[id] : address_of(j, v);
    }
    Checker c = { .s = s, .syms = j->x->syms, .in = j->in, .at = at, .seen = NEWS(j->a, uint64_t, n + 1) };
    for (int i = 0; i < j->x->nlaunch; i++) checker_run(cx, &c, j->x->part[i], &j->x->launch[i], threads, j->seconds ? &j->seconds[j->x->part[i]] : NULL);
    checker_end(cx, &c);
}

/* What a kernel reads, in the order of memory. */
static void read_operands(Ctx *cx, const RunJob *j, int launch)
{
    const Part *p = &j->s->part[j->x->part[launch]];
    for (int k = 0; p->loops && k < p->src.nbuf; k++) {
        const KBuf *b = &p->loops->buf.at[p->src.buf[k]];
        Tensor t;
        if (!b->read || b->packed || b->scratch) continue;
        node_tensor(cx, b->node, j->x->syms, &t);
        const volatile uint8_t *at = j->x->launch[launch].buf[k];
        for (size_t i = 0, n = tensor_bytes(&t); i < n; i += 64) (void)at[i];
    }
}

static void run_alike(Ctx *cx, RunJob *j, int threads)
{
    for (int i = 0; i < j->x->nlaunch; i++) {
        RtError e = { .launch = -1 };
        read_operands(cx, j, i);
        if (j->s->target->api->run(j->s->target->device, 1, &j->x->launch[i], threads, cx->cancel, &j->seconds[j->x->part[i]], &e) != E_OK) segment_raise(cx, j->s, &e);
    }
}

static void poison_arena(Ctx *cx, const Segment *s, const Instance *x)
{
    uint8_t ones[4096];
    if (!is_staged(s)) { memset(x->arena, 0xFF, (size_t)x->arena_bytes); return; }
    memset(ones, 0xFF, sizeof ones);
    for (int64_t at = 0; at < x->arena_bytes; at += (int64_t)sizeof ones)
        stage_write(cx, s, x->arena + at, ones, x->arena_bytes - at < (int64_t)sizeof ones ? (size_t)(x->arena_bytes - at) : sizeof ones);
    stage_sizes(cx, s, x);
}

/* May kernels write output b where input a lies? Only one that reads each element of it before it writes that, and what reads it comes before. */
static bool may_overwrite(const Segment *s, const Node *a, const Node *b)
{
    int writer = -1;
    for (int i = 0; i < s->npart; i++)
        for (int k = 0; s->part[i].loops && k < s->part[i].loops->buf.n; k++) {
            const KBuf *x = &s->part[i].loops->buf.at[k];
            if (x->scratch || !x->write || x->node != b) continue;
            if (writer >= 0 && writer != i) return false;
            writer = i;
        }
    if (writer < 0) return false;
    const Part *w = &s->part[writer];
    for (int i = 0; i < s->npart; i++) {
        const Part *p = &s->part[i];
        for (int k = 0; !p->loops && k < p->sub->node[0]->nin; k++) if (p->sub->node[0]->in[k] == a && i > writer) return false;
        for (int k = 0; p->loops && k < p->loops->buf.n; k++) {
            const KBuf *x = &p->loops->buf.at[k];
            if (x->scratch || x->write || x->node != a) continue;
            if (i > writer || (i < writer && p->joint && p->joint == w->joint)) return false;
            for (int o = 0; i == writer && o < p->loops->buf.n; o++)
                if (p->loops->buf.at[o].node == b && p->loops->buf.at[o].write && !kernel_may_alias(p->loops, k, o)) return false;
        }
    }
    return true;
}

static bool overlap(const Tensor *a, const Tensor *b)
{
    const char *x = a->far, *y = b->far;
    return x && y && x < y + tensor_bytes(b) && y < x + tensor_bytes(a);
}

/* Memory of the caller on the device that is given twice. Looked at when addresses are new. */
static void far_check(Ctx *cx, RunJob *j)
{
    const Graph *g = j->s->g;
    Instance *x = j->x;
    if (!x->far) return;
    uint64_t h = 0;
    for (int i = 0; i < g->input.n; i++) h = hash_bytes(&j->in[g->input.at[i].node->index].far, sizeof(void *), h);
    for (int i = 0; i < g->output.n; i++) h = hash_bytes(&j->out[i].far, sizeof(void *), h);
    if (x->far_checked && h == x->far_hash) return;
    for (int i = 0; i < g->output.n; i++) {
        const Tensor *out = &j->out[i];
        for (int k = 0; k < i; k++)
            if (overlap(out, &j->out[k])) fail(cx, E_INVALID, "outputs '%s' and '%s' share memory", g->output.at[k].name, g->output.at[i].name);
        for (int k = 0; k < g->input.n; k++) {
            const Node *n = g->input.at[k].node, *o = g->output.at[i].node;
            const Tensor *in = &j->in[n->index];
            if (!overlap(out, in) || n == o) continue;
            if (out->far != in->far || tensor_bytes(out) != tensor_bytes(in) || !is_far(x, o) || !may_overwrite(j->s, n, o))
                fail(cx, E_INVALID, "output '%s' lies in the memory of input '%s', which is still read when it is written", g->output.at[i].name, g->input.at[k].name);
        }
    }
    x->far_hash = h;
    x->far_checked = true;
}

/* An output that no kernel wrote where it is wanted. */
static void finish_output(Ctx *cx, RunJob *j, int i)
{
    Segment *s = j->s;
    Tensor *out = &j->out[i];
    const Node *n = s->g->output.at[i].node;
    const bool input = n->op == OP_input;
    size_t bytes = tensor_bytes(out);
    const void *there = !is_staged(s) ? NULL : input ? j->in[n->index].far : s->fixed[n->id] ? s->fixed[n->id] : s->uploaded[n->id] ? s->uploaded[n->id]
                      : is_far(j->x, n) ? address_of(j, n) : j->x->where[n->id];
    if (there) {
        if (there == out->far) return;
        void *to = out->far ? arena_block(j->a, bytes) : out->data;
        stage_read(cx, s, to, there, bytes);
        if (out->far) stage_write(cx, s, out->far, to, bytes);
        return;
    }
    const void *from = input ? j->in[n->index].data : s->fixed[n->id] || s->first[n->id] < 0 ? fixed_data(j->a, s, n, j->x->syms) : address_of(j, n);
    ASSERT(out->far || out->data);
    if (from && out->far) stage_write(cx, s, out->far, from, bytes);
    else if (from && from != out->data) memmove(out->data, from, bytes);
}

static void run_guarded(Ctx *cx, void *arg)
{
    RunJob *j = arg;
    Segment *s = j->s;
    Instance *x = j->x;
    prepare_outputs(cx, j, x->syms, false);
    far_check(cx, j);
    for (int i = 0; i < x->npatch; i++) *x->patch[i].at = address_of(j, s->g->node.at[x->patch[i].node]);
    for (int i = 0; i < x->njoint; i++) joint_send(cx, s, &x->joint[i]);
    for (int i = 0; i < x->nlaunch; i++) x->host[i].cancel = cx->cancel;
    if (cx->opt.poison && x->arena) poison_arena(cx, s, x);
    for (int i = 0; is_staged(s) && i < s->g->input.n; i++) {
        const Node *n = s->g->input.at[i].node;
        if (x->where[n->id]) stage_write(cx, s, x->where[n->id], j->in[n->index].data, tensor_bytes(&j->in[n->index]));
    }
    int threads = s->opt.threads ? s->opt.threads : cx->opt.threads;       /* 0: the device knows how many there are */
    if (s->opt.check) run_checked(cx, j, threads);
    else if (cx->opt.alike && j->seconds && !is_staged(s)) run_alike(cx, j, threads);
    else {
        RtError e = { .launch = -1 };
        double *sec = j->seconds ? NEWS(j->a, double, x->nlaunch + 1) : NULL;
        if (s->target->api->run(s->target->device, x->nlaunch, x->launch, threads, cx->cancel, sec, &e) != E_OK) segment_raise(cx, s, &e);
        for (int i = 0; sec && i < x->nlaunch; i++) j->seconds[x->part[i]] = sec[i];
    }
    for (int i = 0; i < s->g->output.n; i++) finish_output(cx, j, i);
}

/* No kernels: the interpreter runs it. */
static bool is_interpreted(const Segment *s, const int64_t *syms)
{
    bool is = s->interpreted;
    for (int i = 0; i < s->limit.n; i++) is |= dim_eval(s->limit.at[i], syms, NULL) == 0;
    return is;
}

/* For the evidence of runs without kernels. */
static void note_sizes(Segment *s, const int64_t *syms)
{
    pthread_mutex_lock(&s->lock);
    if (s->g->sym.n) memcpy(s->last_syms, syms, sizeof *syms * (size_t)s->g->sym.n);
    s->last_temp = 0;
    pthread_mutex_unlock(&s->lock);
}

void segment_prepare(Ctx *cx, Segment *s, const int64_t *syms)
{
    if (is_interpreted(s, syms)) note_sizes(s, syms);
    else instance_give(s, instance_take(cx, s, syms, NULL));
}

/* ready: by the fast loops instead of the reference interpreter. */
static void run_whole(Ctx *cx, RunJob *j, const int64_t *syms, bool ready)
{
    Segment *s = j->s;
    int n = s->g->output.n;
    Tensor *own = NEWS(j->a, Tensor, n + 1);
    Node **node = NEWS(j->a, Node *, n + 1);
    for (int i = 0; i < n; i++) node[i] = s->g->output.at[i].node;
    (ready ? eval_ready : eval_nodes)(cx, j->a, s->g, j->in, syms, n, node, own);
    prepare_outputs(cx, j, syms, true);
    for (int i = 0; i < n; i++) {
        if (j->out[i].far) stage_write(cx, s, j->out[i].far, own[i].data, tensor_bytes(&j->out[i]));
        else memcpy(j->out[i].data, own[i].data, tensor_bytes(&j->out[i]));
    }
    note_sizes(s, syms);
}

/* Memory on the device for results that are to stay there. */
static void make_far(Ctx *cx, const Segment *s, const int64_t *syms, Tensor *out)
{
    for (int i = 0; is_staged(s) && i < s->g->output.n; i++) {
        if (!out[i].make_far || out[i].far) continue;
        RtError e = { .launch = -1 };
        Tensor t;
        node_tensor(cx, s->g->output.at[i].node, syms, &t);
        if (s->target->api->alloc(s->target->device, tensor_bytes(&t) + 1, &out[i].far, &e)) fail(cx, e.code, "%s", e.text);
    }
}

/* Which nodes lie in the caller's memory on the device; NULL: none. An output that is asked for twice is written to the first place and copied. */
static const uint8_t *far_nodes(Arena *a, const Segment *s, const Tensor *in, const Tensor *out)
{
    const Graph *g = s->g;
    uint8_t *far = NULL;
    for (int i = 0; is_staged(s) && i < g->input.n + g->output.n; i++) {
        bool result = i >= g->input.n;
        const Node *n = result ? g->output.at[i - g->input.n].node : g->input.at[i].node;
        bool is = result ? out[i - g->input.n].far && n->op != OP_input && s->first[n->id] >= 0 && !s->fixed[n->id] : in[n->index].far != NULL;
        for (int k = 0; is && result && k < i - g->input.n; k++) is = g->output.at[k].node != n;
        if (!is) continue;
        if (!far) far = NEWS(a, uint8_t, g->node.n + 1);
        far[n->id] = 1;
    }
    return far;
}

/* With a copy on the host of what lies on the device. */
static const Tensor *near_inputs(Ctx *cx, Arena *a, const Segment *s, const Tensor *in)
{
    int n = s->g->input.n, most = 0;
    for (int i = 0; i < n; i++) if (s->g->input.at[i].node->index >= most) most = s->g->input.at[i].node->index + 1;
    Tensor *near = NEWS(a, Tensor, most + 1);
    for (int i = 0; i < n; i++) {
        int at = s->g->input.at[i].node->index;
        near[at] = in[at];
        if (!in[at].far || in[at].data) continue;
        near[at].data = arena_block(a, tensor_bytes(&in[at]));
        stage_read(cx, s, near[at].data, in[at].far, tensor_bytes(&in[at]));
    }
    return near;
}

void segment_run(Ctx *cx, Arena *a, Segment *s, const Tensor *in, const int64_t *syms, Tensor *out, const size_t *out_bytes, double *seconds)
{
    bool interpreted = is_interpreted(s, syms), whole = interpreted || !segment_ready(cx, s);
    if (whole || s->opt.check) in = near_inputs(cx, a, s, in);
    make_far(cx, s, syms, out);
    if (whole) {
        run_whole(cx, &(RunJob){ .a = a, .s = s, .in = in, .out = out, .out_bytes = out_bytes }, syms, !interpreted);
        return;
    }
    Instance *x = instance_take(cx, s, syms, far_nodes(a, s, in, out));
    RunJob j = { a, s, x, in, out, out_bytes, seconds };
    Status st = guard_call(cx, run_guarded, &j);
    instance_give(s, x);
    if (st != E_OK) fail_again(cx);
}

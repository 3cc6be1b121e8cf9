/* Kernels that do not need one another in one launch: horizontal fusion, where launches are dear (Dialect.join).
 *
 * Elementwise kernels are put into steps: one goes to the earliest set that comes after all it depends on, any other kernel to a step of its own at the end.
 * Moved forward are only those whose results do not wait long or are small, since what is computed early lies in memory longer. Kernels of a set are
 * printed anew as if there were threads enough; those with the same text share it, so hundreds of tensors of one optimiser are one text. A set is
 * taken when at least half of its kernels move so little that a launch costs more. The order of the parts becomes that of the steps, and buffers of a set
 * live as long as its launch (find_lives). */
#include "api/segment.h"

#include <string.h>

enum { MOST_TEXTS = 4, LAUNCH_BYTES = 16 << 20, WAIT_BYTES = 1 << 16 };

typedef struct Step { VEC(int) part; bool open; } Step;
typedef struct Steps { Segment *s; VEC(Step *) at; int *step_of; int **writers, *nwriter; } Steps;

static bool goes_along(const Segment *s, const Part *p)
{
    const LoopKernel *k = p->loops;
    return k && !p->once && k->sub->kind == SUB_map && !k->tile_var && k->team <= 1 && k->columns <= 1 && !p->src.checks && !p->src.scratch && !p->join_mate && s->target->dialect->join;
}

static bool is_joint_text(const KernelSource *src) { return src->inside && !src->checks && !src->scratch && !src->local; }

/* Buffers of a part: calls list what they read, then what they write. */
typedef void (*BufFn)(Steps *t, int part, const Node *n, bool write, void *arg);
static void each_buffer(Steps *t, int part, BufFn fn, void *arg)
{
    const Part *p = &t->s->part[part];
    for (int k = 0; p->loops && k < p->loops->buf.n; k++) {
        const KBuf *b = &p->loops->buf.at[k];
        if (!b->scratch) fn(t, part, b->node, b->write, arg);
    }
    for (int k = 0; !p->loops && k < p->sub->nnode; k++) {
        const Node *x = p->sub->node[k];
        if (x->op == OP_part) fn(t, part, x, true, arg);
        else for (int j = 0; j < x->nin; j++) fn(t, part, x->in[j], false, arg);
    }
}

static void after_writers(Steps *t, int part, const Node *n, bool write, void *arg)
{
    int *need = arg;
    (void)part; (void)write;
    for (int w = 0; w < t->nwriter[n->id]; w++) {
        int step = t->step_of[t->writers[n->id][w]];
        if (step >= *need) *need = step + 1;
    }
}

static void count_writer(Steps *t, int part, const Node *n, bool write, void *arg)
{
    (void)part; (void)arg;
    if (write) t->nwriter[n->id]++;
}

static void add_writer(Steps *t, int part, const Node *n, bool write, void *arg)
{
    (void)arg;
    if (write) t->writers[n->id][t->nwriter[n->id]++] = part;
}

static int64_t moved_bytes(const Part *p, bool written)
{
    int64_t all = 0;
    for (int k = 0; k < p->loops->buf.n; k++) {
        const KBuf *b = &p->loops->buf.at[k];
        int64_t n = (int64_t)dtype_size(b->dt);
        if (b->scratch || (written && !b->write)) continue;
        for (int j = 0; j < b->node->rank; j++) n *= dim_hint(p->loops->g, b->node->dims[j]);
        all += n;
    }
    return all;
}

static bool may_wait(const Segment *s, const Part *p)
{
    bool results = true;
    for (int k = 0; k < p->loops->buf.n; k++)
        if (p->loops->buf.at[k].write) results &= segment_is_output(s, p->loops->buf.at[k].node);
    return results || moved_bytes(p, true) <= WAIT_BYTES;
}

static void step_put(Steps *t, int part)
{
    Segment *s = t->s;
    const Part *p = &s->part[part];
    bool joins = goes_along(s, p);
    int need = 0, to = -1;
    each_buffer(t, part, after_writers, &need);
    for (int i = need; joins && i < t->at.n && to < 0; i++)
        if (t->at.at[i]->open && (i == t->at.n - 1 || may_wait(s, p))) to = i;
    if (to < 0) {
        Step *x = NEW(s->arena, Step);
        x->open = joins;
        to = t->at.n;
        vec_push(s->arena, &t->at, x);
    }
    vec_push(s->arena, &t->at.at[to]->part, part);
    t->step_of[part] = to;
}

/* A step's kernels as one launch, or as few as there are texts for; those that are left stay as they are. */
static void join_step(Ctx *cx, Segment *s, const Step *step)
{
    const Target *target = s->target;
    int n = step->part.n, small = 0, ntext = 0, *text_of = NEWS(s->arena, int, n + 1);
    if (n < 2) return;
    for (int i = 0; i < n; i++) small += moved_bytes(&s->part[step->part.at[i]], false) <= LAUNCH_BYTES;
    if (2 * small < n) return;
    LoopKernel **loops = NEWS(s->arena, LoopKernel *, n);
    KernelSource *src = NEWS(s->arena, KernelSource, n);
    const LoopKernel *of[MOST_TEXTS];
    const KernelSource *texts[MOST_TEXTS];
    Joint *joint = NEW(s->arena, Joint);
    joint->member = NEWS(s->arena, int, n);
    joint->text = NEWS(s->arena, int, n);
    Sched sched = { .joint = 1 };
    for (int i = 0; i < n; i++) {
        loops[i] = kernel_lower_as(cx, s->arena, s->g, s->part[step->part.at[i]].sub, target->vectors, &sched);
        target->dialect->print(cx, s->arena, target->isa, loops[i], &src[i]);
        text_of[i] = -1;
        if (!is_joint_text(&src[i])) continue;
        for (int k = 0; k < ntext && text_of[i] < 0; k++) if (!strcmp(texts[k]->name, src[i].name)) text_of[i] = k;
        if (text_of[i] < 0 && ntext < MOST_TEXTS && (!ntext || texts[0]->threads == src[i].threads)) {
            of[ntext] = loops[i]; texts[ntext] = &src[i];
            text_of[i] = ntext++;
        }
        if (text_of[i] < 0) continue;
        joint->member[joint->n] = step->part.at[i];
        joint->text[joint->n++] = text_of[i];
    }
    if (joint->n < 2) return;
    joint->words = join_words(ntext, texts);
    target->dialect->join(s->arena, ntext, of, texts, &joint->src);
    for (int i = 0; i < n; i++) {
        Part *p = &s->part[step->part.at[i]];
        if (text_of[i] < 0) continue;
        p->loops = loops[i];
        p->src = src[i];
        p->joint = joint;
    }
    log_line(cx, 4, "%s", joint->src.text);
}

void segment_join(Ctx *cx, Segment *s)
{
    int n = s->npart, nodes = s->g->node.n + 1;
    if (!s->target->dialect->join || !s->opt.fuse || s->opt.check || list_has(cx->opt.off, "horizontal")) return;
    Steps t = { .s = s, .step_of = NEWS(s->arena, int, n + 1), .writers = NEWS(s->arena, int *, nodes), .nwriter = NEWS(s->arena, int, nodes) };
    for (int i = 0; i < n; i++) each_buffer(&t, i, count_writer, NULL);
    for (int i = 0; i < nodes; i++) { t.writers[i] = NEWS(s->arena, int, t.nwriter[i] + 1); t.nwriter[i] = 0; }
    for (int i = 0; i < n; i++) { step_put(&t, i); each_buffer(&t, i, add_writer, NULL); }
    if (t.at.n == n) return;            /* each alone */
    for (int i = 0; i < t.at.n; i++) join_step(cx, s, t.at.at[i]);
    Part *order = NEWS(s->arena, Part, n + 1);
    int *now = NEWS(s->arena, int, n + 1), m = 0;
    for (int i = 0; i < t.at.n; i++)                 /* what is launched together stands together */
        for (int pass = 0; pass < 2; pass++)
            for (int k = 0; k < t.at.at[i]->part.n; k++) {
                int part = t.at.at[i]->part.at[k];
                if ((s->part[part].joint == NULL) != pass) continue;
                now[part] = m;
                order[m++] = s->part[part];
            }
    for (int i = 0; i < n; i++) if (order[i].join_mate) order[i].join_mate = &order[now[order[i].join_mate - s->part]];
    for (int i = 0; i < n; i++) {
        Joint *j = order[i].joint;
        if (!j || now[j->member[0]] != i || j->placed) continue;
        for (int k = 0; k < j->n; k++) j->member[k] = now[j->member[k]];
        j->placed = true;
    }
    s->part = order;
}

/* ---- runs ------------------------------------------------------------------------------------------------------------------------------ */
void joint_launch(Arena *a, const Joint *j, JointRun *r, Launch *l)
{
    r->joint = j;
    r->row = NEWS(a, int64_t, j->n * j->words + 1);
    r->sent = NEWS(a, int64_t, j->n * j->words + 1);
    int64_t first = 0;
    for (int i = 0; i < j->n; i++) {
        const Launch *m = &r->member[i];
        int64_t *w = r->row + i * j->words;
        w[JOIN_FIRST] = first;
        w[JOIN_TEXT] = j->text[i];
        memcpy(w + JOIN_ARGS + m->nbuf, m->arg, sizeof *m->arg * (size_t)m->narg);
        w[JOIN_ARGS + m->nbuf + m->narg] = m->total;
        first += (m->total + m->each - 1) / m->each;
    }
    r->rows = j->n;
    *l = (Launch){ .kernel = r->member[0].kernel, .buf = NEWS(a, void *, 1), .arg = &r->rows, .nbuf = 1, .narg = 1, .total = first, .grain = first, .each = 1, .threads = j->src.threads,
        .resident = true };
}

void joint_send(Ctx *cx, const Segment *s, JointRun *r)
{
    const Joint *j = r->joint;
    size_t bytes = sizeof *r->row * (size_t)(j->n * j->words);
    for (int i = 0; i < j->n; i++)
        for (int b = 0; b < r->member[i].nbuf; b++) r->row[i * j->words + JOIN_ARGS + b] = (int64_t)(intptr_t)r->member[i].buf[b];
    if (r->known && !memcmp(r->row, r->sent, bytes)) return;
    r->known = false;
    stage_write(cx, s, r->table, r->row, bytes);
    memcpy(r->sent, r->row, bytes);
    r->known = true;
}

/* Rows on CUDA: reductions over the last axis and everything fused with them, the row in registers.
 *
 * W threads share a row. Thread t of them holds V vectors of E consecutive elements, those at (s * W + t) * E; V, W and E are constants, because the row's
 * length is. What a loop over the row reads with neighbouring elements together is loaded once, whole vectors, before the loop that needs it first, and
 * stays packed in registers for later loops; what a loop computes for a later one stays there too, or is computed again when registers are short. So
 * each element is read once and written once. A reduction adds up in a thread, in a warp by shuffles, and in a block through a few words of shared memory.
 * What has another pattern (a gather, a shifted slice) is read element by element in the same loops.
 *
 * gen_rows() says no (false) where the reduced elements do not lie together, the length is open or 0, or the row does not fit; the plain form then serves. */
#include "gen/gen.h"

#include <stdio.h>
#include <string.h>

enum { MOST_THREADS = 512, BLOCK = 128,     /* threads of a row, of a block at least */
    VECTORS = 4,                            /* of a thread, where more threads are to be had */
    WORDS = 40, WORDS_MOST = 72,            /* registers for the row in a thread, and where no more threads are to be had */
    WORKING = 40, LEAST = 64,               /* registers beside the row's; of a thread in all, at least */
    REGISTERS = 65536 };                    /* of a multiprocessor */

typedef struct Slot {                   /* elements of the row that are loaded or stored as vectors */
    int buf; Dim *off; int npred; Pred *pred; DType dt;
    int id, first, last;                /* loops that use it */
    bool store, kept;                   /* kept: a value that a later loop may compute again needs it */
} Slot;
typedef struct Kept { const KVal *val; int first, last; int buf; Dim *off; } Kept;     /* a value that later loops read back from buf */

typedef struct Rows {
    Printer p;
    Ctx *cx; Arena *a; Graph *g; const LoopKernel *k;
    Dim *var;                           /* of the row */
    int64_t n;                          /* its length */
    int nloop; const KBlock **loop;     /* bodies of the loops over the row */
    VEC(Slot) slot;
    VEC(Kept) kept;
    const Slot **slot_of;               /* by value id: the slot of a load */
    int *kept_of;                       /* by value id: 1 + the Kept that a load reads back */
    int *holds;                         /* by value id: 1 + the Kept that this value is */
    int *stamp, scope;                  /* by value id: the scope in which it was printed last */
    int e, v, w, rows;                  /* elements of a vector, vectors of a thread, threads of a row, rows of a block */
    int need;                           /* registers of a thread for its part of the row */
    bool again;                         /* kept values are computed again */
    int here;                           /* the loop being printed */
} Rows;

static const char *held(DType t) { return dtype_info[dtype_info[t].compute].name; }

/* How an element lies in memory: the suffix of get_ and put_. */
static const char *stored_as(DType t)
{
    switch (t) {
    case DT_i4: case DT_i2: return "i8";
    case DT_u4: case DT_u2: return "u8";
    default: return dtype_is_float(t) && dtype_size(t) == 1 ? "u8" : dtype_info[t].name;
    }
}

/* ---- is it ours? ----------------------------------------------------------------------------------------------------------------------- */
static bool find_loops(Rows *r)
{
    const KBlock *b = r->k->body;
    for (int i = 0; i < r->k->top->stmt.n; i++) if (r->k->top->stmt.at[i].kind == KS_loop) return false;
    int most = 1;
    for (int i = 0; i < b->stmt.n; i++) most += b->stmt.at[i].kind == KS_loop;
    r->loop = NEWS(r->a, const KBlock *, most);
    Dim *extent = NULL;
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind != KS_loop) continue;
        KLoop *o = b->stmt.at[i].loop;
        if (o->vector || (r->nloop && o->var != r->var)) return false;
        for (int j = 0; j < o->body->stmt.n; j++) {
            const KStmt *s = &o->body->stmt.at[j];
            if (s->kind == KS_loop || s->kind == KS_fold || (s->kind == KS_store && s->how != COMBINE_set)) return false;
        }
        r->var = o->var;
        extent = o->extent;
        r->loop[r->nloop++] = o->body;
    }
    if (!extent || !dim_is_const(extent) || extent->c < 1) return false;
    r->n = extent->c;
    return true;
}

static bool in_row(const Rows *r, const KVal *v) { return v->block->loop && v->block->loop->var == r->var; }

/* Are the elements of the row neighbours in memory, and what else decides the address the same all along the row? */
static bool together(Rows *r, const KAddr *at, int nopnd, KVal *const *opnd)
{
    Dim *c, *rest;
    for (int i = 0; i < nopnd; i++) if (in_row(r, opnd[i])) return false;
    for (int i = 0; i < at->npred; i++) if (dim_uses(at->pred[i].e, r->var->var) || dim_uses(at->pred[i].n, r->var->var)) return false;
    return dim_uses(at->off, r->var->var) && dim_linear(r->g, at->off, r->var->var, &c, &rest) && dim_is(c, 1);
}

/* Does every vector of e elements of the row begin at a multiple of e? */
static bool aligned(const Rows *r, Dim *off, int e)
{
    if (r->n % e || off->c % e) return false;
    if (off->kind != DIM_sum) return off == r->var;
    for (int i = 0; i < off->n; i++)
        if (off->term[i].coef % e && !(off->term[i].n == 1 && off->term[i].factor[0] == r->var)) return false;
    return true;
}

static Slot *slot_find(Rows *r, int buf, const KAddr *at, bool store)
{
    for (int i = 0; i < r->slot.n; i++) {
        Slot *s = &r->slot.at[i];
        if (s->buf == buf && s->off == at->off && s->store == store && s->npred == at->npred && (!at->npred || s->pred == at->pred)) return s;
    }
    return NULL;
}

/* Sorts the loads and stores of the loops: read back from an earlier loop, a vector, or neither. */
static void find_slots(Rows *r)
{
    for (int l = 0; l < r->nloop; l++) {
        const KBlock *b = r->loop[l];
        for (int i = 0; i < b->stmt.n; i++) {
            const KStmt *s = &b->stmt.at[i];
            if (s->kind == KS_store) {
                Kept q = { s->val, l, l, s->buf, s->at.off };
                if (in_row(r, s->val)) vec_push(r->a, &r->kept, q);
                if (r->k->buf.at[s->buf].scratch || !together(r, &s->at, s->nopnd, s->opnd) || slot_find(r, s->buf, &s->at, true)) continue;
                Slot t = { .buf = s->buf, .off = s->at.off, .npred = s->at.npred, .pred = s->at.pred, .dt = s->val->dt, .id = r->slot.n, .first = l, .last = l, .store = true };
                vec_push(r->a, &r->slot, t);
            }
            if (s->kind != KS_val || s->val->kind != KV_load) continue;
            const KVal *v = s->val;
            int from = 0;
            for (int q = 0; q < r->kept.n; q++)
                if (r->kept.at[q].buf == v->buf && r->kept.at[q].off == v->at.off && r->kept.at[q].first < l && !v->at.npred) from = q + 1;
            if (from) {
                r->kept_of[v->id] = from;
                r->holds[r->kept.at[from - 1].val->id] = from;
                r->kept.at[from - 1].last = l;
                continue;
            }
            if (!together(r, &v->at, v->nopnd, v->opnd)) continue;
            Slot *t = slot_find(r, v->buf, &v->at, false);
            if (!t) {
                Slot n = { .buf = v->buf, .off = v->at.off, .npred = v->at.npred, .pred = v->at.pred, .dt = v->dt, .id = r->slot.n, .first = l };
                vec_push(r->a, &r->slot, n);
                t = &r->slot.at[r->slot.n - 1];
            }
            t->last = l;
        }
    }
    for (int l = 0; l < r->nloop; l++)
        for (int i = 0; i < r->loop[l]->stmt.n; i++) {
            const KStmt *s = &r->loop[l]->stmt.at[i];
            if (s->kind == KS_val && s->val->kind == KV_load && !r->kept_of[s->val->id] && together(r, &s->val->at, s->val->nopnd, s->val->opnd))
                r->slot_of[s->val->id] = slot_find(r, s->val->buf, &s->val->at, false);
        }
}

/* What is read from memory that an earlier loop wrote and that is not handed on in registers: other threads may have written it. */
static bool reads_own(const Rows *r)
{
    for (int l = 0; l < r->nloop; l++)
        for (int i = 0; i < r->loop[l]->stmt.n; i++) {
            const KStmt *s = &r->loop[l]->stmt.at[i];
            if (s->kind == KS_val && s->val->kind == KV_load && !r->kept_of[s->val->id] && r->k->buf.at[s->val->buf].write) return true;
        }
    return false;
}

/* ---- shape ------------------------------------------------------------------------------------------------------------------------------- */
/* What only one loop reads, and not the first, is loaded where it is used: the row need not wait for it. */
static bool passes_by(const Slot *s) { return s->first == s->last && s->first > 0 && !s->kept; }

/* The last loop that a slot is taken from: a value that is computed again needs what it was computed of. */
static int last_use(const Rows *r, const Slot *s, bool again)
{
    int last = s->last;
    for (int q = 0; again && q < r->kept.n; q++)
        if (r->holds[r->kept.at[q].val->id] == q + 1 && r->kept.at[q].last > last && r->kept.at[q].first >= s->first) last = r->kept.at[q].last;
    return last;
}

/* Registers that a vector of the row needs from one loop to the next, where they are most: what a loop reads last makes room for what it hands on. */
static int words_kept(const Rows *r, bool again)
{
    int most = 1;
    for (int l = 0; l < r->nloop; l++) {
        int w = 0;
        for (int i = 0; i < r->slot.n; i++) {
            const Slot *s = &r->slot.at[i];
            if (!s->store && s->first <= l && l < last_use(r, s, again)) w += (r->e * (int)dtype_size(s->dt) + 3) / 4;
        }
        for (int q = 0; q < r->kept.n && !again; q++)
            if (r->holds[r->kept.at[q].val->id] && r->kept.at[q].first <= l && l < r->kept.at[q].last) w += r->e * (int)dtype_size(dtype_info[r->kept.at[q].val->dt].compute) / 4;
        if (w > most) most = w;
    }
    return most;
}

static bool choose_vector(Rows *r)
{
    int least = 16, vectors = 0;
    for (int i = 0; i < r->slot.n; i++) {
        int size = (int)dtype_size(r->slot.at[i].dt);
        if (size < least) least = size;
        vectors++;
    }
    if (!vectors) return false;
    for (r->e = least >= 16 ? 1 : 16 / least; r->e > 8; r->e /= 2) { }
    for (; r->e > 1; r->e /= 2) {
        bool ok = true;
        for (int i = 0; i < r->slot.n; i++) ok &= aligned(r, r->slot.at[i].off, r->e);
        if (ok) break;
    }
    return true;
}

static bool choose_shape(Rows *r)
{
    if (!choose_vector(r)) return false;
    int64_t nvec = (r->n + r->e - 1) / r->e;
    for (int pass = 0; pass < 2; pass++) {
        r->again = pass == 1;
        for (int i = 0; i < r->slot.n; i++) r->slot.at[i].kept = r->again && last_use(r, &r->slot.at[i], true) > r->slot.at[i].last;
        int each = words_kept(r, r->again);
        for (int w = 8; w <= MOST_THREADS; w *= 2) {
            int64_t v = (nvec + w - 1) / w;
            bool last = w == MOST_THREADS;
            if (!last && (r->again || v > VECTORS)) continue;
            if (v * each > (last ? WORDS_MOST : WORDS) && !(v == 1 && !last && each <= 96)) continue;
            r->w = w; r->v = (int)v; r->need = (int)v * each;
            r->rows = w < BLOCK ? BLOCK / w : 1;
            if (w > 32 && r->rows > 1) r->rows = 1;
            return true;
        }
    }
    return false;
}

static const char *slot_name(Rows *r, const Slot *s) { return arena_fmt(r->a, passes_by(s) ? "r%d" : "r%d[s]", s->id); }

static const char *slot_when(Rows *r, const Slot *s)
{
    const char *c = NULL;
    for (int i = 0; i < s->npred; i++) {
        const char *one = arena_fmt(r->a, "((u64)(%s) < (u64)(%s))", print_dim(&r->p, s->pred[i].e), print_dim(&r->p, s->pred[i].n));
        c = c ? arena_fmt(r->a, "%s & %s", c, one) : one;
    }
    return c;
}

/* ---- values of an element ------------------------------------------------------------------------------------------------------------------ */
static void emit_val(Rows *r, const KVal *v)
{
    Printer *p = &r->p;
    if (!v || v->kind == KV_const || !in_row(r, v) || r->stamp[v->id] == r->scope) return;
    r->stamp[v->id] = r->scope;
    if (v->kind == KV_load && r->kept_of[v->id]) {
        const KVal *was = r->kept.at[r->kept_of[v->id] - 1].val;
        if (r->again) {
            emit_val(r, was);
            print_line(p, "const %s v%d = v%d;", held(v->dt), v->id, was->id);
        } else print_line(p, "const %s v%d = h%d[s][e];", held(v->dt), v->id, was->id);
        return;
    }
    if (v->kind == KV_load && r->slot_of[v->id]) {
        const Slot *s = r->slot_of[v->id];
        const char *when = v->imm.u ? slot_when(r, s) : NULL;        /* a cleared vector holds zeros */
        const char *got = arena_fmt(r->a, "get_%s(%s, e)", stored_as(v->dt), slot_name(r, s));
        if (when) got = arena_fmt(r->a, "%s ? %s : %s", when, got, print_literal(p, v->dt, v->imm));
        print_line(p, "const %s v%d = %s;", held(v->dt), v->id, got);
        return;
    }
    for (int i = 0; i < v->nin; i++) emit_val(r, v->in[i]);
    for (int i = 0; i < v->nopnd; i++) emit_val(r, v->opnd[i]);
    print_val(p, v);
}

static const char *row_var(Rows *r) { return print_var(&r->p, r->var); }

static const char *slot_at(Rows *r, const Slot *s)
{
    const char *off = print_dim(&r->p, s->off);
    return arena_fmt(r->a, "b%d + (%s)", s->buf, off);
}

static bool exact(const Rows *r) { return (int64_t)r->v * r->w * r->e == r->n; }

static void steps_open(Rows *r)
{
    print_line(&r->p, "UNROLL for (int s = 0; s < %d; s++) {", r->v);
    print_line(&r->p, "const i32 base = (s * %d + t) * %d;", r->w, r->e);
}

/* Does each row have its own elements of it, which no other kernel's thread reads again? */
static bool of_row(const Rows *r, const Slot *s)
{
    if (r->k->buf.at[s->buf].write) return false;
    for (int i = 0; i < r->k->npar; i++) if (dim_uses(s->off, r->k->par[i].var->var)) return true;
    return false;
}

static void load_slot(Rows *r, const Slot *s, bool bounded)
{
    const char *when = slot_when(r, s), *in = bounded ? arena_fmt(r->a, "base < %lld", (long long)r->n) : NULL, *to = slot_name(r, s);
    const char *c = when && in ? arena_fmt(r->a, "%s && %s", in, when) : when ? when : in;
    const char *how = r->w == MOST_THREADS && of_row(r, s) ? "stream" : "load";
    if (c) print_line(&r->p, "if (%s) %s.%s(%s); else %s.clear();", c, to, how, slot_at(r, s), to);
    else print_line(&r->p, "%s.%s(%s);", to, how, slot_at(r, s));
}

/* All loads that a loop is the first to need, before any is used. */
static void load_slots(Rows *r, int l)
{
    Printer *p = &r->p;
    bool any = false;
    for (int i = 0; i < r->slot.n; i++) any |= !r->slot.at[i].store && !passes_by(&r->slot.at[i]) && r->slot.at[i].first == l;
    if (!any) return;
    for (int i = 0; i < r->slot.n; i++)
        if (!r->slot.at[i].store && !passes_by(&r->slot.at[i]) && r->slot.at[i].first == l) print_line(p, "Vec<%d> r%d[%d];", r->e * (int)dtype_size(r->slot.at[i].dt), i, r->v);
    steps_open(r);
    print_line(p, "const i64 %s = base;", row_var(r));
    for (int i = 0; i < r->slot.n; i++) {
        const Slot *s = &r->slot.at[i];
        if (!s->store && !passes_by(s) && s->first == l) load_slot(r, s, !exact(r));
    }
    print_line(p, "}");
}

static bool dropped(const Rows *r, int l, const KStmt *s)
{
    if (r->k->buf.at[s->buf].scratch) return true;      /* read back from registers only */
    for (int m = l + 1; m < r->nloop; m++)
        for (int i = 0; i < r->loop[m]->stmt.n; i++) {
            const KStmt *o = &r->loop[m]->stmt.at[i];
            if (o->kind == KS_store && o->buf == s->buf && o->at.off == s->at.off && !o->at.npred) return true;   /* written over in the end */
        }
    return false;
}

/* The statements of a loop for the elements of one vector, then the stores of whole vectors. */
static void print_elements(Rows *r, int l)
{
    Printer *p = &r->p;
    const KBlock *b = r->loop[l];
    print_line(p, "UNROLL for (int e = 0; e < %d; e++) {", r->e);
    print_line(p, "const i64 %s = base + e;", row_var(r));
    r->scope++;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_val) {
            if (s->val->kind == KV_load && (r->slot_of[s->val->id] || r->kept_of[s->val->id])) continue;      /* when it is used */
            for (int j = 0; j < s->val->nin; j++) emit_val(r, s->val->in[j]);
            emit_val(r, s->val);
        } else if (s->kind == KS_update) {
            const KFold *f = s->fold;
            emit_val(r, f->value);
            emit_val(r, f->mul_a);
            emit_val(r, f->mul_b);
            emit_val(r, f->index);
            print_update(p, s);
        } else if (s->kind == KS_store) {
            emit_val(r, s->val);
            if (in_row(r, s->val) && !r->again && r->holds[s->val->id] && r->kept.at[r->holds[s->val->id] - 1].first == l)
                print_line(p, "h%d[s][e] = v%d;", s->val->id, s->val->id);
            if (dropped(r, l, s)) continue;
            const Slot *t = slot_find(r, s->buf, &s->at, true);
            if (t) print_line(p, "put_%s(o%d, e, %s);", stored_as(s->val->dt), t->id, print_operand(p, s->val));
            else {
                for (int j = 0; j < s->nopnd; j++) emit_val(r, s->opnd[j]);
                if (r->rows > 1) print_line(p, "if (live)");
                print_store(p, s);
            }
        }
    }
    print_line(p, "}");
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        const Slot *t = s->kind == KS_store && !dropped(r, l, s) ? slot_find(r, s->buf, &s->at, true) : NULL;
        if (!t) continue;
        print_line(p, "{");
        print_line(p, "const i64 %s = base;", row_var(r));
        const char *when = slot_when(r, t), *live = r->rows > 1 ? "live" : NULL;
        const char *c = when && live ? arena_fmt(r->a, "live && %s", when) : when ? when : live;
        print_line(p, "%s%s%so%d.store(%s);", c ? "if (" : "", c ? c : "", c ? ") " : "", t->id, slot_at(r, t));
        print_line(p, "}");
    }
}

static void print_row_loop(Rows *r, int l)
{
    Printer *p = &r->p;
    const KBlock *b = r->loop[l];
    r->here = l;
    load_slots(r, l);
    for (int q = 0; q < r->kept.n && !r->again; q++) {
        const Kept *k = &r->kept.at[q];
        if (k->first == l && r->holds[k->val->id] == q + 1) print_line(p, "%s h%d[%d][%d];", held(k->val->dt), k->val->id, r->v, r->e);
    }
    steps_open(r);
    if (!exact(r)) print_line(p, "if (base < %lld) {", (long long)r->n);
    for (int i = 0; i < r->slot.n; i++) {
        const Slot *s = &r->slot.at[i];
        if (s->store) continue;
        if (passes_by(s) && s->first == l) {
            print_line(p, "Vec<%d> r%d;", r->e * (int)dtype_size(s->dt), i);
            print_line(p, "{");
            print_line(p, "const i64 %s = base;", row_var(r));
            load_slot(r, s, false);
            print_line(p, "}");
        } else if (!passes_by(s) && s->first < l && l <= last_use(r, s, r->again)) print_line(p, "r%d[s].renew(zero);", i);
    }
    for (int i = 0; i < r->slot.n; i++)
        if (r->slot.at[i].store) {
            bool used = false;
            for (int j = 0; j < b->stmt.n; j++) used |= b->stmt.at[j].kind == KS_store && !dropped(r, l, &b->stmt.at[j]) && slot_find(r, b->stmt.at[j].buf, &b->stmt.at[j].at, true) == &r->slot.at[i];
            if (used) print_line(p, "Vec<%d> o%d;", r->e * (int)dtype_size(r->slot.at[i].dt), i);
        }
    print_elements(r, l);
    if (!exact(r)) print_line(p, "}");
    print_line(p, "}");
    for (int i = 0; i < b->stmt.n; i++) {           /* the threads' accumulators become one */
        if (b->stmt.at[i].kind != KS_update) continue;
        const KFold *f = b->stmt.at[i].fold;
        const char *t = f->dt == DT_bool ? "mask" : held(f->dt);
        bool arg = f->kind == FOLD_argmax || f->kind == FOLD_argmin;
        if (arg) print_line(p, "row_%s_%s<%d, %d>(a%d, x%d, shared, flip);", fold_name[f->kind], t, r->w, f->last, f->id, f->id);
        else print_line(p, "a%d = row_%s_%s<%d>(a%d, shared, flip);", f->id, fold_name[f->kind], t, r->w, f->id);
    }
}

static void print_rows(Rows *r)
{
    Printer *p = &r->p;
    const KBlock *b = r->k->body;
    for (int i = 0, l = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        switch (s->kind) {
        case KS_loop: print_row_loop(r, l++); break;
        case KS_fold: print_fold(p, s->fold); break;
        case KS_val: print_val(p, s->val); break;
        case KS_store:                              /* one value of the row: one of its threads writes it */
            print_line(p, "if (t == 0%s)", r->rows > 1 ? " && live" : "");
            print_store(p, s);
            break;
        case KS_update: ASSERT(!"an update outside a loop"); break;
        }
    }
}

static Rows *rows_new(Ctx *cx, Arena *a, const LoopKernel *k)
{
    Rows *r = NEW(a, Rows);
    Text *body = NEW(a, Text);
    body->arena = a;
    r->p = (Printer){ .cx = cx, .arena = a, .k = k, .g = k->g, .t = body, .indent = 1, .nv = 1, .simt = true, .folded = true, .in_team = true };
    r->cx = cx; r->a = a; r->g = k->g; r->k = k;
    if (!find_loops(r)) return NULL;
    r->slot_of = NEWS(a, const Slot *, k->nval + 1);
    r->kept_of = NEWS(a, int, k->nval + 1);
    r->holds = NEWS(a, int, k->nval + 1);
    r->stamp = NEWS(a, int, k->nval + 1);
    find_slots(r);
    return reads_own(r) ? NULL : r;
}

bool gen_rows(Ctx *cx, Arena *a, const LoopKernel *k, const SimtWords *words, KernelSource *out)
{
    if (k->sub->kind != SUB_rows || k->vec_var || k->mr > 1) return false;
    Rows *r = rows_new(cx, a, k);
    if (!r || !choose_shape(r)) return false;
    Printer *p = &r->p;
    print_prepare(p);
    print_line(p, "const int t = thread %% %d;", r->w);
    if (r->w <= 32) print_line(p, "i64 *const shared = 0;");
    print_line(p, "int flip = 0;");
    print_line(p, "const u32 zero = (u32)((u64)total >> 62);");
    print_block(p, k->top);
    if (r->rows > 1) {
        print_line(p, "for (i64 first = %s * %d; first < total; first += (i64)%s * %d) {", words->group, r->rows, words->groups, r->rows);
        print_line(p, "const bool live = first + thread / %d < total;", r->w);
        print_line(p, "const i64 point = live ? first + thread / %d : total - 1;", r->w);
    } else print_line(p, "for (i64 point = %s; point < total; point += %s) {", words->group, words->groups);
    print_point(p);
    print_rows(r);
    print_line(p, "}");
    SimtFrame f = { .threads = r->w * r->rows, .each = r->rows, .shared = r->w > 32 ? 128 : 0 };
    int registers = r->need + WORKING > LEAST ? r->need + WORKING : LEAST;
    f.blocks = REGISTERS / (f.threads * registers);
    if (f.blocks < 1) f.blocks = 1;
    f.form = arena_fmt(a, "rows of %lld: %d threads a row, %d x %d elements each", (long long)r->n, r->w, r->v, r->e);
    simt_frame(p, words, &f, out);
    return true;
}

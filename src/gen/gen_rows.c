/* Rows on CUDA: reductions over the last axis and everything fused with them, the row in registers.
 *
 * W threads share a row. Thread t of them holds V vectors of E consecutive elements, those at (s * W + t) * E; V, W and E are constants, because the row's
 * length is. What a loop over the row reads with neighbouring elements together is loaded once, whole vectors, before the loop that needs it first, and
 * stays packed in registers for later loops; what a loop computes for a later one stays there too, or is computed again when registers are short. So
 * each element is read once and written once. A reduction adds up in a thread, in a warp by shuffles, and in a block through a few words of shared memory.
 * What has another pattern (a gather, a shifted slice) is read element by element in the same loops.
 *
 * Blocks of a multiprocessor hide each other's waits. Rows so long that it holds only one: where the device copies into shared memory by itself (`bulk`), groups
 * stay and take row after row. A ring of pieces of rows is filled ahead: as soon as all threads have a piece in registers, one of them asks for the piece that
 * comes as many later as the ring is long. So memory works while rows are computed and written, however few threads there are. What all rows read alike (a gain,
 * a bias) is fetched once, if there is room. Two reductions of which the second is relative to the first are made at once. A row that is too long for one block's
 * registers is dealt out to a cluster of blocks, which send each other the parts of their reductions and wait for their bytes alone: a barrier of the cluster
 * would wait for what was stored before, too.
 *
 * gen_rows() says no (false) where the reduced elements do not lie together, the length is open or 0, or the row does not fit; the plain form then serves. */
#include "gen/gen.h"

#include <stdio.h>
#include <string.h>

/* Measured on an H200. */
enum { MOST_THREADS = 512, BLOCK = 64,      /* threads of a row, of a block at least: small ones make room for the next rows sooner */
    MANY_THREADS = 256, VECTORS = 5, VECTORS_WAITS = 7, VECTORS_COMMON = 8,      /* up to so many threads, each has no more vectors than these; where one reduction waits for another; where rows have much in common besides */
    READ_WELL = 2,                           /* operands of a single loop that find room beside the rest */
    WORDS = 40, WORDS_WELL = 56, WORDS_MOST = 72,            /* registers for the row in a thread; so many rather than more threads; where no more threads are to be had */
    WORKING = 24, WORKING_KEPT = 16, RING_KEPT = 8, WORKING_SQUARES = 8, WIDE = 32, COMMON = 4, LEAST = 64,    /* registers beside the row's and the vectors that pass by; more where some threads keep less than others, where squares are added up after another reduction, for numbers of 64 bits; of a thread in all, at least */
    FEW_THREADS = 128, FEW_WORKING = 8, IN_FLIGHT = 6500,    /* of a row, and what each needs besides; vectors of a multiprocessor with which memory is not busy yet */
    ENOUGH_BLOCKS = 3,                      /* of a multiprocessor: more hardly help */
    BUSY_WORDS = 48,                        /* so many of a thread, in one block: memory is kept busy by it alone */
    REGISTERS = 65536,                      /* of a multiprocessor */
    BLOCKS = 2,                             /* of a multiprocessor hide each other's waits: where there are fewer, rows come through a ring */
    /* the ring */
    ROOM = 233472, ROOM_TAKEN = 1024,       /* bytes of shared memory of a multiprocessor; taken of it by each block */
    RING_WORKING = 32, ROWS_AHEAD = 4, PIECES = 3,             /* a ring's rows at most; its pieces of a long row: each costs a barrier, so few and large ones */
    WIDEST = 1024, ENOUGH = 640,            /* threads of a row at most; of a multiprocessor: more have too few registers each */
    EIGHT = 8, EIGHT_LEAST = 288,           /* vectors of a thread where several things are fetched once: two pieces of four; threads then at least */
    FITTING = 1024, FITTING_ONCE = 512,     /* the same where all threads have the same number of vectors; and some of them are read again by all rows: more in a thread wait less often */
    VECTORS_MOST = 16,
    LINE = 128 };                           /* bytes of a line of the caches */

typedef struct Slot {                   /* elements of the row that are loaded or stored as vectors */
    int buf; Dim *off; int npred; Pred *pred; DType dt;
    int id, first, last;                /* loops that use it */
    bool store, kept;                   /* kept: a value that a later loop may compute again needs it */
    int nopnd;
    enum { FROM_memory, FROM_ring, FROM_once } from;    /* once: one copy in shared memory serves all rows */
    bool taken;                         /* the text so far takes single elements out of it */
    int at;                             /* byte in a stage of the ring, or in what is fetched once */
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
    int cluster; int64_t part;          /* blocks of a row, elements of it in each */
    int shift;                          /* elements of a line of memory, where rows begin inside one and are dealt from the line's beginning on; or 0 */
    int need;                           /* registers of a thread for its part of the row */
    int stages;                         /* of the ring, for each row; 0: none */
    int steps, pieces, piece;           /* vectors of a thread in a piece, pieces of a block's part of a row, bytes of a piece */
    int once, room, blocks;             /* bytes fetched once, of shared memory in all; blocks of a multiprocessor */
    int released;                       /* the loop after which a stage is free */
    bool again;                         /* kept values are computed again */
    int here;                           /* the loop being printed */
    const KVal *apart;                  /* a difference in a loop that is joined to the one before: there it is to what the thread has, not to the row's */
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
                Slot t = { .buf = s->buf, .off = s->at.off, .npred = s->at.npred, .pred = s->at.pred, .dt = s->val->dt, .id = r->slot.n, .first = l, .last = l, .store = true, .nopnd = s->nopnd };
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
                Slot n = { .buf = v->buf, .off = v->at.off, .npred = v->at.npred, .pred = v->at.pred, .dt = v->dt, .id = r->slot.n, .first = l, .nopnd = v->nopnd };
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
static bool passes_by(const Slot *s) { return s->from == FROM_once || (s->first == s->last && s->first > 0 && !s->kept); }

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
    int most = 1, read = 0, words = 0;
    for (int i = 0; i < r->slot.n; i++)
        if (!r->slot.at[i].store && !passes_by(&r->slot.at[i])) { read++; words += (r->e * (int)dtype_size(r->slot.at[i].dt) + 3) / 4; }
    if (r->nloop == 1 && read > READ_WELL) most = words;       /* a single loop: all that it reads is asked for before */
    for (int l = 0; l < r->nloop; l++) {
        int w = 0;
        for (int i = 0; i < r->slot.n; i++) {
            const Slot *s = &r->slot.at[i];
            if (!s->store && s->from != FROM_once && s->first <= l && l < last_use(r, s, again)) w += (r->e * (int)dtype_size(s->dt) + 3) / 4;
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

static void mark_kept(Rows *r, bool again)
{
    r->again = again;
    for (int i = 0; i < r->slot.n; i++) r->slot.at[i].kept = again && last_use(r, &r->slot.at[i], true) > r->slot.at[i].last;
}

/* Numbers of 64 bits that are folded take twice the registers in all that is done with them. */
static int wide_folds(const Rows *r)
{
    for (int l = 0; l < r->nloop; l++)
        for (int i = 0; i < r->loop[l]->stmt.n; i++)
            if (r->loop[l]->stmt.at[i].kind == KS_update && dtype_size(dtype_info[r->loop[l]->stmt.at[i].fold->dt].compute) == 8) return WIDE;
    return 0;
}

static bool exact(const Rows *r) { return (int64_t)r->v * r->w * r->e * r->cluster == r->n && !r->shift; }

/* Of the vectors of a thread, how many lie in the row whichever thread and block it is: these need no test. */
static int sure(const Rows *r)
{
    const int64_t least = r->n - (r->cluster - 1) * r->part, n = (least < r->part ? least : r->part) / ((int64_t)r->w * r->e);
    return n < 0 ? 0 : n < r->v ? (int)n : r->v;
}

static const char *in_bounds(const Rows *r) {
    if (!r->stages) return arena_fmt(r->a, "s < %d || base < %lld", sure(r), (long long)r->n);
    return arena_fmt(r->a, "(%ss < %d) || (u32)place < (u32)here", r->shift ? "0 < s && " : "", sure(r));
}

/* Does a loop hand values on to a later one, in registers? */
static bool keeps_values(const Rows *r)
{
    for (int q = 0; q < r->kept.n && !r->again; q++) if (r->holds[r->kept.at[q].val->id] == q + 1) return true;
    return false;
}

typedef enum Pair { PAIR_none, PAIR_exp, PAIR_squares } Pair;
static Pair pair_at(const Rows *r, int l);
static const KFold *only_fold(const Rows *r, int l);

static int working(const Rows *r)
{
    int n = WORKING + wide_folds(r);
    if (keeps_values(r) && !exact(r)) n += WORKING_KEPT;
    const bool squares = r->nloop > 1 && only_fold(r, 1) && only_fold(r, 1)->mul_a;
    if (squares) n += WORKING_SQUARES;
    for (int i = 0; i < r->slot.n; i++) if (!r->slot.at[i].store && r->slot.at[i].from == FROM_memory && passes_by(&r->slot.at[i])) n += (r->e * (int)dtype_size(r->slot.at[i].dt) + 3) / 4;
    return squares && r->need + n == LEAST ? n + 1 : n;      /* of the least, none are left over */
}

static int outside(Rows *r, const KVal *v)
{
    if (!v || v->kind == KV_const || r->stamp[v->id] == r->scope) return 0;
    r->stamp[v->id] = r->scope;
    if (!in_row(r, v)) return (int)(dtype_size(dtype_info[v->dt].compute) + 3) / 4;
    int n = 0;
    for (int i = 0; i < v->nin; i++) n += outside(r, v->in[i]);
    for (int i = 0; i < v->nopnd; i++) n += outside(r, v->opnd[i]);
    return n;
}

/* Registers of what loops use and rows or all of them have in common. */
static int words_outside(Rows *r)
{
    int n = 0;
    r->scope++;
    for (int l = 0; l < r->nloop; l++)
        for (int i = 0; i < r->loop[l]->stmt.n; i++) {
            const KStmt *s = &r->loop[l]->stmt.at[i];
            if (s->kind == KS_store) n += outside(r, s->val);
            if (s->kind == KS_update) n += outside(r, s->fold->value) + outside(r, s->fold->mul_a) + outside(r, s->fold->mul_b);
        }
    return n;
}

/* Registers for that, where blocks come and go. */
static int common(Rows *r, int64_t v) { return words_outside(r) <= COMMON ? 0 : v > VECTORS ? 32 : 8; }

static void take_shape(Rows *r, int w, int64_t v, int each, int besides)
{
    r->w = w; r->v = (int)v; r->need = (int)v * each; r->cluster = 1; r->stages = 0; r->part = v * w * r->e; r->shift = 0;
    r->rows = w > 32 ? 1 : r->k->sched.rows ? r->k->sched.rows : BLOCK / w;
    int threads = r->w * r->rows > 128 ? (r->w * r->rows + 127) / 128 * 128 : r->w * r->rows;      /* warps come in fours */
    int registers = (r->need + working(r) > LEAST ? r->need + working(r) : LEAST) + besides;
    r->blocks = REGISTERS / (threads * registers) > 1 ? REGISTERS / (threads * registers) : 1;
}

/* No more threads than a row of so many vectors has use for, v for each; a power of two within a warp. */
static int tight(int64_t nvec, int64_t v, int w) { return w <= 32 ? w : (int)(((nvec + v - 1) / v + 31) / 32 * 32); }

/* Reductions that follow one another: each is waited for. */
static int reductions(const Rows *r)
{
    int n = 0;
    for (int l = 0; l < r->nloop; l++)
        for (int i = 0; i < r->loop[l]->stmt.n; i++)
            if (r->loop[l]->stmt.at[i].kind == KS_update) { n++; break; }
    return n;
}

static int in_flight(const Rows *r) { return r->blocks * r->rows * r->w * r->v; }      /* vectors of rows that a multiprocessor has asked for, or holds */

/* Do all rows read something again when they are nearly done? That wait is hidden by other blocks only. */
static bool reads_late(const Rows *r)
{
    for (int i = 0; i < r->slot.n; i++) if (!r->slot.at[i].store && passes_by(&r->slot.at[i])) return true;
    return false;
}

/* Fewer threads with more of the row each, where more of it is in flight then. */
static void take_few(Rows *r, int64_t nvec, int besides)
{
    const Rows many = *r;
    const int64_t v = (nvec + FEW_THREADS - 1) / FEW_THREADS;
    if (v <= VECTORS_MOST && v * words_kept(r, r->again) <= WORDS_MOST) take_shape(r, tight(nvec, v, FEW_THREADS), v, words_kept(r, r->again), common(r, v) + besides);
    if (in_flight(r) <= in_flight(&many)) *r = many;
}

/* Short rows: few vectors for each thread, the threads of a warp or some. */
static bool choose_short(Rows *r)
{
    int64_t nvec = (r->n + r->e - 1) / r->e;
    mark_kept(r, false);
    int each = words_kept(r, false);
    for (int w = 8; w <= MANY_THREADS; w *= 2) {
        int64_t v = (nvec + w - 1) / w;
        if (v > (w > 32 && words_outside(r) > COMMON ? VECTORS_COMMON : w == 32 && reductions(r) > 1 ? VECTORS_WAITS : VECTORS) || (v * each > WORDS && !(v == 1 && each <= 96))) continue;
        take_shape(r, tight(nvec, v, w), v, each, common(r, v));
        if (w > FEW_THREADS && !exact(r) && reads_late(r)) take_few(r, nvec, reductions(r) > 1 ? FEW_WORKING : 0);
        return true;
    }
    return false;
}

/* Longer ones: the registers are filled with rows, of as many blocks as there is room for. What loops hand on is kept if enough blocks fit then, else computed again if more
 * do. Of one block, only a row that makes its loads wait once, is long enough to keep memory busy, and the same for all threads; or where nothing else serves (`any`). */
static bool choose_plain(Rows *r, bool any)
{
    const Sched *want = &r->k->sched;
    int64_t nvec = (r->n + r->e - 1) / r->e;
    int best = 0, best_w = 0, best_words = 0;
    bool best_again = false;
    for (int again = want->again == 2; again < (want->again == 1 ? 1 : 2) && best < ENOUGH_BLOCKS; again++) {
        mark_kept(r, again);
        int each = words_kept(r, r->again);
        for (int w = want->threads ? want->threads : MANY_THREADS; w <= (want->threads ? want->threads : MOST_THREADS); w += 128) {
            int64_t v = (nvec + w - 1) / w;
            if (!want->threads && (v > VECTORS_MOST || v * each > WORDS_MOST)) continue;
            take_shape(r, tight(nvec, v, w), v, each, common(r, v));
            if (r->blocks > best || (r->blocks == best && again == best_again && best < ENOUGH_BLOCKS && best_words > WORDS_WELL)) { best = r->blocks; best_w = w; best_again = again; best_words = r->need; }
        }
    }
    if (!best) return false;
    mark_kept(r, best_again);
    int64_t v = (nvec + best_w - 1) / best_w;
    take_shape(r, tight(nvec, v, best_w), v, words_kept(r, r->again), common(r, v));
    if (want->blocks) r->blocks = want->blocks;
    if (!want->threads && !want->blocks && r->blocks <= ENOUGH_BLOCKS && in_flight(r) < IN_FLIGHT) take_few(r, nvec, 0);
    return any || r->blocks >= BLOCKS || (reductions(r) == 1 && r->need >= BUSY_WORDS && exact(r));
}

/* ---- the ring ------------------------------------------------------------------------------------------------------------------------------ */
static bool varies(const Rows *r, const Slot *s)
{
    for (int i = 0; i < r->k->npar; i++) if (dim_uses(s->off, r->k->par[i].var->var)) return true;
    return false;
}

/* Which loads go through the ring, which are fetched once: whole pieces of 16 bytes whose address is known beforehand. Bytes of an element of each. */
static void ring_slots(Rows *r, int once, int64_t *ring, int64_t *fetched)
{
    *ring = *fetched = 0;
    r->released = 0;
    for (int i = 0; i < r->slot.n; i++) {
        Slot *s = &r->slot.at[i];
        int64_t size = (int64_t)dtype_size(s->dt);
        s->from = FROM_memory;
        if (s->store || s->npred || s->nopnd || r->k->buf.at[s->buf].write || size * r->e < 4 || r->n * size % 16 || !aligned(r, s->off, size >= 16 ? 1 : (int)(16 / size))) continue;
        if (varies(r, s)) {
            s->from = FROM_ring;
            *ring += size;
            if (s->first > r->released) r->released = s->first;
        } else if (once > 0) {
            once--;
            s->from = FROM_once;
            *fetched += size;
        }
    }
}

static const Slot *ring_first(const Rows *r)
{
    for (int i = 0; i < r->slot.n; i++) if (r->slot.at[i].from == FROM_ring) return &r->slot.at[i];
    return NULL;
}

/* How a row is dealt to the blocks of a cluster: whole lines of memory each. Rows that begin inside a line are dealt to threads from the line's beginning on, so that all that
 * is read and written at a time is whole lines. false: blocks would have nothing to do. Gives the vectors of a block. */
static bool deal(Rows *r, int cluster, int64_t *vectors)
{
    const int64_t nvec = (r->n + r->e - 1) / r->e;
    int least = 16;
    r->shift = 0;
    for (int i = 0; i < r->slot.n; i++) if (r->slot.at[i].from == FROM_ring && (int)dtype_size(r->slot.at[i].dt) < least) least = (int)dtype_size(r->slot.at[i].dt);
    const int line = LINE / least;
    for (int i = 0; i < r->slot.n; i++) if (r->n * (int64_t)dtype_size(r->slot.at[i].dt) % LINE) r->shift = line;
    for (int i = 0; i < r->slot.n; i++)       /* copies are of whole pieces of 16 bytes */
        if (r->slot.at[i].from == FROM_ring && !aligned(r, ring_first(r)->off, dtype_size(r->slot.at[i].dt) >= 16 ? 1 : (int)(16 / dtype_size(r->slot.at[i].dt)))) r->shift = 0;
    int64_t share = (nvec + cluster - 1) / cluster;
    if (cluster > 1) share = (share + line / r->e - 1) / (line / r->e) * (line / r->e);
    r->part = share * r->e;
    *vectors = share + (r->shift ? line / r->e - 1 : 0);
    return (cluster - 1) * share < nvec;
}

/* The shape for w threads a row and `cluster` blocks: false when it does not fit. Gives the threads that a multiprocessor has then. */
static bool ring_fits(Rows *r, int w, int cluster, bool again, int once, int *resident)
{
    int64_t vectors, ring, fetched;
    ring_slots(r, once, &ring, &fetched);
    mark_kept(r, again);
    if (!ring || w <= 32 || !deal(r, cluster, &vectors)) return false;
    w = tight(vectors, (vectors + w - 1) / w, w);
    const int64_t v = (vectors + w - 1) / w, dealt = r->part;
    const int shift = r->shift;
    if (v > VECTORS_MOST) return false;
    take_shape(r, w, v, words_kept(r, again), 0);
    r->cluster = cluster; r->part = dealt; r->shift = shift;
    if (!again && r->need > WORDS) return false;
    if (r->need + RING_WORKING + wide_folds(r) + (keeps_values(r) && !exact(r) ? RING_KEPT : 0) > REGISTERS / ((w + 127) / 128 * 128) / 8 * 8) return false;      /* warps come in fours, registers in eights */
    if (r->k->sched.blocks) r->blocks = r->k->sched.blocks;
    for (; r->blocks > 0; r->blocks--) {
        int64_t part = v * w * r->e, parts = 1024 * cluster, keep = (fetched * r->part + 127) / 128 * 128, row = (ring * part + 127) / 128 * 128;
        int64_t room = ROOM / r->blocks - ROOM_TAKEN - parts - keep - 1024;
        if (room < 0) continue;
        r->steps = (int)v; r->pieces = 1; r->piece = (int)row;
        r->stages = room / row < ROWS_AHEAD ? (int)(room / row) : ROWS_AHEAD;
        int asked = r->k->sched.ring;
        if (r->stages < 2 || asked > 1) {            /* long rows: piece by piece */
            if (r->released) continue;
            for (r->steps = 1; (ring * (r->steps + 1) * w * r->e + 127) / 128 * 128 * PIECES <= room && 2 * r->steps < v; r->steps++) { }
            if (asked > 1) r->steps = (int)((v + asked - 1) / asked);
            r->pieces = (int)((v + r->steps - 1) / r->steps);
            r->piece = (int)((ring * r->steps * w * r->e + 127) / 128 * 128);
            r->stages = (int)(room / r->piece);
            if (r->stages < 2 || (!asked && (int64_t)r->stages * r->piece * 4 < row * 5)) continue;
        }
        r->once = (int)keep;
        r->room = (int)(keep + (int64_t)r->stages * r->piece + parts + 8 * (2 * r->stages + 3 + 2 * (cluster > 1)));
        int64_t at = 0, first = 0;
        for (int i = 0; i < r->slot.n; i++) {
            Slot *s = &r->slot.at[i];
            int64_t size = (int64_t)dtype_size(s->dt);
            if (s->from == FROM_ring) { s->at = (int)at; at += size * r->steps * w * r->e; }
            if (s->from == FROM_once) { s->at = (int)first; first += size * r->part; }
        }
        const int threads = r->blocks * w, most = !exact(r) ? ENOUGH : once ? FITTING_ONCE : FITTING;
        *resident = (threads < most ? threads : most) * (exact(r) ? 5 : 4);
        return true;
    }
    return false;
}

/* How many vectors do all rows read alike? */
static int alike(const Rows *r)
{
    int n = 0;
    for (int i = 0; i < r->slot.n; i++) n += !r->slot.at[i].store && !varies(r, &r->slot.at[i]);
    return n;
}

/* A ring for so many blocks, and so many vectors that are fetched once. Nothing is computed twice if the registers hold it; and as many threads as a multiprocessor can use, in
 * the narrowest groups. */
static bool ring_of(Rows *r, int cluster, int once)
{
    const Sched *want = &r->k->sched;
    if ((want->cluster && cluster != want->cluster) || (want->once && once != want->once - 1)) return false;
    for (int again = want->again == 2; again < (want->again == 1 ? 1 : 2); again++) {
        int best = 0, best_w = 0, resident = 0;
        const int eight = (int)((r->n / r->e / cluster + EIGHT - 1) / EIGHT + 31) / 32 * 32;     /* threads, for so many vectors each */
        if (!want->threads && once > 1 && eight >= EIGHT_LEAST && ring_fits(r, eight, cluster, again, once, &resident) && r->blocks == 1) return true;
        for (int w = want->threads ? want->threads : 256; w <= (want->threads ? want->threads : WIDEST); w += 128)
            if (ring_fits(r, w, cluster, again, once, &resident) && resident > best) { best = resident; best_w = r->w; }
        if (best) return ring_fits(r, best_w, cluster, again, once, &resident);
    }
    return false;
}

/* Pairs of blocks first: a ring holds more rows of half the length. As much as there is room for of what is read alike is fetched once. More than a pair, since their
 * reductions wait for each other, only where nothing else fits. */
static bool choose_ring(Rows *r)
{
    static const int blocks[2][2] = { { 2, 1 }, { 4, 8 } };
    int64_t none;
    if (alike(r) > 1) for (int i = 0; i < 2; i++) if (ring_of(r, blocks[i][0], alike(r))) return true;
    for (int pass = 0; pass < 2; pass++)
        for (int once = alike(r); once >= 0; once--)
            for (int i = 0; i < 2; i++) if (ring_of(r, blocks[pass][i], once)) return true;
    ring_slots(r, 0, &none, &none);
    for (int i = 0; i < r->slot.n; i++) r->slot.at[i].from = FROM_memory;
    return false;
}

static bool choose_shape(Rows *r, bool bulk)
{
    enum { NO_RING = 1000 };
    const int ring = r->k->sched.ring;
    if (!choose_vector(r)) return false;
    if (bulk && ring && ring < NO_RING) return choose_ring(r) || choose_plain(r, true);
    if (!r->k->sched.threads && choose_short(r)) return true;
    return choose_plain(r, false) || (bulk && ring != NO_RING && choose_ring(r)) || choose_plain(r, true);
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

/* Which operand of a sum that is rounded to 16 bits is a product? It is not rounded by itself then. */
static int product_added(const Rows *r, const KVal *v)
{
    if (v->kind != KV_ew || v->op != OP_add || v->dt != DT_f32 || !v->rough) return -1;
    for (int i = 0; i < 2; i++) {
        const KVal *m = v->in[i];
        if (m->kind == KV_ew && m->op == OP_mul && m->dt == DT_f32 && in_row(r, m) && r->stamp[m->id] != r->scope) return i;
    }
    return -1;
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
        } else {
            const int first = r->kept.at[r->kept_of[v->id] - 1].first;
            const bool moved = first && pair_at(r, first - 1) == PAIR_exp && was == only_fold(r, first)->value;
            print_line(p, "const %s v%d = h%d[s][e]%s;", held(v->dt), v->id, was->id, moved ? arena_fmt(r->a, " * moved%d", was->id) : "");
        }
        return;
    }
    if (v->kind == KV_load && r->slot_of[v->id]) {
        const Slot *s = r->slot_of[v->id];
        const char *when = v->imm.u ? slot_when(r, s) : NULL;        /* a cleared vector holds zeros */
        r->slot.at[s->id].taken = true;
        const char *got = arena_fmt(r->a, "get_%s(%s, e)", stored_as(v->dt), slot_name(r, s));
        if (when) got = arena_fmt(r->a, "%s ? %s : %s", when, got, print_literal(p, v->dt, v->imm));
        print_line(p, "const %s v%d = %s;", held(v->dt), v->id, got);
        return;
    }
    if (v == r->apart) {
        emit_val(r, v->in[0]);
        print_line(p, "const f32 v%d = %s - u%d;", v->id, print_operand(p, v->in[0]), only_fold(r, r->here - 1)->id);
        return;
    }
    const int product = product_added(r, v);
    if (product >= 0) {
        const KVal *m = v->in[product], *other = v->in[1 - product];
        emit_val(r, m->in[0]);
        emit_val(r, m->in[1]);
        emit_val(r, other);
        print_line(p, "const f32 v%d = fma_f32(%s, %s, %s);", v->id, print_operand(p, m->in[0]), print_operand(p, m->in[1]), print_operand(p, other));
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

static void print_base(Rows *r)
{
    if (r->stages) {
        print_line(&r->p, "const int place = (s * %d + own) * %d%s;", r->w, r->e, r->shift ? " - shift" : "");
        print_line(&r->p, "const i64 base = %splace;", r->cluster > 1 ? "from + " : "");
    } else print_line(&r->p, "const i64 base = (s * %d + own) * %d;", r->w, r->e);
}

static void steps_open(Rows *r)
{
    print_line(&r->p, "UNROLL for (int s = 0; s < %d; s++) {", r->v);
    print_base(r);
}

/* What is read and written once and is larger than the caches only drives out of them what is read again. But where rows begin inside a line of them, neighbours share it. What a
 * ring brings did not come through the first one. */
static bool passes_caches(const Rows *r)
{
    int64_t n = r->n;
    for (int i = 0; i < r->slot.n; i++) if (n * (int64_t)dtype_size(r->slot.at[i].dt) % LINE) return false;
    for (int i = 0; i < r->k->npar; i++) n *= dim_hint(r->g, r->k->par[i].extent);
    return !r->stages && n >= STREAM_BYTES / 2;
}

static void load_slot(Rows *r, const Slot *s, bool bounded)
{
    const char *when = slot_when(r, s), *in = bounded ? in_bounds(r) : NULL, *to = slot_name(r, s);
    const char *c = when && in ? arena_fmt(r->a, "(%s) && %s", in, when) : when ? when : in;
    if (s->from != FROM_memory) {
        const int size = (int)dtype_size(s->dt);
        const char *step = s->from == FROM_ring && r->pieces > 1 ? arena_fmt(r->a, "(s - q * %d)", r->steps) : "s";
        const char *at = s->from == FROM_once ? arena_fmt(r->a, "room + (%d + place * %d)", s->at, size) : arena_fmt(r->a, "in + (%d + (%s * %d + own) * %d)", s->at, step, r->w, r->e * size);
        if (in) print_line(&r->p, "if (%s) %s.load(%s); else %s.clear();", in, to, at, to);
        else print_line(&r->p, "%s.load(%s);", to, at);
        if (s->from == FROM_ring) print_line(&r->p, "seen |= %s.some();", to);
        return;
    }
    const int hint = r->k->sched.hint;
    const char *how = (hint ? hint == 2 || hint == 4 : passes_caches(r)) && varies(r, s) && !r->k->buf.at[s->buf].write ? "stream" : "load";
    if (c) print_line(&r->p, "if (%s) %s.%s(%s); else %s.clear();", c, to, how, slot_at(r, s), to);
    else print_line(&r->p, "%s.%s(%s);", to, how, slot_at(r, s));
}

/* A stage's elements are in registers, of all threads: it is asked for what comes next. The warp that comes last does it, and none waits for another. What was loaded
 * must be there: a copy into the stage could overtake a load that is on its way, so the count gets a word of it. met: the last reduction was made of the elements, and
 * all threads took part. */
static void ring_next(Rows *r, bool met)
{
    print_line(&r->p, met ? "if (t == 0) ask(stage);" : "if (last_of<%d>(left + stage, seen & zero)) ask(stage);", r->w / 32);
    print_line(&r->p, "if (++stage == %d) { stage = 0; turn ^= 1; }", r->stages);
}

/* Is v computed of the elements of a slot? */
static bool made_of(const Rows *r, const KVal *v, const Slot *s)
{
    if (!v || !in_row(r, v)) return false;
    if (v->kind == KV_load && r->slot_of[v->id] == s) return true;
    bool any = false;
    for (int i = 0; i < v->nin && !any; i++) any = made_of(r, v->in[i], s);
    return any;
}

/* Does the reduction at the end of the loop take all that comes through the ring? */
static bool takes_ring(const Rows *r, const KBlock *b)
{
    for (int i = 0; i < r->slot.n; i++) {
        const Slot *s = &r->slot.at[i];
        bool any = s->from != FROM_ring;
        for (int j = 0; j < b->stmt.n && !any; j++) any = b->stmt.at[j].kind == KS_update && made_of(r, b->stmt.at[j].fold->value, s);
        if (!any) return false;
    }
    return true;
}

static void ring_wait(Rows *r)
{
    print_line(&r->p, "const u8 *const in = ring + stage * %d;", r->piece);
    print_line(&r->p, "filled_wait(filled + stage, turn);");
}

static bool loads_here(const Slot *s, int l, bool ring) { return !s->store && !passes_by(s) && s->first == l && (s->from == FROM_ring) == ring; }

static void piece_open(Rows *r)
{
    print_line(&r->p, "UNROLL for (int s = q * %d; s < (q + 1) * %d && s < %d; s++) {", r->steps, r->steps, r->v);
    print_base(r);
}

/* All loads that a loop is the first to need, before any is used. true: they come piece by piece, and the loop over the pieces is left open. */
static bool load_slots(Rows *r, int l)
{
    Printer *p = &r->p;
    int n[2] = { 0, 0 };
    for (int i = 0; i < r->slot.n; i++) {
        const Slot *s = &r->slot.at[i];
        for (int ring = 0; ring < 2; ring++)
            if (loads_here(s, l, ring)) {
                n[ring]++;
                print_line(p, "Vec<%d> r%d[%d];", r->e * (int)dtype_size(s->dt), i, r->v);
            }
    }
    for (int ring = 0; ring < 2; ring++) {
        bool pieces = ring && r->pieces > 1;
        if (!n[ring]) continue;
        if (pieces) {
            print_line(p, "UNROLL for (int q = 0; q < %d; q++) {", r->pieces);
            ring_wait(r);
            piece_open(r);
        } else steps_open(r);
        print_line(p, "const i64 %s = base;", row_var(r));
        for (int i = 0; i < r->slot.n; i++)
            if (loads_here(&r->slot.at[i], l, ring)) load_slot(r, &r->slot.at[i], !exact(r));
        print_line(p, "}");
        if (pieces) {
            ring_next(r, false);
            return true;
        }
    }
    return false;
}

/* How far into a line of memory the block's part of a row begins. */
static void print_shift(Rows *r)
{
    Printer *p = &r->p;
    const Slot *s = ring_first(r);
    if (!r->shift || !s) return;
    print_line(p, "int shift;");
    print_line(p, "{");
    print_line(p, "const i64 %s = 0;", row_var(r));
    print_line(p, "shift = (int)((%s) & %d);", print_dim(p, s->off), r->shift - 1);
    print_line(p, "}");
}

/* The copies that a stage waits for: a row, or a piece of it. */
static void ring_ask(Rows *r)
{
    Printer *p = &r->p;
    const int64_t piece = (int64_t)r->steps * r->w * r->e;
    int size = 0;
    print_shift(r);
    print_line(p, "const int place = %s%s, first = place > 0 ? place : 0, end = place + %lld < here ? place + %lld : here, n = end - first;", r->pieces > 1 ? arena_fmt(r->a, "(int)part * %lld", (long long)piece) : "0", r->shift ? " - shift" : "", (long long)piece, (long long)piece);
    print_line(p, "const i64 %s = %sfirst;", row_var(r), r->cluster > 1 ? "from + " : "");
    for (int i = 0; i < r->slot.n; i++) if (r->slot.at[i].from == FROM_ring) size += (int)dtype_size(r->slot.at[i].dt);
    print_line(p, "filled_expect(filled + stage, n > 0 ? n * %d : 0);", size);
    for (int i = 0; i < r->slot.n; i++) {
        const Slot *s = &r->slot.at[i];
        if (s->from == FROM_ring) print_line(p, "if (n > 0) fill(ring + (stage * %d + %d + (first - place) * %d), %s, n * %d, filled + stage);", r->piece, s->at, (int)dtype_size(s->dt), slot_at(r, s), (int)dtype_size(s->dt));
    }
}

/* Before the rows: what starts the copies of the next piece into a stage, the first pieces, and what all rows read alike. */
static void open_ring(Rows *r, const char *group, const char *groups)
{
    Printer *p = &r->p;
    Arena *a = r->a;
    int bars = r->stages + 1, meet = r->cluster > 1 ? 2 : 0, own = 8 * (meet + bars + 2 + r->stages), parts = r->room - own - 1024 * r->cluster;
    int64_t part = r->part;
    print_line(p, "ROOM(room);");
    print_line(p, "i64 *const shared = (i64 *)(room + %d), *const filled = (i64 *)(room + %d);", parts, r->room - own + 8 * meet);
    print_line(p, "u8 *const ring = room + %d;", r->once);
    if (r->cluster > 1) print_line(p, "const u32 rank = cluster_rank();");
    print_line(p, "u32 *const left = (u32 *)(filled + %d);", bars + 2);
    if (meet) print_line(p, "if (t < 2) filled_open(filled + (t - 2));");
    print_line(p, "if (t < %d) filled_open(filled + t);", bars);
    print_line(p, "if (t < %d) left[t] = 0;", r->stages);
    print_line(p, "filled_opened();");
    print_line(p, r->cluster > 1 ? "cluster_meet();" : "__syncthreads();");
    print_line(p, "/* one thread's, and not worth registers of all */");
    print_line(p, "i64 &ahead = filled[%d], &part = filled[%d];", bars, bars + 1);
    print_line(p, "if (t == 0) { ahead = %s; part = 0; }", group);
    {
        if (r->cluster > 1) print_line(p, "const i64 from = (i64)rank * %lld;", (long long)part);
        print_line(p, "const int here = %s;", r->cluster > 1 ? arena_fmt(a, "(int)imin(%lld, %lld - from)", (long long)part, (long long)r->n) : arena_fmt(a, "%lld", (long long)r->n));
    }
    print_line(p, "/* starts the copies of the next %s into a stage */", r->pieces > 1 ? "piece of a row" : "row");
    print_line(p, "const auto ask = [&](int stage) {");
    print_line(p, "if (ahead >= total) return;");
    print_line(p, "const i64 point = ahead;");
    print_point(p);
    ring_ask(r);
    if (r->pieces > 1) print_line(p, "if (++part < %d) return;", r->pieces);
    if (r->pieces > 1) print_line(p, "part = 0;");
    print_line(p, "ahead += %s;", groups);
    print_line(p, "};");
    int64_t size;
    if (r->once) {
        print_line(p, "/* the same for all rows */");
        print_line(p, "if (t == 0) {");
        print_line(p, "const i64 %s = %s;", row_var(r), r->cluster > 1 ? "from" : "0");
        print_line(p, "const int n = here;");
        size = 0;
        for (int i = 0; i < r->slot.n; i++) if (r->slot.at[i].from == FROM_once) size += (int64_t)dtype_size(r->slot.at[i].dt);
        print_line(p, "filled_expect(filled + %d, n * %d);", bars - 1, (int)size);
        for (int i = 0; i < r->slot.n; i++) {
            const Slot *s = &r->slot.at[i];
            if (s->from == FROM_once) print_line(p, "fill(room + %d, %s, n * %d, filled + %d);", s->at, slot_at(r, s), (int)dtype_size(s->dt), bars - 1);
        }
        print_line(p, "}");
    }
    print_line(p, "if (t == 0) for (int i = 0; i < %d; i++) ask(i);", r->stages);
    if (r->once) print_line(p, "filled_wait(filled + %d, 0);", bars - 1);
    print_line(p, "int stage = 0;");
    print_line(p, "u32 turn = 0;");
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

/* The value that a store rounds to two bytes, when nothing else needs it rounded: two of them are rounded and joined by one instruction. */
static const KVal *rounded_last(const Rows *r, const KVal *v)
{
    if (v->kind != KV_cast || !in_row(r, v) || (v->dt != DT_bf16 && v->dt != DT_f16) || v->in[0]->dt != DT_f32 || r->e < 2 || r->holds[v->id]) return NULL;
    return v->in[0];
}

/* The slot whose elements a fold takes just as they lie in memory, where two of them are compared by one instruction; or NULL. */
static const Slot *packed_fold(const Rows *r, const KFold *f)
{
    const KVal *v = f->value;
    if ((f->kind != FOLD_max && f->kind != FOLD_min) || f->dt != DT_f32 || !v || v->kind != KV_cast || r->e < 2) return NULL;
    const KVal *from = v->in[0];
    const Slot *s = from->kind == KV_load ? r->slot_of[from->id] : NULL;
    return s && !s->npred && (s->dt == DT_bf16 || s->dt == DT_f16) ? s : NULL;
}

/* Sums of floats take two neighbours together first, of products every second one: half as many additions wait for each other, and fewer roundings add up. */
static bool by_pairs(const Rows *r, const KFold *f) { return f->kind == FOLD_sum && dtype_is_float(f->dt) && r->e > 1; }

static void update_pair(Rows *r, const KFold *f)
{
    Printer *p = &r->p;
    const char *first, *both;
    if (f->mul_a) {
        const char *x = print_operand(p, f->mul_a), *y = print_operand(p, f->mul_b);
        print_line(p, "if (e %% 2) a%d = fma_%s(%s, %s, a%d); else w%d = fma_%s(%s, %s, w%d);", f->id, held(f->dt), x, y, f->id, f->id, held(f->dt), x, y, f->id);
        return;
    } else {
        first = print_operand(p, f->value);
        both = arena_fmt(r->a, "(w%d + %s)", f->id, first);
    }
    print_line(p, "if (e %% 2) a%d = a%d + %s; else w%d = %s;", f->id, f->id, both, f->id, first);
}

/* Has a thread so few registers, and a text so straight, that what the compiler might keep of an earlier loop must be out of its sight for certain? */
static bool crowded(const Rows *r) { return (r->stages || exact(r)) && REGISTERS / (r->w * r->rows * r->blocks) <= LEAST; }

/* The statements of a loop for the elements of one vector, then the stores of whole vectors. */
static void print_elements(Rows *r, int l)
{
    Printer *p = &r->p;
    const KBlock *b = r->loop[l];
    for (int i = 0; i < b->stmt.n; i++)
        if (b->stmt.at[i].kind == KS_update && by_pairs(r, b->stmt.at[i].fold) && !b->stmt.at[i].fold->mul_a) print_line(p, "%s w%d;", held(b->stmt.at[i].fold->dt), b->stmt.at[i].fold->id);
    print_line(p, "UNROLL for (int e = 0; e < %d; e++) {", r->e);
    print_line(p, "const i64 %s = base + e;", row_var(r));
    r->scope++;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_val) {
            if (s->val->kind == KV_check) emit_val(r, s->val);       /* others: where they are used */
        } else if (s->kind == KS_update) {
            const KFold *f = s->fold;
            if (packed_fold(r, f)) continue;
            emit_val(r, f->value);
            emit_val(r, f->mul_a);
            emit_val(r, f->mul_b);
            emit_val(r, f->index);
            if (by_pairs(r, f)) update_pair(r, f);
            else print_update(p, s);
        } else if (s->kind == KS_store) {
            const Slot *whole = slot_find(r, s->buf, &s->at, true);
            const KVal *wide = whole && !dropped(r, l, s) ? rounded_last(r, s->val) : NULL;
            emit_val(r, wide ? wide : s->val);
            if (in_row(r, s->val) && !r->again && r->holds[s->val->id] && r->kept.at[r->holds[s->val->id] - 1].first == l)
                print_line(p, "h%d[s][e] = v%d;", s->val->id, s->val->id);
            if (dropped(r, l, s)) continue;
            const Slot *t = whole;
            if (wide) print_line(p, "round_put_%s(o%d, e, %s);", stored_as(s->val->dt), t->id, print_operand(p, wide));
            else if (t) print_line(p, "put_%s(o%d, e, %s);", stored_as(s->val->dt), t->id, print_operand(p, s->val));
            else {
                for (int j = 0; j < s->nopnd; j++) emit_val(r, s->opnd[j]);
                if (r->rows > 1) print_line(p, "if (live)");
                print_store(p, s);
            }
        }
    }
    print_line(p, "}");
    for (int i = 0; i < b->stmt.n; i++) {
        const KFold *f = b->stmt.at[i].kind == KS_update ? b->stmt.at[i].fold : NULL;
        const Slot *t = f ? packed_fold(r, f) : NULL;
        if (t) print_line(p, "a%d = packed_%s_%s(a%d, %s);", f->id, fold_name[f->kind], stored_as(t->dt), f->id, slot_name(r, t));
    }
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        const Slot *t = s->kind == KS_store && !dropped(r, l, s) ? slot_find(r, s->buf, &s->at, true) : NULL;
        if (!t) continue;
        print_line(p, "{");
        print_line(p, "const i64 %s = base;", row_var(r));
        const char *when = slot_when(r, t), *live = r->rows > 1 ? "live" : NULL;
        const char *c = when && live ? arena_fmt(r->a, "live && %s", when) : when ? when : live;
        const char *how = (r->k->sched.hint ? r->k->sched.hint >= 3 : passes_caches(r)) ? "leave" : "store";
        print_line(p, "%s%s%so%d.%s(%s);", c ? "if (" : "", c ? c : "", c ? ") " : "", t->id, how, slot_at(r, t));
        print_line(p, "}");
    }
}

/* Does the loop take from the ring as it goes? */
static bool by_step_in(const Rows *r, int l)
{
    bool any = false;
    for (int i = 0; i < r->slot.n; i++) any |= r->slot.at[i].from == FROM_ring && passes_by(&r->slot.at[i]) && r->slot.at[i].first == l;
    return any;
}

/* ---- two reductions at once ------------------------------------------------------------------------------------------------------------------ */
/* A greatest element and then a sum of exp(x - u), or a sum and then one of (x - u)^2, where u follows from the first: each thread takes its own greatest element or mean for
 * u, and what threads have is brought to one level when it is put together. So the row waits once, not twice. The second is then moved to u itself: right for any u. */
/* The same element of the row, of two loops? */
static bool same_element(const Rows *r, const KVal *a, const KVal *b)
{
    if (b->kind == KV_load && r->kept_of[b->id]) b = r->kept.at[r->kept_of[b->id] - 1].val;
    if (a == b) return true;
    if (a->kind != b->kind || a->dt != b->dt) return false;
    if (a->kind == KV_load) return r->slot_of[a->id] && r->slot_of[a->id] == r->slot_of[b->id] && a->imm.u == b->imm.u;
    return a->kind == KV_cast && same_element(r, a->in[0], b->in[0]);
}

static const KFold *only_fold(const Rows *r, int l)
{
    const KFold *f = NULL;
    if (l >= r->nloop) return NULL;
    for (int i = 0; i < r->loop[l]->stmt.n; i++) {
        const KStmt *s = &r->loop[l]->stmt.at[i];
        if (s->kind == KS_store ? !dropped(r, l, s) : s->kind == KS_update ? f || s->fold->dt != DT_f32 : s->val->kind == KV_check) return NULL;
        if (s->kind == KS_update) f = s->fold;
    }
    return f;
}

/* How loop l and the next go together. */
static Pair pair_at(const Rows *r, int l)
{
    const KFold *a = only_fold(r, l), *b = only_fold(r, l + 1);
    if (!a || !b || a->mul_a || !a->value || b->kind != FOLD_sum || r->w <= 32 || !(r->k->sched.pairs ? r->k->sched.pairs == 1 : r->stages > 0)) return PAIR_none;
    const KVal *e = b->mul_a ? b->mul_a : b->value->kind == KV_ew && b->value->op == OP_exp ? b->value->in[0] : NULL;
    if (!e || e->kind != KV_ew || e->op != OP_sub || e->dt != DT_f32 || !in_row(r, e) || in_row(r, e->in[1]) || (b->mul_a && b->mul_a != b->mul_b)) return PAIR_none;
    if (!same_element(r, a->value, e->in[0])) return PAIR_none;
    for (int q = 0; q < r->kept.n && !r->again; q++) {
        const Kept *k = &r->kept.at[q];
        if (r->holds[k->val->id] == q + 1 && k->first == l + 1 && (b->mul_a || k->val != b->value)) return PAIR_none;
    }
    return b->mul_a ? a->kind == FOLD_sum ? PAIR_squares : PAIR_none : a->kind == FOLD_max ? PAIR_exp : PAIR_none;
}

static const KVal *pair_from(const KFold *b) { return b->mul_a ? b->mul_a : b->value->in[0]; }

/* Before the second loop: what stands for u in this thread. */
static void pair_open(Rows *r, int l)
{
    Printer *p = &r->p;
    const KFold *a = only_fold(r, l), *b = only_fold(r, l + 1);
    if (pair_at(r, l) == PAIR_exp) {
        print_line(p, "const f32 own%d = a%d, u%d = pivot(own%d);", a->id, a->id, a->id, a->id);
    } else {
        print_line(p, "f32 n%d_ = 0.0f;", a->id);
        steps_open(r);
        print_line(p, "%sn%d_ += %d.0f;", exact(r) ? "" : arena_fmt(r->a, "if (%s) ", in_bounds(r)), a->id, r->e);
        print_line(p, "}");
        print_line(p, "const f32 u%d = n%d_ > 0.0f ? a%d * inverse(n%d_) : 0.0f;", a->id, a->id, a->id, a->id);
    }
    print_fold(p, b);
    r->apart = pair_from(b);
}

static void pair_close(Rows *r, int l)
{
    const KFold *a = only_fold(r, l), *b = only_fold(r, l + 1);
    r->apart = NULL;
    if (pair_at(r, l) == PAIR_exp) print_line(&r->p, "row_pair_exp<%d, %d>(a%d, a%d, shared, flip);", r->w, r->cluster, a->id, b->id);
    else print_line(&r->p, "row_pair_squares<%d, %d>(a%d, a%d, n%d_, shared, flip);", r->w, r->cluster, a->id, b->id, a->id);
}

/* Where the second loop would stand: what was reckoned from another place is moved to u. */
static void pair_move(Rows *r, int l)
{
    Printer *p = &r->p;
    const KFold *a = only_fold(r, l), *b = only_fold(r, l + 1);
    const char *u = print_operand(p, pair_from(b)->in[1]);
    if (pair_at(r, l) == PAIR_squares) {
        print_line(p, "{");
        print_line(p, "const f32 d = apart(div_f32(a%d, n%d_) - %s);", a->id, a->id, u);
        print_line(p, "a%d = fma_f32(n%d_ * d, d, a%d);", b->id, a->id, b->id);
        print_line(p, "}");
        return;
    }
    print_line(p, "a%d = a%d * exp_from(a%d, %s);", b->id, b->id, a->id, u);
    if (!r->again && r->holds[b->value->id]) print_line(p, "const f32 moved%d = exp_from(own%d, %s);", b->value->id, a->id, u);
}

static void print_row_loop(Rows *r, int l)
{
    Printer *p = &r->p;
    const KBlock *b = r->loop[l];
    const bool inside = r->apart;       /* after the loop before, in the same turn */
    r->here = l;
    if (r->stages && r->pieces == 1 && l == 0) ring_wait(r);
    for (int q = 0; q < r->kept.n && !r->again; q++) {
        const Kept *k = &r->kept.at[q];
        if (k->first == l && r->holds[k->val->id] == q + 1) print_line(p, "%s h%d[%d][%d];", held(k->val->dt), k->val->id, r->v, r->e);
    }
    for (int i = 0; i < b->stmt.n; i++) {
        const KFold *f = b->stmt.at[i].kind == KS_update ? b->stmt.at[i].fold : NULL;
        if (f && f->mul_a && by_pairs(r, f)) print_line(p, "%s w%d = 0;", held(f->dt), f->id);
    }
    const bool pieces = load_slots(r, l);           /* each is worked on as it comes */
    const bool next = r->stages && r->pieces == 1 && l == r->released, met = r->released == 0 && takes_ring(r, b);
    if (next && !met && !by_step_in(r, l)) ring_next(r, false);
    if (pieces) piece_open(r);
    else steps_open(r);
    if (!exact(r)) print_line(p, "if (%s) {", in_bounds(r));
    for (int i = 0; i < r->slot.n; i++) {
        const Slot *s = &r->slot.at[i];
        if (s->store) continue;
        if (s->from == FROM_once ? s->first <= l && l <= last_use(r, s, r->again) : passes_by(s) && s->first == l) {
            print_line(p, "Vec<%d> r%d;", r->e * (int)dtype_size(s->dt), i);
            print_line(p, "{");
            print_line(p, "const i64 %s = base;", row_var(r));
            load_slot(r, s, false);
            print_line(p, "}");
        } else if (!passes_by(s) && s->taken && s->first < l && l <= last_use(r, s, r->again)) print_line(p, crowded(r) ? "r%d[s].renew(zero);" : "r%d[s].renew();", i);
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
    if (pieces) print_line(p, "}");
    if (next && !met && by_step_in(r, l)) ring_next(r, false);
    for (int i = 0; i < b->stmt.n; i++) {
        const KFold *f = b->stmt.at[i].kind == KS_update ? b->stmt.at[i].fold : NULL;
        if (f && f->mul_a && by_pairs(r, f)) print_line(p, "a%d = a%d + w%d;", f->id, f->id, f->id);
    }
    const Pair pair = r->apart ? PAIR_none : pair_at(r, l);
    if (pair) {
        pair_open(r, l);
        print_row_loop(r, l + 1);
        r->here = l;
        pair_close(r, l);
    }
    for (int i = 0; i < b->stmt.n && !pair && !inside; i++) {           /* the threads' accumulators become one */
        if (b->stmt.at[i].kind != KS_update) continue;
        const KFold *f = b->stmt.at[i].fold;
        const char *t = f->dt == DT_bool ? "mask" : held(f->dt);
        bool arg = f->kind == FOLD_argmax || f->kind == FOLD_argmin;
        if (arg) print_line(p, "row_%s_%s<%d, %d, %d>(a%d, x%d, shared, flip);", fold_name[f->kind], t, r->w, r->cluster, f->last, f->id, f->id);
        else print_line(p, "a%d = row_%s_%s<%d, %d>(a%d, shared, flip);", f->id, fold_name[f->kind], t, r->w, r->cluster, f->id);
    }
    if (next && met) ring_next(r, true);
}

/* What a row needs that no reduction of it decides: its loads start before the row is waited for. */
static bool early(const Rows *r, const KVal *v)
{
    bool ok = v->kind != KV_fold && !in_row(r, v) && (v->kind != KV_load || !r->k->buf.at[v->buf].write);
    for (int i = 0; i < v->nin && ok; i++) ok = early(r, v->in[i]);
    for (int i = 0; i < v->nopnd && ok; i++) ok = early(r, v->opnd[i]);
    return ok;
}

static void print_rows(Rows *r)
{
    Printer *p = &r->p;
    const KBlock *b = r->k->body;
    for (int i = 0; i < b->stmt.n; i++) if (b->stmt.at[i].kind == KS_val && early(r, b->stmt.at[i].val)) print_val(p, b->stmt.at[i].val);
    for (int i = 0, l = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        switch (s->kind) {
        case KS_loop:
            if (l && pair_at(r, l - 1)) pair_move(r, l - 1);
            else print_row_loop(r, l);
            l++;
            break;
        case KS_fold: if (!l || !pair_at(r, l - 1) || s->fold != only_fold(r, l)) print_fold(p, s->fold); break;
        case KS_val: if (!early(r, s->val)) print_val(p, s->val); break;
        case KS_store:                              /* one value of the row: one of its threads writes it */
            print_line(p, "if (t == 0%s)", r->rows > 1 ? " && live" : r->cluster > 1 ? " && rank == 0" : "");
            print_store(p, s);
            break;
        case KS_update: case KS_skip: ASSERT(!"an update outside a loop"); break;
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

bool gen_rows(Ctx *cx, Arena *a, const LoopKernel *k, const SimtWords *words, bool bulk, KernelSource *out)
{
    if (k->sub->kind != SUB_rows || k->vec_var || k->mr > 1) return false;
    Rows *r = rows_new(cx, a, k);
    if (!r || !choose_shape(r, bulk)) return false;
    Printer *p = &r->p;
    const char *group = r->cluster > 1 ? arena_fmt(a, "(%s / %d)", words->group, r->cluster) : words->group;
    const char *groups = r->cluster > 1 ? arena_fmt(a, "(%s / %d)", words->groups, r->cluster) : words->groups;
    print_prepare(p);
    print_line(p, "const int t = thread %% %d;", r->w);
    if (r->w <= 32 && !r->stages) print_line(p, "i64 *const shared = 0;");
    print_line(p, "int flip = 0;");
    print_line(p, "const u32 zero = (u32)((u64)err >> 62);");
    if (r->stages) open_ring(r, group, groups);
    print_block(p, k->top);
    if (r->rows > 1) {
        print_line(p, "for (i64 first = %s * %d; first < total; first += (i64)%s * %d) {", group, r->rows, groups, r->rows);
        print_line(p, "const bool live = first + thread / %d < total;", r->w);
        print_line(p, "const i64 point = live ? first + thread / %d : total - 1;", r->w);
    } else print_line(p, "for (i64 point = %s; point < total; point += %s) {", group, groups);
    print_point(p);
    print_line(p, "int own = t;");              /* or all that is reckoned from it would be kept from row to row, in more registers than there are */
    print_line(p, "ADD_UNSEEN(own, zero);");
    if (r->stages) print_line(p, "u32 seen = 0;");
    if (r->stages) print_shift(r);
    print_rows(r);
    print_line(p, "}");
    SimtFrame f = { .threads = r->w * r->rows, .each = r->rows, .blocks = r->blocks, .cluster = r->cluster };
    f.form = arena_fmt(a, "rows of %lld: %d threads a row, %d x %d elements each", (long long)r->n, r->w, r->v, r->e);
    if (r->stages) {
        f.form = arena_fmt(a, "%s; a ring of %d pieces of %d bytes%s%s", f.form, r->stages, r->piece, r->once ? arena_fmt(a, ", %d bytes fetched once", r->once) : "",
            r->cluster > 1 ? arena_fmt(a, ", clusters of %d", r->cluster) : "");
        f.local = r->room;
    } else f.shared = r->w > 32 ? 128 : 0;
    simt_frame(p, words, &f, out);
    return true;
}

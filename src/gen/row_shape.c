/* Rows on CUDA: is a kernel one whose rows are kept in registers, and how are they dealt out? gen_rows.c prints it.
 *
 * First what the loops over the row read and write: vectors of neighbours that are loaded once, values that a later loop reads back. Then the shape, of four: short rows,
 * whose threads have few vectors each, so that many blocks hide each other's waits; longer ones, of as many blocks as registers allow; rows that fill the registers of
 * a multiprocessor, whole, while the second cache is asked for the next; and the ring, where much is read alike by all rows: it is fetched into shared memory once, by one
 * block of a multiprocessor or by several.
 * Each comes from counting registers, vectors in flight and bytes; the numbers below were measured. */
#include "gen/gen.h"

#include <string.h>

/* Measured on an H200. */
enum { MOST_THREADS = 512, BLOCK = 64,      /* threads of a row, of a block at least: small ones make room for the next rows sooner */
    MANY_THREADS = 256, VECTORS = 5, VECTORS_WAITS = 7, VECTORS_COMMON = 8, VECTORS_ALIKE = 14,      /* up to so many threads, each has no more vectors than these; where one reduction waits for another; where rows have much in common besides; of a warp or two, where that and several vectors that all rows read */
    READ_WELL = 2,                           /* operands of a single loop that find room beside the rest */
    WORDS = 40, WORDS_WELL = 56, WORDS_MOST = 72,            /* registers for the row in a thread; so many rather than more threads; where no more threads are to be had */
    WORKING = 24, WORKING_KEPT = 16, RING_KEPT = 8, WORKING_SQUARES = 8, WIDE = 32, COMMON = 4, LEAST = 64,    /* registers beside the row's and the vectors that pass by; more where some threads keep less than others, where squares are added up after another reduction, for numbers of 64 bits; of a thread in all, at least */
    FEW_THREADS = 128, FEW_WORKING = 8, IN_FLIGHT = 6500,    /* of a row, and what each needs besides; vectors of a multiprocessor with which memory is not busy yet */
    ENOUGH_BLOCKS = 3,                      /* of a multiprocessor: more hardly help */
    BUSY_WORDS = 48,                        /* so many of a thread, in one block: memory is kept busy by it alone */
    REGISTERS = 65536,                      /* of a multiprocessor */
    WHOLE_WORKING = 16, WHOLE_REDUCTION = 4,      /* where a multiprocessor works on one or two rows: registers besides these; more for each further reduction */
    WHOLE_BYTES = 64 << 10,                 /* of two rows at least, or memory is not busy */
    SOON = 160 << 10,                       /* bytes of rows that a multiprocessor may ask the second cache for, ahead */
    BLOCKS = 2,                             /* of a multiprocessor hide each other's waits: where there are fewer, rows come through a ring */
    /* the ring */
    ROOM = 233472, ROOM_TAKEN = 1024, BARRIERS = 256,      /* bytes of shared memory of a multiprocessor; taken of it by each block; for barriers */
    RING_WORKING = 32, ROWS_AHEAD = 4, PIECES = 3,             /* a ring's rows at most; its pieces of a long row: each costs a barrier, so few and large ones */
    WIDEST = 1024, ENOUGH = 640,            /* threads of a row at most; of a multiprocessor: more have too few registers each */
    THREE = 96, SEVEN = 224,                /* threads of three warps; of seven */
    EIGHT = 8, EIGHT_LEAST = 288,           /* vectors of a thread where several things are fetched once: two pieces of four; threads then at least */
    FITTING = 1024, FITTING_ONCE = 512,     /* the same where all threads have the same number of vectors; and some of them are read again by all rows: more in a thread wait less often */
    VECTORS_MOST = 16, STAGES_MOST = 12,    /* of a thread; pieces that a ring has room for */
    PER_BYTE = 7, POWER = 8, ROUGH_POWER = 3, WIDE_OPERATION = 3,      /* instructions that a multiprocessor makes in the time of a byte of memory; of a power of e and the like; on 64 bits */
    LINE = 128 };                           /* bytes of a line of the caches */

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

bool rows_in(const Rows *r, const KVal *v) { return v->block->loop && v->block->loop->var == r->var; }

/* Are the elements of the row neighbours in memory, and what else decides the address the same all along the row? */
static bool together(Rows *r, const KAddr *at, int nopnd, KVal *const *opnd)
{
    Dim *c, *rest;
    for (int i = 0; i < nopnd; i++) if (rows_in(r, opnd[i])) return false;
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

RowSlot *rows_slot(Rows *r, int buf, const KAddr *at, bool store)
{
    for (int i = 0; i < r->slot.n; i++) {
        RowSlot *s = &r->slot.at[i];
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
                RowKept q = { s->val, l, l, s->buf, s->at.off };
                if (rows_in(r, s->val)) vec_push(r->a, &r->kept, q);
                if (r->k->buf.at[s->buf].scratch || !together(r, &s->at, s->nopnd, s->opnd) || rows_slot(r, s->buf, &s->at, true)) continue;
                RowSlot t = { .buf = s->buf, .off = s->at.off, .npred = s->at.npred, .pred = s->at.pred, .dt = s->val->dt, .id = r->slot.n, .first = l, .last = l, .store = true, .nopnd = s->nopnd };
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
            RowSlot *t = rows_slot(r, v->buf, &v->at, false);
            if (!t) {
                RowSlot n = { .buf = v->buf, .off = v->at.off, .npred = v->at.npred, .pred = v->at.pred, .dt = v->dt, .id = r->slot.n, .first = l, .nopnd = v->nopnd };
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
                r->slot_of[s->val->id] = rows_slot(r, s->val->buf, &s->val->at, false);
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
bool rows_passes(const RowSlot *s) { return s->from == FROM_once || (s->first == s->last && s->first > 0 && !s->kept); }

/* The last loop that a slot is taken from: a value that is computed again needs what it was computed of. */
int rows_last(const Rows *r, const RowSlot *s, bool again)
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
        if (!r->slot.at[i].store && !rows_passes(&r->slot.at[i])) { read++; words += (r->e * (int)dtype_size(r->slot.at[i].dt) + 3) / 4; }
    if (r->nloop == 1 && read > READ_WELL) most = words;       /* a single loop: all that it reads is asked for before */
    for (int l = 0; l < r->nloop; l++) {
        int w = 0;
        for (int i = 0; i < r->slot.n; i++) {
            const RowSlot *s = &r->slot.at[i];
            if (!s->store && s->from != FROM_once && s->first <= l && l < rows_last(r, s, again)) w += (r->e * (int)dtype_size(s->dt) + 3) / 4;
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
    for (int i = 0; i < r->slot.n; i++) r->slot.at[i].kept = again && rows_last(r, &r->slot.at[i], true) > r->slot.at[i].last;
}

/* Numbers of 64 bits that are folded take twice the registers in all that is done with them. */
static int wide_folds(const Rows *r)
{
    for (int l = 0; l < r->nloop; l++)
        for (int i = 0; i < r->loop[l]->stmt.n; i++)
            if (r->loop[l]->stmt.at[i].kind == KS_update && dtype_size(dtype_info[r->loop[l]->stmt.at[i].fold->dt].compute) == 8) return WIDE;
    return 0;
}

bool rows_exact(const Rows *r) { return (int64_t)r->v * r->w * r->e * r->cluster == r->n && !r->shift; }

/* Of the vectors of a thread, how many lie in the row whichever thread and block it is: these need no test. */
int rows_sure(const Rows *r)
{
    const int64_t least = r->n - (r->cluster - 1) * r->part, n = (least < r->part ? least : r->part) / ((int64_t)r->w * r->e);
    return n < 0 ? 0 : n < r->v ? (int)n : r->v;
}

/* Does a loop hand values on to a later one, in registers? */
static bool keeps_values(const Rows *r)
{
    for (int q = 0; q < r->kept.n && !r->again; q++) if (r->holds[r->kept.at[q].val->id] == q + 1) return true;
    return false;
}

/* ---- two reductions at once ---- */
bool rows_dropped(const Rows *r, int l, const KStmt *s)
{
    if (r->k->buf.at[s->buf].scratch) return true;      /* read back from registers only */
    for (int m = l + 1; m < r->nloop; m++)
        for (int i = 0; i < r->loop[m]->stmt.n; i++) {
            const KStmt *o = &r->loop[m]->stmt.at[i];
            if (o->kind == KS_store && o->buf == s->buf && o->at.off == s->at.off && !o->at.npred) return true;   /* written over in the end */
        }
    return false;
}

/* The same element of the row, of two loops? */
static bool same_element(const Rows *r, const KVal *a, const KVal *b)
{
    if (b->kind == KV_load && r->kept_of[b->id]) b = r->kept.at[r->kept_of[b->id] - 1].val;
    if (a == b) return true;
    if (a->kind != b->kind || a->dt != b->dt) return false;
    if (a->kind == KV_load) return r->slot_of[a->id] && r->slot_of[a->id] == r->slot_of[b->id] && a->imm.u == b->imm.u;
    return a->kind == KV_cast && same_element(r, a->in[0], b->in[0]);
}

const KFold *rows_fold(const Rows *r, int l)
{
    const KFold *f = NULL;
    if (l >= r->nloop) return NULL;
    for (int i = 0; i < r->loop[l]->stmt.n; i++) {
        const KStmt *s = &r->loop[l]->stmt.at[i];
        if (s->kind == KS_store ? !rows_dropped(r, l, s) : s->kind == KS_update ? f || s->fold->dt != DT_f32 : s->val->kind == KV_check) return NULL;
        if (s->kind == KS_update) f = s->fold;
    }
    return f;
}

/* How loop l and the next go together. */
Pair rows_pair(const Rows *r, int l)
{
    const KFold *a = rows_fold(r, l), *b = rows_fold(r, l + 1);
    if (!a || !b || a->mul_a || !a->value || b->kind != FOLD_sum || r->w <= 32 || !r->paired) return PAIR_none;
    const KVal *e = b->mul_a ? b->mul_a : b->value->kind == KV_ew && b->value->op == OP_exp ? b->value->in[0] : NULL;
    if (!e || e->kind != KV_ew || e->op != OP_sub || e->dt != DT_f32 || !rows_in(r, e) || rows_in(r, e->in[1]) || (b->mul_a && b->mul_a != b->mul_b)) return PAIR_none;
    if (!same_element(r, a->value, e->in[0])) return PAIR_none;
    for (int q = 0; q < r->kept.n && !r->again; q++) {
        const RowKept *k = &r->kept.at[q];
        if (r->holds[k->val->id] == q + 1 && k->first == l + 1 && (b->mul_a || k->val != b->value)) return PAIR_none;
    }
    return b->mul_a ? a->kind == FOLD_sum ? PAIR_squares : PAIR_none : a->kind == FOLD_max ? PAIR_exp : PAIR_none;
}

static int working(const Rows *r)
{
    int n = WORKING + wide_folds(r);
    if (keeps_values(r) && !rows_exact(r)) n += WORKING_KEPT;
    const bool squares = r->nloop > 1 && rows_fold(r, 1) && rows_fold(r, 1)->mul_a;
    if (squares) n += WORKING_SQUARES;
    for (int i = 0; i < r->slot.n; i++) if (!r->slot.at[i].store && r->slot.at[i].from == FROM_memory && rows_passes(&r->slot.at[i])) n += (r->e * (int)dtype_size(r->slot.at[i].dt) + 3) / 4;
    return squares && r->need + n == LEAST ? n + 1 : n;      /* of the least, none are left over */
}

static int outside(Rows *r, const KVal *v)
{
    if (!v || v->kind == KV_const || r->stamp[v->id] == r->scope) return 0;
    r->stamp[v->id] = r->scope;
    if (!rows_in(r, v)) return (int)(dtype_size(dtype_info[v->dt].compute) + 3) / 4;
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
    for (int i = 0; i < r->slot.n; i++) if (!r->slot.at[i].store && rows_passes(&r->slot.at[i])) return true;
    return false;
}

bool rows_varies(const Rows *r, const RowSlot *s)
{
    for (int i = 0; i < r->k->npar; i++) if (dim_uses(s->off, r->k->par[i].var->var)) return true;
    return false;
}

/* How many vectors do all rows read alike? */
static int alike(const Rows *r)
{
    int n = 0;
    for (int i = 0; i < r->slot.n; i++) n += !r->slot.at[i].store && !rows_varies(r, &r->slot.at[i]);
    return n;
}

/* 128, but 96 where each of 128 would have up to `slow` vectors, some threads fewer, and all rows read some alike: measured. */
static int few_threads(const Rows *r, int64_t nvec, int slow)
{
    return alike(r) && nvec % FEW_THREADS && nvec / FEW_THREADS + 1 == slow ? THREE : FEW_THREADS;
}

/* Fewer threads with more of the row each, where more of it is in flight then. */
static void take_few(Rows *r, int64_t nvec, int besides)
{
    const Rows many = *r;
    const int w = few_threads(r, nvec, EIGHT);
    const int64_t v = (nvec + w - 1) / w;
    if (v <= VECTORS_MOST && v * words_kept(r, r->again) <= WORDS_MOST) take_shape(r, tight(nvec, v, w), v, words_kept(r, r->again), common(r, v) + besides);
    if (in_flight(r) <= in_flight(&many)) *r = many;
}

/* Short rows: few vectors for each thread, the threads of a warp or some. */
static bool choose_short(Rows *r)
{
    int64_t nvec = (r->n + r->e - 1) / r->e;
    mark_kept(r, false);
    const int each = words_kept(r, false);
    const bool late = alike(r) > 1 && reductions(r) > 1;
    for (int w = 8; w <= MANY_THREADS; w *= 2) {
        const bool few = late && (w == 32 || w == 64);
        int64_t v = (nvec + w - 1) / w;
        if (v > (few ? VECTORS_ALIKE - (w == 32) : w > 32 && words_outside(r) > COMMON ? VECTORS_COMMON : w == 32 && reductions(r) > 1 ? VECTORS_WAITS : VECTORS)) continue;
        if (v * each > (few && each <= 4 ? WORDS_WELL : WORDS) && !(v == 1 && each <= 96)) continue;
        const int use = w == FEW_THREADS ? few_threads(r, nvec, 4) : w;
        v = (nvec + use - 1) / use;
        take_shape(r, tight(nvec, v, use), v, each, common(r, v) + (few && each <= 4 && (v > VECTORS_WAITS || w > 32) ? FEW_WORKING : 0));
        if (w > FEW_THREADS && !rows_exact(r) && reads_late(r)) take_few(r, nvec, reductions(r) > 1 ? FEW_WORKING : 0);
        return true;
    }
    return false;
}

/* Elements of a line of memory, of the smallest that differ from row to row. */
static int line_elements(const Rows *r)
{
    int least = 16;
    for (int i = 0; i < r->slot.n; i++) if (rows_varies(r, &r->slot.at[i]) && (int)dtype_size(r->slot.at[i].dt) < least) least = (int)dtype_size(r->slot.at[i].dt);
    return LINE / least;
}

/* The same if rows begin inside a line; or 0. */
static int lines(const Rows *r)
{
    for (int i = 0; i < r->slot.n; i++) if (rows_varies(r, &r->slot.at[i]) && r->n * (int64_t)dtype_size(r->slot.at[i].dt) % LINE) return line_elements(r);
    return 0;
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
    return any || r->blocks >= BLOCKS || (reductions(r) == 1 && r->need >= BUSY_WORDS && rows_exact(r));
}

/* ---- rows that fill a multiprocessor ------------------------------------------------------------------------------------------------------------ */
/* Can the device copy a row of it by itself? Whole pieces of 16 bytes whose address is known beforehand. */
bool rows_whole_pieces(const Rows *r, const RowSlot *s)
{
    const int64_t size = (int64_t)dtype_size(s->dt);
    return !s->store && !s->npred && !s->nopnd && !r->k->buf.at[s->buf].write && r->n * size % 16 == 0 && aligned(r, s->off, size >= 16 ? 1 : (int)(16 / size));
}

static int64_t row_bytes(const Rows *r)
{
    int64_t bytes = 0;
    for (int i = 0; i < r->slot.n; i++) if (rows_varies(r, &r->slot.at[i]) && rows_whole_pieces(r, &r->slot.at[i])) bytes += r->n * (int64_t)dtype_size(r->slot.at[i].dt);
    return bytes;
}

/* Long rows, of which a multiprocessor holds one or two: they are dealt out from a line of memory's beginning on, two reductions are made at once, and while one is worked on, the
 * second cache is asked for the row that comes next. Of very long ones for half of it, while what all rows read alike is waited for; or not at all, if nothing is. */
static void deal_long(Rows *r, bool bulk)
{
    const Sched *want = &r->k->sched;
    const int line = want->lines == 1 ? 0 : lines(r);
    if (r->w <= 32 || r->blocks > BLOCKS || !bulk) return;
    if (line) {
        const int64_t nvec = (r->n + r->e - 1) / r->e + line / r->e - 1, v = (nvec + r->w - 1) / r->w;
        const int blocks = r->blocks;
        take_shape(r, v > r->v ? tight(nvec, v, r->w) : r->w, v, words_kept(r, r->again), common(r, v));
        r->blocks = blocks;
        r->shift = line;
    }
    const bool busy = reductions(r) == 1 && rows_exact(r) && r->need >= BUSY_WORDS;     /* loads wait once, and all threads are alike: memory has no time to spare */
    r->soon = want->ahead ? want->ahead - 1 : busy ? 0 : row_bytes(r) * r->blocks <= SOON ? 1 : alike(r) ? 2 : 0;
    r->paired = true;
    r->crowded = r->nloop > 1 && rows_pair(r, 0) == PAIR_squares;
}

/* As many threads as registers suffice for: two blocks that share them, or one. All threads the same, if that can be. What is read alike by all rows is read again for each: of
 * that, only several blocks hide the wait, and it wants registers, where some such loads are on their way at a time, so fewer threads. The forms in the order that they are tried,
 * by the number of vectors that are read alike: blocks of a multiprocessor, their threads together, whether all are the same, vectors of each at most (0: as registers hold). Measured. */
static const struct { int alike, blocks, threads; bool same; int most; } whole_forms[] = {
    { 0, 2, 768, true, 0 }, { 0, 2, 512, true, 0 }, { 0, 2, 768, false, 0 }, { 0, 2, 512, false, 0 },
    { 0, 1, 768, true, 0 }, { 0, 1, 512, true, 0 }, { 0, 1, 768, false, 0 }, { 0, 1, 640, false, 0 }, { 0, 1, 512, false, 0 },
    { 1, 2, 512, true, 0 }, { 1, 2, 768, true, 0 }, { 1, 2, 512, false, 0 },
    { 1, 1, 768, true, 0 }, { 1, 1, 512, true, 0 }, { 1, 1, 768, false, 0 }, { 1, 1, 640, false, 0 }, { 1, 1, 512, false, 0 },
    { 2, 2, 768, true, 0 }, { 2, 2, 640, true, 0 }, { 2, 3, 480, false, 20 }, { 2, 2, 576, false, 0 }, { 2, 2, 640, false, 0 },
};

static bool choose_whole(Rows *r)
{
    const int line = lines(r), common = alike(r) < 2 ? alike(r) : 2;
    const int64_t vectors = (r->n + r->e - 1) / r->e;
    mark_kept(r, true);
    if (words_outside(r) > COMMON || r->k->sched.ring || r->k->sched.threads || row_bytes(r) * BLOCKS < WHOLE_BYTES) return false;
    r->w = MOST_THREADS;        /* more than a warp: reductions may go in pairs */
    r->paired = true;
    int working = WHOLE_WORKING + WHOLE_REDUCTION * (reductions(r) - 1) + wide_folds(r) + (r->nloop > 1 && rows_pair(r, 0) == PAIR_squares ? WORKING_SQUARES : 0);
    for (int i = 0; i < r->slot.n; i++) if (!r->slot.at[i].store && rows_passes(&r->slot.at[i])) working += (r->e * (int)dtype_size(r->slot.at[i].dt) + 3) / 4;
    for (size_t i = 0; i < sizeof whole_forms / sizeof *whole_forms; i++) {
        const int blocks = whole_forms[i].blocks, w = whole_forms[i].threads / blocks, fours = (whole_forms[i].threads / 32 + 3) / 4;      /* warps come in fours, registers in eights */
        const int64_t nvec = vectors + (line && blocks <= BLOCKS ? line / r->e - 1 : 0), v = (nvec + w - 1) / w;
        if (whole_forms[i].alike != common || (whole_forms[i].most && v > whole_forms[i].most) || (whole_forms[i].same && nvec % w)) continue;
        if (v * words_kept(r, true) + working > REGISTERS / 128 / fours / 8 * 8) continue;
        take_shape(r, tight(nvec, v, w), v, words_kept(r, true), 0);
        r->blocks = blocks;
        return true;
    }
    return false;
}

/* ---- the ring ------------------------------------------------------------------------------------------------------------------------------ */
/* Which loads go through the ring, which are fetched once. Bytes of an element of each. */
static void ring_slots(Rows *r, int once, int64_t *ring, int64_t *fetched)
{
    *ring = *fetched = 0;
    r->released = 0;
    for (int i = 0; i < r->slot.n; i++) {
        RowSlot *s = &r->slot.at[i];
        int64_t size = (int64_t)dtype_size(s->dt);
        s->from = FROM_memory;
        if (size * r->e < 4 || !rows_whole_pieces(r, s)) continue;
        if (rows_varies(r, s)) {
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

static bool no_ring(Rows *r)
{
    for (int i = 0; i < r->slot.n; i++) r->slot.at[i].from = FROM_memory;
    r->released = 0;
    return false;
}

const RowSlot *rows_first(const Rows *r)
{
    for (int i = 0; i < r->slot.n; i++) if (r->slot.at[i].from == FROM_ring) return &r->slot.at[i];
    return NULL;
}

/* How a row is dealt to the blocks of a cluster: whole lines of memory each. Rows that begin inside a line are dealt to threads from the line's beginning on, so that all that
 * is read and written at a time is whole lines. false: blocks would have nothing to do. Gives the vectors of a block. */
static bool deal(Rows *r, int cluster, int64_t *vectors)
{
    const int64_t nvec = (r->n + r->e - 1) / r->e;
    const int line = line_elements(r);
    r->shift = lines(r);
    for (int i = 0; i < r->slot.n; i++)       /* copies are of whole pieces of 16 bytes */
        if (r->slot.at[i].from == FROM_ring && !aligned(r, rows_first(r)->off, dtype_size(r->slot.at[i].dt) >= 16 ? 1 : (int)(16 / dtype_size(r->slot.at[i].dt)))) r->shift = 0;
    int64_t share = (nvec + cluster - 1) / cluster;
    if (cluster > 1) share = (share + line / r->e - 1) / (line / r->e) * (line / r->e);
    r->part = share * r->e;
    *vectors = share + (r->shift ? line / r->e - 1 : 0);
    return (cluster - 1) * share < nvec;
}

/* What a ring is to be. blocks: of a multiprocessor, each with a ring for one row; 0: as many as fit. pieces: of a row; 0: as few as may be. */
typedef struct RingForm { int threads, cluster, blocks, pieces, once; bool again; } RingForm;

int rows_parts(const Rows *r) { return r->w * r->cluster; }

/* Bytes that the last piece of a row of so many vectors leaves free behind its last slot: whole lines. */
static int64_t spare(const Rows *r, int64_t vectors)
{
    int64_t size = 0;
    for (int i = 0; i < r->slot.n; i++) if (r->slot.at[i].from == FROM_ring) size = (int64_t)dtype_size(r->slot.at[i].dt);
    return ((int64_t)r->pieces * r->steps * r->w - vectors) * r->e * size / LINE * LINE;
}

/* The shape for that: false when it does not fit. Gives the threads that a multiprocessor has then. */
static bool ring_fits(Rows *r, RingForm f, int *resident)
{
    int64_t vectors, ring, fetched;
    ring_slots(r, f.once, &ring, &fetched);
    mark_kept(r, f.again);
    if (!ring || f.threads <= 32 || !deal(r, f.cluster, &vectors)) return false;
    const int w = tight(vectors, (vectors + f.threads - 1) / f.threads, f.threads);
    const int64_t v = (vectors + w - 1) / w, dealt = r->part;
    const int shift = r->shift, asked = r->k->sched.ring ? r->k->sched.ring : f.pieces;
    if (v > VECTORS_MOST) return false;
    take_shape(r, w, v, words_kept(r, f.again), 0);
    r->cluster = f.cluster; r->part = dealt; r->shift = shift;
    if (!f.again && r->need > WORDS) return false;
    if (r->need + RING_WORKING + wide_folds(r) + (keeps_values(r) && !rows_exact(r) ? RING_KEPT : 0) > REGISTERS / ((w + 127) / 128 * 128) / 8 * 8) return false;      /* warps come in fours, registers in eights */
    if (r->blocks < f.blocks) return false;
    if (f.blocks || r->k->sched.blocks) r->blocks = f.blocks ? f.blocks : r->k->sched.blocks;
    for (; r->blocks > 0 && r->blocks >= f.blocks; r->blocks--) {
        int64_t part = v * w * r->e, keep = (fetched * r->part + 127) / 128 * 128, row = (ring * part + 127) / 128 * 128;
        int64_t less = 0, room = ROOM / r->blocks - ROOM_TAKEN - rows_parts(r) - keep - BARRIERS;
        if (room < 0) continue;
        r->steps = (int)v; r->pieces = 1; r->piece = (int)row;
        r->stages = room / row < ROWS_AHEAD ? (int)(room / row) : ROWS_AHEAD;
        if (r->stages < 2 || asked > 1) {            /* long rows: piece by piece */
            if (r->released) continue;
            for (r->steps = 1; (ring * (r->steps + 1) * w * r->e + 127) / 128 * 128 * PIECES <= room && 2 * r->steps < v; r->steps++) { }
            if (asked > 1) r->steps = (int)((v + asked - 1) / asked);
            r->pieces = (int)((v + r->steps - 1) / r->steps);
            r->piece = (int)((ring * r->steps * w * r->e + 127) / 128 * 128);
            const int most = f.blocks ? r->pieces : STAGES_MOST;
            r->stages = room / r->piece < most ? (int)(room / r->piece) : most;
            if (f.blocks && r->stages == most - 1 && most * (int64_t)r->piece - spare(r, vectors) <= room) { r->stages = most; less = spare(r, vectors); }
            if (r->stages < (f.blocks ? most : 2) || (!asked && (int64_t)r->stages * r->piece * 4 < row * 5)) continue;
        }
        r->once = (int)keep;
        r->room = (int)(keep + (int64_t)r->stages * r->piece - less + rows_parts(r) + 8 * (2 * r->stages + 3 + 2 * (f.cluster > 1)));
        int64_t at = 0, first = 0;
        for (int i = 0; i < r->slot.n; i++) {
            RowSlot *s = &r->slot.at[i];
            int64_t size = (int64_t)dtype_size(s->dt);
            if (s->from == FROM_ring) { s->at = (int)at; at += size * r->steps * w * r->e; }
            if (s->from == FROM_once) { s->at = (int)first; first += size * r->part; }
        }
        const int threads = r->blocks * w, most = !rows_exact(r) ? ENOUGH : f.once ? FITTING_ONCE : FITTING;
        *resident = (threads < most ? threads : most) * (rows_exact(r) ? 5 : 4);
        return true;
    }
    return false;
}

/* The same with nothing computed twice, if the registers hold it. alone: one block of a multiprocessor. */
static bool ring_keeps(Rows *r, RingForm f, bool alone)
{
    int resident;
    for (int again = r->k->sched.again == 2; again < (r->k->sched.again == 1 ? 1 : 2); again++) {
        f.again = again;
        if (ring_fits(r, f, &resident) && (!alone || r->blocks == 1)) return true;
    }
    return false;
}

/* Has tuning asked for another one? */
static bool ring_unwanted(const Rows *r, RingForm f)
{
    const Sched *want = &r->k->sched;
    return (want->cluster && want->cluster != f.cluster) || (want->once && want->once - 1 != f.once);
}

/* Threads of each block of a pair, up to those that eight vectors each would take: measured. */
static const struct { int eight, threads; } pair_threads[] = { { 288, 384 }, { 320, 320 }, { 384, 448 }, { 416, 480 }, { 448, 640 }, { 480, 480 }, { 512, 512 }, { 576, 384 } };

/* Threads for about eight vectors each, where all vectors that rows read alike are fetched once. */
static bool ring_of_eight(Rows *r, RingForm f)
{
    int64_t vectors, ring, fetched;
    ring_slots(r, f.once, &ring, &fetched);
    if (!ring || !deal(r, f.cluster, &vectors)) return false;
    f.threads = (int)((vectors + EIGHT - 1) / EIGHT + 31) / 32 * 32;
    if (f.threads < EIGHT_LEAST || r->k->sched.threads || ring_unwanted(r, f)) return false;
    if (f.cluster > 2) f.threads = SEVEN;                         /* where more blocks wait for each other, fewer threads are better: measured */
    for (size_t i = 0; f.cluster <= 2 && i < sizeof pair_threads / sizeof *pair_threads; i++) if (f.threads <= pair_threads[i].eight) { f.threads = pair_threads[i].threads; break; }
    return ring_keeps(r, f, true);
}

/* Several blocks of a multiprocessor, each with its part of another row: one computes while another waits. As many threads as have registers for twelve vectors of a row each, in
 * warps that can be shared out evenly. A ring for more than the row that comes next makes them slower. least, most: vectors of a block's part; from `thirds` on it comes in three pieces, not two. Measured. */
static const struct { int cluster, blocks, threads, least, thirds, most; } several[] = { { 4, 3, 128, 1153, 1320, 1480 }, { 4, 2, 128, 1608, 1664, 1664 }, { 4, 2, 192, 1664, 2112, 2560 }, { 8, 3, 128, 1153, 1408, 1408 } };

static bool ring_of_several(Rows *r)
{
    const Sched *want = &r->k->sched;
    const int once = alike(r);
    if (once < 2) return false;
    for (size_t i = 0; i < sizeof several / sizeof *several; i++) {
        RingForm f = { .threads = several[i].threads, .cluster = several[i].cluster, .blocks = several[i].blocks, .once = once };
        int64_t vectors, ring, fetched;
        ring_slots(r, once, &ring, &fetched);
        if (!ring || !deal(r, f.cluster, &vectors) || vectors < several[i].least || vectors > several[i].most || ring_unwanted(r, f)) continue;
        if ((want->blocks && want->blocks != f.blocks) || (want->threads && want->threads != f.threads)) continue;
        f.pieces = vectors < several[i].thirds ? 2 : 3;
        if (ring_keeps(r, f, false)) return true;
    }
    return no_ring(r);
}

/* A ring for so many blocks, and so many vectors that are fetched once. Nothing is computed twice if the registers hold it; and as many threads as a multiprocessor can use, in
 * the narrowest groups. */
static bool ring_of(Rows *r, RingForm f)
{
    const Sched *want = &r->k->sched;
    if (ring_unwanted(r, f)) return false;
    for (int again = want->again == 2; again < (want->again == 1 ? 1 : 2); again++) {
        int best = 0, best_w = 0, resident = 0;
        f.again = again;
        for (f.threads = want->threads ? want->threads : 256; f.threads <= (want->threads ? want->threads : WIDEST); f.threads += 128)
            if (ring_fits(r, f, &resident) && resident > best) { best = resident; best_w = r->w; }
        f.threads = best_w;
        if (best) return ring_fits(r, f, &resident);
    }
    return false;
}

/* Pairs of blocks first: a ring holds more rows of half the length. As much as there is room for of what is read alike is fetched once. More than a pair, since their
 * reductions wait for each other, only where nothing else fits. */
static bool choose_ring(Rows *r)
{
    static const int blocks[2][2] = { { 2, 1 }, { 4, 8 } };
    const int all = alike(r);
    if (all > 1) {
        for (int i = 0; i < 2; i++) if (ring_of_eight(r, (RingForm){ .cluster = blocks[i][0], .once = all })) return true;
        for (int i = 0; i < 2; i++) if (ring_of(r, (RingForm){ .cluster = blocks[i][0], .once = all })) return true;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int once = all; once >= 0; once--)
            for (int i = 0; i < 2; i++) if (ring_of(r, (RingForm){ .cluster = blocks[pass][i], .once = once })) return true;
    return no_ring(r);
}

static bool choose_shape(Rows *r, bool bulk)
{
    enum { NO_RING = 1000 };
    const int ring = r->k->sched.ring;
    if (!choose_vector(r)) return false;
    if (bulk && ring != NO_RING && ring_of_several(r)) return true;
    if (bulk && ring && ring < NO_RING) return choose_ring(r) || choose_plain(r, true);
    if (!r->k->sched.threads && choose_short(r)) return true;
    return (bulk && choose_whole(r)) || choose_plain(r, false) || (bulk && ring != NO_RING && choose_ring(r)) || choose_plain(r, true);
}

/* Where the second cache is asked for the next row, what is read and written once, and is larger than it, would only drive that out. But where rows begin inside a line, and are
 * not dealt by lines, neighbours share it. Elsewhere plain accesses are faster by 1 to 6 %. */
static bool passes_caches(const Rows *r)
{
    int64_t n = r->n;
    for (int i = 0; i < r->slot.n; i++) if (!r->shift && n * (int64_t)dtype_size(r->slot.at[i].dt) % LINE) return false;
    for (int i = 0; i < r->k->npar; i++) n *= dim_hint(r->g, r->k->par[i].extent);
    return r->soon && n >= STREAM_BYTES / 2;
}

/* Are so many operations made on each element that memory waits for them? Roughly: a load, a store or an operation is one instruction; powers and such are several. */
static bool computes_much(const Rows *r)
{
    int64_t n = 0, bytes = 0;
    for (int i = 0; i < r->slot.n; i++) if (rows_varies(r, &r->slot.at[i])) bytes += (int64_t)dtype_size(r->slot.at[i].dt);
    for (int l = 0; l < r->nloop; l++)
        for (int i = 0; i < r->loop[l]->stmt.n; i++) {
            const KStmt *s = &r->loop[l]->stmt.at[i];
            if (s->kind != KS_val) { n++; continue; }
            const KVal *v = s->val;
            n += v->kind == KV_load ? 1 : v->kind != KV_ew ? 0 : prim_info[v->op].cost >= OPERATIONS_POWER ? (v->rough ? ROUGH_POWER : POWER) : v->nin && dtype_size(v->in[0]->dt) == 8 ? WIDE_OPERATION : 1;
        }
    return n > bytes * PER_BYTE;
}

bool rows_shape(Rows *r, bool bulk)
{
    if (!choose_shape(r, bulk)) return false;
    r->paired = r->stages > 0;
    if (!r->stages) deal_long(r, bulk);
    if (r->k->sched.pairs) r->paired = r->k->sched.pairs == 1;
    r->hinted = passes_caches(r);
    r->quick = r->k->sched.effort ? r->k->sched.effort == 1 : computes_much(r);
    /* a thread has few registers, and a text so straight that what the compiler might keep of an earlier loop must be out of its sight for certain */
    r->crowded |= (r->stages || rows_exact(r)) && REGISTERS / (r->w * r->rows * r->blocks) <= LEAST;
    return true;
}

bool rows_find(Rows *r)
{
    const int n = r->k->nval + 1;
    if (!find_loops(r)) return false;
    r->slot_of = NEWS(r->a, const RowSlot *, n);
    r->kept_of = NEWS(r->a, int, n);
    r->holds = NEWS(r->a, int, n);
    r->stamp = NEWS(r->a, int, n);
    find_slots(r);
    return !reads_own(r);
}

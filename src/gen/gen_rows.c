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

static const char *in_bounds(const Rows *r) {
    if (!r->stages && !r->shift) return arena_fmt(r->a, "s < %d || base < %lld", rows_sure(r), (long long)r->n);
    if (!r->stages) return arena_fmt(r->a, "(0 < s && s < %d) || (u64)base < %lld", rows_sure(r), (long long)r->n);
    return arena_fmt(r->a, "(%ss < %d) || (u32)place < (u32)here", r->shift ? "0 < s && " : "", rows_sure(r));
}

static const char *slot_name(Rows *r, const RowSlot *s) { return arena_fmt(r->a, rows_passes(s) ? "r%d" : "r%d[s]", s->id); }

static const char *slot_when(Rows *r, const RowSlot *s)
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
        if (m->kind == KV_ew && m->op == OP_mul && m->dt == DT_f32 && rows_in(r, m) && r->stamp[m->id] != r->scope) return i;
    }
    return -1;
}

/* ---- values of an element ------------------------------------------------------------------------------------------------------------------ */
static void emit_val(Rows *r, const KVal *v)
{
    Printer *p = &r->p;
    if (!v || v->kind == KV_const || !rows_in(r, v) || r->stamp[v->id] == r->scope) return;
    r->stamp[v->id] = r->scope;
    if (v->kind == KV_load && r->kept_of[v->id]) {
        const KVal *was = r->kept.at[r->kept_of[v->id] - 1].val;
        if (r->again) {
            emit_val(r, was);
            print_line(p, "const %s v%d = v%d;", held(v->dt), v->id, was->id);
        } else {
            const int first = r->kept.at[r->kept_of[v->id] - 1].first;
            const bool moved = first && rows_pair(r, first - 1) == PAIR_exp && was == rows_fold(r, first)->value;
            print_line(p, "const %s v%d = h%d[s][e]%s;", held(v->dt), v->id, was->id, moved ? arena_fmt(r->a, " * moved%d", was->id) : "");
        }
        return;
    }
    if (v->kind == KV_load && r->slot_of[v->id]) {
        const RowSlot *s = r->slot_of[v->id];
        const char *when = v->imm.u ? slot_when(r, s) : NULL;        /* a cleared vector holds zeros */
        r->slot.at[s->id].taken = true;
        const char *got = arena_fmt(r->a, "get_%s(%s, e)", stored_as(v->dt), slot_name(r, s));
        if (when) got = arena_fmt(r->a, "%s ? %s : %s", when, got, print_literal(p, v->dt, v->imm));
        print_line(p, "const %s v%d = %s;", held(v->dt), v->id, got);
        return;
    }
    if (v == r->apart) {
        emit_val(r, v->in[0]);
        print_line(p, "const f32 v%d = %s - u%d;", v->id, print_operand(p, v->in[0]), rows_fold(r, r->here - 1)->id);
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

static const char *slot_at(Rows *r, const RowSlot *s)
{
    const char *off = print_dim(&r->p, s->off);
    return arena_fmt(r->a, "b%d + (%s)", s->buf, off);
}

static void print_base(Rows *r)
{
    if (r->stages) {
        print_line(&r->p, "const int place = (s * %d + own) * %d%s;", r->w, r->e, r->shift ? " - shift" : "");
        print_line(&r->p, "const i64 base = %splace;", r->cluster > 1 ? "from + " : "");
    } else print_line(&r->p, "const i64 base = (s * %d + own) * %d%s;", r->w, r->e, r->shift ? " - shift" : "");
}

static void steps_open(Rows *r)
{
    print_line(&r->p, "UNROLL for (int s = 0; s < %d; s++) {", r->v);
    print_base(r);
}

static void load_slot(Rows *r, const RowSlot *s, bool bounded)
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
    const char *how = (hint ? hint == 2 || hint >= 4 : r->hinted) && rows_varies(r, s) && !r->k->buf.at[s->buf].write ? "stream" : "load";
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
static bool made_of(const Rows *r, const KVal *v, const RowSlot *s, int *left)
{
    if (!v || !rows_in(r, v) || --*left < 0) return false;
    if (v->kind == KV_load && r->slot_of[v->id] == s) return true;
    bool any = false;
    for (int i = 0; i < v->nin && !any; i++) any = made_of(r, v->in[i], s, left);
    return any;
}

/* Does the reduction at the end of the loop take all that comes through the ring? */
static bool takes_ring(const Rows *r, const KBlock *b)
{
    for (int i = 0; i < r->slot.n; i++) {
        const RowSlot *s = &r->slot.at[i];
        bool any = s->from != FROM_ring;
        for (int j = 0; j < b->stmt.n && !any; j++) any = b->stmt.at[j].kind == KS_update && made_of(r, b->stmt.at[j].fold->value, s, &(int){ WALK_STEPS });
        if (!any) return false;
    }
    return true;
}

static void ring_wait(Rows *r)
{
    print_line(&r->p, "const u8 *const in = ring + stage * %d;", r->piece);
    print_line(&r->p, "filled_wait(filled + stage, turn);");
}

static bool loads_here(const RowSlot *s, int l, bool ring) { return !s->store && !rows_passes(s) && s->first == l && (s->from == FROM_ring) == ring; }

static void piece_open(Rows *r)
{
    print_line(&r->p, "UNROLL for (int s = q * %d; s < (q + 1) * %d && s < %d; s++) {", r->steps, r->steps, r->v);
    print_base(r);
}

/* The second cache is asked for the row that this multiprocessor takes next, or half of it. */
static void print_soon(Rows *r)
{
    Printer *p = &r->p;
    print_line(p, "{");
    print_line(p, "const i64 soon = point + (i64)processors() * %d;", r->blocks);
    print_line(p, "if (t == 0 && soon < total) {");
    print_line(p, "const i64 point = soon;");
    print_point(p);
    print_line(p, "const i64 %s = 0;", row_var(r));
    for (int i = 0; i < r->slot.n; i++) {
        const RowSlot *s = &r->slot.at[i];
        const int64_t bytes = r->n * (int64_t)dtype_size(s->dt) / r->soon / 16 * 16;
        if (rows_varies(r, s) && rows_whole_pieces(r, s)) print_line(p, "fill_cache(%s, %lld);", slot_at(r, s), (long long)bytes);
    }
    print_line(p, "}");
    print_line(p, "}");
}

/* All loads that a loop is the first to need, before any is used. true: they come piece by piece, and the loop over the pieces is left open. */
static bool load_slots(Rows *r, int l)
{
    Printer *p = &r->p;
    int n[2] = { 0, 0 };
    for (int i = 0; i < r->slot.n; i++) {
        const RowSlot *s = &r->slot.at[i];
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
            if (loads_here(&r->slot.at[i], l, ring)) load_slot(r, &r->slot.at[i], !rows_exact(r));
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
    const RowSlot *s = rows_first(r);
    for (int i = 0; i < r->slot.n && !s; i++) if (rows_varies(r, &r->slot.at[i])) s = &r->slot.at[i];
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
        const RowSlot *s = &r->slot.at[i];
        if (s->from == FROM_ring) print_line(p, "if (n > 0) fill(ring + (stage * %d + %d + (first - place) * %d), %s, n * %d, filled + stage);", r->piece, s->at, (int)dtype_size(s->dt), slot_at(r, s), (int)dtype_size(s->dt));
    }
}

/* Before the rows: what starts the copies of the next piece into a stage, the first pieces, and what all rows read alike. */
static void open_ring(Rows *r, const char *group, const char *groups)
{
    Printer *p = &r->p;
    Arena *a = r->a;
    int bars = r->stages + 1, meet = r->cluster > 1 ? 2 : 0, own = 8 * (meet + bars + 2 + r->stages), parts = r->room - own - rows_parts(r);
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
            const RowSlot *s = &r->slot.at[i];
            if (s->from == FROM_once) print_line(p, "fill(room + %d, %s, n * %d, filled + %d);", s->at, slot_at(r, s), (int)dtype_size(s->dt), bars - 1);
        }
        print_line(p, "}");
    }
    print_line(p, "if (t == 0) ROLLED for (int i = 0; i < %d; i++) ask(i);", r->stages);
    if (r->once) print_line(p, "filled_wait(filled + %d, 0);", bars - 1);
    print_line(p, "int stage = 0;");
    print_line(p, "u32 turn = 0;");
}


/* The value that a store rounds to two bytes, when nothing else needs it rounded: two of them are rounded and joined by one instruction. */
static const KVal *rounded_last(const Rows *r, const KVal *v)
{
    if (v->kind != KV_cast || !rows_in(r, v) || (v->dt != DT_bf16 && v->dt != DT_f16) || v->in[0]->dt != DT_f32 || r->e < 2 || r->holds[v->id]) return NULL;
    return v->in[0];
}

/* The slot whose elements a fold takes just as they lie in memory, where two of them are compared by one instruction; or NULL. */
static const RowSlot *packed_fold(const Rows *r, const KFold *f)
{
    const KVal *v = f->value;
    if ((f->kind != FOLD_max && f->kind != FOLD_min) || f->dt != DT_f32 || !v || v->kind != KV_cast || r->e < 2) return NULL;
    const KVal *from = v->in[0];
    const RowSlot *s = from->kind == KV_load ? r->slot_of[from->id] : NULL;
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
            const RowSlot *whole = rows_slot(r, s->buf, &s->at, true);
            const KVal *wide = whole && !rows_dropped(r, l, s) ? rounded_last(r, s->val) : NULL;
            emit_val(r, wide ? wide : s->val);
            if (rows_in(r, s->val) && !r->again && r->holds[s->val->id] && r->kept.at[r->holds[s->val->id] - 1].first == l)
                print_line(p, "h%d[s][e] = v%d;", s->val->id, s->val->id);
            if (rows_dropped(r, l, s)) continue;
            const RowSlot *t = whole;
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
        const RowSlot *t = f ? packed_fold(r, f) : NULL;
        if (t) print_line(p, "a%d = packed_%s_%s(a%d, %s);", f->id, fold_name[f->kind], stored_as(t->dt), f->id, slot_name(r, t));
    }
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        const RowSlot *t = s->kind == KS_store && !rows_dropped(r, l, s) ? rows_slot(r, s->buf, &s->at, true) : NULL;
        if (!t) continue;
        print_line(p, "{");
        print_line(p, "const i64 %s = base;", row_var(r));
        const char *when = slot_when(r, t), *live = r->rows > 1 ? "live" : NULL;
        const char *c = when && live ? arena_fmt(r->a, "live && %s", when) : when ? when : live;
        const char *how = (r->k->sched.hint ? r->k->sched.hint >= 3 : r->hinted) ? "leave" : "store";
        print_line(p, "%s%s%so%d.%s(%s);", c ? "if (" : "", c ? c : "", c ? ") " : "", t->id, how, slot_at(r, t));
        print_line(p, "}");
    }
}

/* Does the loop take from the ring as it goes? */
static bool by_step_in(const Rows *r, int l)
{
    bool any = false;
    for (int i = 0; i < r->slot.n; i++) any |= r->slot.at[i].from == FROM_ring && rows_passes(&r->slot.at[i]) && r->slot.at[i].first == l;
    return any;
}

/* ---- two reductions at once ------------------------------------------------------------------------------------------------------------------ */
/* A greatest element and then a sum of exp(x - u), or a sum and then one of (x - u)^2, where u follows from the first: each thread takes its own greatest element or mean for
 * u, and what threads have is brought to one level when it is put together. So the row waits once, not twice. The second is then moved to u itself: right for any u. */
static const KVal *pair_from(const KFold *b) { return b->mul_a ? b->mul_a : b->value->in[0]; }

/* Before the second loop: what stands for u in this thread. */
static void pair_open(Rows *r, int l)
{
    Printer *p = &r->p;
    const KFold *a = rows_fold(r, l), *b = rows_fold(r, l + 1);
    if (rows_pair(r, l) == PAIR_exp) {
        print_line(p, "const f32 own%d = a%d, u%d = pivot(own%d);", a->id, a->id, a->id, a->id);
    } else {
        print_line(p, "f32 n%d_ = 0.0f;", a->id);
        steps_open(r);
        print_line(p, "%sn%d_ += %d.0f;", rows_exact(r) ? "" : arena_fmt(r->a, "if (%s) ", in_bounds(r)), a->id, r->e);
        print_line(p, "}");
        print_line(p, "const f32 u%d = n%d_ > 0.0f ? a%d * inverse(n%d_) : 0.0f;", a->id, a->id, a->id, a->id);
    }
    print_fold(p, b);
    r->apart = pair_from(b);
}

static void pair_close(Rows *r, int l)
{
    const KFold *a = rows_fold(r, l), *b = rows_fold(r, l + 1);
    r->apart = NULL;
    if (rows_pair(r, l) == PAIR_exp) print_line(&r->p, "row_pair_exp<%d, %d>(a%d, a%d, shared, flip);", r->w, r->cluster, a->id, b->id);
    else print_line(&r->p, "row_pair_squares<%d, %d>(a%d, a%d, n%d_, shared, flip);", r->w, r->cluster, a->id, b->id, a->id);
}

/* Where the second loop would stand: what was reckoned from another place is moved to u. */
static void pair_move(Rows *r, int l)
{
    Printer *p = &r->p;
    const KFold *a = rows_fold(r, l), *b = rows_fold(r, l + 1);
    const char *u = print_operand(p, pair_from(b)->in[1]);
    if (rows_pair(r, l) == PAIR_squares) {
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
        const RowKept *k = &r->kept.at[q];
        if (k->first == l && r->holds[k->val->id] == q + 1) print_line(p, "%s h%d[%d][%d];", held(k->val->dt), k->val->id, r->v, r->e);
    }
    for (int i = 0; i < b->stmt.n; i++) {
        const KFold *f = b->stmt.at[i].kind == KS_update ? b->stmt.at[i].fold : NULL;
        if (f && f->mul_a && by_pairs(r, f)) print_line(p, "%s w%d = 0;", held(f->dt), f->id);
    }
    const bool pieces = load_slots(r, l);           /* each is worked on as it comes */
    if (!r->stages && l == 0 && r->soon) print_soon(r);
    const bool next = r->stages && r->pieces == 1 && l == r->released, met = r->released == 0 && takes_ring(r, b);
    if (next && !met && !by_step_in(r, l)) ring_next(r, false);
    if (pieces) piece_open(r);
    else steps_open(r);
    if (!rows_exact(r)) print_line(p, "if (%s) {", in_bounds(r));
    for (int i = 0; i < r->slot.n; i++) {
        const RowSlot *s = &r->slot.at[i];
        if (s->store) continue;
        if (s->from == FROM_once ? s->first <= l && l <= rows_last(r, s, r->again) : rows_passes(s) && s->first == l) {
            print_line(p, "Vec<%d> r%d;", r->e * (int)dtype_size(s->dt), i);
            print_line(p, "{");
            print_line(p, "const i64 %s = base;", row_var(r));
            load_slot(r, s, false);
            print_line(p, "}");
        } else if (!rows_passes(s) && s->taken && s->first < l && l <= rows_last(r, s, r->again)) print_line(p, r->crowded ? "r%d[s].renew(zero);" : "r%d[s].renew();", i);
    }
    for (int i = 0; i < r->slot.n; i++)
        if (r->slot.at[i].store) {
            bool used = false;
            for (int j = 0; j < b->stmt.n; j++) used |= b->stmt.at[j].kind == KS_store && !rows_dropped(r, l, &b->stmt.at[j]) && rows_slot(r, b->stmt.at[j].buf, &b->stmt.at[j].at, true) == &r->slot.at[i];
            if (used) print_line(p, "Vec<%d> o%d;", r->e * (int)dtype_size(r->slot.at[i].dt), i);
        }
    print_elements(r, l);
    if (!rows_exact(r)) print_line(p, "}");
    print_line(p, "}");
    if (pieces) print_line(p, "}");
    if (next && !met && by_step_in(r, l)) ring_next(r, false);
    for (int i = 0; i < b->stmt.n; i++) {
        const KFold *f = b->stmt.at[i].kind == KS_update ? b->stmt.at[i].fold : NULL;
        if (f && f->mul_a && by_pairs(r, f)) print_line(p, "a%d = a%d + w%d;", f->id, f->id, f->id);
    }
    const Pair pair = r->apart ? PAIR_none : rows_pair(r, l);
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
static bool early_value(const Rows *r, const KVal *v, int *left)
{
    bool ok = --*left >= 0 && v->kind != KV_fold && !rows_in(r, v) && (v->kind != KV_load || !r->k->buf.at[v->buf].write);
    for (int i = 0; i < v->nin && ok; i++) ok = early_value(r, v->in[i], left);
    for (int i = 0; i < v->nopnd && ok; i++) ok = early_value(r, v->opnd[i], left);
    return ok;
}

static bool early(const Rows *r, const KVal *v) { return early_value(r, v, &(int){ WALK_STEPS }); }

static void print_rows(Rows *r)
{
    Printer *p = &r->p;
    const KBlock *b = r->k->body;
    for (int i = 0; i < b->stmt.n; i++) if (b->stmt.at[i].kind == KS_val && early(r, b->stmt.at[i].val)) print_val(p, b->stmt.at[i].val);
    for (int i = 0, l = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        switch (s->kind) {
        case KS_loop:
            if (l && rows_pair(r, l - 1)) pair_move(r, l - 1);
            else print_row_loop(r, l);
            l++;
            break;
        case KS_fold: if (!l || !rows_pair(r, l - 1) || s->fold != rows_fold(r, l)) print_fold(p, s->fold); break;
        case KS_val: if (!early(r, s->val)) print_val(p, s->val); break;
        case KS_store:                              /* one value of the row: one of its threads writes it */
            print_line(p, "if (t == 0%s)", r->rows > 1 ? " && live" : r->cluster > 1 ? " && rank == 0" : "");
            print_store(p, s);
            break;
        case KS_update: case KS_skip: case KS_fetch: ASSERT(!"an update outside a loop"); break;
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
    return rows_find(r) ? r : NULL;
}

bool gen_rows(Ctx *cx, Arena *a, const LoopKernel *k, const SimtWords *words, bool bulk, KernelSource *out)
{
    if (k->sub->kind != SUB_rows || k->vec_var || k->mr > 1) return false;
    Rows *r = rows_new(cx, a, k);
    if (!r || !rows_shape(r, bulk)) return false;
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
    print_shift(r);
    print_rows(r);
    print_line(p, "}");
    SimtFrame f = { .threads = r->w * r->rows, .each = r->rows, .blocks = r->blocks, .cluster = r->cluster, .quick = r->quick };
    f.form = arena_fmt(a, "rows of %lld: %d threads a row, %d x %d elements each", (long long)r->n, r->w, r->v, r->e);
    if (r->stages) {
        f.form = arena_fmt(a, "%s; a ring of %d pieces of %d bytes%s%s", f.form, r->stages, r->piece, r->once ? arena_fmt(a, ", %d bytes fetched once", r->once) : "",
            r->cluster > 1 ? arena_fmt(a, ", clusters of %d", r->cluster) : "");
        f.local = r->room;
    } else f.shared = r->w > 32 ? rows_parts(r) / 8 : 0;
    simt_frame(p, words, &f, out);
    return true;
}

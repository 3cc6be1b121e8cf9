/* Values of a kernel as C expressions: addresses, loads and stores, elementwise operations, casts, accumulators.
 * A value is held in the compute type of its dtype (f16 and bf16 in float, rounded after each operation; floats of one byte as their codes; bool as a mask
 * 0 or -1 of 32 bits). Where lanes cannot be addressed together (an index that is not linear in the lane, a predicate by element) a loop over single lanes fills the vector. */
#include "gen/gen.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- text --------------------------------------------------------------------------------------------------------------------------- */
void print_line(Printer *p, const char *fmt, ...)
{
    char stack[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(stack, sizeof stack, fmt, ap);
    va_end(ap);
    char *s = stack;
    if (n >= (int)sizeof stack) {
        s = arena_alloc(p->arena, (size_t)n + 1);
        va_start(ap, fmt);
        vsnprintf(s, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    if (s[0] == '}' ) p->indent--;
    for (int i = 0; i < p->indent; i++) text_put(p->t, "    ", 4);
    text_put(p->t, s, (size_t)n);
    text_put(p->t, "\n", 1);
    if (n && s[n - 1] == '{') p->indent++;
}

/* ---- names and types ------------------------------------------------------------------------------------------------------------------- */
static const char *ctype(DType t) { return dtype_info[dtype_info[t].compute].name; }
/* Floats of one byte are moved and cast only: a value is its code. */
static bool is_code(DType t) { return dtype_is_float(t) && dtype_size(t) == 1; }
/* the storage type's name in prelude functions: ld_u8, st_bool ... */
static const char *stype(DType t)
{
    switch (t) {
    case DT_i4: case DT_i2: return "i8";
    case DT_u4: case DT_u2: return "u8";
    default: return is_code(t) ? "u8" : dtype_info[t].name;
    }
}
static uint8_t lane_vary(const Printer *p) { return p->bundled ? VARY_row : VARY_lane; }
static bool lanes(const Printer *p, uint8_t vary) { return (vary & lane_vary(p)) && p->lane; }
static const char *suffix(const Printer *p, uint8_t vary) { return !lanes(p, vary) ? "" : p->half ? "h" : "v"; }

static const char *subscript(Printer *p, uint8_t vary, bool acc_nv)
{
    const char *m = (vary & VARY_row) && p->k->mr > 1 ? (p->in_m ? "[m]" : "[0]") : "";
    const char *v = acc_nv ? (p->in_v ? "[v]" : "[0]") : "";
    return arena_fmt(p->arena, "%s%s", m, v);
}

/* nv of the vector loop in which a lane value stands: arrays are as long as the whole steps need */
static const char *name_of(Printer *p, const KVal *v)
{
    if (!p->array[v->id]) return arena_fmt(p->arena, "v%d", v->id);
    return arena_fmt(p->arena, "v%d%s", v->id, subscript(p, v->vary, lanes(p, v->vary)));
}

const char *print_literal(Printer *p, DType t, Scalar s)
{
    Text x = { .arena = p->arena };
    switch (dtype_info[t].compute) {
    case DT_f32: text_float(&x, s.f, true); break;
    case DT_f64: text_float(&x, s.f, false); break;
    case DT_i64: if (s.i == INT64_MIN) text_add(&x, "(-0x7fffffffffffffff%s - 1)", p->simt ? "l" : "ll"); else text_add(&x, p->simt ? "%lldl" : "%lldll", (long long)s.i); break;
    case DT_u64: text_add(&x, p->simt ? "%lluul" : "%lluull", (unsigned long long)s.u); break;
    case DT_u32: text_add(&x, "%uu", (unsigned)s.u); break;
    default:
        if (is_code(t)) { uint8_t code; scalar_store(t, &code, s); s.i = code; }
        if (t == DT_bool) text_add(&x, "%d", s.i ? -1 : 0);
        else if ((int32_t)s.i == INT32_MIN) text_add(&x, "(-0x7fffffff - 1)");
        else text_add(&x, "%d", (int)s.i);
    }
    return x.at;
}

/* A value as an operand of something that varies like `vary`. */
static const char *operand(Printer *p, const KVal *v, uint8_t vary)
{
    const char *s = v->kind == KV_const ? print_literal(p, v->dt, v->imm) : name_of(p, v);
    if (s[0] == '-') s = arena_fmt(p->arena, "(%s)", s);
    if (p->lane_of) return lanes(p, v->vary) ? arena_fmt(p->arena, "%s[l]", s) : s;
    if (v->half) return p->half ? s : arena_fmt(p->arena, "wide_f32h(%s)", s);
    if (lanes(p, vary) && !lanes(p, v->vary)) return arena_fmt(p->arena, p->rolled && dtype_info[v->dt].compute == DT_f32 ? "splat_%s%s(here_f32(%s))" : "splat_%s%s(%s)", ctype(v->dt), suffix(p, vary), s);
    return s;
}

const char *print_operand(Printer *p, const KVal *v) { return operand(p, v, 0); }

static const char *fold_op(FoldKind k, DType t, bool *infix)
{
    *infix = false;
    if (t == DT_bool) { *infix = true; return k == FOLD_max ? "|" : k == FOLD_min ? "&" : k == FOLD_sum ? "|" : "&"; }
    switch (k) {
    case FOLD_sum: *infix = true; return "+";
    case FOLD_prod: *infix = true; return "*";
    case FOLD_max: case FOLD_argmax: return "max";
    case FOLD_min: case FOLD_argmin: return "min";
    case FOLD_COUNT: break;
    }
    return "";
}

static Scalar fold_identity(FoldKind k, DType t)
{
    Scalar s = { 0 };
    switch (k) {
    case FOLD_sum: break;
    case FOLD_prod: if (dtype_is_float(t)) s.f = 1; else s.i = 1; break;
    case FOLD_max: case FOLD_argmax: s = t == DT_bool ? (Scalar){ .i = 0 } : scalar_min(t); break;
    case FOLD_min: case FOLD_argmin: s = t == DT_bool ? (Scalar){ .i = 1 } : scalar_max(t); break;
    case FOLD_COUNT: break;
    }
    return s;
}

/* Rounds or wraps an expression in the compute type to a narrow dtype. */
static const char *narrowed(Printer *p, DType t, const char *e, uint8_t vary)
{
    const char *f = NULL;
    switch (t) {
    case DT_f16: case DT_bf16: f = "round"; break;
    case DT_i8: case DT_i16: case DT_u8: case DT_u16: case DT_i4: case DT_u4: case DT_i2: case DT_u2: f = "wrap"; break;
    default: return e;
    }
    return arena_fmt(p->arena, "%s_%s%s(%s)", f, dtype_info[t].name, suffix(p, vary), e);
}

/* ---- addresses ------------------------------------------------------------------------------------------------------------------------ */
typedef struct Range { const char *cond, *lo, *hi; bool single; } Range;   /* lanes [lo, hi) are valid while cond; single: must be tested lane by lane */

static bool lane_in(const Printer *p, const Dim *d) { return p->lane && d && dim_uses(d, p->lane->var); }
static bool opnd_lanes(const Printer *p, int n, KVal *const *o)
{
    for (int i = 0; i < n; i++) if (lanes(p, o[i]->vary)) return true;
    return false;
}
static bool dim_lanes(Printer *p, Dim *d, int n, KVal *const *o)
{
    if (lane_in(p, d)) return true;
    for (int i = 0; i < n; i++) if (lanes(p, o[i]->vary) && dim_uses(d, VALUE_VAR + o[i]->id)) return true;
    return false;
}

static const char *both(Printer *p, const char *a, const char *op, const char *b) { return a ? arena_fmt(p->arena, "%s %s %s", a, op, b) : b; }

/* The predicates as a scalar condition on what does not vary by lane. */
static const char *condition(Printer *p, const KAddr *a, int nopnd, KVal *const *opnd, bool all)
{
    const char *c = NULL;
    for (int i = 0; i < a->npred && !p->inside; i++) {
        if (!all && (dim_lanes(p, a->pred[i].e, nopnd, opnd) || dim_lanes(p, a->pred[i].n, nopnd, opnd))) continue;
        c = both(p, c, "&", arena_fmt(p->arena, "((u64)(%s) < (u64)(%s))", print_dim(p, a->pred[i].e), print_dim(p, a->pred[i].n)));
    }
    return c;
}

static Range range_of(Printer *p, const KAddr *a, int nopnd, KVal *const *opnd)
{
    Range r = { .cond = condition(p, a, nopnd, opnd, false) };
    for (int i = 0; i < a->npred && !p->inside; i++) {
        Pred q = a->pred[i];
        if (!dim_lanes(p, q.e, nopnd, opnd) && !dim_lanes(p, q.n, nopnd, opnd)) continue;
        Dim *c, *rest;
        if (dim_lanes(p, q.n, nopnd, opnd) || opnd_lanes(p, nopnd, opnd) || !dim_linear(p->g, q.e, p->lane->var, &c, &rest) || !dim_is_const(c) || c->c < 1) { r.single = true; continue; }
        const char *e = print_dim(p, q.e), *n = print_dim(p, q.n), *lo, *hi;
        if (c->c == 1) {
            lo = arena_fmt(p->arena, "-(%s)", e);
            hi = arena_fmt(p->arena, "%s - (%s)", n, e);
        } else {
            lo = arena_fmt(p->arena, "idiv(%lld - (%s), %lld)", (long long)c->c - 1, e, (long long)c->c);
            hi = arena_fmt(p->arena, "idiv(%s - (%s) + %lld, %lld)", n, e, (long long)c->c - 1, (long long)c->c);
        }
        r.lo = r.lo ? arena_fmt(p->arena, "imax(%s, %s)", r.lo, lo) : lo;
        r.hi = r.hi ? arena_fmt(p->arena, "imin(%s, %s)", r.hi, hi) : hi;
    }
    if (p->part) r.hi = r.hi ? arena_fmt(p->arena, "imin(%s, %s)", r.hi, print_rem(p)) : print_rem(p);
    if (r.cond && (r.lo || r.hi)) { r.hi = arena_fmt(p->arena, "(%s) ? %s : 0", r.cond, r.hi ? r.hi : "LANES"); r.cond = NULL; }
    return r;
}

/* Scratch of a stream has room for whole vectors of rows, also of the tile that is not full. */
static bool holds_vectors(const Printer *p, const KBuf *b)
{
    const LoopKernel *k = p->k;
    return b->scratch && k->sub->kind == SUB_stream && k->vec_var && p->lane && p->lane->var == k->vec_var->var;
}

static const char *pointer(Printer *p, int buf, const char *off)
{
    return strcmp(off, "0") ? arena_fmt(p->arena, "b%d + %s", buf, off) : arena_fmt(p->arena, "b%d", buf);
}

const char *print_place(Printer *p, int buf, const Dim *off) { return pointer(p, buf, print_dim(p, (Dim *)off)); }

/* The element of this point in what was moved for several at once; NULL when it was not. */
static const char *pack_element(Printer *p, const void *of)
{
    for (int i = 0; i < p->pack.n; i++) if (p->pack.at[i] == of) return arena_fmt(p->arena, "r%d%s", i, p->pack_place);
    return NULL;
}

/* Opens a loop over single lanes that fills u.e[l]; the caller assigns u.e[l] and closes. */
static void lanes_open(Printer *p, const char *type, const char *init)
{
    print_line(p, "{");
    print_line(p, "union { %sv v; %s e[LANES]; } u = { .v = %s };", type, type, init);
    print_line(p, "%sfor (i64 l = 0; l < %s; l++) {", p->bundled && !p->part ? "UNROLL " : "", p->part ? print_rem(p) : "LANES");
    print_line(p, "const i64 %sl = %s%s + l;", print_var(p, p->lane), print_var(p, p->lane), p->in_v ? "v" : "");
    p->lane_of++;
}

static void lanes_close(Printer *p, const char *result)
{
    p->lane_of--;
    print_line(p, "}");
    if (result) print_line(p, "%s = u.v;", result);
    print_line(p, "}");
}

/* ---- values ---------------------------------------------------------------------------------------------------------------------------- */
static void assign(Printer *p, const KVal *v, const char *e)
{
    if (p->array[v->id]) print_line(p, "%s = %s;", name_of(p, v), e);
    else print_line(p, "%s%s%s v%d = %s;", v == p->k->pivot ? "" : "const ", ctype(v->dt), v->half ? "h" : suffix(p, v->vary), v->id, e);
}

/* The lvalue of a value that is filled by statements. */
static const char *declare(Printer *p, const KVal *v)
{
    if (!p->array[v->id]) print_line(p, "%s%s v%d;", ctype(v->dt), suffix(p, v->vary), v->id);
    return name_of(p, v);
}

static const char *load_pointer(Printer *p, const KVal *v)
{
    const char *off = print_dim(p, v->at.off);
    if (v->half && v->word == WORD_words) return arena_fmt(p->arena, "(const f32 *)((const i64_m *)b%d + %s)", v->buf, off);
    if (v->half) return pointer(p, v->buf, off);
    if (v->word == WORD_elements) return arena_fmt(p->arena, "(const i32 *)(%s)", pointer(p, v->buf, off));
    if (v->word == WORD_words) return arena_fmt(p->arena, "(const i32 *)b%d + %s", v->buf, off);
    return pointer(p, v->buf, off);
}

/* Do the predicates hold for all lanes or for none? */
static bool whole_only(Printer *p, const KVal *v)
{
    for (int i = 0; i < v->at.npred; i++) if (dim_lanes(p, v->at.pred[i].e, v->nopnd, v->opnd) || dim_lanes(p, v->at.pred[i].n, v->nopnd, v->opnd)) return false;
    return true;
}

/* Half a vector, or a pair of neighbours all over half a vector. */
static void print_half(Printer *p, const KVal *v)
{
    const char *c = condition(p, &v->at, v->nopnd, v->opnd, true), *from = load_pointer(p, v);
    bool whole = p->k->buf.at[v->buf].panel || v->word || p->k->vec_var->a->c % (p->k->lanes / 2) == 0;
    const char *e = whole ? arena_fmt(p->arena, "%s_f32h(%s)", v->word == WORD_elements ? "pairs" : "ld", from) : arena_fmt(p->arena, "ldfew_f32h(%s, %s)", from, print_rem(p));
    assign(p, v, c ? arena_fmt(p->arena, "(%s) ? %s : splat_f32h(%s)", c, e, print_literal(p, v->dt, v->imm)) : e);
}

static void print_load(Printer *p, const KVal *v)
{
    if (v->half) { print_half(p, v); return; }
    const KBuf *b = &p->k->buf.at[v->buf];
    DType t = b->scratch ? b->dt : v->dt;
    const char *st = stype(t), *fill = print_literal(p, v->dt, v->imm);
    bool filled = strcmp(fill, print_literal(p, v->dt, (Scalar){ 0 })) || is_code(v->dt);     /* lanes that are not read are 0 */
    if (!lanes(p, v->vary)) {
        const char *c = condition(p, &v->at, v->nopnd, v->opnd, true);
        const char *packed = pack_element(p, v), *from = packed ? arena_fmt(p->arena, "&%s", packed) : load_pointer(p, v), *e = arena_fmt(p->arena, "ld_%s(%s)", st, from);
        if (packed && p->k->pack > 1) e = arena_fmt(p->arena, "PACK_GET(%s, %s, e)", st, packed);
        if (c && !filled && !p->simt && t != DT_f16 && t != DT_bf16 && t != DT_bool) e = arena_fmt(p->arena, "ldif_%s(%s, %s)", st, from, c);
        else if (c) e = arena_fmt(p->arena, "(%s) ? %s : %s", c, e, fill);
        assign(p, v, e);
        return;
    }
    Dim *c = NULL, *rest;
    bool part = p->part;
    if (b->panel || holds_vectors(p, b)) p->part = false;      /* filled up with zeros; or with what nobody asks for */
    Range r = range_of(p, &v->at, v->nopnd, v->opnd);
    p->part = part;
    bool off_lanes = dim_lanes(p, v->at.off, v->nopnd, v->opnd);
    bool linear = !off_lanes || (!opnd_lanes(p, v->nopnd, v->opnd) && dim_linear(p->g, v->at.off, p->lane->var, &c, &rest) && !lane_in(p, c));
    if (r.single || !linear) {
        const char *to = declare(p, v);
        lanes_open(p, ctype(v->dt), arena_fmt(p->arena, "splat_%sv(%s)", ctype(v->dt), fill));
        const char *cond = condition(p, &v->at, v->nopnd, v->opnd, true);
        const char *e = arena_fmt(p->arena, "ld_%s(%s)", st, pointer(p, v->buf, print_dim(p, v->at.off)));
        print_line(p, "%s%su.e[l] = %s;", cond ? arena_fmt(p->arena, "if (%s)", cond) : "", cond ? " " : "", e);
        lanes_close(p, to);
        return;
    }
    const char *off = load_pointer(p, v), *e;
    if (v->ahead && !p->part) print_line(p, "fetch(%s, %s);", off, print_dim(p, dim_mulc(p->g, v->ahead, (int64_t)dtype_size(t))));
    if (!off_lanes) {                    /* one element for all lanes that are valid */
        e = arena_fmt(p->arena, "splat_%sv((%s) > (%s) ? ld_%s(%s) : 0)", ctype(v->dt), r.hi ? r.hi : "LANES", r.lo ? r.lo : "0", st, off);
    } else if (dim_is(c, 1)) {
        const char *whole = v->at.npred ? condition(p, &v->at, v->nopnd, v->opnd, false) : NULL;
        if (whole && !filled && !p->part && whole_only(p, v) && t != DT_f16 && t != DT_bf16 && t != DT_bool) { assign(p, v, arena_fmt(p->arena, "ldok_%sv(%s, %s)", st, off, whole)); return; }
        if (r.lo || r.hi) e = arena_fmt(p->arena, "ldpart_%sv(%s, %s, %s)", st, off, r.lo ? r.lo : "0", r.hi ? r.hi : "LANES");
        else e = arena_fmt(p->arena, "ld_%sv(%s)", st, off);
    } else if (dim_is(c, -1) && !is_code(v->dt)) {
        const char *lo = r.hi ? arena_fmt(p->arena, "LANES - (%s)", r.hi) : "0", *hi = r.lo ? arena_fmt(p->arena, "LANES - (%s)", r.lo) : "LANES";
        e = r.lo || r.hi ? arena_fmt(p->arena, "turned_%sv(ldpart_%sv(%s - (LANES - 1), %s, %s))", ctype(v->dt), st, off, lo, hi)
            : arena_fmt(p->arena, "turned_%sv(ld_%sv(%s - (LANES - 1)))", ctype(v->dt), st, off);
    } else if ((dim_is(c, 2) || dim_is(c, 4)) && !strcmp(st, "f32")) {
        e = arena_fmt(p->arena, "ld%d_f32v(%s, %s, %s)", (int)c->c, off, r.lo ? r.lo : "0", r.hi ? r.hi : "LANES");
    } else {
        e = arena_fmt(p->arena, "lds_%sv(%s, %s, %s, %s)", st, off, print_dim(p, c), r.lo ? r.lo : "0", r.hi ? r.hi : "LANES");
    }
    if ((filled || !off_lanes) && v->at.npred && (r.lo || r.hi))
        e = arena_fmt(p->arena, "sel_%sv(lanes_in(%s, %s), %s, splat_%sv(%s))", ctype(v->dt), r.lo ? r.lo : "0", r.hi ? r.hi : "LANES", e, ctype(v->dt), fill);
    if (r.cond) e = arena_fmt(p->arena, "(%s) ? %s : splat_%sv(%s)", r.cond, e, ctype(v->dt), fill);
    assign(p, v, e);
}

static void print_index(Printer *p, const KVal *v)
{
    if (!lanes(p, v->vary)) { assign(p, v, print_dim(p, v->dim)); return; }
    Dim *c, *rest;
    if (!opnd_lanes(p, v->nopnd, v->opnd) && dim_linear(p->g, v->dim, p->lane->var, &c, &rest) && !lane_in(p, c)) {
        assign(p, v, arena_fmt(p->arena, "iota_i64v(%s, %s)", print_dim(p, v->dim), print_dim(p, c)));
        return;
    }
    const char *to = declare(p, v);
    lanes_open(p, "i64", "splat_i64v(0)");
    print_line(p, "u.e[l] = %s;", print_dim(p, v->dim));
    lanes_close(p, to);
}

/* Is v, where it is no NaN, known to be at least (or at most) so much? */
static bool is_bounded(const KVal *v, double bound, bool below, int depth)
{
    if (v->kind == KV_const) return below ? v->imm.f >= bound : v->imm.f <= bound;
    if (v->kind != KV_ew || depth > 8 || v->dt != DT_f32) return false;
    if (v->op == OP_max || v->op == OP_min) {
        bool a = is_bounded(v->in[0], bound, below, depth + 1), b = is_bounded(v->in[1], bound, below, depth + 1);
        return (v->op == OP_max) == below ? a || b : a && b;
    }
    return false;
}

/* The larger or smaller of a vector of floats and a plain number takes fewer instructions than that of two vectors. NULL: it is no such thing. */
static const char *bounded(Printer *p, const KVal *v)
{
    if ((v->op != OP_max && v->op != OP_min) || v->dt != DT_f32 || p->simt || p->lane_of || !lanes(p, v->vary)) return NULL;
    const KVal *c = v->in[v->in[0]->kind == KV_const ? 0 : 1], *x = v->in[v->in[0]->kind == KV_const ? 1 : 0];
    if (c->kind != KV_const || isnan(c->imm.f) || (c->imm.f == 0 && signbit(c->imm.f))) return NULL;
    const char *e = operand(p, x, lane_vary(p));
    if (v->op == OP_max && c->imm.f == 0) return arena_fmt(p->arena, "positive_f32%s(%s)", suffix(p, lane_vary(p)), e);
    return arena_fmt(p->arena, "%s_f32%s(%s, %s)", v->op == OP_max ? "atleast" : "atmost", suffix(p, lane_vary(p)), e, operand(p, c, lane_vary(p)));
}

/* Is it not above 0 because it is x minus the largest so far, where a cascade's blocks have had a part of the row: the maximum so far, of all that x may be by then. */
static bool under_pivot(Graph *g, const Node *n)
{
    const Node *m = n && n->op == OP_sub ? n->in[1] : NULL, *x = m ? n->in[0] : NULL;
    if (!m || m->op != OP_view || m->view.npred) return false;
    const Node *f = m->in[0];
    if (f->op != OP_fold || f->kind != FOLD_max || f->in[0] != x) return false;
    for (int k = 0, r = 0; k < x->rank; k++)         /* the view puts each row's maximum at all its places */
        if (!(f->axes >> k & 1) && m->view.idx[r++] != dim_idx(g, k, m->dims[k])) return false;
    return true;
}

/* Functions of which the prelude of groups of threads has a form for what is rounded to 16 bits. */
static bool has_rough(Op op) { return op == OP_exp || op == OP_sigmoid; }

static const char *spelled(Printer *p, const KVal *v)
{
    const char *bound = bounded(p, v);
    if (bound) return bound;
    if (v->op == OP_exp && v->dt == DT_f32 && !p->simt && lanes(p, v->vary) && !p->lane_of && (below_largest(v->in[0]) || under_pivot(p->g, v->in[0]->node))) return arena_fmt(p->arena, "expdown_f32v(%s)", operand(p, v->in[0], v->vary));
    if (v->op == OP_where)
        return arena_fmt(p->arena, "sel_%s%s(%s, %s, %s)", ctype(v->dt), suffix(p, v->vary), operand(p, v->in[0], v->vary), operand(p, v->in[1], v->vary), operand(p, v->in[2], v->vary));
    DType held = dtype_info[v->in[0]->dt].compute;
    if (p->simt && (held == DT_i32 || held == DT_i64)) {     /* C compilers for the host are told that these wrap (-fwrapv); those for GPUs take it for undefined */
        const char *i = ctype(v->in[0]->dt), *u = held == DT_i32 ? "u32" : "u64", *a = operand(p, v->in[0], v->vary);
        const char *b = v->nin == 2 ? operand(p, v->in[1], v->vary) : NULL;
        switch (v->op) {
        case OP_neg: return arena_fmt(p->arena, "(%s)(0 - (%s)%s)", i, u, a);
        case OP_add: return arena_fmt(p->arena, "(%s)((%s)%s + (%s)%s)", i, u, a, u, b);
        case OP_sub: return arena_fmt(p->arena, "(%s)((%s)%s - (%s)%s)", i, u, a, u, b);
        case OP_mul: return arena_fmt(p->arena, "(%s)((%s)%s * (%s)%s)", i, u, a, u, b);
        default: break;
        }
    }
    Text x = { .arena = p->arena };
    if (p->rolled && lanes(p, v->vary) && !p->lane_of && is_dear(v)) text_add(&x, "apart_");
    if (p->simt && held == DT_f32 && has_rough(v->op) && (v->rough || v->dt != DT_f32)) text_add(&x, "rough_");
    for (const char *s = prim_info[v->op].spelling; *s; s++) {
        if (*s != '%') { text_put(&x, s, 1); continue; }
        s++;
        if (*s == 't') text_add(&x, "%s%s", ctype(v->in[0]->dt), suffix(p, v->vary));
        else if (*s == 'w') text_add(&x, "%d", dtype_bits(v->in[0]->dt));
        else text_add(&x, "%s", operand(p, v->in[*s - '0'], v->vary));
    }
    return x.at;
}

static void print_ew(Printer *p, const KVal *v)
{
    const char *e = spelled(p, v);
    switch (v->op) {
    case OP_where: case OP_max: case OP_min: case OP_and: case OP_or: break;
    default: e = narrowed(p, v->dt, e, v->vary);
    }
    assign(p, v, e);
}

/* Does a conversion to a narrow integer need no care for what is out of range? */
static bool cast_near(const Printer *p, DType to, const KVal *x, uint8_t vary)
{
    if (p->simt || !lanes(p, vary) || x->dt != DT_f32 || dtype_is_float(to) || to == DT_bool || dtype_info[to].compute != DT_i32 || dtype_bits(to) > 16) return false;
    return is_bounded(x, -32768, true, 0) && is_bounded(x, 65535, false, 0);
}

static const char *cast_text(Printer *p, DType to, DType from, bool saturate, bool near, const char *e, uint8_t vary)
{
    const char *s = suffix(p, vary);
    if (is_code(from)) {
        e = arena_fmt(p->arena, "from_%s%s(%s)", dtype_info[from].name, s, e);
        from = DT_f32;
    }
    const char *ct = is_code(to) ? "f32" : ctype(to), *cf = ctype(from);
    if (near) return narrowed(p, to, arena_fmt(p->arena, "near_f32_i32%s(%s)", s, e), vary);
    if (to == DT_bool) {
        if (from == DT_bool) return e;
        return arena_fmt(p->arena, "~eq_%s%s(%s, splat_%s%s(0))", cf, s, e, cf, s);
    }
    if (from == DT_bool) e = arena_fmt(p->arena, "(%s & 1)", e);
    bool ff = dtype_is_float(from), tf = dtype_is_float(to);
    bool twice = dtype_size(from) >= 4 && (to == DT_bf16 || is_code(to) || (to == DT_f16 && ff));     /* rounded on the way: integers that f16 holds are not */
    if (strcmp(ct, cf)) e = arena_fmt(p->arena, "%s_%s_%s%s(%s)", ff && !tf ? "int" : twice ? "odd" : "cvt", cf, ct, s, e);
    else if (ff && !tf) ASSERT(!"float and integer share no compute type");
    if (is_code(to)) return arena_fmt(p->arena, "to_%s%s(%s, %d)", dtype_info[to].name, s, e, saturate);
    return narrowed(p, to, e, vary);
}

static const char *bitcast_text(Printer *p, DType to, DType from, const char *e, uint8_t vary)
{
    const char *s = suffix(p, vary);
    if (from == DT_f32) e = arena_fmt(p->arena, "bits_f32%s(%s)", s, e);
    else if (from == DT_f64) e = arena_fmt(p->arena, "bits_f64%s(%s)", s, e);
    else if (from == DT_f16 || from == DT_bf16) e = arena_fmt(p->arena, "to_%s%s(%s)", dtype_info[from].name, s, e);
    else if (from == DT_bool) e = arena_fmt(p->arena, "(%s & 1)", e);
    const char *bits = dtype_size(from) == 8 ? "i64" : "i32", *want = ctype(to);
    const char *have = (dtype_is_float(from) && !is_code(from)) || from == DT_bool ? bits : ctype(from);
    if (is_code(to)) return arena_fmt(p->arena, "(%s & %d)", e, to == DT_f4e2m1 ? 15 : 255);
    if (to == DT_f32 || to == DT_f64) {
        if (strcmp(have, bits)) e = arena_fmt(p->arena, "cvt_%s_%s%s(%s)", have, bits, s, e);
        return arena_fmt(p->arena, "from_bits_%s%s(%s)", dtype_info[to].name, s, e);
    }
    if (to == DT_f16 || to == DT_bf16) return arena_fmt(p->arena, "from_%s%s(%s & 0xffff)", dtype_info[to].name, s, e);
    if (to == DT_bool) return arena_fmt(p->arena, "~eq_i32%s(%s, splat_i32%s(0))", s, e, s);
    if (strcmp(have, want)) e = arena_fmt(p->arena, "cvt_%s_%s%s(%s)", have, want, s, e);
    return narrowed(p, to, e, vary);
}

/* A float again that was an integer meanwhile: C compilers make a rounding of it, which keeps the sign of a zero unless something is added. */
static bool was_float(const KVal *v)
{
    const KVal *x = v->in[0];
    if (!dtype_is_float(v->dt)) return false;
    while (x->kind == KV_cast && !dtype_is_float(x->dt)) {
        if (dtype_is_float(x->in[0]->dt)) return true;
        x = x->in[0];
    }
    return false;
}

void print_val(Printer *p, const KVal *v)
{
    switch (v->kind) {
    case KV_const: return;              /* written where it is used */
    case KV_index: print_index(p, v); return;
    case KV_load: print_load(p, v); return;
    case KV_ew:
        p->half = v->half;
        print_ew(p, v);
        p->half = false;
        return;
    case KV_cast: {
        const char *e = cast_text(p, v->dt, v->in[0]->dt, v->saturate, cast_near(p, v->dt, v->in[0], v->vary), operand(p, v->in[0], v->vary), v->vary);
        assign(p, v, was_float(v) ? arena_fmt(p->arena, "%s + 0.0f", e) : e);
        return;
    }
    case KV_bitcast: assign(p, v, bitcast_text(p, v->dt, v->in[0]->dt, operand(p, v->in[0], v->vary), v->vary)); return;
    case KV_random: {
        const char *to;
        if (!lanes(p, v->vary)) { assign(p, v, arena_fmt(p->arena, "random_word(%s, (u64)(%s))", operand(p, v->in[0], 0), print_dim(p, v->dim))); return; }
        to = declare(p, v);
        lanes_open(p, "u64", "splat_u64v(0)");
        print_line(p, "u.e[l] = random_word(%s, (u64)(%s));", operand(p, v->in[0], 0), print_dim(p, v->dim));
        lanes_close(p, to);
        return;
    }
    case KV_valid: {
        if (!lanes(p, v->vary)) { assign(p, v, p->inside ? "-1" : arena_fmt(p->arena, "-(i32)(%s)", condition(p, &v->at, v->nopnd, v->opnd, true))); return; }
        Range r = range_of(p, &v->at, v->nopnd, v->opnd);
        if (!r.single && !r.cond) { assign(p, v, arena_fmt(p->arena, "lanes_in(%s, %s)", r.lo ? r.lo : "0", r.hi ? r.hi : "LANES")); return; }
        const char *to = declare(p, v);
        lanes_open(p, "i32", "splat_i32v(0)");
        print_line(p, "u.e[l] = -(i32)(%s);", condition(p, &v->at, v->nopnd, v->opnd, true));
        lanes_close(p, to);
        return;
    }
    case KV_check: {
        p->checks = true;
        int site = v->node->origin;
        const char *c, *to;
        if (!lanes(p, v->vary)) {
            c = condition(p, &v->at, v->nopnd, v->opnd, true);
            const char *e = arena_fmt(p->arena, "check_index(err, %d, %s, %s)", site, operand(p, v->in[0], 0), print_dim(p, v->dim));
            assign(p, v, c ? arena_fmt(p->arena, "(%s) ? %s : 0", c, e) : e);
            return;
        }
        to = declare(p, v);
        lanes_open(p, "i64", "splat_i64v(0)");
        c = condition(p, &v->at, v->nopnd, v->opnd, true);
        print_line(p, "%s%su.e[l] = check_index(err, %d, %s, %s);", c ? arena_fmt(p->arena, "if (%s)", c) : "", c ? " " : "", site, operand(p, v->in[0], 0), print_dim(p, v->dim));
        lanes_close(p, to);
        return;
    }
    case KV_fold: print_finish(p, v); return;
    case KV_quantum: {
        const char *zero = v->nin > 1 ? operand(p, v->in[1], 0) : "0.0f";
        print_line(p, "const quantum v%d = quantum_of(%s, %s, %s);", v->id, operand(p, v->in[0], 0), zero, v->dt == DT_u8 ? "0.0f, 255.0f" : "-128.0f, 127.0f");
        return;
    }
    case KV_quantise: {
        const KVal *q = v->in[1];
        const char *zero = q->nin > 1 ? arena_fmt(p->arena, "v%d.zero", q->id) : "0";
        assign(p, v, arena_fmt(p->arena, p->rolled ? "quantise_%sv(%s, here(&v%d), %s)" : "quantise_%sv(%s, &v%d, %s)", dtype_info[v->dt].name, operand(p, v->in[0], lane_vary(p)), q->id, zero));
        return;
    }
    }
}

/* ---- stores ----------------------------------------------------------------------------------------------------------------------------- */
static const char *combined(Printer *p, const KStmt *s, const char *have, const char *e)
{
    DType t = s->val->dt;
    bool infix;
    if (t == DT_bool && s->how != COMBINE_set) return arena_fmt(p->arena, "(%s) %s (%s)", have, s->how == COMBINE_max || s->how == COMBINE_add ? "|" : "&", e);
    const char *op = s->how == COMBINE_add ? fold_op(FOLD_sum, t, &infix) : s->how == COMBINE_mul ? fold_op(FOLD_prod, t, &infix)
                   : s->how == COMBINE_max ? fold_op(FOLD_max, t, &infix) : s->how == COMBINE_min ? fold_op(FOLD_min, t, &infix) : NULL;
    if (!op) return e;
    return narrowed(p, t, infix ? arena_fmt(p->arena, "(%s) %s (%s)", have, op, e) : arena_fmt(p->arena, "%s_%s(%s, %s)", op, ctype(t), have, e), 0);
}

/* A float32 rounded to bfloat16, computed where it is stored. */
static bool rounds_only(const Printer *p, const KVal *v)
{
    return v->kind == KV_cast && v->dt == DT_bf16 && v->in[0]->dt == DT_f32 && !p->array[v->id] && !p->simt && v->in[0]->kind != KV_const;
}

/* The unit for tiles makes 0 of sums below 2^-126. */
static bool never_tiny(const KVal *v) { return v->kind == KV_fold && v->fold->unit && v->fold->unit_steps <= UNIT_STEPS; }

void print_store(Printer *p, const KStmt *s)
{
    const KBuf *b = &p->k->buf.at[s->buf];
    DType t = b->scratch ? b->dt : s->val->dt;
    const char *st = stype(t), *guard = "";
    if (p->simt && p->k->columns) guard = p->in_team ? "if (live) " : "if (live && thread == 0) ";
    else if (p->simt && p->k->team > 1 && !p->in_team) guard = "if (thread == 0) ";
    if (p->in_m && (s->vary & VARY_row) && p->shifted) guard = arena_fmt(p->arena, "if (%sm >= %sf) ", print_var(p, p->k->row_var), print_var(p, p->k->row_var));
    else if (p->in_m && (s->vary & VARY_row) && !rows_whole(p->k)) guard = arena_fmt(p->arena, "if (%sr < %s) ", print_var(p, p->k->row_var), print_dim(p, p->k->row_extent));
    if (!lanes(p, s->vary)) {
        const char *c = condition(p, &s->at, s->nopnd, s->opnd, true), *packed = pack_element(p, s);
        const char *e = operand(p, s->val, 0);
        if (packed) { print_line(p, "PACK_PUT(%s, %s, e, %s);", st, packed, e); return; }
        const char *to = pointer(p, s->buf, print_dim(p, s->at.off));
        if (s->how != COMBINE_set) e = combined(p, s, arena_fmt(p->arena, "ld_%s(%s)", st, to), e);
        print_line(p, "%s%sst_%s(%s, %s);", guard, c ? arena_fmt(p->arena, "if (%s) ", c) : "", st, to, e);
        return;
    }
    const char *e = operand(p, s->val, lane_vary(p));
    Dim *c, *rest;
    if (!s->at.npred && !opnd_lanes(p, s->nopnd, s->opnd) && dim_linear(p->g, s->at.off, p->lane->var, &c, &rest) && !lane_in(p, c)) {
        const char *to = pointer(p, s->buf, print_dim(p, s->at.off));
        if (dim_is(c, -1) && !p->part && !is_code(s->val->dt)) print_line(p, "%sst_%sv(%s - (LANES - 1), turned_%sv(%s));", guard, st, to, ctype(s->val->dt), e);
        else if (!dim_is(c, 1)) print_line(p, "%ssts_%sv(%s, %s, %s, %s);", guard, st, to, print_dim(p, c), e, p->part ? print_rem(p) : "LANES");
        else if (rounds_only(p, s->val) && !b->scratch) {        /* rounded by the store; the value itself is then computed in vain, and left out by the compiler */
            const char *x = operand(p, s->val->in[0], lane_vary(p));
            if (p->part) print_line(p, "%sstroundpart_bf16v(%s, %s, %s);", guard, to, x, print_rem(p));
            else print_line(p, "%s%s_bf16v(%s, %s);", guard, never_tiny(s->val->in[0]) ? "stnormal" : "stround", to, x);
        }
        else if (p->k->half && !strcmp(st, "f32")) {
            const char *h = s->val->half ? name_of(p, s->val) : arena_fmt(p->arena, "narrow_f32v(%s)", e);
            if (p->k->vec_var->a->c % (p->k->lanes / 2) == 0) print_line(p, "%sst_f32h(%s, %s);", guard, to, h);
            else print_line(p, "%sstfew_f32h(%s, %s, %s);", guard, to, h, print_rem(p));
        }
        else if (p->part && !holds_vectors(p, b)) print_line(p, "%sstpart_%sv(%s, %s, %s);", guard, st, to, e, print_rem(p));
        else print_line(p, "%sst%s_%sv(%s, %s);", guard, p->k->stream && !strcmp(st, "f32") && !b->scratch && !b->read ? "nt" : "", st, to, e);
        return;
    }
    print_line(p, "%s{", guard);
    print_line(p, "union { %sv v; %s e[LANES]; } x = { .v = %s };", ctype(s->val->dt), ctype(s->val->dt), operand(p, s->val, lane_vary(p)));
    print_line(p, "%sfor (i64 l = 0; l < %s; l++) {", p->bundled && !p->part ? "UNROLL " : "", p->part ? print_rem(p) : "LANES");
    print_line(p, "const i64 %sl = %s%s + l;", print_var(p, p->lane), print_var(p, p->lane), p->in_v ? "v" : "");
    p->lane_of++;
    const char *cond = condition(p, &s->at, s->nopnd, s->opnd, true);
    print_line(p, "%sst_%s(%s, %s);", cond ? arena_fmt(p->arena, "if (%s) ", cond) : "", st, pointer(p, s->buf, print_dim(p, s->at.off)), "x.e[l]");
    p->lane_of--;
    print_line(p, "}");
    print_line(p, "}");
}

/* ---- folds -------------------------------------------------------------------------------------------------------------------------------- */
static bool is_arg(const KFold *f) { return f->kind == FOLD_argmax || f->kind == FOLD_argmin; }
/* accumulators with lanes: one for each lane of the loop around (mode of a contraction), or of its own vector loop */
static uint8_t acc_vary(const KFold *f) { return (f->vary & VARY_row) | (f->own || (f->vary & VARY_lane) ? VARY_lane : 0); }
static int acc_nv(const Printer *p, const KFold *f) { return f->own ? f->own->nv : p->nv; }

static const char *acc_name(Printer *p, const KFold *f, const char *letter)
{
    if (p->cell) return arena_fmt(p->arena, "%s%d%s", letter, f->id, p->cell);
    if (f->unit) return arena_fmt(p->arena, "%s%d[m - first][%s]", letter, f->id, p->in_v ? "v" : "0");
    return arena_fmt(p->arena, "%s%d%s", letter, f->id, subscript(p, acc_vary(f), acc_vary(f) & VARY_lane));
}

/* Runs fn for each element of an accumulator array. */
static void acc_each(Printer *p, const KFold *f, bool lane_loop)
{
    if ((acc_vary(f) & VARY_row) && p->k->mr > 1) { print_line(p, "UNROLL for (int m = 0; m < %d; m++) {", p->k->mr); p->in_m = true; }
    if (lane_loop && (acc_vary(f) & VARY_lane) && acc_nv(p, f) > 1) { print_line(p, "UNROLL for (int v = 0; v < %d; v++) {", acc_nv(p, f)); p->in_v = true; }
}

static void acc_each_end(Printer *p, const KFold *f, bool lane_loop)
{
    if (lane_loop && (acc_vary(f) & VARY_lane) && acc_nv(p, f) > 1) { print_line(p, "}"); p->in_v = false; }
    if ((acc_vary(f) & VARY_row) && p->k->mr > 1) { print_line(p, "}"); p->in_m = false; }
}

static const char *acc_dims(Printer *p, const KFold *f)
{
    const char *m = (acc_vary(f) & VARY_row) && p->k->mr > 1 ? arena_fmt(p->arena, "[%d]", p->k->mr) : "";
    return acc_vary(f) & VARY_lane ? arena_fmt(p->arena, "%s[%d]", m, acc_nv(p, f)) : m;
}

static const char *acc_suffix(const KFold *f) { return f->half ? "h" : acc_vary(f) & VARY_lane ? "v" : ""; }

const char *print_held(DType t) { return ctype(t); }

const char *print_identity(Printer *p, const KFold *f)
{
    const char *id = print_literal(p, f->dt, fold_identity(f->kind, f->dt));
    return acc_vary(f) & VARY_lane ? arena_fmt(p->arena, "splat_%s%s(%s)", ctype(f->dt), acc_suffix(f), id) : id;
}

/* The largest (least) number of a row and whether there was a NaN are found apart: together they take three instructions, and wait for one another. */
static bool nan_apart(const Printer *p, const KFold *f) { return !p->simt && !f->loose && f->own && !f->running && f->dt == DT_f32 && (f->kind == FOLD_max || f->kind == FOLD_min); }

/* Its accumulators before the first element. */
static void print_begin(Printer *p, const KFold *f)
{
    acc_each(p, f, true);
    print_line(p, "%s = %s;", acc_name(p, f, "a"), print_identity(p, f));
    if (is_arg(f)) print_line(p, "%s = %s;", acc_name(p, f, "x"), acc_vary(f) & VARY_lane ? "splat_i64v(0)" : "0");
    acc_each_end(p, f, true);
}

/* The same where each lane has a result of its own: there are not so many masks as vectors, so one tells whether a NaN was met at all, and if so the loop is run again
 * with exact steps. */
enum { QUICK_TURNS = 32 };
static bool nan_late(const Printer *p, const KFold *f)
{
    const LoopKernel *k = p->k;
    if (p->simt || k->lanes < 16 || k->sub->kind != SUB_rows || !k->vec_var || k->mr > 1 || !f->loop || f->loose || f->own || f->running || f->dt != DT_f32 || (f->kind != FOLD_max && f->kind != FOLD_min)) return false;
    return (f->vary & VARY_lane) && dim_hint(p->g, loop_times(f->loop)) >= QUICK_TURNS;
}

/* Are all results of the loop o the same when it is run again from the beginning, and would one of them be computed quicker if there were no NaN? */
static bool quick_walk(const Printer *p, const KLoop *o, const KBlock *b, bool *any)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop ? s->loop->vector || s->loop->chunk || !quick_walk(p, o, s->loop->body, any) : s->kind == KS_store || s->kind == KS_skip) return false;
        if (s->kind == KS_val && (s->val->kind == KV_random || s->val->kind == KV_check)) return false;
        if (s->kind != KS_update) continue;
        if (s->fold->loop != o || s->fold->running) return false;
        *any |= nan_late(p, s->fold);
    }
    return true;
}

bool loop_quick(const Printer *p, const KLoop *o)
{
    bool any = false;
    return !o->vector && !o->chunk && !o->blocked && o->tile <= 1 && o->team <= 1 && quick_walk(p, o, o->body, &any) && any;
}

void print_again(Printer *p, const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) print_again(p, s->loop->body);
        else if (s->kind == KS_update) print_begin(p, s->fold);
    }
}

static const char *nan_name(Printer *p, const KFold *f) { return arena_fmt(p->arena, "nan%d%s", f->id, subscript(p, acc_vary(f), false)); }

/* Does the update leave what the running fold comes to there beside the accumulator? Along lanes, and where the place itself does not count. */
static bool runs_beside(const Printer *p, const KFold *f) { return !p->simt && f->running && (f->own || f->before); }

void print_fold(Printer *p, const KFold *f)
{
    if (f->unit) return;
    if (runs_beside(p, f)) print_line(p, "%s%s w%d%s;", ctype(f->dt), acc_suffix(f), f->id, acc_dims(p, f));
    if (nan_apart(p, f)) print_line(p, "u16 nan%d%s = { 0 };", f->id, (acc_vary(f) & VARY_row) && p->k->mr > 1 ? arena_fmt(p->arena, "[%d]", p->k->mr) : "");
    print_line(p, "%s%s a%d%s;", ctype(f->dt), acc_suffix(f), f->id, acc_dims(p, f));
    if (is_arg(f)) print_line(p, "i64%s x%d%s;", acc_suffix(f), f->id, acc_dims(p, f));
    print_begin(p, f);
}

enum { FEW_SUMS = 8 };                   /* with more of them, the registers are for the accumulators */

static const char *chunk_name(Printer *p, const KLoop *o) { return arena_fmt(p->arena, "s_%s_", print_var(p, o->var)); }

/* A sum over the chunks of a loop, which stands beside the accumulator: in double precision, but in single for products and where few chunks are likely. */
void print_chunk(Printer *p, const KFold *f, const KLoop *o, ChunkPart part)
{
    bool lane = acc_vary(f) & VARY_lane, wide = !f->mul_a && dim_hint(p->g, loop_times(o)) > o->chunk;
    const char *t = wide ? "f64" : "f32", *s = chunk_name(p, o), *sv = acc_suffix(f);
    const char *to = !wide ? "" : lane ? "cvt_f32_f64v" : "(f64)", *back = !wide ? "" : lane ? "cvt_f64_f32v" : "(f32)";
    if (part == CHUNK_open) print_line(p, "%s%s %s%d%s;", t, sv, s, f->id, acc_dims(p, f));
    acc_each(p, f, true);
    const char *a = acc_name(p, f, "a"), *sum = acc_name(p, f, s);
    if (part == CHUNK_open) print_line(p, "%s = %s(%s);", sum, to, a);
    else if (part == CHUNK_add) print_line(p, "%s = %s + %s(%s);", sum, sum, to, a);
    else print_line(p, "%s = %s(%s);", a, back, sum);
    if (part != CHUNK_close) print_line(p, "%s = %s;", a, print_identity(p, f));
    if (part != CHUNK_close && lane && !p->simt && p->k->mr * acc_nv(p, f) > FEW_SUMS) print_line(p, "spill_%s%s(&%s);", t, sv, sum);
    acc_each_end(p, f, true);
}

static const char *folded_with(Printer *p, const KFold *f, const char *a, const char *b)
{
    bool infix;
    const char *op = fold_op(f->kind, f->dt, &infix);
    return infix ? arena_fmt(p->arena, "%s %s %s", a, op, b) : arena_fmt(p->arena, "%s_%s%s(%s, %s)", op, ctype(f->dt), acc_suffix(f), a, b);
}

void print_update(Printer *p, const KStmt *s)
{
    const KFold *f = s->fold;
    uint8_t vary = acc_vary(f);
    const char *a = acc_name(p, f, "a"), *t = ctype(f->dt), *sv = acc_suffix(f);
    bool infix, mask = p->part && f->own;
    if (is_arg(f)) {
        const char *x = acc_name(p, f, "x"), *v = operand(p, f->value, vary);
        print_line(p, "{");
        print_line(p, "const i32%s up = %s_%s_%s%s(%s, %s)%s;", sv, f->kind == FOLD_argmax ? "above" : "below", f->last ? "last" : "first", t, sv, v, a, mask ? " & lanes_below(rem)" : "");
        print_line(p, "%s = sel_%s%s(up, %s, %s);", a, t, sv, v, a);
        print_line(p, "%s = sel_i64%s(up, %s, %s);", x, sv, operand(p, f->index, vary), x);
        print_line(p, "}");
        return;
    }
    const char *e;
    if (runs_beside(p, f) && f->own) {   /* the lanes by themselves, then what was before them */
        a = arena_fmt(p->arena, "a%d[0]", f->id);
        print_line(p, "{");
        print_line(p, "const %sv here = run_%s_%s(%s);", t, fold_name[f->kind], t, operand(p, f->value, VARY_lane));
        const char *own = f->before ? arena_fmt(p->arena, "moved_%sv(here, %s)", t, print_literal(p, f->dt, fold_identity(f->kind, f->dt))) : "here";
        print_line(p, "%s = %s;", acc_name(p, f, "w"), folded_with(p, f, a, own));
        print_line(p, "%s = %s;", a, folded_with(p, f, a, arena_fmt(p->arena, "splat_%sv(here[LANES - 1])", t)));
        print_line(p, "}");
        return;
    }
    if (runs_beside(p, f)) print_line(p, "%s = %s;", acc_name(p, f, "w"), a);
    if (nan_apart(p, f)) {
        const char *x = operand(p, f->value, vary);
        if (mask) x = arena_fmt(p->arena, "sel_f32v(lanes_below(rem), %s, %s)", x, a);
        print_line(p, "%s = %sn_f32v(%s, %s);", a, fold_name[f->kind], a, x);
        print_line(p, "%s |= nan_f32v(%s);", nan_name(p, f), x);
        return;
    }
    if (p->quick && nan_late(p, f)) {
        const char *x = operand(p, f->value, vary);
        print_line(p, "%s = %sn_f32v(%s, %s);", a, fold_name[f->kind], a, x);
        print_line(p, "nan_%s |= nan_f32v(%s);", print_var(p, f->loop->var), x);
        return;
    }
    p->half = f->half;
    if (f->words && !f->half) e = arena_fmt(p->arena, "dot%d%s(%s, %s, %s)", f->words, sv, operand(p, f->mul_a, vary), operand(p, f->mul_b, vary), a);
    else if (f->power) e = arena_fmt(p->arena, "add_power_f32v(%s, %s)", a, operand(p, f->power, vary));
    else if (f->mul_a) e = arena_fmt(p->arena, "fma_%s%s(%s, %s, %s)", t, sv, operand(p, f->mul_a, vary), operand(p, f->mul_b, vary), a);
    else {
        const char *op = fold_op(f->kind, f->dt, &infix), *v = operand(p, f->value, vary);
        if (f->loose && vary & VARY_lane) op = "loose_max";
        e = infix ? arena_fmt(p->arena, "%s %s %s", a, op, v) : arena_fmt(p->arena, "%s_%s%s(%s, %s)", op, t, sv, a, v);
    }
    p->half = false;
    if (mask) e = arena_fmt(p->arena, "sel_%sv(lanes_below(rem), %s, %s)", t, e, a);
    print_line(p, "%s = %s;", a, e);
}

void print_scan_open(Printer *p, const KFold *f)
{
    print_line(p, "%s t%d_in = %s, e%d;", ctype(f->dt), f->id, print_identity(p, f), f->id);
}

void print_scan_take(Printer *p, const KFold *f)
{
    print_line(p, "t%d_in = %s;", f->id, operand(p, f->value, 0));
}

/* Each thread's result takes the place of the accumulator till the end of the turn. */
void print_scan_fold(Printer *p, const KFold *f, int team)
{
    bool any_of = f->kind == FOLD_max || f->kind == FOLD_sum;
    const char *a = acc_name(p, f, "a"), *whole = arena_fmt(p->arena, "e%d", f->id), *in = arena_fmt(p->arena, "t%d_in", f->id);
    print_line(p, "TEAM_SCAN(%s, %s, %s, %s, %d)", f->dt == DT_bool ? (any_of ? "or" : "and") : fold_name[f->kind], ctype(f->dt), in, whole, team);
    print_line(p, "%s = %s;", whole, folded_with(p, f, a, whole));
    print_line(p, "%s = %s;", a, folded_with(p, f, a, in));
}

static void finish_arg(Printer *p, const KFold *f, const char *to)
{
    const char *t = ctype(f->dt);
    print_line(p, "{");
    print_line(p, "%s best = %s; i64 at = 0; i32 have = 0;", t, print_literal(p, f->dt, fold_identity(f->kind, f->dt)));
    print_line(p, "for (int v = 0; v < %d; v++) for (int l = 0; l < LANES; l++) {", acc_nv(p, f));
    const char *m = (acc_vary(f) & VARY_row) && p->k->mr > 1 ? "[m]" : "";
    print_line(p, "const %s e = a%d%s[v][l]; const i64 i = x%d%s[v][l];", t, f->id, m, f->id, m);
    print_line(p, "const i32 up = %s_first_%s(e, best), same = ~%s_first_%s(best, e) & ~up;", f->kind == FOLD_argmax ? "above" : "below", t, f->kind == FOLD_argmax ? "above" : "below", t);
    print_line(p, "if (!have || up || (same && %s)) { best = e; at = i; have = 1; }", f->last ? "(e == e ? i > at : i < at)" : "i < at");
    print_line(p, "}");
    print_line(p, "%s = at;", to);
    print_line(p, "}");
}

/* Each thread of a team has a part of the fold: all get the whole. */
static void finish_team(Printer *p, const KVal *v)
{
    const KFold *f = v->fold;
    const char *a = acc_name(p, f, "a"), *t = ctype(f->dt);
    if (is_arg(f)) {
        const char *x = acc_name(p, f, "x");
        print_line(p, "TEAM_ARG(%s, %s, %s, %s, %d, %d)", t, a, x, f->kind == FOLD_argmax ? "above_first" : "below_first", f->last, p->k->team);
        assign(p, v, x);
        return;
    }
    bool any_of = f->kind == FOLD_max || f->kind == FOLD_sum;
    const char *name = f->dt == DT_bool ? (any_of ? "or" : "and") : fold_name[f->kind];
    assign(p, v, narrowed(p, f->node->dt, arena_fmt(p->arena, "%s_%s_%s(shared, thread, %d, %s)", p->k->columns ? "column" : "team", name, t, p->k->team, a), v->vary));
}

/* The sums over lanes of all rows of a tile at once, which takes a third of the operations that they take one by one. */
bool sums_at_once(const Printer *p, const KFold *f)
{
    return f->own && f->kind == FOLD_sum && f->dt == DT_f32 && (acc_vary(f) & VARY_row) && p->k->lanes > 1 && p->k->mr == p->k->lanes && !p->simt && !p->k->unit;
}

void print_sums(Printer *p, const KFold *f)
{
    const char *e = NULL;
    print_line(p, "f32 h%d[LANES]; f32v l%d[LANES];", f->id, f->id);
    for (int i = 0; i < f->own->nv; i++) e = e ? arena_fmt(p->arena, "(%s + a%d[m][%d])", e, f->id, i) : arena_fmt(p->arena, "a%d[m][%d]", f->id, i);
    print_line(p, "UNROLL for (int m = 0; m < LANES; m++) l%d[ROW_AT(m)] = %s;", f->id, e);
    print_line(p, "hsums_f32v(h%d, l%d);", f->id, f->id);
}

/* What all lanes come to. */
static const char *over_lanes(Printer *p, const KFold *f)
{
    bool infix;
    const char *op = fold_op(f->kind, f->dt, &infix), *e = NULL;
    const char *m = (acc_vary(f) & VARY_row) && p->k->mr > 1 ? "[m]" : "";
    const char *whole = f->loose ? "loose_max" : nan_apart(p, f) ? arena_fmt(p->arena, "%sn", fold_name[f->kind]) : fold_name[f->kind];
    if (!infix) op = whole;
    for (int i = 0; i < f->own->nv; i++) {
        const char *x = arena_fmt(p->arena, "%s%d%s[%d]", p->rolled ? "r" : "a", f->id, m, i);
        e = !e ? x : infix ? arena_fmt(p->arena, "(%s %s %s)", e, op, x) : arena_fmt(p->arena, "%s_%sv(%s, %s)", op, ctype(f->dt), e, x);
    }
    if (f->dt == DT_bool) e = f->kind == FOLD_max ? arena_fmt(p->arena, "-(anyv(%s) != 0)", e) : arena_fmt(p->arena, "-(anyv(~%s) == 0)", e);
    else e = arena_fmt(p->arena, "h%s_%s(%s)", whole, ctype(f->dt), e);
    if (nan_apart(p, f)) e = arena_fmt(p->arena, "number_or_nan(%s, %s)", e, nan_name(p, f));
    return e;
}

/* Behind a chunk of the loop with a pivot. */
void print_pivot(Printer *p, const KLoop *o, const KFold *sum)
{
    int v = p->k->pivot->id;
    const KFold *f = p->k->highest;
    const char *e = NULL;
    for (int i = 0; i < f->own->nv; i++) {
        const char *x = arena_fmt(p->arena, "a%d[%d]", f->id, i);
        e = e ? arena_fmt(p->arena, "loose_max_f32v(%s, %s)", e, x) : x;
    }
    print_line(p, "if (above_f32v(%s, v%d + %d.0f)) {", e, v, PIVOT_REACH);
    print_line(p, "const f32 highest = %s;", over_lanes(p, f));
    print_line(p, "const f32 less = exp_f32(v%d - highest);", v);
    acc_each(p, sum, true);
    const char *whole = acc_name(p, sum, chunk_name(p, o));
    print_line(p, "%s = %s * less;", whole, whole);
    print_line(p, "%s = %s;", acc_name(p, sum, "a"), print_identity(p, sum));
    acc_each_end(p, sum, true);
    print_line(p, "v%d = highest;", v);
    print_line(p, "%sc -= %lld;", print_var(p, o->var), (long long)o->chunk);
    print_line(p, "continue;");
    print_line(p, "}");
}

/* ---- rows in a bundle: kir/bundle.c */
/* Are the accumulators of all rows folded together, each into one of the lanes? Else each by itself. */
static bool bundle_folds(const KFold *f) { return f->dt != DT_bool && dtype_size(dtype_info[f->dt].compute) == 4; }

void print_bundle_fold(Printer *p, const KFold *f)
{
    const char *t = ctype(f->dt);
    if (bundle_folds(f)) print_line(p, "%sv l%d[LANES];", t, f->id);
    else print_line(p, "union { %sv v; %s e[LANES]; } l%d;", t, t, f->id);
}

void print_bundle_put(Printer *p, const KFold *f, bool none)
{
    bool infix;
    const char *op = fold_op(f->kind, f->dt, &infix), *e = NULL;
    if (!bundle_folds(f)) { print_line(p, "l%d.e[m] = %s;", f->id, none ? "0" : over_lanes(p, f)); return; }
    for (int i = 0; i < f->own->nv; i++) {
        const char *x = arena_fmt(p->arena, "a%d[%d]", f->id, i);
        e = !e ? x : infix ? arena_fmt(p->arena, "(%s %s %s)", e, op, x) : arena_fmt(p->arena, "%s_%sv(%s, %s)", f->loose ? "loose_max" : op, ctype(f->dt), e, x);
    }
    if (nan_apart(p, f)) e = arena_fmt(p->arena, "or_nan_f32v(%s, %s)", e, nan_name(p, f));
    print_line(p, "l%d[ROW_AT(m)] = %s;", f->id, none ? arena_fmt(p->arena, "splat_%sv(0)", ctype(f->dt)) : e);
}

void print_finish(Printer *p, const KVal *v)
{
    const KFold *f = v->fold;
    DType t = f->node->dt;
    if (p->bundled && (f->vary & VARY_row)) {
        const char *e = f == p->k->highest ? "highest" : bundle_folds(f) ? arena_fmt(p->arena, "rows_%s_%sv(l%d)", f->loose ? "loose_max" : fold_name[f->kind], ctype(f->dt), f->id) : arena_fmt(p->arena, "l%d.v", f->id);
        assign(p, v, narrowed(p, t, e, v->vary));
        return;
    }
    if (sums_at_once(p, f)) { assign(p, v, narrowed(p, t, arena_fmt(p->arena, "h%d[m]", f->id), 0)); return; }
    if (f->team && !p->folded) { finish_team(p, v); return; }
    if (runs_beside(p, f)) { assign(p, v, narrowed(p, t, acc_name(p, f, "w"), v->vary)); return; }
    if (!f->own) {
        const char *sum = acc_name(p, f, p->rolled ? "r" : "a");
        if (f->half && f->words) sum = arena_fmt(p->arena, "sums_f32h(%s)", sum);
        assign(p, v, is_arg(f) ? acc_name(p, f, "x") : narrowed(p, t, sum, v->vary));
        return;
    }
    if (is_arg(f)) { finish_arg(p, f, declare(p, v)); return; }
    assign(p, v, narrowed(p, t, over_lanes(p, f), 0));
}

/* A copy of an accumulator that a loop over the rows can index: the accumulator itself must stay in registers. */
void print_rolled(Printer *p, const KFold *f)
{
    print_line(p, "%s%s r%d%s;", ctype(f->dt), acc_suffix(f), f->id, acc_dims(p, f));
    acc_each(p, f, true);
    print_line(p, "%s = %s;", acc_name(p, f, "r"), acc_name(p, f, "a"));
    acc_each_end(p, f, true);
}

/* Values of a kernel as C expressions: addresses, loads and stores, elementwise operations, casts.
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
const char *print_held(DType t) { return ctype(t); }
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

const char *print_subscript(Printer *p, uint8_t vary, bool acc_nv)
{
    const char *m = (vary & VARY_row) && p->k->mr > 1 ? (p->in_m ? "[m]" : "[0]") : "";
    const char *v = acc_nv ? (p->in_v ? "[v]" : "[0]") : "";
    return arena_fmt(p->arena, "%s%s", m, v);
}

/* nv of the vector loop in which a lane value stands: arrays are as long as the whole steps need */
static const char *name_of(Printer *p, const KVal *v)
{
    if (!p->array[v->id]) return arena_fmt(p->arena, "v%d", v->id);
    return arena_fmt(p->arena, "v%d%s", v->id, print_subscript(p, v->vary, lanes(p, v->vary)));
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
const char *print_operand_as(Printer *p, const KVal *v, uint8_t vary)
{
    const char *s = v->kind == KV_const ? print_literal(p, v->dt, v->imm) : name_of(p, v);
    if (s[0] == '-') s = arena_fmt(p->arena, "(%s)", s);
    if (p->lane_of) return lanes(p, v->vary) ? arena_fmt(p->arena, "%s[l]", s) : s;
    if (v->half) return p->half ? s : arena_fmt(p->arena, "wide_f32h(%s)", s);
    if (lanes(p, vary) && !lanes(p, v->vary) && p->spread[v->id]) return arena_fmt(p->arena, "s%d", v->id);
    if (lanes(p, vary) && !lanes(p, v->vary)) return arena_fmt(p->arena, p->rolled && dtype_info[v->dt].compute == DT_f32 ? "splat_%s%s(here_f32(%s))" : "splat_%s%s(%s)", ctype(v->dt), suffix(p, vary), s);
    return s;
}

const char *print_operand(Printer *p, const KVal *v) { return print_operand_as(p, v, 0); }

const char *print_fold_op(FoldKind k, DType t, bool *infix)
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

/* Rounds or wraps an expression in the compute type to a narrow dtype. */
const char *print_narrowed(Printer *p, DType t, const char *e, uint8_t vary)
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
const char *half_suffix(const Printer *p, const KVal *v) { return v->word && p->k->paired ? "v" : "h"; }

void print_assign(Printer *p, const KVal *v, const char *e)
{
    if (p->array[v->id]) print_line(p, "%s = %s;", name_of(p, v), e);
    else print_line(p, "%s%s%s v%d = %s;", v == p->k->pivot ? "" : "const ", ctype(v->dt), v->half ? half_suffix(p, v) : suffix(p, v->vary), v->id, e);
}

/* The lvalue of a value that is filled by statements. */
const char *print_declare(Printer *p, const KVal *v)
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

/* Half a vector, or a pair of neighbours all over it; where these go into whole vectors, the same of these. */
static void print_half(Printer *p, const KVal *v)
{
    const char *c = condition(p, &v->at, v->nopnd, v->opnd, true), *from = load_pointer(p, v);
    bool whole = p->k->buf.at[v->buf].panel || v->word || p->k->vec_var->a->c % (p->k->lanes / 2) == 0;
    const char *e = whole ? arena_fmt(p->arena, "%s_f32%s(%s)", v->word == WORD_elements ? "pairs" : "ld", half_suffix(p, v), from) : arena_fmt(p->arena, "ldfew_f32h(%s, %s)", from, print_rem(p));
    print_assign(p, v, c ? arena_fmt(p->arena, "(%s) ? %s : splat_f32%s(%s)", c, e, half_suffix(p, v), print_literal(p, v->dt, v->imm)) : e);
}

/* Does a row that stays in registers hold what is stored there? What it holds. */
static bool in_held_row(const Printer *p, int buf) { return p->held && p->k->buf.at[buf].write && p->k->buf.at[buf].read; }
static const char *print_in_row(Printer *p, int buf) { return arena_fmt(p->arena, "held%d[%s][%s]", buf, p->in_m ? "m" : "0", p->in_v ? "v" : "0"); }

void print_held_rows(Printer *p)
{
    const LoopKernel *k = p->k;
    for (int i = 0; i < k->buf.n; i++)
        if (in_held_row(p, i)) print_line(p, "%sv held%d[%d][%d];", ctype(k->buf.at[i].dt), i, k->mr > 1 ? k->mr : 1, p->held);
}

static void print_load(Printer *p, const KVal *v)
{
    if (v->half) { print_half(p, v); return; }
    if (p->held && v->held) { print_assign(p, v, print_in_row(p, v->buf)); return; }
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
        print_assign(p, v, e);
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
        const char *to = print_declare(p, v);
        lanes_open(p, ctype(v->dt), arena_fmt(p->arena, "splat_%sv(%s)", ctype(v->dt), fill));
        const char *cond = condition(p, &v->at, v->nopnd, v->opnd, true);
        const char *e = arena_fmt(p->arena, "ld_%s(%s)", st, pointer(p, v->buf, print_dim(p, v->at.off)));
        print_line(p, "%s%su.e[l] = %s;", cond ? arena_fmt(p->arena, "if (%s)", cond) : "", cond ? " " : "", e);
        lanes_close(p, to);
        return;
    }
    const char *off = load_pointer(p, v), *e;
    if (v->ahead && !p->part) {
        const char *bytes = print_dim(p, dim_mulc(p->g, v->ahead, (int64_t)dtype_size(t))), *lane = arena_fmt(p->arena, "%s%s", print_var(p, p->lane), p->in_v ? "v" : "");
        const char *fetch = p->k->split && p->k->sub->kind == SUB_rows && !p->k->vec_var && p->k->lanes * (int)dtype_size(t) >= LINE_BYTES ? "fetch_twice" : "fetch";
        if (v->ahead_half) print_line(p, "%s%s(%s - (%s + LANES) / 2, %s);", p->in_v && p->nv % 2 == 0 ? "if (v % 2 == 1) " : "", fetch, off, lane, bytes);
        else print_line(p, "%s(%s, %s);", fetch, off, bytes);
    }
    if (!off_lanes) {                    /* one element for all lanes that are valid */
        e = arena_fmt(p->arena, "splat_%sv((%s) > (%s) ? ld_%s(%s) : 0)", ctype(v->dt), r.hi ? r.hi : "LANES", r.lo ? r.lo : "0", st, off);
    } else if (dim_is(c, 1)) {
        const char *whole = v->at.npred ? condition(p, &v->at, v->nopnd, v->opnd, false) : NULL;
        if (whole && !filled && !p->part && whole_only(p, v) && t != DT_f16 && t != DT_bf16 && t != DT_bool) { print_assign(p, v, arena_fmt(p->arena, "ldok_%sv(%s, %s)", st, off, whole)); return; }
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
    print_assign(p, v, e);
}

static void print_index(Printer *p, const KVal *v)
{
    if (!lanes(p, v->vary)) { print_assign(p, v, print_dim(p, v->dim)); return; }
    Dim *c, *rest;
    if (!opnd_lanes(p, v->nopnd, v->opnd) && dim_linear(p->g, v->dim, p->lane->var, &c, &rest) && !lane_in(p, c)) {
        print_assign(p, v, arena_fmt(p->arena, "iota_i64v(%s, %s)", print_dim(p, v->dim), print_dim(p, c)));
        return;
    }
    const char *to = print_declare(p, v);
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
    const char *e = print_operand_as(p, x, lane_vary(p));
    if (v->op == OP_max && c->imm.f == 0) return arena_fmt(p->arena, "positive_f32%s(%s)", suffix(p, lane_vary(p)), e);
    return arena_fmt(p->arena, "%s_f32%s(%s, %s)", v->op == OP_max ? "atleast" : "atmost", suffix(p, lane_vary(p)), e, print_operand_as(p, c, lane_vary(p)));
}

/* Functions of which the prelude of groups of threads has a form for what is rounded to 16 bits. */
static bool has_rough(Op op) { return op == OP_exp || op == OP_sigmoid; }

static const char *spelled(Printer *p, const KVal *v)
{
    const char *bound = bounded(p, v);
    if (bound) return bound;
    if (v->weighs) return arena_fmt(p->arena, "weight_f32%s(%s)", suffix(p, v->vary), print_operand_as(p, v->in[0], v->vary));
    if (v->op == OP_exp && v->dt == DT_f32 && !p->simt && lanes(p, v->vary) && !p->lane_of && (below_largest(v->in[0]) || under_pivot(p->g, v->in[0]->node))) return arena_fmt(p->arena, "expdown_f32v(%s)", print_operand_as(p, v->in[0], v->vary));
    if (v->op == OP_where)
        return arena_fmt(p->arena, "sel_%s%s(%s, %s, %s)", ctype(v->dt), suffix(p, v->vary), print_operand_as(p, v->in[0], v->vary), print_operand_as(p, v->in[1], v->vary), print_operand_as(p, v->in[2], v->vary));
    DType held = dtype_info[v->in[0]->dt].compute;
    if (p->simt && (held == DT_i32 || held == DT_i64)) {     /* C compilers for the host are told that these wrap (-fwrapv); those for GPUs take it for undefined */
        const char *i = ctype(v->in[0]->dt), *u = held == DT_i32 ? "u32" : "u64", *a = print_operand_as(p, v->in[0], v->vary);
        const char *b = v->nin == 2 ? print_operand_as(p, v->in[1], v->vary) : NULL;
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
        else text_add(&x, "%s", print_operand_as(p, v->in[*s - '0'], v->vary));
    }
    return x.at;
}

static void print_ew(Printer *p, const KVal *v)
{
    const char *e = spelled(p, v);
    switch (v->op) {
    case OP_where: case OP_max: case OP_min: case OP_and: case OP_or: break;
    default: e = print_narrowed(p, v->dt, e, v->vary);
    }
    print_assign(p, v, e);
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
    if (near) return print_narrowed(p, to, arena_fmt(p->arena, "near_f32_i32%s(%s)", s, e), vary);
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
    return print_narrowed(p, to, e, vary);
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
    return print_narrowed(p, to, e, vary);
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
        const char *e = cast_text(p, v->dt, v->in[0]->dt, v->saturate, cast_near(p, v->dt, v->in[0], v->vary), print_operand_as(p, v->in[0], v->vary), v->vary);
        print_assign(p, v, was_float(v) ? arena_fmt(p->arena, "%s + 0.0f", e) : e);
        return;
    }
    case KV_bitcast: print_assign(p, v, bitcast_text(p, v->dt, v->in[0]->dt, print_operand_as(p, v->in[0], v->vary), v->vary)); return;
    case KV_random: {
        const char *to;
        if (!lanes(p, v->vary)) { print_assign(p, v, arena_fmt(p->arena, "random_word(%s, (u64)(%s))", print_operand_as(p, v->in[0], 0), print_dim(p, v->dim))); return; }
        to = print_declare(p, v);
        lanes_open(p, "u64", "splat_u64v(0)");
        print_line(p, "u.e[l] = random_word(%s, (u64)(%s));", print_operand_as(p, v->in[0], 0), print_dim(p, v->dim));
        lanes_close(p, to);
        return;
    }
    case KV_valid: {
        if (!lanes(p, v->vary)) { print_assign(p, v, p->inside ? "-1" : arena_fmt(p->arena, "-(i32)(%s)", condition(p, &v->at, v->nopnd, v->opnd, true))); return; }
        Range r = range_of(p, &v->at, v->nopnd, v->opnd);
        if (!r.single && !r.cond) { print_assign(p, v, arena_fmt(p->arena, "lanes_in(%s, %s)", r.lo ? r.lo : "0", r.hi ? r.hi : "LANES")); return; }
        const char *to = print_declare(p, v);
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
            const char *e = arena_fmt(p->arena, "check_index(err, %d, %s, %s)", site, print_operand_as(p, v->in[0], 0), print_dim(p, v->dim));
            print_assign(p, v, c ? arena_fmt(p->arena, "(%s) ? %s : 0", c, e) : e);
            return;
        }
        to = print_declare(p, v);
        lanes_open(p, "i64", "splat_i64v(0)");
        c = condition(p, &v->at, v->nopnd, v->opnd, true);
        print_line(p, "%s%su.e[l] = check_index(err, %d, %s, %s);", c ? arena_fmt(p->arena, "if (%s)", c) : "", c ? " " : "", site, print_operand_as(p, v->in[0], 0), print_dim(p, v->dim));
        lanes_close(p, to);
        return;
    }
    case KV_fold: print_finish(p, v); return;
    case KV_quantum: {
        const char *zero = v->nin > 1 ? print_operand_as(p, v->in[1], 0) : "0.0f";
        print_line(p, "const quantum v%d = quantum_of(%s, %s, %s);", v->id, print_operand_as(p, v->in[0], 0), zero, v->dt == DT_u8 ? "0.0f, 255.0f" : "-128.0f, 127.0f");
        return;
    }
    case KV_quantise: {
        const KVal *q = v->in[1];
        const char *zero = q->nin > 1 ? arena_fmt(p->arena, "v%d.zero", q->id) : "0", *all = arena_fmt(p->arena, p->spread[q->id] ? "s%d" : "quanta_of(&v%d)", q->id);
        const char *name = v->saturate ? "whole_quotient" : v->dt == DT_u8 ? "quantise_u8v" : "quantise_i8v";
        print_assign(p, v, arena_fmt(p->arena, "%s(%s, %s, %s)", name, print_operand_as(p, v->in[0], lane_vary(p)), all, zero));
        return;
    }
    }
}

static void spread_one(Printer *p, const KVal *v)
{
    if (p->spread[v->id] || v->kind == KV_const || v->kind == KV_valid || lanes(p, v->vary) || (v->vary & VARY_row) || (v->kind != KV_quantum && dtype_info[v->dt].compute != DT_f32)) return;
    if (v->kind == KV_quantum) print_line(p, "const quanta s%d = quanta_of(here(&v%d));", v->id, v->id);
    else print_line(p, "const f32v s%d = splat_f32v(here_f32(%s));", v->id, name_of(p, v));
    p->spread[v->id] = 1;
}

void print_spread(Printer *p, const KStmt *s)
{
    if (!lanes(p, s->vary) || s->kind != KS_val || p->k->half) return;
    for (int i = 0; i < s->val->nin; i++) spread_one(p, s->val->in[i]);
}

/* ---- stores ----------------------------------------------------------------------------------------------------------------------------- */
static const char *combined(Printer *p, const KStmt *s, const char *have, const char *e)
{
    DType t = s->val->dt;
    bool infix;
    if (t == DT_bool && s->how != COMBINE_set) return arena_fmt(p->arena, "(%s) %s (%s)", have, s->how == COMBINE_max || s->how == COMBINE_add ? "|" : "&", e);
    const char *op = s->how == COMBINE_add ? print_fold_op(FOLD_sum, t, &infix) : s->how == COMBINE_mul ? print_fold_op(FOLD_prod, t, &infix)
                   : s->how == COMBINE_max ? print_fold_op(FOLD_max, t, &infix) : s->how == COMBINE_min ? print_fold_op(FOLD_min, t, &infix) : NULL;
    if (!op) return e;
    return print_narrowed(p, t, infix ? arena_fmt(p->arena, "(%s) %s (%s)", have, op, e) : arena_fmt(p->arena, "%s_%s(%s, %s)", op, ctype(t), have, e), 0);
}

/* A float32 rounded to bfloat16, computed where it is stored. */
static bool rounds_only(const Printer *p, const KVal *v)
{
    return v->kind == KV_cast && v->dt == DT_bf16 && v->in[0]->dt == DT_f32 && !p->array[v->id] && !p->simt && v->in[0]->kind != KV_const;
}

/* The unit for tiles makes 0 of sums below 2^-126. */
static bool never_tiny(const KVal *v) { return v->kind == KV_fold && v->fold->unit && v->fold->unit_steps <= UNIT_STEPS; }

/* "if (...) " where the tile's row m may be past the last row, or be one that an earlier tile has done; else "". */
const char *print_row_guard(Printer *p)
{
    const char *r = print_var(p, p->k->row_var);
    if (p->shifted) return arena_fmt(p->arena, "if (%sm >= %sf) ", r, r);
    return rows_whole(p->k) ? "" : arena_fmt(p->arena, "if (%sr < %s) ", r, print_dim(p, p->k->row_extent));
}

/* Does it put integers that it keeps within the range of bytes side by side? */
static bool clips(const Printer *p, const KStmt *s)
{
    Dim *c, *rest;
    return s->val->kind == KV_quantise && s->val->saturate && lanes(p, s->vary) && !p->part && !s->at.npred && !opnd_lanes(p, s->nopnd, s->opnd) && dim_linear(p->g, s->at.off, p->lane->var, &c, &rest) && dim_is(c, 1);
}

bool print_joined(const Printer *p, const KStmt *s) { return s->kind == KS_store && p->nv > 1 && clips(p, s); }

static void print_store_there(Printer *p, const KStmt *s)
{
    const KBuf *b = &p->k->buf.at[s->buf];
    DType t = b->scratch ? b->dt : s->val->dt;
    const char *st = stype(t), *guard = "";
    if (p->simt && p->k->columns) guard = p->in_team ? "if (live) " : "if (live && thread == 0) ";
    else if (p->simt && p->k->team > 1 && !p->in_team) guard = "if (thread == 0) ";
    if (p->in_m && (s->vary & VARY_row)) guard = s->room ? "" : print_row_guard(p)[0] ? print_row_guard(p) : guard;
    if (!lanes(p, s->vary)) {
        const char *c = condition(p, &s->at, s->nopnd, s->opnd, true), *packed = pack_element(p, s);
        const char *e = print_operand_as(p, s->val, 0);
        if (packed) { print_line(p, "PACK_PUT(%s, %s, e, %s);", st, packed, e); return; }
        const char *to = pointer(p, s->buf, print_dim(p, s->at.off));
        if (s->how != COMBINE_set) e = combined(p, s, arena_fmt(p->arena, "ld_%s(%s)", st, to), e);
        print_line(p, "%s%sst_%s(%s, %s);", guard, c ? arena_fmt(p->arena, "if (%s) ", c) : "", st, to, e);
        return;
    }
    const char *e = print_operand_as(p, s->val, lane_vary(p));
    if (p->joins && print_joined(p, s)) { print_line(p, "q%d[v] = %s;", s->val->id, e); return; }
    if (clips(p, s)) { print_line(p, "%sstclip_%sv(%s, (const i32v[]){ %s }, 1);", guard, st, pointer(p, s->buf, print_dim(p, s->at.off)), e); return; }
    if (s->val->kind == KV_quantise && s->val->saturate) e = arena_fmt(p->arena, "clip_%sv(%s)", st, e);
    if (in_held_row(p, s->buf)) print_line(p, "%s = %s;", print_in_row(p, s->buf), e);
    if (p->held && s->held) return;
    Dim *c, *rest;
    if (!s->at.npred && !opnd_lanes(p, s->nopnd, s->opnd) && dim_linear(p->g, s->at.off, p->lane->var, &c, &rest) && !lane_in(p, c)) {
        const char *to = pointer(p, s->buf, print_dim(p, s->at.off));
        if (s->fetched && !p->part) print_line(p, "fetch_own(%s, %d);", to, STORE_AHEAD);
        if (dim_is(c, -1) && !p->part && !is_code(s->val->dt)) print_line(p, "%sst_%sv(%s - (LANES - 1), turned_%sv(%s));", guard, st, to, ctype(s->val->dt), e);
        else if (!dim_is(c, 1)) print_line(p, "%ssts_%sv(%s, %s, %s, %s);", guard, st, to, print_dim(p, c), e, p->part ? print_rem(p) : "LANES");
        else if (rounds_only(p, s->val) && !b->scratch) {        /* rounded by the store; the value itself is then computed in vain, and left out by the compiler */
            const char *x = print_operand_as(p, s->val->in[0], lane_vary(p));
            if (p->part) print_line(p, "%sstroundpart_bf16v(%s, %s, %s);", guard, to, x, print_rem(p));
            else print_line(p, "%s%s_bf16v(%s, %s);", guard, never_tiny(s->val->in[0]) ? "stnormal" : "stround", to, x);
        }
        else if (p->k->half && !strcmp(st, "f32")) {
            const char *h = s->val->half ? name_of(p, s->val) : arena_fmt(p->arena, "narrow_f32v(%s)", e);
            if (p->k->vec_var->a->c % (p->k->lanes / 2) == 0) print_line(p, "%sst_f32h(%s, %s);", guard, to, h);
            else print_line(p, "%sstfew_f32h(%s, %s, %s);", guard, to, h, print_rem(p));
        }
        else if (p->part && !holds_vectors(p, b)) print_line(p, "%sstpart_%sv(%s, %s, %s);", guard, st, to, e, print_rem(p));
        else print_line(p, "%sst%s_%sv(%s, %s);", guard, !strcmp(st, "f32") && (p->held ? p->k->held_past : p->k->stream && !b->scratch && !b->read) ? "nt" : "", st, to, e);
        return;
    }
    print_line(p, "%s{", guard);
    print_line(p, "union { %sv v; %s e[LANES]; } x = { .v = %s };", ctype(s->val->dt), ctype(s->val->dt), e);
    print_line(p, "%sfor (i64 l = 0; l < %s; l++) {", p->bundled && !p->part ? "UNROLL " : "", p->part ? print_rem(p) : "LANES");
    print_line(p, "const i64 %sl = %s%s + l;", print_var(p, p->lane), print_var(p, p->lane), p->in_v ? "v" : "");
    p->lane_of++;
    const char *cond = condition(p, &s->at, s->nopnd, s->opnd, true);
    print_line(p, "%sst_%s(%s, %s);", cond ? arena_fmt(p->arena, "if (%s) ", cond) : "", st, pointer(p, s->buf, print_dim(p, s->at.off)), "x.e[l]");
    p->lane_of--;
    print_line(p, "}");
    print_line(p, "}");
}

void print_joined_store(Printer *p, const KStmt *s)
{
    const char *guard = p->in_m && (s->vary & VARY_row) && !s->room ? print_row_guard(p) : "";
    p->past_rows = s->room && p->in_m && print_row_guard(p)[0] && !p->shifted;
    print_line(p, "%sstclip_%sv(%s, q%d, %d);", guard, stype(s->val->dt), pointer(p, s->buf, print_dim(p, s->at.off)), s->val->id, p->nv);
    p->past_rows = false;
}

/* Where memory has room for it, a row past the end is stored like the others: without a test, at its own place. */
void print_store(Printer *p, const KStmt *s)
{
    p->past_rows = s->room && p->in_m && print_row_guard(p)[0] && !p->shifted;
    print_store_there(p, s);
    p->past_rows = false;
}

/* rules.c: algebraic rules as data: the rows of rules.def and of the user's file, their patterns, and the check of what they claim.
 *
 * A pattern is a formula of the one expression language. It is built once for each class of dtypes, as a graph over scalars whose inputs are the names x y z
 * (values), c d (truth values) and k l (constants); f64, i64 and bool stand for the classes. Matching walks that graph and the graph at hand side by
 * side, by primitive and operand, both ways round where the primitive is commutative. The replacement is built by the same expr_build(), with the
 * names bound to what was matched.
 *
 * The check evaluates both sides in the reference interpreter on all combinations of special numbers (Method: exhaustive testing of small terms; it
 * proves nothing, but has no blind spot for zeros, infinities and NaN, where algebraic rules go wrong). */
#include "ir/ir.h"
#include "ir/rewrite.h"

#include <math.h>
#include <string.h>

static const char variables[] = "xyzcdkl", *const variable_name[] = { "x", "y", "z", "c", "d", "k", "l" };
enum { NVAR = sizeof variables - 1, NCLASS = 3 };
static const struct { char class; DType dt; } class_table[NCLASS] = { { 'F', DT_f64 }, { 'I', DT_i64 }, { 'B', DT_bool } };

typedef struct Pattern { const Node *root, *var[NVAR]; } Pattern;       /* root NULL: no pattern of this class */
typedef struct Rule {
    const char *name, *dtypes, *pattern, *replacement, *text, *file;    /* file NULL: a row of rules.def */
    int line;
    unsigned needs;
    Node *(*make)(Rewrite *w, Node *n);                /* RULE_C */
    Pattern of[NCLASS];
} Rule;
struct RuleSet { VEC(Rule) rule; const FileRow *row; int nrow; };

enum { EXACT = 0, FINITE = RULE_FINITE, REASSOC = RULE_REASSOC, WIDE = RULE_WIDE };
static const Rule stock[] = {
#define RULE(name, dtypes, needs, pattern, replacement, text) { #name, dtypes, pattern, replacement, text, NULL, 0, needs, NULL, { { 0 } } },
#define RULE_C(name, dtypes, needs, function, text) { #name, dtypes, NULL, NULL, text, NULL, 0, needs, function, { { 0 } } },
#include "ir/rules.def"
#undef RULE
#undef RULE_C
};

static char dtype_letter(DType t) { return dtype_is_float(t) ? 'F' : dtype_info[t].class == 'B' ? 'B' : 'I'; }
static bool is_truth(char name) { return name == 'c' || name == 'd'; }
static bool is_known(char name) { return name == 'k' || name == 'l'; }

/* ---- patterns ------------------------------------------------------------------------------------------------------------------------ */
typedef struct FormulaMaking { Graph *g; const char *text; int n; const Binding *b; Node *made; } FormulaMaking;

static void make_formula(Ctx *cx, void *arg)
{
    FormulaMaking *m = arg;
    (void)cx;
    m->made = expr_build(m->g, m->text, m->n, m->b);
}

/* The names of a formula as inputs of g: of this dtype and size, truth values bool. */
static void bind_names(Graph *g, DType dt, int rank, const int64_t *dims, Binding b[NVAR])
{
    for (int i = 0; i < NVAR; i++) {
        Node *n = graph_input(g, variable_name[i], is_truth(variables[i]) ? DT_bool : dt, rank, dims, NULL, NULL);
        b[i] = (Binding){ .name = variable_name[i], .type = 'n', .node = n };
    }
}

static _Noreturn void rule_fail(Ctx *cx, const Rule *r, const char *what)
{
    if (r->file) fail(cx, E_FORMAT, "%s:%d: rule '%s': %s", r->file, r->line, r->name, what);
    fail(cx, E_FORMAT, "rule '%s': %s", r->name, what);
}

static bool formula_of_class(Ctx *cx, Graph *g, const Rule *r, const char *text, const Binding *b, Node **made)
{
    FormulaMaking m = { g, text, NVAR, b, NULL };
    Status st = guard_call(cx, make_formula, &m);
    if (st == E_FORMAT) rule_fail(cx, r, cx->text);
    if (st != E_OK && st != E_INVALID) fail_again(cx);       /* a dtype that the primitive has no meaning for: no rule of this class */
    *made = m.made;
    return st == E_OK;
}

/* Only elementwise primitives, names and numbers can be matched. */
static bool pattern_plain(const Node *n)
{
    if (n->op == OP_input || n->op == OP_const) return true;
    if (!prim_info[n->op].elementwise && n->op != OP_where) return false;
    for (int k = 0; k < n->nin; k++)
        if (!pattern_plain(n->in[k])) return false;
    return true;
}

static bool pattern_uses(const Node *n, const Node *var)
{
    if (n == var) return true;
    for (int k = 0; k < n->nin; k++)
        if (pattern_uses(n->in[k], var)) return true;
    return false;
}

static void rule_patterns(Ctx *cx, Arena *a, Rule *r)
{
    int made = 0;
    if (!r->dtypes[0] || r->dtypes[strspn(r->dtypes, "FIB")])
        rule_fail(cx, r, arena_fmt(a, "dtypes \"%s\", wanted letters of F (floats), I (integers), B (truth values)", r->dtypes));
    for (int i = 0; i < NCLASS; i++) {
        if (!strchr(r->dtypes, class_table[i].class)) continue;
        Graph *g = graph_new(cx, a);
        Binding b[NVAR];
        Node *pattern, *replacement;
        bind_names(g, class_table[i].dt, 0, NULL, b);
        if (!formula_of_class(cx, g, r, r->pattern, b, &pattern)) continue;
        if (!formula_of_class(cx, g, r, r->replacement, b, &replacement)) rule_fail(cx, r, cx->text);
        if (!pattern_plain(pattern) || pattern->op == OP_input || pattern->op == OP_const) rule_fail(cx, r, "a pattern has elementwise primitives, names and numbers only");
        if (pattern->dt != replacement->dt || pattern->rank != replacement->rank) rule_fail(cx, r, "the two sides have different dtypes");
        if (pattern == replacement) rule_fail(cx, r, "both sides are the same graph");
        Pattern *p = &r->of[i];
        p->root = pattern;
        for (int k = 0; k < NVAR; k++) {
            p->var[k] = b[k].node;
            if (pattern_uses(replacement, b[k].node) && !pattern_uses(pattern, b[k].node))
                rule_fail(cx, r, arena_fmt(a, "the replacement uses '%c', which the pattern does not have", variables[k]));
        }
        made++;
    }
    if (!made) rule_fail(cx, r, arena_fmt(a, "the pattern has no meaning for the dtypes \"%s\"", r->dtypes));
}

/* ---- matching ------------------------------------------------------------------------------------------------------------------------ */
typedef struct Match { Rewrite *w; const Pattern *p; DType dt; Node *at[NVAR]; } Match;

static bool commutes(Op op)
{
    switch (op) {
    case OP_add: case OP_mul: case OP_max: case OP_min: case OP_eq: case OP_and: case OP_or: case OP_xor: return true;
    default: return false;
    }
}

/* Is n the same number everywhere, and which? */
static bool uniform(const Node *n, Scalar *v)
{
    while (n->op == OP_view && n->view.npred == 0) n = n->in[0];
    if (n->op != OP_const || !n->tensor->data) return false;
    int64_t count = tensor_count(n->tensor);
    if (count < 1 || count > 64) return false;
    *v = scalar_load(n->dt, tensor_at(n->tensor, 0));
    for (int64_t j = 1; j < count; j++)
        if (scalar_load(n->dt, tensor_at(n->tensor, j)).u != v->u) return false;
    return true;
}

static bool match_node(Match *m, const Node *p, Node *n)
{
    if (p->op == OP_input) {
        int k = p->index;
        if (m->at[k]) return m->at[k] == n;
        if (n->dt != (is_truth(variables[k]) ? DT_bool : m->dt) || (is_known(variables[k]) && !rewrite_known(m->w, n))) return false;
        m->at[k] = n;
        return true;
    }
    if (p->op == OP_const) {
        Scalar v;
        return uniform(n, &v) && dtype_letter(n->dt) == dtype_letter(p->dt) && scalar_load(p->dt, p->tensor->data).u == v.u;
    }
    if (p->op != n->op || p->nin != n->nin) return false;
    Match before = *m;
    bool same = true;
    for (int k = 0; k < p->nin && same; k++) same = match_node(m, p->in[k], n->in[k]);
    if (same || !commutes(p->op)) return same;
    *m = before;
    return match_node(m, p->in[0], n->in[1]) && match_node(m, p->in[1], n->in[0]);
}

static Node *rule_apply(Rewrite *w, const Rule *r, Node *n)
{
    DType dt = n->nin ? n->in[n->op == OP_where]->dt : n->dt;
    if (!strchr(r->dtypes, dtype_letter(dt))) return NULL;
    if (r->make) return r->make(w, n);
    int class = 0;
    while (class_table[class].class != dtype_letter(dt)) class++;
    Match m = { .w = w, .p = &r->of[class], .dt = dt };
    if (!m.p->root || !match_node(&m, m.p->root, n)) return NULL;
    Binding b[NVAR];
    int nb = 0;
    for (int k = 0; k < NVAR; k++)
        if (m.at[k]) b[nb++] = (Binding){ .name = variable_name[k], .type = 'n', .node = m.at[k] };
    return expr_build(w->g, r->replacement, nb, b);
}

Node *rules_rewrite(Rewrite *w, Node *n, int *rule)
{
    const RuleSet *s = w->rules;
    bool of_constants = n->nin > 0;     /* nothing to gain: and "x / k" would match the 1 / k that it leaves, time and again */
    for (int k = 0; k < n->nin; k++) of_constants &= rewrite_known(w, n->in[k]);
    for (int i = 0; i < s->rule.n; i++) {
        const Rule *r = &s->rule.at[i];
        if (r->needs & ~w->allow || list_has(w->cx->opt.off, r->name)) continue;
        if (r->pattern && of_constants) continue;
        Node *y = rule_apply(w, r, n);
        if (!y || y == n) continue;
        bool same = y->dt == n->dt && y->rank == n->rank;
        for (int k = 0; same && k < n->rank; k++) same = y->dims[k] == n->dims[k];
        if (!same) rule_fail(w->cx, r, arena_fmt(w->g->arena, "gives %s%s, in place of %s%s", dtype_info[y->dt].name, dims_str(w->g, y->rank, y->dims),
                                                 dtype_info[n->dt].name, dims_str(w->g, n->rank, n->dims)));
        *rule = i;
        return y;
    }
    return NULL;
}

/* ---- the check ------------------------------------------------------------------------------------------------------------------------ */
static const double special_floats[] = { 0, -0.0, 1, -1, 0.5, 3, -7.25, 0.1, 1e-3, -1234.5, 65504, 0x1p-24, 0x1p-149, -0x1p-126, 0x1.fffffep127, INFINITY, -INFINITY, NAN };
static const int64_t special_ints[] = { 0, 1, -1, 2, -3, 7, 100, -128, 127, 255, 32767, -32768, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN };
static const int64_t special_truths[] = { 0, 1 };
static const DType checked_dtypes[] = { DT_f32, DT_f64, DT_f16, DT_bf16, DT_i8, DT_u8, DT_i32, DT_i64, DT_u64, DT_bool };

static Scalar special(DType t, int j, int *n)
{
    Scalar s;
    if (dtype_is_float(t)) { *n = COUNT_OF(special_floats); s.f = special_floats[j % *n]; }
    else if (t == DT_bool) { *n = COUNT_OF(special_truths); s.i = special_truths[j % *n]; }
    else { *n = COUNT_OF(special_ints); s.i = special_ints[j % *n]; }
    return scalar_round(t, s, false);
}

static double epsilon_of(DType t) { return t == DT_f64 ? 0x1p-52 : t == DT_f32 ? 0x1p-23 : t == DT_f16 ? 0x1p-10 : 0x1p-7; }

/* Do left and right agree as the rule claims? largest: magnitude of the operands. */
static bool sides_agree(const Rule *r, DType t, Scalar left, Scalar right, bool finite, double largest)
{
    if (!dtype_is_float(t)) return left.i == right.i;
    finite &= isfinite(left.f) && isfinite(right.f);
    if (r->needs & FINITE && !finite) return true;
    if (isnan(left.f) || isnan(right.f)) return isnan(left.f) && isnan(right.f);
    if (left.u == right.u) return true;
    if (!(r->needs & REASSOC) || !finite) return false;
    return fabs(left.f - right.f) <= 4 * epsilon_of(t) * fmax(largest, fmax(fabs(left.f), fabs(right.f)));
}

static void rule_check_dtype(Ctx *cx, Arena *a, const Rule *r, DType dt)
{
    Graph *g = graph_new(cx, a);
    Binding b[NVAR];
    Node *side[2];
    int count[NVAR], used[NVAR];
    int64_t all = 1;
    Pattern p = r->of[dtype_letter(dt) == 'F' ? 0 : dtype_letter(dt) == 'I' ? 1 : 2];
    if (!p.root) return;
    for (int k = 0; k < NVAR; k++) {
        special(is_truth(variables[k]) ? DT_bool : dt, 0, &count[k]);
        used[k] = pattern_uses(p.root, p.var[k]);
        if (used[k]) all *= count[k];
    }
    bind_names(g, dt, 1, &all, b);
    if (!formula_of_class(cx, g, r, r->pattern, b, &side[0]) || !formula_of_class(cx, g, r, r->replacement, b, &side[1])) rule_fail(cx, r, cx->text);
    Tensor in[NVAR], out[2];
    for (int k = 0; k < NVAR; k++) {
        DType t = is_truth(variables[k]) ? DT_bool : dt;
        tensor_init(cx, &in[k], t, 1, &all);
        in[k].data = arena_alloc(a, tensor_bytes(&in[k]) + 1);
        int64_t each = 1;
        for (int i = 0; i < k; i++) each *= used[i] ? count[i] : 1;
        for (int64_t j = 0; used[k] && j < all; j++) scalar_store(t, tensor_at(&in[k], j), special(t, (int)(j / each % count[k]), &count[k]));
    }
    memset(out, 0, sizeof out);
    eval_nodes(cx, a, g, in, NULL, 2, side, out);
    for (int64_t j = 0; j < all; j++) {
        Scalar left = scalar_load(side[0]->dt, tensor_at(&out[0], j)), right = scalar_load(side[1]->dt, tensor_at(&out[1], j));
        bool finite = true;
        double largest = 0;
        for (int k = 0; k < NVAR && dtype_is_float(dt); k++) {
            if (!used[k] || is_truth(variables[k])) continue;
            double v = scalar_load(dt, tensor_at(&in[k], j)).f;
            finite &= isfinite(v) != 0;
            largest = fmax(largest, fabs(v));
        }
        if (sides_agree(r, side[0]->dt, left, right, finite, largest)) continue;
        Text t = { .arena = a };
        text_add(&t, "\"%s\" is not \"%s\" for %s", r->pattern, r->replacement, dtype_info[dt].name);
        for (int k = 0; k < NVAR; k++) {
            if (!used[k]) continue;
            Scalar v = scalar_load(in[k].dt, tensor_at(&in[k], j));
            if (dtype_is_float(in[k].dt)) text_add(&t, " %c=%.9g", variables[k], v.f);
            else text_add(&t, " %c=%lld", variables[k], (long long)v.i);
        }
        if (dtype_is_float(side[0]->dt)) text_add(&t, ": %.9g and %.9g", left.f, right.f);
        else text_add(&t, ": %lld and %lld", (long long)left.i, (long long)right.i);
        rule_fail(cx, r, t.at);
    }
}

typedef struct CheckMaking { Arena *a; const Rule *r; DType dt; } CheckMaking;

static void check_guarded(Ctx *cx, void *arg)
{
    CheckMaking *m = arg;
    rule_check_dtype(cx, m->a, m->r, m->dt);
}

static void rule_check(Ctx *cx, const Rule *r)
{
    for (size_t i = 0; i < COUNT_OF(checked_dtypes); i++) {
        if (!strchr(r->dtypes, dtype_letter(checked_dtypes[i]))) continue;
        CheckMaking m = { arena_new(cx), r, checked_dtypes[i] };
        Status st = guard_call(cx, check_guarded, &m);
        arena_free(m.a);
        if (st != E_OK) fail_again(cx);
    }
}

/* ---- leave ---------------------------------------------------------------------------------------------------------------------------- */
static const struct { const char *word; unsigned bit; } leave_table[] = { { "finite", FINITE }, { "reassoc", REASSOC }, { "wide", WIDE }, { "winograd", RULE_WINOGRAD }, { "flush", RULE_FLUSH }, { "bf16", RULE_BF16 } };

unsigned rules_leave(Ctx *cx, const char *list)
{
    unsigned leave = 0;
    for (const char *s = list; s && *s;) {
        size_t n = strcspn(s, ","), i = 0;
        while (i < COUNT_OF(leave_table) && (strlen(leave_table[i].word) != n || memcmp(leave_table[i].word, s, n) != 0)) i++;
        if (i == COUNT_OF(leave_table)) fail(cx, E_INVALID, "'%.*s' is nothing that can be allowed; wanted finite, reassoc, wide, winograd, flush or bf16, with commas between", (int)n, s);
        leave |= leave_table[i].bit;
        s += n + (s[n] == ',');
    }
    return leave;
}

/* ---- sets ------------------------------------------------------------------------------------------------------------------------------ */
static unsigned needs_of(Ctx *cx, const Rule *r, const char *words)
{
    static const struct { const char *word; unsigned bit; } word_table[] = { { "EXACT", EXACT }, { "FINITE", FINITE }, { "REASSOC", REASSOC }, { "FINITE|REASSOC", FINITE | REASSOC } };
    for (size_t i = 0; i < COUNT_OF(word_table); i++)
        if (strcmp(words, word_table[i].word) == 0) return word_table[i].bit;
    rule_fail(cx, r, "needs EXACT, FINITE, REASSOC or FINITE|REASSOC as its third field");
}

RuleSet *rules_new(Ctx *cx, Arena *a, const char *file)
{
    RuleSet *s = NEW(a, RuleSet);
    for (size_t i = 0; i < COUNT_OF(stock); i++) {
        vec_push(a, &s->rule, stock[i]);
        if (stock[i].pattern) rule_patterns(cx, a, &s->rule.at[s->rule.n - 1]);
    }
    FileRow *row = NULL;
    s->nrow = file && *file ? rows_read(cx, a, file, &row) : 0;
    s->row = row;
    for (int i = 0; i < s->nrow; i++) {
        if (strcmp(row[i].name, "FUSE") == 0) continue;      /* the planner's */
        if (strcmp(row[i].name, "RULE") != 0) fail(cx, E_FORMAT, "%s:%d: found %s(, wanted RULE( or FUSE(", file, row[i].line, row[i].name);
        const char *const *f = row[i].field;
        Rule r = { .name = row[i].n ? f[0] : "", .file = arena_str(a, file), .line = row[i].line };
        if (row[i].n != 6) rule_fail(cx, &r, arena_fmt(a, "has %d fields, wanted RULE( name, dtypes, needs, pattern, replacement, text )", row[i].n));
        r.dtypes = f[1]; r.needs = needs_of(cx, &r, f[2]); r.pattern = f[3]; r.replacement = f[4]; r.text = f[5];
        for (int k = 0; k < s->rule.n; k++)
            if (strcmp(s->rule.at[k].name, r.name) == 0) rule_fail(cx, &r, s->rule.at[k].file ? "an earlier row of the file has this name" : "a row of src/ir/rules.def has this name");
        rule_patterns(cx, a, &r);
        rule_check(cx, &r);
        vec_push(a, &s->rule, r);
    }
    return s;
}

int rules_count(const RuleSet *s) { return s->rule.n; }
const char *rules_name(const RuleSet *s, int i) { return s->rule.at[i].name; }
const char *rules_text(const RuleSet *s, int i) { return s->rule.at[i].text; }

const char *rules_idle(Ctx *cx, Arena *a, const RuleSet *s, int i)
{
    const Rule *r = &s->rule.at[i];
    unsigned lacks = r->needs & ~rules_leave(cx, cx->opt.allow);
    if (!r->file) return NULL;
    if (list_has(cx->opt.off, r->name)) return "switched off";
    if (!lacks) return arena_fmt(a, "nothing matches \"%s\"", r->pattern);
    Text t = { .arena = a };
    for (size_t k = 0; k < COUNT_OF(leave_table); k++)
        if (lacks & leave_table[k].bit) text_add(&t, "%s%s", t.n ? "," : "it needs --allow ", leave_table[k].word);
    return t.at;
}

const FileRow *rules_rows(const RuleSet *s, int *n) { *n = s->nrow; return s->row; }

void rules_check(Ctx *cx, const RuleSet *s)
{
    for (int i = 0; i < s->rule.n; i++)
        if (s->rule.at[i].pattern) rule_check(cx, &s->rule.at[i]);
}

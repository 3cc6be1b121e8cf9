/* expr.c: the expression language of the operator tables: "e = exp(x - max[axis](x)); e / sum[axis](e)".
 *
 * Recursive descent over the text, one function for each level of C's precedence; values are built while
 * parsing, so there is no tree.
 *
 *     program  statement { ';' statement }         the value is that of the last one, an expression
 *     statement  [ name '=' ] expression
 *     levels   || , && , == != , < <= > >= , + - , * / % , unary - ! , primary   (% as in C)
 *     primary  number | name | name '(' arguments ')' | name '[' axes ']' '(' argument ')' | '(' expression ')'
 *
 * A value is a node or a number. Numbers are doubles until they meet a node and take its dtype; operations
 * of numbers alone are done at once, so a formula may branch on an attribute: where(alpha > 0, ...). Calls:
 * any elementwise primitive, the folds sum prod max min mean with an axes binding (reduced axes keep size
 * 1), a dtype's name (a cast), and the composites of composite_table. */
#include "ir/ir.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Value { Node *node; double number; } Value;              /* node NULL: a number */
typedef struct Local { const char *name; size_t n; Value value; } Local;

enum { MAX_LOCALS = 32, MAX_ARGS = 3, MAX_NAME = 32, MAX_DEPTH = 200 };

typedef struct Expr {
    Graph *g;
    const char *text, *at;
    int nbinding; const Binding *binding;
    int nlocal; Local local[MAX_LOCALS];
    int depth;
} Expr;

static Value expr_value(Expr *x);

/* ---- words ------------------------------------------------------------------------------------------- */

static _Noreturn void expr_fail(Expr *x, const char *what)
{
    fail(x->g->cx, E_FORMAT, "formula \"%s\": %s at \"%.20s\"", x->text, what, x->at);
}

static bool expr_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool expr_digit(char c) { return c >= '0' && c <= '9'; }

static void expr_space(Expr *x)
{
    while (*x->at == ' ' || *x->at == '\n' || *x->at == '\t') x->at++;
}

/* Takes the symbol s if it is next. A one-character symbol is not taken as the head of a longer one (< of <=, = of ==). */
static bool expr_take(Expr *x, const char *s)
{
    expr_space(x);
    size_t n = strlen(s);
    if (strncmp(x->at, s, n)) return false;
    if (n == 1 && strchr("<>=!", *s) && x->at[1] == '=') return false;
    x->at += n;
    return true;
}

static void expr_want(Expr *x, const char *s)
{
    if (!expr_take(x, s))
        fail(x->g->cx, E_FORMAT, "formula \"%s\": '%s' wanted at \"%.20s\"", x->text, s, x->at);
}

/* The name that is next, or 0 characters. */
static size_t expr_name(Expr *x)
{
    expr_space(x);
    size_t n = 0;
    if (expr_letter(*x->at))
        while (expr_letter(x->at[n]) || expr_digit(x->at[n])) n++;
    return n;
}

static bool same_name(const char *name, const char *at, size_t n) { return strlen(name) == n && !memcmp(name, at, n); }

/* ---- values ------------------------------------------------------------------------------------------ */

static Value of_number(double v) { return (Value){ .number = v }; }
static Value of_node(Node *n) { return (Value){ .node = n }; }

/* A value as an operand beside others of dtype dt. */
static Node *as_node(Expr *x, Value v, DType dt)
{
    if (v.node) return v.node;
    if (dtype_is_float(dt)) return g_scalar(x->g, dt, v.number);
    if (v.number != floor(v.number) || fabs(v.number) > 9007199254740992.0)
        fail(x->g->cx, E_INVALID, "formula \"%s\": %g is no value of dtype %s", x->text, v.number,
             dtype_info[dt].name);
    return g_int(x->g, dt, (int64_t)v.number);
}

static Value expr_op(Expr *x, Op op, int n, const Value *v)
{
    const PrimInfo *p = &prim_info[op];
    if (p->arity != n)
        expr_fail(x, arena_fmt(x->g->arena, "%s takes %d operands, not %d,", p->name, p->arity, n));
    DType dt = DT_none;
    for (int k = 0; k < n && dt == DT_none; k++)
        if (v[k].node) dt = v[k].node->dt;
    if (dt == DT_none) {                /* numbers: done now. Truth values are the numbers 0 and 1 */
        Scalar in[MAX_ARGS];
        bool truth = !strchr(p->domain, 'F');
        for (int k = 0; k < n; k++)
            in[k] = truth ? (Scalar){ .i = v[k].number != 0 } : (Scalar){ .f = v[k].number };
        if (truth && !strchr(p->domain, 'B'))
            expr_fail(x, arena_fmt(x->g->arena, "%s of numbers alone", p->name));
        Scalar y = eval_ew(op, truth ? DT_bool : DT_f64, n, in);
        return of_number(truth || p->compares ? (double)y.i : y.f);
    }
    Node *in[MAX_ARGS];
    for (int k = 0; k < n; k++) in[k] = as_node(x, v[k], dt);
    return of_node(g_op(x->g, op, n, in));
}

static Value expr_op1(Expr *x, Op op, Value a) { return expr_op(x, op, 1, &a); }
static Value expr_op2(Expr *x, Op op, Value a, Value b) { return expr_op(x, op, 2, (Value[]){ a, b }); }

static Value expr_where(Expr *x, Value c, Value a, Value b)
{
    if (!c.node) return c.number != 0 ? a : b;
    if (!a.node && !b.node) expr_fail(x, "where of two numbers has no dtype");
    DType dt = a.node ? a.node->dt : b.node->dt;
    return of_node(g_where(x->g, c.node, as_node(x, a, dt), as_node(x, b, dt)));
}

/* ---- composites: name, number of operands, value ----------------------------------------------------- */

#define V1(f) static Value composite_##f(Expr *x, const Value *v)
V1(recip)   { return expr_op2(x, OP_div, of_number(1), v[0]); }
V1(rsqrt)   { return expr_op2(x, OP_div, of_number(1), expr_op1(x, OP_sqrt, v[0])); }
V1(square)  { return expr_op2(x, OP_mul, v[0], v[0]); }
V1(relu)    { return expr_op2(x, OP_max, v[0], of_number(0)); }
V1(clamp)   { return expr_op2(x, OP_min, expr_op2(x, OP_max, v[0], v[1]), v[2]); }
V1(gt)      { return expr_op2(x, OP_lt, v[1], v[0]); }
V1(ge)      { return expr_op2(x, OP_le, v[1], v[0]); }
V1(ne)      { return expr_op1(x, OP_not, expr_op2(x, OP_eq, v[0], v[1])); }
V1(where)   { return expr_where(x, v[0], v[1], v[2]); }
V1(sigmoid)
{
    if (v[0].node) return of_node(g_sigmoid(x->g, v[0].node));
    return of_number(1 / (1 + exp(-v[0].number)));
}
V1(sign)    /* -1, 0 or 1; NaN of NaN: x + 0 is the 0 without its sign */
{
    Value zero = of_number(0), y = expr_op2(x, OP_add, v[0], zero);
    if (!v[0].node || dtype_info[v[0].node->dt].class != 'U')
        y = expr_where(x, expr_op2(x, OP_lt, v[0], zero), of_number(-1), y);
    return expr_where(x, expr_op2(x, OP_lt, zero, v[0]), of_number(1), y);
}
#undef V1

static const struct { const char *name; int n; Value (*make)(Expr *x, const Value *v); } composite_table[] = {
    { "recip", 1, composite_recip },   { "rsqrt", 1, composite_rsqrt }, { "square", 1, composite_square },
    { "relu", 1, composite_relu },     { "clamp", 3, composite_clamp }, { "sigmoid", 1, composite_sigmoid },
    { "sign", 1, composite_sign },     { "gt", 2, composite_gt },       { "ge", 2, composite_ge },
    { "ne", 2, composite_ne },         { "where", 3, composite_where },
};

/* ---- grammar ----------------------------------------------------------------------------------------- */

static int expr_arguments(Expr *x, Value *v)
{
    int n = 0;
    expr_want(x, "(");
    do {
        if (n == MAX_ARGS) expr_fail(x, "too many operands");
        v[n++] = expr_value(x);
    } while (expr_take(x, ","));
    expr_want(x, ")");
    return n;
}

static const Binding *find_binding(const Expr *x, const char *at, size_t n)
{
    for (int k = 0; k < x->nbinding; k++)
        if (same_name(x->binding[k].name, at, n)) return &x->binding[k];
    return NULL;
}

/* name [ axes ] ( value ) */
static Value expr_fold(Expr *x, const char *name, size_t n)
{
    expr_want(x, "[");
    size_t na = expr_name(x);
    const Binding *axes = find_binding(x, x->at, na);
    if (!axes || axes->type != 'a') expr_fail(x, "the name of an axes binding wanted");
    x->at += na;
    expr_want(x, "]");
    Value v[MAX_ARGS];
    if (expr_arguments(x, v) != 1 || !v[0].node) expr_fail(x, "a fold takes one tensor");
    if (same_name("mean", name, n)) return of_node(g_mean(x->g, v[0].node, axes->axes, true));
    for (int k = FOLD_sum; k <= FOLD_min; k++)
        if (same_name(fold_name[k], name, n)) return of_node(g_fold(x->g, (FoldKind)k, v[0].node, axes->axes, true));
    x->at = name;
    expr_fail(x, "no such fold");
}

static Value expr_call(Expr *x, const char *name, size_t n)
{
    char word[MAX_NAME];
    if (n >= sizeof word) expr_fail(x, "a name too long");
    memcpy(word, name, n);
    word[n] = 0;
    Value v[MAX_ARGS];
    int nv = expr_arguments(x, v);
    for (size_t k = 0; k < COUNT_OF(composite_table); k++) {
        if (strcmp(composite_table[k].name, word)) continue;
        if (composite_table[k].n != nv)
            expr_fail(x, arena_fmt(x->g->arena, "%s takes %d operands, not %d,", word, composite_table[k].n, nv));
        return composite_table[k].make(x, v);
    }
    Op op = op_from_name(word);
    if (op != OP_COUNT && prim_info[op].elementwise) return expr_op(x, op, nv, v);
    DType dt = dtype_from_name(word);
    if (dt != DT_none && nv == 1) return of_node(v[0].node ? g_cast(x->g, v[0].node, dt) : as_node(x, v[0], dt));
    x->at = name;
    expr_fail(x, "no such function");
}

static Value expr_named(Expr *x, size_t n)
{
    const char *name = x->at;
    x->at += n;
    expr_space(x);
    if (*x->at == '(') return expr_call(x, name, n);
    if (*x->at == '[') return expr_fold(x, name, n);
    for (int k = x->nlocal - 1; k >= 0; k--)
        if (x->local[k].n == n && !memcmp(x->local[k].name, name, n)) return x->local[k].value;
    const Binding *b = find_binding(x, name, n);
    if (b && b->type == 'n' && b->node) return of_node(b->node);
    if (b && b->type == 'f') return of_number(b->number);
    x->at = name;
    if (b) expr_fail(x, b->type == 'a' ? "axes are no value" : "an absent operand used");
    if (same_name("inf", name, n)) return of_number(INFINITY);
    if (same_name("nan", name, n)) return of_number(NAN);
    if (same_name("pi", name, n)) return of_number(3.14159265358979323846);
    Text t = { .arena = x->g->arena };
    for (int k = 0; k < x->nbinding; k++) text_add(&t, "%s%s", k ? ", " : "; names are ", x->binding[k].name);
    fail(x->g->cx, E_FORMAT, "formula \"%s\": an unknown name at \"%.20s\"%s", x->text, x->at, t.n ? t.at : "");
}

static Value expr_number(Expr *x)
{
    /* digits [ . digits ] [ e [sign] digits ]: strtod also takes hexadecimal and words, which are none here */
    const char *p = x->at;
    while (expr_digit(*p)) p++;
    if (*p == '.') p++;
    while (expr_digit(*p)) p++;
    if ((*p == 'e' || *p == 'E') && (expr_digit(p[1]) || ((p[1] == '-' || p[1] == '+') && expr_digit(p[2])))) {
        p += 2;
        while (expr_digit(*p)) p++;
    }
    if (expr_letter(*p)) expr_fail(x, "a number runs into a name");
    char word[64];
    size_t n = (size_t)(p - x->at);
    if (n >= sizeof word) expr_fail(x, "a number too long");
    memcpy(word, x->at, n);
    word[n] = 0;
    x->at = p;
    return of_number(strtod(word, NULL));
}

static Value expr_primary(Expr *x)
{
    size_t n = expr_name(x);
    if (n) return expr_named(x, n);
    if (expr_digit(*x->at) || (*x->at == '.' && expr_digit(x->at[1]))) return expr_number(x);
    if (!expr_take(x, "(")) expr_fail(x, *x->at ? "a value wanted" : "the text ends where a value is wanted");
    Value v = expr_value(x);
    expr_want(x, ")");
    return v;
}

static Value expr_unary(Expr *x)
{
    if (++x->depth > MAX_DEPTH) expr_fail(x, "nested too deeply");
    Value v;
    if (expr_take(x, "-")) v = expr_op1(x, OP_neg, expr_unary(x));
    else if (expr_take(x, "!")) v = expr_op1(x, OP_not, expr_unary(x));
    else v = expr_primary(x);
    x->depth--;
    return v;
}

/* Binary operators, loosest first. `swap`: the operands trade places; `negate`: not of the result. */
static const struct { const char *symbol; int level; Op op; bool swap, negate; } operator_table[] = {
    { "||", 0, OP_or,  false, false }, { "&&", 1, OP_and, false, false },
    { "==", 2, OP_eq,  false, false }, { "!=", 2, OP_eq,  false, true },
    { "<=", 3, OP_le,  false, false }, { ">=", 3, OP_le,  true,  false },
    { "<",  3, OP_lt,  false, false }, { ">",  3, OP_lt,  true,  false },
    { "+",  4, OP_add, false, false }, { "-",  4, OP_sub, false, false },
    { "*",  5, OP_mul, false, false }, { "/",  5, OP_div, false, false }, { "%", 5, OP_fmod, false, false },
};
enum { LEVELS = 6 };

static Value expr_binary(Expr *x, int level)
{
    if (level == LEVELS) return expr_unary(x);
    Value v = expr_binary(x, level + 1);
    for (size_t k = 0; k < COUNT_OF(operator_table); k++) {
        if (operator_table[k].level != level || !expr_take(x, operator_table[k].symbol)) continue;
        Value w = expr_binary(x, level + 1);
        v = operator_table[k].swap ? expr_op2(x, operator_table[k].op, w, v) : expr_op2(x, operator_table[k].op, v, w);
        if (operator_table[k].negate) v = expr_op1(x, OP_not, v);
        k = (size_t)-1;                 /* the next operator of this level may be any of them */
    }
    return v;
}

static Value expr_value(Expr *x)
{
    if (++x->depth > MAX_DEPTH) expr_fail(x, "nested too deeply");
    Value v = expr_binary(x, 0);
    x->depth--;
    return v;
}

/* name = value, when the next words are so; else false and nothing is taken. */
static bool expr_assignment(Expr *x)
{
    size_t n = expr_name(x);
    const char *name = x->at;
    if (!n) return false;
    x->at += n;
    if (!expr_take(x, "=")) {
        x->at = name;
        return false;
    }
    if (x->nlocal == MAX_LOCALS) expr_fail(x, "too many assignments");
    Value v = expr_value(x);            /* before the name exists: x = x + 1 uses the outer x */
    x->local[x->nlocal++] = (Local){ name, n, v };
    return true;
}

Node *expr_build(Graph *g, const char *text, int n, const Binding *b)
{
    Expr x = { .g = g, .text = text, .at = text, .nbinding = n, .binding = b };
    while (expr_assignment(&x)) expr_want(&x, ";");
    Value v = expr_value(&x);
    expr_space(&x);
    if (*x.at) expr_fail(&x, "the end wanted");
    if (!v.node) expr_fail(&x, "the value is a number and has no dtype");
    return v.node;
}

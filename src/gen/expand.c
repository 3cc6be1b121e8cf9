/* The kernel prelude as plain functions: for source that stands alone.
 *
 * A small C preprocessor (objects, functions, ##, variable arguments, #if over defined and numbers) expands the prelude once as gcc would see it and once
 * as clang would. The result is cut into top-level items; those that the kernels do not reach by name are dropped, and where the two compilers would see
 * different text both stand behind #ifdef __clang__. So a reader sees the few functions that are used, and no macros.
 * With a suffix, all names of the prelude get it, so that several instruction sets fit into one file. */
#include "gen/gen.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct Tok { const char *s; int n; const char *ws; int nws; char kind; } Tok;   /* kind: 'i' name, 'n' number, 's' string, 'p' other; ws: what stands before */
typedef VEC(Tok) Toks;
typedef struct Macro { struct Macro *next; const char *name; int nparam; bool variadic, busy; Tok param[16]; Toks body; } Macro;     /* nparam -1: no parentheses */
typedef struct Item { const char *name, *text; Toks tok; bool used, libm, common; } Item;      /* libm: keeps its name; common: and is not printed */
typedef VEC(Item) Items;
typedef struct Expander { Ctx *cx; Arena *a; MapStr *macro; } Expander;
struct Helpers { Ctx *cx; Arena *a; Expander gnu, clang; Items of[2]; MapStr *index[2]; const char *suffix, *attribute, *target; };   /* attribute: a macro, for the instruction set target; of: as gcc, as clang sees it; index: name to Item */

/* ---- tokens ------------------------------------------------------------------------------------------------------------------------------ */
static bool tok_is(const Tok *t, const char *s) { return (int)strlen(s) == t->n && !memcmp(t->s, s, (size_t)t->n); }
static char *tok_str(Arena *a, const Tok *t) { char *s = arena_alloc(a, (size_t)t->n + 1); memcpy(s, t->s, (size_t)t->n); return s; }

/* The next token at s, with the space and comments before it; n 0 at the end. A comment or a joined line counts as space. */
static const char *tok_next(const char *s, Tok *t)
{
    t->ws = s;
    for (;;) {
        if (*s == ' ' || *s == '\t' || *s == '\n') s++;
        else if (s[0] == '\\' && s[1] == '\n') s += 2;
        else if (s[0] == '/' && s[1] == '*') { const char *e = strstr(s + 2, "*/"); s = e ? e + 2 : s + strlen(s); }
        else break;
    }
    t->nws = (int)(s - t->ws);
    t->s = s;
    if (isalpha((unsigned char)*s) || *s == '_') { while (isalnum((unsigned char)*s) || *s == '_') s++; t->kind = 'i'; }
    else if (isdigit((unsigned char)*s)) {
        while (isalnum((unsigned char)*s) || *s == '.' || ((*s == '-' || *s == '+') && strchr("eEpP", s[-1]) && !(t->s[0] == '0' && (t->s[1] == 'x' || t->s[1] == 'X') && strchr("eE", s[-1])))) s++;
        t->kind = 'n';
    } else if (*s == '"') { for (s++; *s && *s != '"'; s++) if (*s == '\\') s++; if (*s) s++; t->kind = 's'; }
    else if (*s) { s += s[0] == '#' && s[1] == '#' ? 2 : !strncmp(s, "...", 3) ? 3 : 1; t->kind = 'p'; }
    t->n = (int)(s - t->s);
    return s;
}

/* ---- expansion --------------------------------------------------------------------------------------------------------------------------- */
static void expand_into(Expander *x, const Tok *in, int n, Toks *out);

/* The arguments of a call whose '(' is in[at]; returns the place behind ')'. */
static int call_arguments(Expander *x, const Tok *in, int n, int at, int want, bool variadic, Toks *arg, int *narg)
{
    int depth = 0;
    *narg = 0;
    for (int i = at; i < n; i++) {
        if (tok_is(&in[i], "(") && ++depth == 1) continue;
        if (tok_is(&in[i], ")") && --depth == 0) { ++*narg; return i + 1; }
        if (depth == 1 && tok_is(&in[i], ",") && (!variadic || *narg < want)) { if (*narg < 16) ++*narg; continue; }
        vec_push(x->a, &arg[*narg], in[i]);
    }
    fail(x->cx, E_FORMAT, "the prelude: a macro's arguments do not end");
}

static void substitute(Expander *x, Macro *m, Toks *arg, Toks *out)
{
    Toks body = { 0 };
    for (int i = 0; i < m->body.n; i++) {
        Tok t = m->body.at[i];
        bool left = i + 1 < m->body.n && tok_is(&m->body.at[i + 1], "##"), right = i && tok_is(&m->body.at[i - 1], "##");
        if (tok_is(&t, "##")) continue;
        int k = -1;
        for (int j = 0; j < m->nparam && t.kind == 'i'; j++) if (m->param[j].n == t.n && !memcmp(m->param[j].s, t.s, (size_t)t.n)) k = j;
        if (m->variadic && tok_is(&t, "__VA_ARGS__")) k = m->nparam;
        Toks got = { 0 };
        if (k < 0) vec_push(x->a, &got, t);
        else if (left || right) got = arg[k];
        else expand_into(x, arg[k].at, arg[k].n, &got);
        for (int j = 0; j < got.n; j++) {
            Tok g = got.at[j];
            if (j == 0) { g.ws = t.ws; g.nws = t.nws; }
            if (j == 0 && right && body.n) {            /* pasted onto what stands before */
                Tok *b = &body.at[body.n - 1];
                b->s = arena_fmt(x->a, "%.*s%.*s", b->n, b->s, g.n, g.s);
                b->n += g.n;
            } else vec_push(x->a, &body, g);
        }
    }
    m->busy = true;
    expand_into(x, body.at, body.n, out);
    m->busy = false;
}

static void expand_into(Expander *x, const Tok *in, int n, Toks *out)
{
    for (int i = 0; i < n;) {
        Macro *m = in[i].kind == 'i' ? mapstr_get(x->macro, tok_str(x->a, &in[i])) : NULL;
        if (!m || m->busy || (m->nparam >= 0 && !(i + 1 < n && tok_is(&in[i + 1], "(")))) { vec_push(x->a, out, in[i]); i++; continue; }
        Toks arg[17] = { 0 };
        int narg = 0, next = i + 1, first = out->n;
        if (m->nparam >= 0) next = call_arguments(x, in, n, i + 1, m->nparam, m->variadic, arg, &narg);
        substitute(x, m, arg, out);
        if (out->n > first) { out->at[first].ws = in[i].ws; out->at[first].nws = in[i].nws; }
        i = next;
    }
}

/* ---- directives -------------------------------------------------------------------------------------------------------------------------- */
static void define(Expander *x, const char *line)
{
    Macro *m = NEW(x->a, Macro);
    Tok t;
    const char *s = tok_next(line, &t);
    m->name = tok_str(x->a, &t);
    m->nparam = -1;
    if (*s == '(') {
        m->nparam = 0;
        for (s = tok_next(s, &t); t.n && !tok_is(&t, ")");) {
            s = tok_next(s, &t);
            if (t.kind == 'i' && m->nparam < 16) m->param[m->nparam++] = t;
            else if (tok_is(&t, "...")) m->variadic = true;
        }
    }
    for (s = tok_next(s, &t); t.n; s = tok_next(s, &t)) {
        if (!m->body.n) t.nws = 0;
        vec_push(x->a, &m->body, t);
    }
    *mapstr_at(x->macro, m->name) = m;
}

/* || of && of comparisons and negations: what the prelude's conditions are made of. */
typedef struct Cond { Expander *x; const Tok *t; int n, at; } Cond;
static bool cond_take(Cond *c, const char *s) { if (c->at < c->n && tok_is(&c->t[c->at], s)) { c->at++; return true; } return false; }
static bool cond_two(Cond *c, const char *s) { if (c->at + 1 < c->n && tok_is(&c->t[c->at], s) && tok_is(&c->t[c->at + 1], s)) { c->at += 2; return true; } return false; }
static long cond_or(Cond *c);
static long cond_atom(Cond *c)
{
    if (cond_take(c, "!")) return !cond_atom(c);
    if (cond_take(c, "(")) { long v = cond_or(c); cond_take(c, ")"); return v; }
    if (c->at >= c->n) fail(c->x->cx, E_FORMAT, "the prelude: a condition ends early");
    if (cond_take(c, "defined")) {
        bool paren = cond_take(c, "(");
        long v = mapstr_get(c->x->macro, tok_str(c->x->a, &c->t[c->at++])) != NULL;
        if (paren) cond_take(c, ")");
        return v;
    }
    const Tok *t = &c->t[c->at++];
    if (t->kind == 'n') return strtol(t->s, NULL, 0);
    Macro *m = mapstr_get(c->x->macro, tok_str(c->x->a, t));
    return m && m->body.n == 1 ? strtol(m->body.at[0].s, NULL, 0) : 0;
}
static long cond_compare(Cond *c)
{
    long v = cond_atom(c);
    if (cond_two(c, "=")) return v == cond_atom(c);
    bool more = cond_take(c, ">"), less = !more && cond_take(c, "<");
    if (!more && !less) return v;
    bool equal = cond_take(c, "=");
    long w = cond_atom(c);
    return more ? equal ? v >= w : v > w : equal ? v <= w : v < w;
}
static long cond_and(Cond *c) { long v = cond_compare(c); while (cond_two(c, "&")) { long w = cond_compare(c); v = v && w; } return v; }
static long cond_or(Cond *c) { long v = cond_and(c); while (cond_two(c, "|")) { long w = cond_and(c); v = v || w; } return v; }

static bool condition_holds(Expander *x, const char *s)
{
    Toks v = { 0 };
    Tok t;
    for (s = tok_next(s, &t); t.n; s = tok_next(s, &t)) vec_push(x->a, &v, t);
    Cond c = { x, v.at, v.n, 0 };
    return cond_or(&c) != 0;
}

static bool word_at(const char *s, const char *word, const char **rest)
{
    size_t n = strlen(word);
    if (strncmp(s, word, n) || isalnum((unsigned char)s[n])) return false;
    *rest = s + n;
    return true;
}

static const char *without_comments(Arena *a, const char *s)
{
    Text t = { .arena = a };
    for (const char *at; (at = strstr(s, "/*")); s = strstr(at, "*/") + 2) text_put(&t, s, (size_t)(at - s));
    text_add(&t, "%s", s);
    return t.at;
}

/* All lines of a text: directives are obeyed, the rest is expanded. */
static void preprocess(Expander *x, const char *text, Toks *out)
{
    text = without_comments(x->a, text);
    struct { bool on, done; } level[32] = { { 0 } };        /* on: lines count; done: a branch was taken */
    int depth = 0;
    Toks run = { 0 };
    for (const char *s = text; *s;) {
        const char *e = s, *rest;
        while (*e && (*e != '\n' || (e > s && e[-1] == '\\'))) e++;
        char *line = arena_alloc(x->a, (size_t)(e - s) + 1);
        memcpy(line, s, (size_t)(e - s));
        s = *e ? e + 1 : e;
        bool on = !depth || level[depth - 1].on;
        const char *d = line + strspn(line, " ");
        if (*d != '#') {
            if (!on) continue;
            Tok t;
            bool first = true;
            for (const char *q = tok_next(line, &t); t.n; q = tok_next(q, &t), first = false) {
                if (first) t.ws = "\n", t.nws = 1;
                vec_push(x->a, &run, t);
            }
            continue;
        }
        expand_into(x, run.at, run.n, out);
        run.n = 0;
        d++;
        if (word_at(d, "if", &rest) || word_at(d, "ifdef", &rest) || word_at(d, "ifndef", &rest)) {
            if (depth == 32) fail(x->cx, E_FORMAT, "the prelude: conditions too deep");
            bool is = false;
            if (on) is = d[2] == ' ' ? condition_holds(x, rest) : condition_holds(x, arena_fmt(x->a, "%sdefined %s", d[2] == 'n' ? "!" : "", rest));
            level[depth].on = on && is;
            level[depth++].done = is || !on;
        } else if (word_at(d, "elif", &rest) || word_at(d, "else", &rest)) {
            if (!depth) fail(x->cx, E_FORMAT, "the prelude: #else without #if");
            bool is = !level[depth - 1].done && (d[2] == 's' || condition_holds(x, rest));
            level[depth - 1].on = is;
            level[depth - 1].done |= is;
        } else if (word_at(d, "endif", &rest)) depth--;
        else if (on && word_at(d, "define", &rest)) define(x, rest);
        else if (on && word_at(d, "undef", &rest)) { Tok t; tok_next(rest, &t); *mapstr_at(x->macro, tok_str(x->a, &t)) = NULL; }
    }
    expand_into(x, run.at, run.n, out);
}

/* ---- items ------------------------------------------------------------------------------------------------------------------------------- */
static bool item_names(const Item *it, int i, bool type)
{
    const Tok *t = it->tok.at;
    if (t[i].kind != 'i' || tok_is(&t[i], "__attribute__")) return false;
    if (!type) return i + 1 < it->tok.n && tok_is(&t[i + 1], "(");
    int depth = 0;
    for (int j = 0; j < i; j++) depth += strchr("({", t[j].s[0]) ? 1 : strchr(")}", t[j].s[0]) ? -1 : 0;
    return depth == 0;
}

static void item_finish(Expander *x, Item *it, Items *out)
{
    bool type = tok_is(&it->tok.at[0], "typedef"), set = tok_is(&it->tok.at[0], "enum");
    if (it->tok.n == 1) return;         /* a lone semicolon */
    for (int i = 1; i < it->tok.n && (!it->name || type); i++) {
        if (tok_is(&it->tok.at[i], "__attribute__") && !type) {      /* over its parentheses */
            int depth = 0;
            do { i++; depth += tok_is(&it->tok.at[i], "(") ? 1 : tok_is(&it->tok.at[i], ")") ? -1 : 0; } while (depth);
            continue;
        }
        if (item_names(it, i, type || set) || (set && it->tok.at[i].kind == 'i')) it->name = tok_str(x->a, &it->tok.at[i]);
    }
    if (!it->name) {
        Text t = { .arena = x->a };
        for (int i = 0; i < it->tok.n && i < 12; i++) text_add(&t, " %.*s", it->tok.at[i].n, it->tok.at[i].s);
        fail(x->cx, E_FORMAT, "the prelude: an item without a name:%s", t.at);
    }
    bool plain = type;                  /* f32 and its like, which the file has anyway */
    for (int i = 0; i < it->tok.n; i++) plain = plain && !tok_is(&it->tok.at[i], "(") && !tok_is(&it->tok.at[i], "{");
    it->common = plain;
    it->libm = plain || (!type && !set && tok_is(&it->tok.at[it->tok.n - 1], ";"));
    vec_push(x->a, out, *it);
}

static void split(Expander *x, const Toks *t, Items *out)
{
    Item it = { 0 };
    int depth = 0;
    for (int i = 0; i < t->n; i++) {
        vec_push(x->a, &it.tok, t->at[i]);
        char c = t->at[i].s[0];
        depth += strchr("({", c) && t->at[i].kind == 'p' ? 1 : strchr(")}", c) && t->at[i].kind == 'p' ? -1 : 0;
        bool holds = tok_is(&it.tok.at[0], "typedef") || tok_is(&it.tok.at[0], "enum");
        if (depth || !(c == ';' || (c == '}' && !holds))) continue;
        item_finish(x, &it, out);
        it = (Item){ 0 };
    }
}

static Item *item_find(const Helpers *h, int side, const Tok *t) { return t->kind == 'i' ? mapstr_get(h->index[side], tok_str(h->a, t)) : NULL; }

static void item_use(Helpers *h, int side, Item *it)
{
    if (!it || it->used || it->common) return;
    it->used = true;
    for (int i = 0; i < it->tok.n; i++) item_use(h, side, item_find(h, side, &it->tok.at[i]));
}

/* By name; of an enum, by the names of its values. An earlier declaration of the same name stays. */
static void index_items(Helpers *h, int side)
{
    Items *v = &h->of[side];
    h->index[side] = mapstr_new(h->a);
    for (int i = 0; i < v->n; i++) {
        Item *it = &v->at[i];
        bool set = tok_is(&it->tok.at[0], "enum");
        for (int j = 0; set && j < it->tok.n; j++) if (j && it->tok.at[j].kind == 'i') *mapstr_at(h->index[side], tok_str(h->a, &it->tok.at[j])) = it;
        void **at = mapstr_at(h->index[side], it->name);
        if (!*at) *at = it;
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------------------- */
static void expander_init(Helpers *h, Expander *x, const char *macros, bool clang, const char *prelude)
{
    *x = (Expander){ h->cx, h->a, mapstr_new(h->a) };
    for (const char *s = macros; *s;) {
        size_t n = strcspn(s, " ");
        define(x, arena_fmt(h->a, "%.*s 1", (int)n, s));
        s += n + (s[n] == ' ');
    }
    if (clang) define(x, "__clang__ 1");
    Toks t = { 0 };
    preprocess(x, prelude, &t);
    *mapstr_at(x->macro, "UNROLL") = NULL;
    split(x, &t, &h->of[clang]);
    index_items(h, clang);
}

Helpers *gen_c_helpers(Ctx *cx, Arena *a, const char *isa, const char *suffix)
{
    Helpers *h = NEW(a, Helpers);
    h->cx = cx; h->a = a; h->suffix = suffix;
    const IsaInfo *set = isa_find(isa);
    Text p = { .arena = a };
    for (const char *s = gen_c_prelude(a, isa); *s;) {     /* UNROLL stays a macro */
        const char *e = strchr(s, '\n');
        size_t n = e ? (size_t)(e - s) + 1 : strlen(s);
        if (strncmp(s, "#define UNROLL", 14)) text_put(&p, s, n);
        s += n;
    }
    if (set->features[0]) { h->target = set->features; h->attribute = arena_fmt(a, "TARGET%s ", suffix); }
    expander_init(h, &h->gnu, set->macros, false, p.at);
    expander_init(h, &h->clang, set->macros, true, p.at);
    return h;
}

static void put_tokens(Helpers *h, Text *t, const Toks *v, bool keep_lines)
{
    for (int i = 0; i < v->n; i++) {
        const Tok *k = &v->at[i];
        if (keep_lines) text_put(t, k->ws, (size_t)k->nws);
        else if (k->nws && i) text_put(t, " ", 1);
        text_put(t, k->s, (size_t)k->n);
        if (!h->suffix[0] || k->kind != 'i') continue;
        const Item *it = item_find(h, 0, k);
        if (!it) it = item_find(h, 1, k);
        if (it && !it->libm) text_add(t, "%s", h->suffix);
    }
}

Helpers *gen_c_helpers_of(Ctx *cx, Arena *a, const char *text)
{
    Helpers *h = NEW(a, Helpers);
    h->cx = cx; h->a = a; h->suffix = "";
    expander_init(h, &h->gnu, "", false, text);
    expander_init(h, &h->clang, "", true, text);
    return h;
}

const char *gen_c_standalone(Helpers *h, const char *code)
{
    Toks v = { 0 }, out = { 0 };
    Tok t;
    for (const char *s = tok_next(code, &t); t.n; s = tok_next(s, &t)) {
        vec_push(h->a, &v, t);
    }
    expand_into(&h->gnu, v.at, v.n, &out);
    for (int i = 0; i < out.n; i++)
        for (int c = 0; c < 2; c++) item_use(h, c, item_find(h, c, &out.at[i]));
    Text r = { .arena = h->a };
    text_add(&r, "%s", h->attribute ? h->attribute : "");
    put_tokens(h, &r, &out, true);
    return r.at;
}

static void put_item(Helpers *h, Text *t, const Item *it)
{
    if (h->attribute && tok_is(&it->tok.at[0], "static")) text_add(t, "%s", h->attribute);
    put_tokens(h, t, &it->tok, false);
    text_add(t, "\n");
}

static const char *item_text(Helpers *h, const Item *it) { Text t = { .arena = h->a }; put_item(h, &t, it); return t.at; }

void gen_c_helpers_print(Helpers *h, Text *t)
{
    Items *g = &h->of[0], *c = &h->of[1];
    int j = 0, open = 0;                /* 1: in clang's part, 2: in the other's */
    if (h->target)
        text_add(t, "#define TARGET%s __attribute__((target(\"%s\")))\n", h->suffix, h->target);
#define SIDE(want) do { if (open != (want)) { text_add(t, "%s", open && (want) ? "#else\n" : open ? "#endif\n" : (want) == 1 ? "#ifdef __clang__\n" : "#ifndef __clang__\n"); open = (want); } } while (0)
    for (int i = 0; i <= g->n; i++) {
        if (i < g->n && !g->at[i].used) continue;
        int k = c->n;
        if (i < g->n) for (k = j; k < c->n && (!c->at[k].used || strcmp(c->at[k].name, g->at[i].name)); k++) {}
        bool both = k < c->n && !strcmp(item_text(h, &c->at[k]), item_text(h, &g->at[i]));
        if (k < c->n || i == g->n)
            for (; j < k + (k < c->n && !both); j++) if (c->at[j].used) { if (open == 2) SIDE(0); SIDE(1); put_item(h, t, &c->at[j]); }
        if (i == g->n) break;
        if (both) { SIDE(0); put_item(h, t, &g->at[i]); j = k + 1; continue; }
        SIDE(2);
        put_item(h, t, &g->at[i]);
    }
    SIDE(0);
#undef SIDE
}

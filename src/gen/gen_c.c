/* The CPU's dialect: GNU C with vector types. A function in the calling convention of rt.h, and the prelude that kernels are written in.
 *
 * The prelude's texts lie in prelude/ and are put in at build time. math and casts are templates: "@" becomes "" for single values and "v" for vectors. */
#include "gen/gen.h"

#include <stdio.h>

#include <string.h>

#include "gen/prelude.h"                 /* made from the files of prelude: static const char prelude_NAME[] */

Vectors gen_c_vectors(const char *isa)
{
    const IsaInfo *i = isa_find(isa);
    return (Vectors){ .lanes = i->lanes, .dots = i->dots };
}

static void template_put(Text *t, const char *s, const char *with)
{
    for (const char *at; (at = strchr(s, '@')); s = at + 1) {
        text_put(t, s, (size_t)(at - s));
        text_put(t, with, strlen(with));
    }
    text_put(t, s, strlen(s));
}

const char *gen_c_prelude(Arena *a, const char *isa)
{
    int n = gen_c_vectors(isa).lanes;
    Text t = { .arena = a };
    text_add(&t, "#define LANES %d\n#define IS_SIMT 0\n#define IS_VECTOR 0\n#define IS_VECTORv 1\n", n);
    text_put(&t, prelude_types, strlen(prelude_types));
    text_put(&t, prelude_helpers, strlen(prelude_helpers));
    text_put(&t, prelude_scalar, strlen(prelude_scalar));
    template_put(&t, prelude_math, "");
    template_put(&t, prelude_casts, "");
    if (n > 1) {
        text_add(&t, "#undef EACH1\n#undef EACH2\n#undef EACH_TO\n");
        text_put(&t, prelude_vector, strlen(prelude_vector));
        template_put(&t, prelude_math, "v");
        template_put(&t, prelude_casts, "v");
        text_put(&t, prelude_folds, strlen(prelude_folds));
        if (gen_c_vectors(isa).dots & DOT_tiles) {
            text_add(&t, "enum { UNIT_STEPS = %d };\n", UNIT_STEPS);
            text_put(&t, prelude_units, strlen(prelude_units));
        }
    }
    return t.at;
}

const char *gen_storage(DType t)
{
    switch (t) {
    case DT_bool: case DT_u4: case DT_u2: return "u8";
    case DT_f16: case DT_bf16: return "u16";
    case DT_i4: case DT_i2: return "i8";
    default: return dtype_is_float(t) && dtype_size(t) == 1 ? "u8" : dtype_info[t].name;
    }
}

void gen_head(Text *t, const LoopKernel *k, const char *form)
{
    static const char *const kind[SUB_COUNT] = { "elementwise", "rows", "contraction", "cascaded reductions", "running fold", "scatter", "call" };
    const Graph *g = k->g;
    text_add(t, "/* %s", kind[k->sub->kind]);
    int last = -1, n = 0;
    for (int i = 0; i < k->sub->nnode; i++) {
        const Origin *o = &g->origin.at[k->sub->node[i]->origin];
        if (k->sub->node[i]->origin == last || !o->op) continue;
        last = k->sub->node[i]->origin;
        text_add(t, "%s%s", n++ ? ", " : ": ", o->op);
        if (n > 40) { text_add(t, ", ..."); break; }
    }
    if (form) text_add(t, "\n * %s", form);
    text_add(t, " */\n");
}

/* The loop over the points of [lo, hi): their coordinates are counted on, not divided out each time. */
static void print_points(Printer *p, const LoopKernel *k)
{
    const char *count[MAX_RANK + 1], *limit[MAX_RANK + 1];
    int n = k->npar;
    if (k->late) print_late_declare(p);
    if (n > 1) print_line(p, "i64 q = lo;");
    for (int i = n - 1; i >= 0 && n > 1; i--) {
        const KAxis *x = &k->par[i];
        count[i] = arena_fmt(p->arena, "c%d", i);
        limit[i] = print_arg(p, x->step == 1 ? x->extent : dim_ceildiv(k->g, x->extent, dim_const(k->g, x->step)));
        if (i) print_line(p, "i64 %s = q %% %s; q /= %s;", count[i], limit[i], limit[i]);
        else print_line(p, "i64 %s = q;", count[i]);
    }
    print_line(p, "for (i64 point = lo; point < hi; point++) {");
    for (int i = n - 1; i >= 0; i--) {
        const KAxis *x = &k->par[i];
        const char *name = print_var(p, x->var), *at = n > 1 ? count[i] : "point";
        if (x->var == k->vec_var || x->var == k->down_var) name = arena_fmt(p->arena, "%s0", name);
        const char *first = arena_fmt(p->arena, "%s%s", at, x->step == 1 ? "" : arena_fmt(p->arena, " * %lld", (long long)x->step));
        if (p->shifted && x->var == k->row_var) {
            print_line(p, "const i64 %sf = %s, %s = imin(%sf, %s - %d);", name, first, name, name, print_dim(p, x->extent), k->mr);
            continue;
        }
        print_line(p, "const i64 %s = %s;", name, first);
    }
    print_held_rows(p);
    if (k->bundle) print_bundle(p, k->body);
    else print_block(p, k->body);
    if (k->late) print_late_keep(p);
    for (int i = n - 1; i > 0; i--) print_line(p, "if (++%s == %s) {", count[i], limit[i]), print_line(p, "%s = 0;", count[i]);
    if (n > 1) print_line(p, "%s++;", count[0]);
    for (int i = n - 1; i > 0; i--) print_line(p, "}");
    print_line(p, "}");
    if (k->late) print_late_finish(p);
}

/* Rows that stay in registers, where they have as many vectors as was said, and others. */
static void print_held_points(Printer *p, const LoopKernel *k)
{
    const KLoop *row = NULL;
    for (int i = 0; !row; i++) if (k->body->stmt.at[i].kind == KS_loop) row = k->body->stmt.at[i].loop;
    print_line(p, "if (%s == %d * LANES) {", print_dim(p, row->extent), k->held);
    p->held = k->held;
    print_prepare(p);
    print_points(p, k);
    print_line(p, "}");
    print_line(p, "else {");
    p->held = 0;
    print_prepare(p);
    print_points(p, k);
    print_line(p, "}");
}

/* Is any sum added to in some turns of a loop only, or in others by another text? See gcc's flags in rt/compiler.c. */
static bool branches(const KBlock *b, bool inside)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KLoop *o = b->stmt.at[i].kind == KS_loop ? b->stmt.at[i].loop : NULL;
        if (o && (o->row_from || (o->split && inside) || branches(o->body, inside || (!o->vector && !loop_around(o))))) return true;
    }
    return false;
}

/* Are its sums of words, of which there are few? Then what a tile begins and ends with counts: products of bytes took 3 to 4 % longer with -O1. */
static bool sums_words(const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop ? sums_words(s->loop->body) : s->kind == KS_fold && s->fold->words > 0) return true;
    }
    return false;
}

void gen_c(Ctx *cx, Arena *a, const char *isa, const LoopKernel *k, KernelSource *out)
{
    (void)isa;
    Text body = { .arena = a }, t = { .arena = a };
    Printer p = { .cx = cx, .arena = a, .k = k, .g = k->g, .t = &body, .indent = 1, .nv = 1 };
    print_prepare(&p);
    p.shifted = tile_shifts(k);
    print_block(&p, k->top);
    if (k->unit) print_line(&p, "const u8 *unit_at = 0;\n    i64 unit_row = -1;\n    unit_open();");
    if (k->held) print_held_points(&p, k);
    else print_points(&p, k);
    if (k->unit) print_line(&p, "unit_close();");
    if (k->stream || k->held_past) print_line(&p, "fence();");
    text_add(&body, "}\n");

    out->buf = NEWS(a, int, k->buf.n + 1);
    out->nbuf = 0;
    text_add(&t, "(void *const *buf, const i64 *arg, void *scratch, i64 lo, i64 hi, i64 *err)\n{\n");
    for (int i = 0; i < k->buf.n; i++) {
        const KBuf *b = &k->buf.at[i];
        const char *ty = gen_storage(b->dt);
        if (b->scratch) {
            vec_push(a, &p.arg, kernel_scratch(k, i));
            text_add(&t, "    %s *%sb%d = (%s *)((u8 *)scratch + arg[%d]);\n", ty, b->twice ? "" : "const ", i, ty, p.arg.n - 1);
            if (!b->twice) continue;
            Dim *end = kernel_scratch(k, i + 1), *begin = kernel_scratch(k, i);
            vec_push(a, &p.arg, dim_add(k->g, begin, dim_div(k->g, dim_sub(k->g, end, begin), dim_const(k->g, 2))));
            text_add(&t, "    %s *b%d_late = (%s *)((u8 *)scratch + arg[%d]);\n", ty, i, ty, p.arg.n - 1);
        } else {
            text_add(&t, "    %s%s *const b%d = buf[%d];\n", b->write ? "" : "const ", ty, i, out->nbuf);
            out->buf[out->nbuf++] = i;
        }
    }
    for (int i = 0; i < p.arg.n; i++) text_add(&t, "    const i64 n%d = arg[%d];\n", i, i);
    text_put(&t, body.at, body.n);
    char name[40];
    snprintf(name, sizeof name, "k_%016llx", (unsigned long long)hash_bytes(t.at, t.n, 1));
    Text all = { .arena = a };
    gen_head(&all, k, k->mr > 1 ? arena_fmt(a, "tile of %d rows%s", k->mr, k->unit ? ", on the unit for tiles" : "") : NULL);
    size_t comment = all.n;
    text_add(&all, "void %s", name);
    text_put(&all, t.at, t.n);
    out->name = arena_str(a, name);
    out->text = all.at;
    out->code = all.at + comment;
    out->narg = p.arg.n; out->arg = p.arg.at;
    out->quick = k->sub->kind != SUB_rows && !sums_words(k->body) && !branches(k->body, false);     /* long rows of softmax took a tenth longer with -O1 */
    Dim *bytes = kernel_scratch(k, k->buf.n);
    out->scratch = dim_is(bytes, 0) ? NULL : bytes;
}

const Dialect dialect_c = { .name = "c", .vectors = gen_c_vectors, .prelude = gen_c_prelude, .print = gen_c };

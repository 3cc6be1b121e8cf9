/* What the dialects for groups of threads share: the frame of a kernel, and the prelude.
 *
 * A kernel gets its buffers, its numbers, the number of points, scratch and error words (rt.h). By points, thread t of group g takes point g * threads + t and
 * goes on by the number of all threads; a team takes point g together and goes on by the number of groups. So any number of groups is right. */
#include "gen/gen.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "gen/prelude.h"                 /* made from the files of prelude */

/* Copies a prelude text: templates for single values, and numbers of 64 bits in the form that all dialects know (1l for 1ll, which OpenCL reserves). */
static void prelude_put(Text *t, const char *s)
{
    while (*s) {
        size_t n = 0;
        if (*s == '@') { s++; continue; }
        if (isalnum((unsigned char)*s) || *s == '_') while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
        else n = 1;
        size_t keep = n > 2 && isdigit((unsigned char)s[0]) && s[n - 1] == 'l' && s[n - 2] == 'l' ? n - 1 : n;
        text_put(t, s, keep);
        s += n;
    }
}

const char *gen_simt_prelude(Arena *a, const char *own)
{
    Text t = { .arena = a };
    text_put(&t, own, strlen(own));
    prelude_put(&t, prelude_simt);
    prelude_put(&t, prelude_helpers);
    prelude_put(&t, prelude_scalar);
    prelude_put(&t, prelude_math);
    prelude_put(&t, prelude_casts);
    prelude_put(&t, prelude_teams);
    return t.at;
}

void print_point(Printer *p)
{
    const LoopKernel *k = p->k;
    for (int i = k->npar - 1; i >= 0; i--) {
        const KAxis *x = &k->par[i];
        const char *step = x->step == 1 ? "" : arena_fmt(p->arena, " * %lld", (long long)x->step), *q = i == k->npar - 1 ? "point" : arena_fmt(p->arena, "q%d", i + 1);
        bool first = k->tile_var ? x->var == k->tile_var || i == k->npar - 1 : k->pack > 1 && (i == k->npar - 1 || (k->packs > 1 && i == k->npar - 2));     /* of several */
        const char *name = arena_fmt(p->arena, first ? "%s_0" : "%s", print_var(p, x->var));
        if (i) {
            const char *n = print_arg(p, x->step == 1 ? x->extent : dim_ceildiv(k->g, x->extent, dim_const(k->g, x->step)));
            print_line(p, "const i64 q%d = quot(%s, %s), %s = (%s - q%d * %s)%s;", i, q, n, name, q, i, n, step);
        } else print_line(p, "const i64 %s = %s%s;", name, q, step);
    }
}

/* The body for a tile: what is read across is read along into shared memory, and from there in the other order. names: gets the shared memory. */
static void print_tile(Printer *p, const LoopKernel *k, const SimtWords *w, Text *names)
{
    const Dim *row = k->tile_var, *col = k->par[k->npar - 1].var;
    const char *r = print_var(p, row), *c = print_var(p, col), *inside = arena_fmt(p->arena, "if (%s < %s && %s < %s) {", r, print_arg(p, row->a), c, print_arg(p, col->a));
    const int n = SIMT_TILE;
    print_line(p, "for (int e = thread; e < %d; e += %d) {", n * n, k->threads);
    print_line(p, "const i64 %s = %s_0 + e %% %d, %s = %s_0 + e / %d;", r, r, n, c, c, n);
    print_line(p, "%s", inside);
    for (int i = 0; i < k->body->stmt.n; i++) {
        const KStmt *s = &k->body->stmt.at[i];
        if (!simt_turned(k, s)) continue;
        text_add(names, "    %s%s r%d[%d][%d];\n", w->local, gen_storage(k->buf.at[s->val->buf].dt), p->pack.n, n, n + 1);
        print_line(p, "r%d[e / %d][e %% %d] = *(%s);", p->pack.n, n, n, print_place(p, s->val->buf, s->val->at.off));
        vec_push(p->arena, &p->pack, (const void *)s->val);
    }
    print_line(p, "}");
    print_line(p, "}");
    print_line(p, "BARRIER;");
    print_line(p, "for (int e = thread; e < %d; e += %d) {", n * n, k->threads);
    print_line(p, "const i64 %s = %s_0 + e / %d, %s = %s_0 + e %% %d;", r, r, n, c, c, n);
    print_line(p, "%s", inside);
    p->pack_place = arena_fmt(p->arena, "[e %% %d][e / %d]", n, n);
    print_block(p, k->body);
    print_line(p, "}");
    print_line(p, "}");
    print_line(p, "BARRIER;");
}

/* May a result of an elementwise kernel lie where it reads? */
static bool may_share(const LoopKernel *k, int in)
{
    for (int o = 0; o < k->buf.n && k->sub->kind == SUB_map; o++)
        if (k->buf.at[o].write && !k->buf.at[o].scratch && kernel_may_alias(k, in, o)) return true;
    return false;
}

void simt_frame(Printer *p, const SimtWords *w, const SimtFrame *f, KernelSource *out)
{
    Arena *a = p->arena;
    const LoopKernel *k = p->k;
    Text t = { .arena = a };
    Dim *row = kernel_scratch(k, k->buf.n);
    bool scratch = f->scratch && !dim_is(row, 0), by_thread = f->each > 1;
    const char *room = scratch ? print_arg(p, row) : NULL;
    Text params = { .arena = a }, names = { .arena = a };
    out->buf = NEWS(a, int, k->buf.n + 1);
    out->nbuf = 0;
    if (f->columns) text_add(&names, "    const int column = %s %% %d, thread = %s / %d;\n    %si64 columns[%d];\n    LOCAL i64 *const shared = columns + column * %d;\n", w->thread, f->columns,
        w->thread, f->columns, w->local, f->columns * (2 * k->team + 1), 2 * k->team + 1);
    else text_add(&names, "    const int thread = %s;\n%s", w->thread, f->names ? f->names : "");
    if (f->shared) text_add(&names, "    %si64 shared[%d];\n", w->local, f->shared);
    for (int i = 0; i < k->buf.n; i++) {
        const KBuf *b = &k->buf.at[i];
        const char *ty = gen_storage(b->dt), *held = b->write ? "" : "const ";
        if (b->scratch) {
            if (!scratch) continue;
            text_add(&names, "    %s%s *const b%d = (%s%s *)(scratch + %s%s * %s + %s);\n", w->global, ty, i, w->global, ty, w->group,
                by_thread ? arena_fmt(a, " * %d * %s + thread", f->threads, room) : "", room, print_arg(p, kernel_scratch(k, i)));
            continue;
        }
        if (w->objects) {
            text_add(&params, "%s%su8 *m%d, i64 o%d, ", w->global, held, i, i);
            text_add(&names, "    %s%s%s *const b%d = (%s%s%s *)(m%d + o%d);\n", w->global, held, ty, i, w->global, held, ty, i, i);
        } else text_add(&params, "%s%s *%sconst b%d, ", held, ty, b->write || may_share(k, i) ? "" : w->alone, i);
        out->buf[out->nbuf++] = i;
    }
    for (int i = 0; i < p->arg.n; i++) text_add(&params, "const i64 n%d, ", i);
    text_add(&t, "(%sconst i64 total, %su8 *scratch, ", params.at ? params.at : "", w->global);
    if (w->objects) text_add(&t, "%su8 *em, i64 eo)\n{\n    %si64 *const err = (%si64 *)(em + eo);\n", w->global, w->global, w->global);
    else text_add(&t, "i64 *const err)\n{\n");
    if (w->where) text_add(&t, "    %s\n", w->where);
    size_t inside = t.n;
    text_put(&t, names.at, names.n);
    text_put(&t, p->t->at, p->t->n);
    out->params = params.at ? params.at : "";
    out->inside = arena_str(a, t.at + inside);
    text_add(&t, "}\n");
    char name[40];
    snprintf(name, sizeof name, "k_%016llx", (unsigned long long)hash_bytes(t.at, t.n, (uint64_t)f->threads + (uint64_t)f->blocks * 4096 + (uint64_t)f->cluster * 65536 + ((uint64_t)f->quick << 32)));
    Text all = { .arena = a };
    gen_head(&all, k, f->form);
    size_t comment = all.n;
    text_add(&all, w->function, f->blocks > 0 && w->at_once ? arena_fmt(a, "%d, %d", f->threads, f->blocks) : arena_fmt(a, "%d", f->threads));
    if (f->cluster > 1) text_add(&all, " %s", arena_fmt(a, w->cluster, f->cluster));
    text_add(&all, " void %s", name);
    text_put(&all, t.at, t.n);
    out->name = arena_str(a, name);
    out->text = all.at;
    out->code = all.at + comment;
    out->narg = p->arg.n; out->arg = p->arg.at;
    out->scratch = !scratch ? NULL : by_thread ? dim_mulc(k->g, row, f->threads) : row;
    out->threads = f->threads;
    out->each = f->each;
    out->local = f->local ? dim_const(k->g, f->local) : NULL;
    out->resident = f->local > 0;
    out->cluster = f->cluster;
    out->quick = f->quick;
    out->checks = p->checks;
}

void gen_simt(Ctx *cx, Arena *a, const LoopKernel *k, const SimtWords *w, KernelSource *out)
{
    Text body = { .arena = a };
    Printer p = { .cx = cx, .arena = a, .k = k, .g = k->g, .t = &body, .indent = 1, .nv = 1, .simt = true };
    bool team = k->team > 1 || k->tile_var;     /* a group takes a point, or a tile */
    Text names = { .arena = a };
    print_prepare(&p);
    print_block(&p, k->top);
    int64_t each = k->columns ? k->columns : team ? 1 : k->threads;
    if (k->product) print_product(&p, k, w, &names), each = 1;
    else if (k->look) print_look(&p, k, w, &names), each = 1;
    else if (k->pack > 1) each = print_packs(&p, k, w);
    else if (k->columns) {
        print_line(&p, "for (i64 first = %s * %d; first < total; first += (i64)%s * %d) {", w->group, k->columns, w->groups, k->columns);
        print_line(&p, "const i64 point = imin(first + column, total - 1);");
        print_line(&p, "const int live = first + column < total;");
    } else if (team) print_line(&p, "for (i64 point = %s; point < total; point += %s) {", w->group, w->groups);
    else print_line(&p, "for (i64 point = %s * %d + thread; point < total; point += (i64)%s * %d) {", w->group, k->threads, w->groups, k->threads);
    if (k->pack <= 1 && !k->product && !k->look) {
        print_point(&p);
        if (k->tile_var) print_tile(&p, k, w, &names);
        else print_block(&p, k->body);
        print_line(&p, "}");
    }
    SimtFrame f = { .threads = k->threads, .each = each, .shared = k->look ? 2 * k->threads : k->team > 1 && !k->columns ? 2 * k->team : 0, .columns = k->columns, .scratch = true, .names = names.at,
        .blocks = k->product ? 1 : 0 };       /* or else registers are put away so that more groups may run at once */
    simt_frame(&p, w, &f, out);
    if (k->look) { out->common = look_state(k); out->resident = true; }
}

/* One kernel for many launches: horizontal fusion of kernels that do not need one another.
 *
 * The launches' groups stand one after the other in one range. A table has a row of words for each launch, in the order of the range: the first of its groups, which
 * text it runs, then what the launch would hand over: buffers, numbers, total. A group takes numbers of the range, its own and then every further one by the
 * number of groups; the row of the first is found by bisection, those of the others by going on from there. Texts are functions here; each is called for one
 * group of its launch at a time. */
#include "gen/gen.h"

#include <string.h>

int join_words(int n, const KernelSource *const *texts)
{
    int most = 0;
    for (int i = 0; i < n; i++) if (texts[i]->nbuf + texts[i]->narg > most) most = texts[i]->nbuf + texts[i]->narg;
    return JOIN_ARGS + most + 1;
}

void gen_join(Arena *a, const SimtWords *w, int n, const LoopKernel *const *k, const KernelSource *const *texts, KernelSource *out)
{
    const int words = join_words(n, texts), threads = texts[0]->threads;
    Text parts = { .arena = a }, calls = { .arena = a }, all = { .arena = a };
    uint64_t h = (uint64_t)threads;
    for (int i = 0; i < n; i++) h = hash_bytes(texts[i]->name, strlen(texts[i]->name), h);
    const char *name = arena_fmt(a, "k_%016llx", (unsigned long long)h);
    for (int i = 0; i < n; i++) {
        const KernelSource *s = texts[i];
        text_add(&parts, "FN void %s_%d(%sconst i64 total, const i64 group, const i64 groups)\n{\n%s}\n", name, i, s->params, s->inside);
        text_add(&calls, "        %sif (row[%d] == %d) %s_%d(", i ? "else " : "", JOIN_TEXT, i, name, i);
        for (int b = 0; b < s->nbuf; b++) {
            const KBuf *buf = &k[i]->buf.at[s->buf[b]];
            text_add(&calls, "(%s%s%s *)row[%d], ", w->global, buf->write ? "" : "const ", gen_storage(buf->dt), JOIN_ARGS + b);
        }
        for (int j = 0; j < s->narg; j++) text_add(&calls, "row[%d], ", JOIN_ARGS + s->nbuf + j);
        int total = JOIN_ARGS + s->nbuf + s->narg;
        text_add(&calls, "row[%d], turn - row[%d], row[%d]);\n", total, JOIN_FIRST, total);
    }
    text_add(&all, "%s", parts.at);
    text_add(&all, w->function, arena_fmt(a, "%d", threads));
    text_add(&all, " void %s(%sconst i64 *%sconst table, const i64 rows, const i64 total, %su8 *scratch, %si64 *const err)\n{\n    %s\n", name, w->global, w->alone, w->global, w->global, w->where);
    text_add(&all, "    i64 at = 0;\n"
        "    for (i64 end = rows; end - at > 1;) { const i64 middle = (at + end) / 2; if (table[middle * %d + %d] <= group) at = middle; else end = middle; }\n", words, JOIN_FIRST);
    text_add(&all, "    for (i64 turn = group; turn < total; turn += groups) {\n"
        "        while (at + 1 < rows && table[(at + 1) * %d + %d] <= turn) at++;\n        const i64 *const row = table + at * %d;\n%s    }\n}\n", words, JOIN_FIRST, words, calls.at);
    *out = (KernelSource){ .name = name, .text = arena_fmt(a, "/* %d kernels in one launch */\n%s", n, all.at), .code = all.at, .threads = threads, .each = 1, .resident = true };
}

/* rows.c: files in the form of the X-macro tables, read at run time.
 *
 *     row    NAME '(' field { ',' field } ')'
 *     field  "text" { "text" } | words up to the next ',' or ')'      a text has \" and \\; words lose the space around them
 *
 * Comments of C between rows and fields are skipped. What the fields mean is the caller's business: ir/rules.c and fuse/plan.c. */
#include "base/base.h"

#include <string.h>

typedef struct RowReader { Ctx *cx; Arena *a; const char *path, *at, *end; int line; } RowReader;

static _Noreturn void row_fail(RowReader *r, const char *wanted)
{
    int n = 0;
    while (r->at + n < r->end && n < 20 && r->at[n] != '\n') n++;
    fail(r->cx, E_FORMAT, "%s:%d: %s wanted, found \"%.*s\"", r->path, r->line, wanted, n, r->at);
}

static bool row_starts(const RowReader *r, const char *s) { return (size_t)(r->end - r->at) >= strlen(s) && !memcmp(r->at, s, strlen(s)); }

static void row_next(RowReader *r)
{
    if (*r->at == '\n') r->line++;
    r->at++;
}

static void row_space(RowReader *r)
{
    while (r->at < r->end) {
        if (row_starts(r, "//")) while (r->at < r->end && *r->at != '\n') row_next(r);
        else if (row_starts(r, "/*")) {
            int line = r->line;
            while (r->at < r->end && !row_starts(r, "*/")) row_next(r);
            if (r->at == r->end) fail(r->cx, E_FORMAT, "%s:%d: a comment without its end", r->path, line);
            r->at += 2;
        } else if (strchr(" \t\r\n", *r->at)) row_next(r);
        else return;
    }
}

static bool row_take(RowReader *r, char c)
{
    row_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool row_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

static const char *row_string(RowReader *r)
{
    Text t = { .arena = r->a };
    text_put(&t, "", 0);
    while (row_take(r, '"')) {
        while (r->at < r->end && *r->at != '"' && *r->at != '\n') {
            if (*r->at == '\\' && r->at + 1 < r->end) r->at++;
            text_put(&t, r->at++, 1);
        }
        if (r->at == r->end || *r->at != '"') row_fail(r, "the end of the text");
        r->at++;
    }
    return t.at;
}

static const char *row_words(RowReader *r)
{
    const char *from = r->at;
    while (r->at < r->end && *r->at != ',' && *r->at != ')' && *r->at != '\n') r->at++;
    const char *to = r->at;
    while (to > from && strchr(" \t\r", to[-1])) to--;
    char *s = arena_alloc(r->a, (size_t)(to - from) + 1);
    memcpy(s, from, (size_t)(to - from));
    return s;
}

int rows_read(Ctx *cx, Arena *a, const char *path, FileRow **out)
{
    VEC(FileRow) rows = { 0 };
    File f;
    char why[256];
    Status st = file_map(path, &f, why, sizeof why);
    if (st != E_OK) fail(cx, st, "%s: %s", path, why);
    char *text = arena_alloc(a, f.size + 1);          /* a copy: a jump out of here must leave nothing mapped */
    if (f.size) memcpy(text, f.data, f.size);
    file_unmap(&f);
    RowReader r = { cx, a, arena_str(a, path), text, text + strlen(text), 1 };
    for (row_space(&r); r.at < r.end; row_space(&r)) {
        FileRow row = { .line = r.line };
        const char *name = r.at;
        while (r.at < r.end && row_letter(*r.at)) r.at++;
        if (r.at == name) row_fail(&r, "the name of a row");
        row.name = arena_fmt(a, "%.*s", (int)(r.at - name), name);
        if (!row_take(&r, '(')) row_fail(&r, "'('");
        do {
            row_space(&r);
            if (row.n == ROW_FIELDS) row_fail(&r, "')'");
            if (r.at == r.end) row_fail(&r, "a field");
            row.field[row.n++] = *r.at == '"' ? row_string(&r) : row_words(&r);
        } while (row_take(&r, ','));
        if (!row_take(&r, ')')) row_fail(&r, "',' or ')'");
        vec_push(a, &rows, row);
    }
    *out = rows.at;
    return rows.n;
}

/* Failures: raised with fail(), caught by guard_call(), and the message that the user reads.
 *
 * What is being worked on is pushed on the way in (a Note on the C stack, no cost unless something fails), and
 * fail() puts the notes before its message, outermost first:
 *
 *     net.onnx: node 'conv1' (Conv): group 3 does not divide 64 channels */
#include "base/base.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *status_name(Status s)
{
    switch (s) {
#define ERR(name, value, text) case E_##name: return #name;
#include "base/errors.def"
#undef ERR
    }
    return "?";
}

void ctx_init(Ctx *cx)
{
    memset(cx, 0, sizeof *cx);
    options_default(&cx->opt);
}

/* Adds one note to the prefix. Names come from files: control characters would break the line, so they are masked. */
static void add_note(char *to, size_t size, const Note *n)
{
    size_t at = strlen(to), left = size - at;
    const char *what = n->what ? n->what : "", *name = n->name ? n->name : "";
    if (!strcmp(what, "file"))
        snprintf(to + at, left, "%s: ", name);
    else if (!strcmp(what, "node") && n->kind && *name)
        snprintf(to + at, left, "node '%s' (%s): ", name, n->kind);
    else if (!strcmp(what, "node") && n->kind)
        snprintf(to + at, left, "node (%s): ", n->kind);
    else
        snprintf(to + at, left, "%s '%s': ", what, name);
    for (char *c = to + at; *c; c++)
        if ((unsigned char)*c < 0x20)
            *c = '?';
}

/* Removes a UTF-8 character that a length limit has cut in two. */
static void trim_broken_utf8(char *s)
{
    size_t n = strlen(s), back = 0;
    while (back < n && back < 3 && ((unsigned char)s[n - 1 - back] & 0xC0) == 0x80)
        back++;
    if (back == n)
        return;
    unsigned char lead = (unsigned char)s[n - 1 - back];
    size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (want > back + 1)
        s[n - 1 - back] = 0;
}

static void compose(char *out, size_t size, const Note *notes, const char *message)
{
    char prefix[1024] = "";             /* shorter than `out`: the message itself is never what is lost */
    int depth = 0;
    for (const Note *n = notes; n; n = n->up)
        depth++;
    for (; depth > 0 && strlen(prefix) + 1 < sizeof prefix; depth--) {
        const Note *n = notes;
        for (int i = 1; i < depth; i++)
            n = n->up;
        add_note(prefix, sizeof prefix, n);
    }
    if (depth > 0 || strlen(prefix) + 1 == sizeof prefix)
        trim_broken_utf8(prefix);
    if ((size_t)snprintf(out, size, "%s%s", prefix, message) >= size)
        trim_broken_utf8(out);
}

void fail(Ctx *cx, Status code, const char *fmt, ...)
{
    char message[sizeof cx->text];      /* the arguments may point into cx->text */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (!cx || !cx->guard) {
        fprintf(stderr, "sinter: %s outside a guard: %s\n", status_name(code), message);
        abort();
    }
    cx->code = code;
    compose(cx->text, sizeof cx->text, cx->notes, message);
    longjmp(*cx->guard, 1);
}

void fail_again(Ctx *cx)
{
    ASSERT(cx->guard && cx->code != E_OK);
    longjmp(*cx->guard, 1);
}

Status guard_call(Ctx *cx, void (*fn)(Ctx *, void *), void *arg)
{
    jmp_buf here;
    jmp_buf *outer = cx->guard;         /* neither local changes after setjmp, so both survive the jump */
    Note *notes = cx->notes;
    cx->guard = &here;
    if (setjmp(here) == 0) {
        fn(cx, arg);
        cx->code = E_OK;
    }
    cx->guard = outer;
    cx->notes = notes;
    return cx->code;
}

void ctx_poll(Ctx *cx)
{
    if (cx->cancel && *cx->cancel)
        fail(cx, E_CANCELLED, "stopped on request");
}

void assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "%s:%d: sinter: broken invariant: %s\n", file, line, cond);
    abort();
}

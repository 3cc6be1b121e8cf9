/* What a unit needs of the prelude: compilers take a good part of a small kernel's time to read the rest.
 *
 * The prelude is cut into parts by lines of comment:
 *
 *     / *? NAME NAME... * /     what follows is left out where no name is used; NAME* stands for all that begin like it
 *     / *?* /                   what follows is always there
 *
 * A name is used by a kernel's text, or by a part that is there. A part may lie inside of an #if, never across its lines. */
#include <ctype.h>
#include <string.h>

#include "rt/rt.h"

typedef struct Part {
    const char *at, *end;
    bool there, seen;
} Part;

typedef struct Name {
    const char *at;
    int n, part, next;          /* of those that begin with the same letter; 0: none */
    bool begins;
} Name;

typedef struct Parts {
    Part *part;
    Name *name;
    int nparts, nnames, first[128];
} Parts;

static const char mark[] = "/*?";

/* From s on; a mark begins a line. */
static const char *next_mark(const char *prelude, const char *s)
{
    while ((s = strstr(s, mark)) && s > prelude && s[-1] != '\n')
        s++;
    return s;
}

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* What identifier does s begin with? Gives its length. */
static int word_length(const char *s)
{
    int n = 0;
    while (in_word(s[n]))
        n++;
    return n;
}

/* The parts of a text are those where all that it names is. */
static void names_seen(Parts *p, const char *s, const char *end)
{
    while (s < end) {
        if (s[0] == '/' && s[1] == '*') {
            const char *after = strstr(s, "*/");
            s = after ? after + 2 : end;
            continue;
        }
        const int n = word_length(s);
        for (int i = n ? p->first[s[0] & 127] : 0; i; i = p->name[i].next) {
            const Name *w = &p->name[i];
            if ((w->begins ? w->n <= n : w->n == n) && !memcmp(w->at, s, (size_t)w->n))
                p->part[w->part].there = true;
        }
        s += n ? n : 1;
    }
}

static void parts_find(Parts *p, const char *prelude)
{
    p->part[p->nparts++] = (Part){ .at = prelude, .there = true };
    for (const char *at = next_mark(prelude, prelude); at; at = next_mark(prelude, at + 1)) {
        const char *s = at + sizeof mark - 1, *end = at + strcspn(at, "\n");
        const int part = p->nparts++;
        p->part[part - 1].end = at;
        p->part[part] = (Part){ .at = *end ? end + 1 : end, .there = s[0] == '*' };
        for (; !p->part[part].there && s < end; s++) {
            const int n = word_length(s);
            if (!n)
                continue;
            int *first = &p->first[s[0] & 127];
            p->name[++p->nnames] = (Name){ .at = s, .n = n, .part = part, .next = *first, .begins = s[n] == '*' && s[n + 1] != '/' };
            *first = p->nnames;
            s += n;
        }
    }
    p->part[p->nparts - 1].end = prelude + strlen(prelude);
}

char *prelude_needed(const char *prelude, int n, const KernelText *const *k)
{
    int nparts = 1, nspaces = 0;
    for (const char *at = next_mark(prelude, prelude); at; at = next_mark(prelude, at + 1)) {
        nparts++;
        for (const char *s = at; *s && *s != '\n'; s++)
            nspaces += *s == ' ';
    }
    Parts p = { .part = block_alloc((size_t)nparts * sizeof *p.part),
                .name = block_alloc((size_t)(nspaces + 2) * sizeof *p.name) };
    char *out = block_alloc(strlen(prelude) + 1), *to = out;
    if (p.part && p.name && out) {
        parts_find(&p, prelude);
        for (int i = 0; i < n; i++)
            names_seen(&p, k[i]->text, k[i]->text + strlen(k[i]->text));
        for (bool more = true; more;) {
            more = false;
            for (int i = 0; i < p.nparts; i++) {
                Part *x = &p.part[i];
                if (!x->there || x->seen)
                    continue;
                x->seen = more = true;
                names_seen(&p, x->at, x->end);
            }
        }
        for (int i = 0; i < p.nparts; i++) {
            const size_t size = p.part[i].there ? (size_t)(p.part[i].end - p.part[i].at) : 0;
            memcpy(to, p.part[i].at, size);
            to += size;
        }
        *to = 0;
    } else {
        block_free(out);
        out = NULL;
    }
    block_free(p.part);
    block_free(p.name);
    return out;
}

/* Arenas: memory that is given back all at once. The only file that calls malloc.
 *
 * An arena is a list of chunks. Each chunk comes zeroed from calloc and is never used twice, so an allocation is a
 * bump of a pointer and its memory is already zero. Chunks double from 8 KiB to 1 MiB; a request larger than a
 * quarter of the next chunk gets one of its own behind the current chunk, whose rest stays in use.
 *
 * Under AddressSanitizer a chunk starts poisoned; an allocation unpoisons exactly its bytes and leaves a red zone
 * of 16 bytes after them, so that overruns inside an arena are found like those of malloc.
 *
 * The arena's own record lives at the start of its first chunk. */
#include "base/base.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif

#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define RED_ZONE 16
#define POISON(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define RED_ZONE 0
#define POISON(p, n) ((void)0)
#define UNPOISON(p, n) ((void)0)
#endif

enum { ALIGN = 16, FIRST_CHUNK = 8 << 10, LAST_CHUNK = 1 << 20, BLOCK_ALIGN = 64 };

typedef struct Chunk {
    struct Chunk *next;
    size_t size;                        /* bytes after this header */
} Chunk;

typedef struct Lent {                   /* a block of arena_block */
    struct Lent *next;
    void *p;
} Lent;

struct Arena {
    Ctx *cx;
    Lent *lent;
    Chunk *chunks;                      /* the current one first */
    char *at, *end;                     /* free part of the current chunk */
    size_t next_size, used;
};

_Static_assert(sizeof(Chunk) % ALIGN == 0, "what follows a chunk's header must stay aligned");

static size_t align_up(size_t n) { return (n + (ALIGN - 1)) & ~(size_t)(ALIGN - 1); }

static Chunk *chunk_new(size_t size)
{
    if (size > PTRDIFF_MAX - sizeof(Chunk))
        return NULL;
    Chunk *c = calloc(1, sizeof(Chunk) + size);
    if (c) {
        c->size = size;
        POISON(c + 1, size);
    }
    return c;
}

/* Counts an allocation; true if it is the one that opt.fail names. */
static bool must_fail(Ctx *cx)
{
    return cx && ++cx->allocs == cx->opt.fail;
}

_Noreturn static void no_memory(Ctx *cx, size_t n)
{
    fail(cx, E_NOMEM, "no memory for %zu bytes", n);
}

Arena *arena_new(Ctx *cx)
{
    Chunk *c = must_fail(cx) ? NULL : chunk_new(FIRST_CHUNK);
    if (!c)
        no_memory(cx, FIRST_CHUNK);
    size_t own = align_up(sizeof(Arena));
    UNPOISON(c + 1, own);
    Arena *a = (Arena *)(c + 1);
    a->cx = cx;
    a->chunks = c;
    a->at = (char *)a + own + RED_ZONE;
    a->end = (char *)a + c->size;
    a->next_size = 2 * FIRST_CHUNK;
    return a;
}

void arena_free(Arena *a)
{
    if (!a)
        return;
    for (Lent *l = a->lent; l; l = l->next)
        block_free(l->p);
    for (Chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        UNPOISON(c + 1, c->size);
        free(c);
    }
}

void arena_bind(Arena *a, Ctx *cx) { a->cx = cx; }

/* Room for `need` bytes that the current chunk does not have. */
static char *alloc_slow(Arena *a, size_t need)
{
    if (need > a->next_size / 4) {
        Chunk *c = chunk_new(need);
        if (!c)
            return NULL;
        c->next = a->chunks->next;
        a->chunks->next = c;
        return (char *)(c + 1);
    }
    Chunk *c = chunk_new(a->next_size);
    if (!c)
        return NULL;
    if (a->next_size < LAST_CHUNK)
        a->next_size *= 2;
    c->next = a->chunks;
    a->chunks = c;
    a->at = (char *)(c + 1) + need;
    a->end = (char *)(c + 1) + c->size;
    return (char *)(c + 1);
}

void *arena_alloc(Arena *a, size_t n)
{
    if (must_fail(a->cx) || n > PTRDIFF_MAX - LAST_CHUNK)
        no_memory(a->cx, n);
    size_t need = align_up(n ? n : 1) + RED_ZONE;
    char *p = a->at;
    if (need <= (size_t)(a->end - p))
        a->at = p + need;
    else if (!(p = alloc_slow(a, need)))
        no_memory(a->cx, n);
    UNPOISON(p, n);
    a->used += n;
    return p;
}

size_t size_mul(Arena *a, size_t x, size_t y)
{
    if (y && x > SIZE_MAX / y)
        fail(a->cx, E_NOMEM, "no memory for %zu times %zu bytes", x, y);
    return x * y;
}

void *arena_copy(Arena *a, const void *p, size_t n)
{
    void *copy = arena_alloc(a, n);
    if (n)
        memcpy(copy, p, n);
    return copy;
}

char *arena_str(Arena *a, const char *s) { return arena_copy(a, s, strlen(s) + 1); }

char *arena_fmt(Arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    char *s = arena_alloc(a, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

size_t arena_used(const Arena *a) { return a->used; }

void *block_alloc(size_t n)
{
    if (n > PTRDIFF_MAX - BLOCK_ALIGN)
        return NULL;
    size_t whole = n ? (n + (BLOCK_ALIGN - 1)) & ~(size_t)(BLOCK_ALIGN - 1) : BLOCK_ALIGN;
    return aligned_alloc(BLOCK_ALIGN, whole);
}

void block_free(void *p) { free(p); }

void *arena_block(Arena *a, size_t n)
{
    Lent *l = NEW(a, Lent);
    l->p = must_fail(a->cx) ? NULL : block_alloc(n);
    if (!l->p)
        no_memory(a->cx, n);
    l->next = a->lent;
    a->lent = l;
    return l->p;
}

bool arena_give(Arena *a, const void *p)
{
    for (Lent **at = &a->lent; *at; at = &(*at)->next)
        if ((*at)->p == p) {
            *at = (*at)->next;
            return true;
        }
    return false;
}

/* *at is some T *: read and written as bytes, since an access through void ** would break the aliasing rules. */
void vec_grow(Arena *a, void **at, int n, int *cap, size_t size)
{
    if (n < *cap)
        return;
    if (*cap > INT_MAX / 2)
        fail(a->cx, E_NOMEM, "no memory for an array of more than %d elements", *cap);
    int more = *cap ? 2 * *cap : 8;
    void *old, *grown = arena_alloc(a, size_mul(a, (size_t)more, size));
    memcpy(&old, at, sizeof old);
    if (n)
        memcpy(grown, old, (size_t)n * size);
    memcpy(at, &grown, sizeof grown);
    *cap = more;
}

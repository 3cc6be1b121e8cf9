/* A hash map from strings to pointers, in an arena.
 *
 * Open addressing over a table of pointers to entries, a power of two and at most 3/4 full. Entries never move, so a
 * slot that mapstr_at returned stays valid while the map grows. There is no removal and no iteration: what must be
 * visited in order is kept in a VEC beside the map, so that no output depends on hashes. */
#include "base/base.h"
#include <string.h>
#define XXH_INLINE_ALL                  /* no library to link: only XXH64 is used */
#include <xxhash.h>

typedef struct Entry {
    uint64_t hash;
    const char *key;
    void *value;
} Entry;

struct MapStr {
    Arena *arena;
    Entry **table;
    size_t size, n;
};

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
    return XXH64(n ? p : "", n, seed);
}

MapStr *mapstr_new(Arena *a)
{
    MapStr *m = NEW(a, MapStr);
    m->arena = a;
    m->size = 16;
    m->table = NEWS(a, Entry *, m->size);
    return m;
}

/* Where the key is, or the free place where it belongs. */
static Entry **find_entry(const MapStr *m, const char *key, uint64_t hash)
{
    size_t i = hash & (m->size - 1);
    while (m->table[i] && (m->table[i]->hash != hash || strcmp(m->table[i]->key, key)))
        i = (i + 1) & (m->size - 1);
    return &m->table[i];
}

static void grow_table(MapStr *m)
{
    size_t size = 2 * m->size;
    Entry **table = NEWS(m->arena, Entry *, size);
    for (size_t i = 0; i < m->size; i++) {
        Entry *e = m->table[i];
        if (!e)
            continue;
        size_t j = e->hash & (size - 1);
        while (table[j])
            j = (j + 1) & (size - 1);
        table[j] = e;
    }
    m->table = table;
    m->size = size;
}

void **mapstr_at(MapStr *m, const char *key)
{
    uint64_t hash = hash_bytes(key, strlen(key), 0);
    Entry **at = find_entry(m, key, hash);
    if (*at)
        return &(*at)->value;
    Entry *e = NEW(m->arena, Entry);
    e->hash = hash;
    e->key = arena_str(m->arena, key);
    if (4 * (m->n + 1) > 3 * m->size) {
        grow_table(m);
        at = find_entry(m, key, hash);
    }
    *at = e;
    m->n++;
    return &e->value;
}

void *mapstr_get(const MapStr *m, const char *key)
{
    Entry *e = *find_entry(m, key, hash_bytes(key, strlen(key), 0));
    return e ? e->value : NULL;
}

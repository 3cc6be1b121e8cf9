/* Where the arena's buffers live: an offset for each, such that buffers alive at the same time do not overlap. The sizes are numbers here (a
 * program places its buffers anew for each set of sizes). Method: larger buffers first, each at the lowest gap among the placed ones it meets in time
 * (first fit by decreasing size, as in M. Pisarchyk and J. Lee, "Efficient memory management for deep neural net inference", 2020). */
#include "fuse/fuse.h"

#include <stdlib.h>

static int by_size(const void *x, const void *y)
{
    const MemBuf *const *a = x, *const *b = y;
    if ((*a)->bytes != (*b)->bytes) return (*a)->bytes < (*b)->bytes ? 1 : -1;
    return *a < *b ? -1 : *a > *b;
}

static int64_t round64(int64_t n) { return (n + 63) & ~(int64_t)63; }

int64_t memory_place(Arena *scratch, int n, MemBuf *b)
{
    MemBuf **order = NEWS(scratch, MemBuf *, n + 1), **placed = NEWS(scratch, MemBuf *, n + 1);
    int m = 0, np = 0;
    int64_t top = 0;
    /* a buffer that takes over another's memory extends that one's life */
    for (int i = n - 1; i >= 0; i--)
        if (b[i].may_share >= 0) {
            MemBuf *root = &b[b[i].may_share];
            if (b[i].last > root->last) root->last = b[i].last;
        }
    for (int i = 0; i < n; i++) if (b[i].may_share < 0) order[m++] = &b[i];
    qsort(order, (size_t)m, sizeof *order, by_size);
    for (int i = 0; i < m; i++) {
        MemBuf *x = order[i];
        int64_t at = 0, need = round64(x->bytes);
        for (int k = 0; k < np; k++) {               /* placed is sorted by offset */
            MemBuf *y = placed[k];
            if (y->first > x->last || y->last < x->first || !y->bytes) continue;
            if (y->offset >= at + need) break;
            if (y->offset + round64(y->bytes) > at) at = y->offset + round64(y->bytes);
        }
        x->offset = at;
        if (at + need > top) top = at + need;
        int k = np++;
        for (; k > 0 && placed[k - 1]->offset > at; k--) placed[k] = placed[k - 1];
        placed[k] = x;
    }
    for (int i = 0; i < n; i++) if (b[i].may_share >= 0) b[i].offset = b[b[i].may_share].offset;
    return top;
}

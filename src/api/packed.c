/* Constants in the forms that contractions want: axes in another order, in panels of so many columns, several terms to a word (KBuf).
 *
 * A packed constant is a matrix with its last axis along the lanes. Two walks, over the axes before and behind it in the constant, go through its rows;
 * of each run of neighbours as much is copied at once as a panel holds. Each form is made once for a segment and kept with it. */
#include "api/segment.h"

#include <string.h>

static bool same_form(const Packed *p, const KBuf *b, int64_t width)
{
    return p->node == b->node && p->form->panel == b->panel && p->width == width && p->form->words == b->words && p->form->rows == b->rows && !memcmp(p->form->order, b->order, (size_t)b->node->rank);
}

/* A walk over the indices of the axes [from, to) of a constant: `at` is where the present one lies among the rows of a packed matrix, which are `len` long. */
typedef struct PackWalk { int from, to; int64_t size[MAX_RANK], step[MAX_RANK], index[MAX_RANK], at; } PackWalk;

static void pack_next(PackWalk *w)
{
    for (int k = w->to - 1; k >= w->from; k--) {
        w->at += w->step[k];
        if (++w->index[k] < w->size[k]) return;
        w->at -= w->step[k] * w->size[k];
        w->index[k] = 0;
    }
}

/* n elements, from each `from_step` behind the one before to each `to_step` behind it. */
static void pack_run(size_t size, int64_t n, uint8_t *to, int64_t to_step, const uint8_t *from, int64_t from_step)
{
    if (to_step == 1 && from_step == 1) { memcpy(to, from, (size_t)n * size); return; }
    for (int64_t j = 0; j < n; j++) {
        uint8_t *t = to + (size_t)(j * to_step) * size;
        const uint8_t *f = from + (size_t)(j * from_step) * size;
        if (size == 4) memcpy(t, f, 4);
        else if (size == 1) *t = *f;
        else memcpy(t, f, size);
    }
}

enum { PACK_BLOCK = 64 };               /* neighbours along the last axis that are copied at a time: their lines stay near while the inner axes go by */

/* A constant in the form that a kernel wants (KBuf.order, panel, width); each such form is made once for a segment. */
const void *packed_data(Segment *s, const KBuf *b, size_t *bytes)
{
    const Node *n = b->node;
    int axis = b->order[n->rank - 1];
    int64_t width = b->panel ? dim_eval(b->width, NULL, NULL) : 0;
    for (Packed *p = s->packed; p; p = p->next)
        if (same_form(p, b, width)) {
            if (bytes) *bytes = p->bytes;
            return p->data;
        }
    PackWalk out = { .to = axis }, in = { .from = axis + 1, .to = n->rank };
    int64_t outer = 1, inner = 1, len = dim_eval(n->dims[axis], NULL, NULL), step = len;
    for (int j = n->rank - 2; j >= 0; j--) {
        int k = b->order[j];
        PackWalk *w = k < axis ? &out : &in;
        w->size[k] = dim_eval(n->dims[k], NULL, NULL);
        w->step[k] = step;
        step *= w->size[k];
        *(k < axis ? &outer : &inner) *= w->size[k];
    }
    size_t size = dtype_size(n->dt);
    int64_t terms = b->words ? b->words : 1, panel = b->panel;
    int64_t count = outer * inner * len, rows = b->rows ? b->rows : width ? count / width : 0, whole = width ? rows * ((width + panel - 1) / panel) * panel : count;
    const uint8_t *from = s->fixed[n->id] ? s->fixed[n->id] : n->tensor->data;
    uint8_t *to = block_alloc((size_t)whole * size + 1);
    if (!to) return NULL;
    memory_huge(to, (size_t)whole * size);
    if (whole > count) memset(to, 0, (size_t)whole * size);
    for (int64_t o = 0; o < outer; o++, pack_next(&out))
        for (int64_t l0 = 0, l1; l0 < len; l0 = l1) {
            l1 = len - l0 < PACK_BLOCK ? len : l0 + PACK_BLOCK;
            for (int64_t i = 0; i < inner; i++, pack_next(&in))      /* which ends where it began */
                for (int64_t l = l0, most; l < l1; l += most) {      /* as far as a panel goes */
                    int64_t at = out.at + in.at + l;
                    most = l1 - l;
                    if (width) {
                        int64_t row = at / width, e = at % width, within = e % panel, left = panel - within < width - e ? panel - within : width - e;
                        if (most > left) most = left;
                        at = (e - within) * rows + row / terms * terms * panel + within * terms + row % terms;
                    }
                    pack_run(size, most, to + (size_t)at * size, terms, from + (size_t)((o * len + l) * inner + i) * size, inner);
                }
        }
    Packed *p = NEW(s->arena, Packed);
    *p = (Packed){ s->packed, n, b, width, (size_t)whole * size, to };
    s->packed = p;
    if (bytes) *bytes = p->bytes;
    return to;
}

/* Fills in what does not change from run to run and needs no instance. */
void segment_pack(Ctx *cx, Segment *s)
{
    for (int i = 0; i < s->npart; i++) {
        const Part *p = &s->part[i];
        for (int k = 0; p->loops && !p->lib_run && k < p->src.nbuf; k++) {
            const KBuf *b = &p->loops->buf.at[p->src.buf[k]];
            if (b->packed && !packed_data(s, b, NULL)) fail(cx, E_NOMEM, "no memory to pack a constant");
        }
    }
}

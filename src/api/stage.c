/* Devices with memory of their own: constants are copied there once for a segment, sizes that kernels read once for an instance, inputs before a run and
 * outputs after it (instance.c). Functions of the host get copies of what they read, and what they wrote is copied back. */
#include "api/segment.h"

#include <string.h>

void stage_write(Ctx *cx, const Segment *s, void *to, const void *from, size_t n)
{
    RtError e = { .launch = -1 };
    if (n && s->target->api->write(s->target->device, to, from, n, &e) != E_OK) segment_raise(cx, NULL, &e);
}

void stage_read(Ctx *cx, const Segment *s, void *to, const void *from, size_t n)
{
    RtError e = { .launch = -1 };
    if (n && s->target->api->read(s->target->device, to, from, n, &e) != E_OK) segment_raise(cx, NULL, &e);
}

void stage_constants(Ctx *cx, Segment *s)
{
    int n = s->g->node.n;
    int64_t bytes = 0, *at = NEWS(s->arena, int64_t, n + 1);
    s->uploaded = NEWS(s->arena, void *, n + 1);
    if (!is_staged(s)) return;
    for (int id = 0; id < n; id++) at[id] = -1;
    for (int i = 0; i < s->npart; i++)
        for (int k = 0; s->part[i].loops && k < s->part[i].loops->buf.n; k++) {
            const KBuf *b = &s->part[i].loops->buf.at[k];
            if (b->scratch || b->node->op != OP_const || at[b->node->id] >= 0) continue;
            at[b->node->id] = bytes;
            bytes += (node_bytes(b->node, NULL) + 255) & ~(int64_t)255;
        }
    if (!bytes) return;
    s->upload_block = device_block(cx, s, bytes);
    for (int id = 0; id < n; id++) {
        if (at[id] < 0) continue;
        const Node *c = s->g->node.at[id];
        s->uploaded[id] = (uint8_t *)s->upload_block + at[id];
        stage_write(cx, s, s->uploaded[id], c->tensor->data, (size_t)node_bytes(c, NULL));
    }
}

void stage_sizes(Ctx *cx, const Segment *s, const Instance *x)
{
    for (int id = 0; is_staged(s) && id < s->g->node.n; id++) {
        const Node *n = s->g->node.at[id];
        if (n->op != OP_dims || !x->where[id]) continue;
        int64_t count = n->rank ? dim_eval(n->dims[0], x->syms, NULL) : 1, *v = block_alloc((size_t)(count + 1) * sizeof *v);
        if (!v) fail(cx, E_NOMEM, "no memory for %lld sizes", (long long)count);
        for (int64_t i = 0; i < count; i++) v[i] = dim_eval(n->size[i], x->syms, NULL);
        RtError e = { .launch = -1 };
        Status st = s->target->api->write(s->target->device, x->where[id], v, (size_t)count * sizeof *v, &e);
        block_free(v);
        if (st != E_OK) segment_raise(cx, NULL, &e);
    }
}

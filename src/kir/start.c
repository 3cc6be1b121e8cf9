/* Sums of integers that begin with what is added to them.
 *
 * A contraction of quantised values is a sum of products of bytes and a number for each column (fuse/integers.c). Integers wrap, so in which order they are added does not
 * matter: the accumulators begin with that number, and nothing is added to each of them in the end. It must be known before the loops: a value that is read, the
 * same for all rows of a tile, whose load can move there since kernels do not write what they read so. */
#include "kir/kir.h"

/* What is added to the result r of a sum, and nothing else is done with that; it differs by lane only. NULL: there is no such thing. */
static KVal *added(const KVal *v, const KVal *r, const int *uses)
{
    if (v->kind != KV_ew || v->op != OP_add || v->dt != DT_i32 || uses[r->id] != 1) return NULL;
    KVal *c = v->in[0] == r ? v->in[1] : v->in[1] == r ? v->in[0] : NULL;
    return c && c != r && c->kind == KV_load && c->vary == VARY_lane && !c->at.npred && !c->nopnd ? c : NULL;
}

static int place_of(const KBlock *b, KSKind kind, const void *what)
{
    for (int i = 0; i < b->stmt.n; i++) if (b->stmt.at[i].kind == kind && (kind == KS_fold ? (const void *)b->stmt.at[i].fold : b->stmt.at[i].val) == what) return i;
    return -1;
}

static void start_block(LoopKernel *k, const int *uses, KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) start_block(k, uses, s->loop->body);
        if (s->kind != KS_val) continue;
        KVal *v = s->val, *r = v->nin == 2 ? v->in[v->in[0]->kind == KV_fold ? 0 : 1] : NULL, *c = r && r->kind == KV_fold ? added(v, r, uses) : NULL;
        KFold *f = c ? r->fold : NULL;
        if (!f || f->kind != FOLD_sum || f->dt != DT_i32 || f->own || f->unit || f->half || f->running || f->team || k->buf.at[c->buf].write || k->buf.at[c->buf].scratch) continue;
        int at = place_of(b, KS_fold, f), load = place_of(b, KS_val, c), sum = place_of(b, KS_val, r);
        if (at < 0 || sum < 0 || (load < 0 && c->block == b)) continue;
        f->start = c;
        v->kind = KV_fold; v->fold = f; v->nin = 0;
        f->result = v;
        b->stmt.at[sum].kind = KS_skip;                      /* for now: what is not there any more */
        b->stmt.at[sum].val = NULL;
        if (load > at) {                                     /* before the loops */
            KStmt moved = b->stmt.at[load];
            for (int j = load; j > at; j--) b->stmt.at[j] = b->stmt.at[j - 1];
            b->stmt.at[at] = moved;
        }
    }
    int n = 0;
    for (int i = 0; i < b->stmt.n; i++) if (b->stmt.at[i].kind != KS_skip || b->stmt.at[i].val) b->stmt.at[n++] = b->stmt.at[i];
    b->stmt.n = n;
}

void start_choose(LoopKernel *k)
{
    int *uses = NEWS(k->arena, int, k->nval + 1);
    count_uses(uses, k->top);
    count_uses(uses, k->body);
    start_block(k, uses, k->body);
}

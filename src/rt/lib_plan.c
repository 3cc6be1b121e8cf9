/* What a library for contractions is to be called with: from a contraction of any number of axes (LibOp) to calls of one or a few shapes.
 *
 * Axes that lie together in all operands are merged. What is left are the axes of one call, and others whose places are calls of their own. Blocks
 * of rows, of columns or of an image's lines are calls too, so that threads have something to share; lines at the border of an image have its
 * padding, and so a shape of their own. All of it follows from sizes and strides, and from the number of calls that is wanted. */
#include "rt/rt.h"
#include <string.h>

enum { MOST_CALLS = 1 << 16 };

typedef struct Axes { LibAxis *at[LIB_AXES]; int n; } Axes;

/* Merges axes of one role that lie together in every operand: the outer one of two goes on where the inner one ends. */
static void axes_merge(LibOp *op, LibRole role)
{
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < op->naxis && !more; i++)
            for (int j = 0; j < op->naxis && !more; j++) {
                LibAxis *out = &op->axis[i], *in = &op->axis[j];
                bool fits = i != j && out->role == role && in->role == role && out->window < 0 && in->window < 0 && !out->padded && !in->padded;
                for (int k = 0; k < LIB_OPERANDS; k++)
                    fits = fits && out->at[k] == in->at[k] * in->extent;
                for (int k = 0; k < op->naxis; k++) /* a window's sum stays what it is */
                    fits = fits && op->axis[k].window != i && op->axis[k].window != j;
                if (!fits)
                    continue;
                in->extent *= out->extent;
                in->size = 0;
                op->naxis--;
                for (int k = i; k < op->naxis; k++)
                    op->axis[k] = op->axis[k + 1];
                for (int k = 0; k < op->naxis; k++)
                    op->axis[k].window -= op->axis[k].window > i;
                more = true;
            }
    }
}

static void axes_with(LibOp *op, LibRole role, bool window, Axes *out)
{
    out->n = 0;
    for (int i = 0; i < op->naxis; i++) {
        bool slides = op->axis[i].window >= 0;
        for (int k = 0; k < op->naxis; k++)
            slides |= op->axis[k].window == i;
        if (op->axis[i].role == role && slides == window)
            out->at[out->n++] = &op->axis[i];
    }
}

/* The transposed product. */
static void op_turn(LibOp *op)
{
    LibOperand o = op->operand[LIB_SRC];
    op->operand[LIB_SRC] = op->operand[LIB_WEIGHTS];
    op->operand[LIB_WEIGHTS] = o;
    for (int i = 0; i < op->naxis; i++) {
        LibAxis *x = &op->axis[i];
        int64_t t = x->at[LIB_SRC];
        x->at[LIB_SRC] = x->at[LIB_WEIGHTS];
        x->at[LIB_WEIGHTS] = t;
        x->role = x->role == LIB_row ? LIB_col : x->role == LIB_col ? LIB_row : x->role;
    }
}

/* Calls for all places of the outer axes, each with the blocks that were planned for one. */
static Status calls_spread(LibPlan *p, const Axes *outer, int nblock, const LibCall *block, RtError *e)
{
    int64_t n = nblock;
    for (int i = 0; i < outer->n; i++) {
        n *= outer->at[i]->extent;
        if (n > MOST_CALLS)
            return rt_fail(e, E_UNSUPPORTED, "it would take more than %d calls of the library", MOST_CALLS);
    }
    if (!(p->call = block_alloc((size_t)(n > 0 ? n : 1) * sizeof *p->call)))
        return rt_fail(e, E_NOMEM, "no memory for calls of the library");
    for (int64_t i = 0; i < n; i++) {
        LibCall c = block[i % nblock];
        int64_t rest = i / nblock;
        for (int k = outer->n - 1; k >= 0; k--) {
            int64_t place = rest % outer->at[k]->extent;
            rest /= outer->at[k]->extent;
            for (int o = 0; o < LIB_OPERANDS; o++)
                c.at[o] += place * outer->at[k]->at[o];
        }
        p->call[i] = c;
    }
    p->ncall = n;
    return E_OK;
}

/* The number of this kind of call, which may be new. */
static Status shape_number(LibPlan *p, const LibShape *x, int *out, RtError *e)
{
    for (*out = 0; *out < p->nshape; ++*out) {
        const LibShape *y = &p->shape[*out];
        if (!memcmp(y->dims, x->dims, sizeof x->dims) && !memcmp(y->pad, x->pad, sizeof x->pad) &&
            !memcmp(y->pad_end, x->pad_end, sizeof x->pad_end))
            return E_OK;
    }
    if (p->nshape == LIB_SHAPES)
        return rt_fail(e, E_UNSUPPORTED, "it would take more than %d kinds of calls of the library", LIB_SHAPES);
    p->shape[p->nshape++] = *x;
    return E_OK;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The operands of steps, as many axes as the result, of one place where they are the same for all. */
static void addends_place(const LibOp *op, LibShape *x, const LibAxis *const *axis)
{
    for (int a = 0; a < op->naddend; a++)
        for (int k = 0; k < x->n; k++) {
            int64_t step = axis[k] ? axis[k]->at[LIB_ADDEND + a] : 0;
            x->add_dims[a][k] = step ? x->dims[2][k] : 1;
            x->add_strides[a][k] = step ? step : 1;
        }
}

enum { FEW_ROWS = 8, COLUMNS = 64 }; /* fewer rows than that are not shared; columns in groups */

static Status plan_product(LibOp *op, LibPlan *p, RtError *e)
{
    Axes row, col, both, sum;
    for (int role = LIB_row; role <= LIB_sum; role++)
        axes_merge(op, (LibRole)role);
    axes_with(op, LIB_row, false, &row);
    axes_with(op, LIB_col, false, &col);
    bool turned = false;
    for (int i = 0; i < row.n; i++)
        turned |= row.at[i]->at[LIB_DST] == 1;
    if (turned) { /* the result lies the other way: so do the operands */
        op_turn(op);
        axes_with(op, LIB_row, false, &row);
        axes_with(op, LIB_col, false, &col);
    }
    axes_with(op, LIB_both, false, &both);
    axes_with(op, LIB_sum, false, &sum);
    if (sum.n != 1)
        return rt_fail(e, E_UNSUPPORTED, "its sum is over no single axis");
    int along = 0; /* the axis that is a call's columns: the one that lies together in the result */
    for (int i = 1; i < col.n; i++)
        if (col.at[i]->at[LIB_DST] == 1)
            along = i;
    LibAxis one = { .extent = 1, .window = -1 };
    int longest = 0; /* the axis that is a call's rows: one whose rows of the result lie side by side, if there is one */
    for (int i = 1; i < row.n; i++) {
        bool dense[2];
        for (int k = 0; k < 2; k++)
            dense[k] = row.at[k ? i : longest]->at[LIB_DST] == (col.n ? col.at[along]->extent : 1);
        if (dense[1] > dense[0] || (dense[1] == dense[0] && row.at[i]->extent > row.at[longest]->extent))
            longest = i;
    }
    LibAxis *m = row.n ? row.at[longest] : &one, *n = col.n ? col.at[along] : &one, *k = sum.at[0];
    Axes outer = both;
    for (int i = 0; i < row.n; i++)
        if (i != longest)
            outer.at[outer.n++] = row.at[i];
    for (int i = 0; i < col.n; i++)
        if (i != along)
            outer.at[outer.n++] = col.at[i];
    int64_t outside = 1;
    for (int i = 0; i < outer.n; i++)
        outside *= outer.at[i]->extent;
    bool known = op->operand[LIB_WEIGHTS].known != NULL;
    if (k->at[LIB_SRC] != 1 && m->at[LIB_SRC] != 1 && m->extent > 1)
        return rt_fail(e, E_UNSUPPORTED, "rows of an operand do not lie together");
    if (!known && k->at[LIB_WEIGHTS] != 1 && n->at[LIB_WEIGHTS] != 1 && n->extent > 1)
        return rt_fail(e, E_UNSUPPORTED, "rows of an operand do not lie together");
    if (n->at[LIB_DST] != 1 && n->extent > 1)
        return rt_fail(e, E_UNSUPPORTED, "rows of the result do not lie together");
    int64_t blocks = ceil_div(op->parts, outside > 0 ? outside : 1), mb = m->extent, nb = n->extent;
    if (m->extent >= FEW_ROWS * blocks)
        mb = ceil_div(m->extent, blocks);
    else
        nb = ceil_div(ceil_div(n->extent, blocks), COLUMNS) * COLUMNS;
    LibCall block[256];
    int nblock = 0;
    Status st = E_OK;
    for (int64_t i = 0; i < m->extent && !st; i += mb)
        for (int64_t j = 0; j < n->extent && !st; j += nb) {
            LibShape x = { .n = 2, .known = known };
            int64_t rows = m->extent - i < mb ? m->extent - i : mb, cols = n->extent - j < nb ? n->extent - j : nb;
            int64_t dims[3][2] = { { rows, k->extent }, { k->extent, cols }, { rows, cols } };
            int64_t strides[3][2] = { { rows > 1 ? m->at[LIB_SRC] : k->extent, k->at[LIB_SRC] },
                                      { k->at[LIB_WEIGHTS], n->extent > 1 ? n->at[LIB_WEIGHTS] : 1 },
                                      { rows > 1 ? m->at[LIB_DST] : cols, n->extent > 1 ? n->at[LIB_DST] : 1 } };
            for (int o = 0; o < 3; o++) {
                memcpy(x.dims[o], dims[o], sizeof dims[o]);
                memcpy(x.strides[o], strides[o], sizeof strides[o]);
            }
            addends_place(op, &x, (const LibAxis *[]){ m, n });
            if (nblock == (int)COUNT_OF(block))
                return rt_fail(e, E_UNSUPPORTED, "it would take too many blocks");
            LibCall *c = &block[nblock++];
            *c = (LibCall){ 0 };
            st = shape_number(p, &x, &c->shape, e);
            for (int o = 0; o < LIB_OPERANDS; o++)
                c->at[o] = i * m->at[o] + j * n->at[o];
        }
    return st ? st : calls_spread(p, &outer, nblock, block, e);
}

/* How a source axis lies, as seen by a row of the result and the sum that slides over it. */
typedef struct Spatial { LibAxis *row, *sum; int64_t stride; } Spatial;

/* There is one: its stride is the size of it. */
static void one_image(const int64_t *dims, int64_t *stride)
{
    for (int k = 1; k < 4; k++)
        if (dims[k] * stride[k] > stride[0])
            stride[0] = dims[k] * stride[k];
}

static Status plan_window(LibOp *op, LibPlan *p, RtError *e)
{
    Axes slide, row, col, both, sum, outer = { .n = 0 };
    LibAxis one = { .role = LIB_row, .extent = 1, .window = -1, .step = 1, .dilation = 1, .size = 1 }, zero = one;
    for (int role = LIB_col; role <= LIB_sum; role++)
        axes_merge(op, (LibRole)role);
    axes_with(op, LIB_row, true, &slide);
    axes_with(op, LIB_row, false, &row);
    axes_with(op, LIB_col, false, &col);
    axes_with(op, LIB_both, false, &both);
    axes_with(op, LIB_sum, false, &sum);
    Spatial s[2]; /* places across, places along */
    int n = 0;
    for (int i = 0; i < slide.n && n < 2; i++)
        s[n++] = (Spatial){ slide.at[i], slide.at[i]->window >= 0 ? &op->axis[slide.at[i]->window] : &zero, 0 };
    for (int i = row.n - 1; i >= 0; i--) { /* those that no window slides over count as windows of one */
        bool takes = n < 2 && row.at[i]->size > 0;
        if (takes)
            s[n++] = (Spatial){ row.at[i], &zero, 0 };
        else
            outer.at[outer.n++] = row.at[i];
    }
    while (n < 2)
        s[n++] = (Spatial){ &one, &zero, 0 };
    for (int i = 0; i < 2; i++)
        s[i].stride = s[i].row->at[LIB_SRC] / s[i].row->step;
    if (s[1].row == &one || (s[0].row != &one && s[0].stride < s[1].stride)) {
        Spatial t = s[0];
        s[0] = s[1];
        s[1] = t;
    }
    if (s[0].row == &one) /* lies like one line of the other */
        s[0].stride = one.at[LIB_SRC] = s[1].stride * s[1].row->size, one.at[LIB_DST] = s[1].row->at[LIB_DST] * s[1].row->extent;
    LibAxis *g = both.n ? both.at[both.n - 1] : NULL, *oc = col.n ? col.at[0] : NULL, *ic = sum.n ? sum.at[0] : NULL;
    for (int i = 0; i + 1 < both.n; i++)
        outer.at[outer.n++] = both.at[i];
    if (slide.n > 2 || col.n > 1 || sum.n > 1 || !op->operand[LIB_WEIGHTS].known)
        return rt_fail(e, E_UNSUPPORTED, "a window over more than two axes, or channels that are no single axis, or weights that change");
    int64_t groups = g ? g->extent : 1, in = ic ? ic->extent : 1, out = oc ? oc->extent : 1;
    int64_t in_step = ic ? ic->at[LIB_SRC] : g ? g->at[LIB_SRC] : 1, out_step = oc ? oc->at[LIB_DST] : g ? g->at[LIB_DST] : 1;
    if (g && (g->at[LIB_SRC] != in * in_step || g->at[LIB_DST] != out * out_step))
        return rt_fail(e, E_UNSUPPORTED, "groups of channels do not lie together");
    LibAxis channel = oc ? *oc : g ? *g : one; /* of the result: all groups' */
    for (int o = LIB_ADDEND; g && oc && o < LIB_OPERANDS; o++)
        if (g->at[o] != oc->at[o] * oc->extent)
            return rt_fail(e, E_UNSUPPORTED, "groups of channels do not lie together");
    int64_t outside = 1, high = s[0].row->extent;
    for (int i = 0; i < outer.n; i++)
        outside *= outer.at[i]->extent;
    int64_t rows = ceil_div(high, ceil_div(op->parts, outside > 0 ? outside : 1)), step = s[0].row->step, dil = s[0].sum->extent > 1 ? s[0].row->dilation : 1;
    LibCall block[256];
    int nblock = 0;
    Status st = E_OK;
    for (int64_t i = 0; i < high && !st; i += rows) {
        int64_t h = high - i < rows ? high - i : rows, from = i * step - s[0].row->pad, to = from + (h - 1) * step + (s[0].sum->extent - 1) * dil + 1;
        int64_t before = from < 0 ? -from : 0, after = to > s[0].row->size ? to - s[0].row->size : 0, lines = to - from - before - after;
        if (lines <= 0)
            return rt_fail(e, E_UNSUPPORTED, "a block of lines lies in the padding alone");
        int64_t wide = s[1].row->extent, wdil = s[1].sum->extent > 1 ? s[1].row->dilation : 1;
        int64_t pad = s[1].row->pad > 0 ? s[1].row->pad : 0, across = s[1].row->size + s[1].row->pad - pad; /* what lies before its first place is not seen */
        int64_t end = (wide - 1) * s[1].row->step + (s[1].sum->extent - 1) * wdil + 1 - pad - across;
        LibShape x = { .window = true, .n = 4, .known = true, .groups = g != NULL };
        x.stride[0] = step, x.stride[1] = s[1].row->step;
        x.dilation[0] = dil - 1, x.dilation[1] = wdil - 1;
        x.pad[0] = before, x.pad[1] = pad, x.pad_end[0] = after, x.pad_end[1] = end;
        int64_t dims[3][5] = { { 1, groups * in, lines, across }, { groups, out, in, s[0].sum->extent, s[1].sum->extent }, { 1, groups * out, h, wide } };
        int64_t strides[3][5] = { { 1, in_step, s[0].stride, s[1].stride },
                                  { g ? g->at[1] : 1, oc ? oc->at[1] : 1, ic ? ic->at[1] : 1, s[0].sum->at[1], s[1].sum->at[1] },
                                  { 1, out_step, s[0].row->at[LIB_DST], s[1].row->at[LIB_DST] } };
        int skip = g ? 0 : 1; /* weights of one group have no axis for it */
        for (int k = 0; k < 5; k++) {
            x.dims[0][k] = dims[0][k], x.strides[0][k] = strides[0][k];
            x.dims[2][k] = dims[2][k], x.strides[2][k] = strides[2][k];
            if (k + skip < 5)
                x.dims[1][k] = dims[1][k + skip], x.strides[1][k] = strides[1][k + skip];
        }
        addends_place(op, &x, (const LibAxis *[]){ NULL, &channel, s[0].row, s[1].row });
        one_image(x.dims[0], x.strides[0]);
        one_image(x.dims[2], x.strides[2]);
        for (int a = 0; a < op->naddend; a++)
            one_image(x.add_dims[a], x.add_strides[a]);
        if (nblock == (int)COUNT_OF(block))
            return rt_fail(e, E_UNSUPPORTED, "it would take too many blocks");
        LibCall *c = &block[nblock++];
        *c = (LibCall){ 0 };
        st = shape_number(p, &x, &c->shape, e);
        c->at[LIB_SRC] = (s[0].row->pad + before + from) * s[0].stride + pad * s[1].stride;
        for (int o = LIB_DST; o < LIB_OPERANDS; o++)
            c->at[o] = i * s[0].row->at[o];
    }
    return st ? st : calls_spread(p, &outer, nblock, block, e);
}

Status lib_plan(LibOp *op, LibPlan *out, RtError *e)
{
    bool window = false;
    int apart = 0; /* rows that step over places of the source */
    *out = (LibPlan){ .nshape = 0 };
    for (int i = 0; i < op->naxis; i++) {
        const LibAxis *x = &op->axis[i];
        window |= x->window >= 0 || (x->role == LIB_row && x->padded);
        apart += x->role == LIB_row && x->size > 0 && x->step > 1;
        if (x->extent <= 0)
            return rt_fail(e, E_UNSUPPORTED, "it is empty");
    }
    if (!(out->shape = block_alloc(LIB_SHAPES * sizeof *out->shape)))
        return rt_fail(e, E_NOMEM, "no memory for calls of the library");
    bool conv = window || ((apart > 1 || op->window) && op->operand[LIB_WEIGHTS].known);
    return conv ? plan_window(op, out, e) : plan_product(op, out, e);
}

void lib_plan_free(LibPlan *p)
{
    block_free(p->shape);
    block_free(p->call);
    *p = (LibPlan){ .nshape = 0 };
}

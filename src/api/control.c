/* Loop and Scan: the iterations around a body that the interpreter or a compiled program runs. */
#include "api/api.h"

#include <string.h>

/* One value as the body declares it: old converters wrote the iteration number and the condition as vectors of one element. */
static Tensor single_tensor(Ctx *cx, Arena *a, const OnnxValue *declared, DType dt, int64_t v)
{
    static const int64_t one = 1;
    Tensor *t = tensor_new(a, cx, dt, declared->rank == 1, &one);
    scalar_store(dt, t->data, (Scalar){ .i = v });
    return *t;
}

/* The slices one after the other along a new axis; `backward`: the last one first. With none, the sizes are those declared, 0 where unknown. */
static void stack_slices(Ctx *cx, Arena *a, int n, const Tensor *slice, int64_t axis, bool backward, const OnnxValue *declared, Tensor *out)
{
    int64_t dims[MAX_RANK] = { 0 };
    int inner = n ? slice[0].rank : declared->rank < 0 ? 0 : declared->rank;
    if (inner >= MAX_RANK) fail(cx, E_UNSUPPORTED, "rank %d", inner + 1);
    if (axis < 0) axis += inner + 1;
    if (axis < 0 || axis > inner) fail(cx, E_INVALID, "a scan output's axis is %lld of rank %d", (long long)axis, inner + 1);
    for (int k = 0; k < inner; k++) {
        int64_t size = n ? slice[0].dims[k] : declared->dims[k].value > 0 ? declared->dims[k].value : 0;
        dims[k < axis ? k : k + 1] = size;
    }
    dims[axis] = n;
    for (int i = 1; i < n; i++)
        if (slice[i].rank != inner || slice[i].dt != slice[0].dt || memcmp(slice[i].dims, slice[0].dims, (size_t)inner * sizeof(int64_t)))
            fail(cx, E_INVALID, "'%s' is %s in one iteration and %s in another", declared->name, shape_str(a, inner, slice[0].dims),
                shape_str(a, slice[i].rank, slice[i].dims));
    *out = *tensor_new(a, cx, n ? slice[0].dt : declared->dt, inner + 1, dims);
    int64_t before = 1, after = 1;
    for (int k = 0; k < axis; k++) before *= dims[k];
    for (int k = (int)axis + 1; k <= inner; k++) after *= dims[k];
    size_t bytes = (size_t)after * dtype_size(out->dt);
    for (int i = 0; i < n; i++) {
        int at = backward ? n - 1 - i : i;
        for (int64_t b = 0; b < before; b++)
            memcpy((char *)out->data + ((size_t)b * (size_t)n + (size_t)at) * bytes, (const char *)slice[i].data + (size_t)b * bytes, bytes);
    }
}

static void loop_run(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out, BodyRun run, void *self)
{
    const BodyCall *c = call->attr;
    int n = c->nstate, nresult = 1 + call->nout, nargs = 2 + n + c->ncapture;
    int64_t trips = scalar_load(in[0].dt, in[0].data).i;
    bool go = scalar_load(in[1].dt, in[1].data).i != 0;
    Tensor *args = arena_copy(a, in, (size_t)nargs * sizeof *in), *result = NEWS(a, Tensor, nresult);
    int nscan = call->nout - n, count = 0;
    typedef VEC(Tensor) Slices;
    Slices *slices = NEWS(a, Slices, nscan + 1);
    for (int64_t i = 0; i < trips && go; i++, count++) {
        ctx_poll(cx);
        args[0] = single_tensor(cx, a, &c->body->in[0], DT_i64, i);
        args[1] = single_tensor(cx, a, &c->body->in[1], DT_bool, 1);
        run(self, cx, a, c, args, result);
        if (result[0].dt != DT_bool || tensor_count(&result[0]) != 1) fail(cx, E_INVALID, "the body's first output is no single bool");
        go = scalar_load(DT_bool, result[0].data).i != 0;
        for (int k = 0; k < n; k++) args[2 + k] = result[1 + k];
        for (int k = 0; k < nscan; k++) vec_push(a, &slices[k], result[1 + n + k]);
    }
    for (int k = 0; k < n; k++) out[k] = args[2 + k];
    for (int k = 0; k < nscan; k++) stack_slices(cx, a, count, slices[k].at, 0, false, &c->body->out[1 + n + k], &out[n + k]);
}

/* Element i of a tensor along an axis, as a tensor without that axis. */
static Tensor slice_at(Ctx *cx, Arena *a, const Tensor *t, int axis, int64_t i)
{
    int64_t dims[MAX_RANK] = { 0 }, before = 1, after = 1;
    for (int k = 0; k < axis; k++) before *= dims[k] = t->dims[k];
    for (int k = axis + 1; k < t->rank; k++) after *= dims[k - 1] = t->dims[k];
    Tensor *s = tensor_new(a, cx, t->dt, t->rank - 1, dims);
    size_t bytes = (size_t)after * dtype_size(t->dt);
    for (int64_t b = 0; b < before; b++)
        memcpy((char *)s->data + (size_t)b * bytes, (const char *)t->data + ((size_t)b * (size_t)t->dims[axis] + (size_t)i) * bytes, bytes);
    return *s;
}

static void scan_once(Ctx *cx, Arena *a, const BodyCall *c, int nout, const Tensor *in, Tensor *out, BodyRun run, void *self)
{
    int n = c->nstate, m = c->nscan_in, nargs = n + m + c->ncapture, nslice = nout - n;
    Tensor *args = arena_copy(a, in, (size_t)nargs * sizeof *in), *result = NEWS(a, Tensor, nout + 1);
    int64_t length = -1;
    int axis[64];
    if (m > 64) fail(cx, E_UNSUPPORTED, "%d scan inputs", m);
    for (int k = 0; k < m; k++) {
        int64_t at = c->in_axes[k] < 0 ? c->in_axes[k] + in[n + k].rank : c->in_axes[k];
        if (at < 0 || at >= in[n + k].rank) fail(cx, E_INVALID, "the axis of scan input %d is %lld of rank %d", k, (long long)c->in_axes[k], in[n + k].rank);
        axis[k] = (int)at;
        if (length >= 0 && in[n + k].dims[at] != length) fail(cx, E_INVALID, "scan inputs of length %lld and %lld", (long long)length, (long long)in[n + k].dims[at]);
        length = in[n + k].dims[at];
    }
    Tensor **slices = NEWS(a, Tensor *, nslice + 1);
    for (int k = 0; k < nslice; k++) slices[k] = NEWS(a, Tensor, length + 1);
    for (int64_t i = 0; i < length; i++) {
        ctx_poll(cx);
        for (int k = 0; k < m; k++) args[n + k] = slice_at(cx, a, &in[n + k], axis[k], c->in_dirs[k] ? length - 1 - i : i);
        run(self, cx, a, c, args, result);
        for (int k = 0; k < n; k++) args[k] = result[k];
        for (int k = 0; k < nslice; k++) slices[k][i] = result[n + k];
    }
    for (int k = 0; k < n; k++) out[k] = args[k];
    for (int k = 0; k < nslice; k++)
        stack_slices(cx, a, (int)length, slices[k], c->out_axes[k], c->out_dirs[k] != 0, &c->body->out[n + k], &out[n + k]);
}

static void scan_run(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out, BodyRun run, void *self)
{
    const BodyCall *c = call->attr;
    if (c->opset >= 9) {
        scan_once(cx, a, c, call->nout, in, out, run, self);
        return;
    }
    /* opset 8: each element of a leading batch axis by itself */
    int nin = c->nstate + c->nscan_in;
    int64_t batch = in[0].rank ? in[0].dims[0] : 0;
    for (int k = 0; k < nin; k++)
        if (!in[k].rank || in[k].dims[0] != batch) fail(cx, E_INVALID, "input %d is %s, wanted a batch of %lld", k, shape_str(a, in[k].rank, in[k].dims), (long long)batch);
    Tensor *args = arena_copy(a, in, (size_t)(nin + c->ncapture) * sizeof *in);
    Tensor *result = NEWS(a, Tensor, (size_t)call->nout * (size_t)batch + 1), *row = NEWS(a, Tensor, batch + 1);
    for (int64_t b = 0; b < batch; b++) {
        for (int k = 0; k < nin; k++) args[k] = slice_at(cx, a, &in[k], 0, b);
        scan_once(cx, a, c, call->nout, args, result + b * call->nout, run, self);
    }
    for (int k = 0; k < call->nout; k++) {
        for (int64_t b = 0; b < batch; b++) row[b] = result[b * call->nout + k];
        stack_slices(cx, a, (int)batch, row, 0, false, &c->body->out[k], &out[k]);
    }
}

void control_run(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out, BodyRun run, void *self)
{
    if (call->def == &loop_call) loop_run(cx, a, call, in, out, run, self);
    else scan_run(cx, a, call, in, out, run, self);
}

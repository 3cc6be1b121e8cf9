/* The public functions: each makes a context of its own, converts its arguments, does the work in a guard and returns a status.
 *
 * What a call needs is one struct on its stack (a ...Call), which the guarded function fills; so nothing that matters lives in a local variable across a
 * failure. The graph builder is graphcall.c. */
#include "api/api.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define ERR(name, value, text) _Static_assert((int)E_##name == (int)SN_##name, "sinter.h and errors.def must agree");
#include "base/errors.def"
#undef ERR
_Static_assert(SN_MAX_RANK == MAX_RANK, "sinter.h and base.h must agree");

/* ---- errors and names ------------------------------------------------------------------------------------------------------------------ */

sn_status api_report(const Ctx *cx, Status st, sn_error *err)
{
    if (err) {
        err->code = (sn_status)st;
        snprintf(err->text, sizeof err->text, "%.1023s", st == E_OK ? "" : cx->text);
    }
    return (sn_status)st;
}

/* A context without a look at the environment, for calls whose work no option changes. */
void ctx_quiet(Ctx *cx)
{
    memset(cx, 0, sizeof *cx);
    cx->opt.fail = cx->opt.limit = -1;
}

const char *sn_status_name(sn_status status) { return status_name((Status)status); }

const char *sn_version(void) { return SINTER_VERSION; }

const char *sn_dtype_name(sn_dtype dtype)
{
    DType t = dtype_from_onnx((int)dtype);
    return t ? dtype_info[t].name : "?";
}

sn_dtype sn_dtype_from_name(const char *name)
{
    DType t = name ? dtype_from_name(name) : DT_none;
    return t ? (sn_dtype)dtype_info[t].onnx : SN_NONE;
}

size_t sn_dtype_size(sn_dtype dtype)
{
    DType t = dtype_from_onnx((int)dtype);
    return t ? dtype_size(t) : 0;
}

void api_need(Ctx *cx, const void *p, const char *what)
{
    if (!p) fail(cx, E_INVALID, "%s is NULL", what);
}

/* ---- models -------------------------------------------------------------------------------------------------------------------------------- */

const OnnxValue **model_inputs(Arena *a, const OnnxModel *m, int *n)
{
    const OnnxGraph *g = m->graph;
    const OnnxValue **v = NEWS(a, const OnnxValue *, g->nin + 1);
    MapStr *init = mapstr_new(a);
    *n = 0;
    for (int i = 0; i < g->ninit; i++) *mapstr_at(init, g->init[i].name) = &g->init[i];
    for (int i = 0; i < g->nin; i++)
        if (!mapstr_get(init, g->in[i].name)) v[(*n)++] = &g->in[i];
    return v;
}

static void meta_add(sn_model *s, const char *key, const char *value)
{
    if (!value) value = "";
    s->meta[s->nmeta++] = (MetaPair){ key, value };
}

/* Wraps a loaded model; all that later calls ask for is made here, so that they cannot fail for lack of memory. */
sn_model *model_wrap(OnnxModel *m)
{
    Arena *a = m->arena;
    sn_model *s = NEW(a, sn_model);
    s->m = m;
    s->in = model_inputs(a, m, &s->nin);
    s->meta = NEWS(a, MetaPair, m->nmeta + 9);
    meta_add(s, "producer", m->producer);
    meta_add(s, "producer_version", m->producer_version);
    meta_add(s, "domain", m->domain);
    meta_add(s, "doc", m->doc);
    meta_add(s, "model_version", arena_fmt(a, "%lld", (long long)m->model_version));
    meta_add(s, "graph", m->graph->name);
    meta_add(s, "graph_doc", m->graph->doc);
    meta_add(s, "ir_version", arena_fmt(a, "%lld", (long long)m->ir_version));
    Text t = { .arena = a };
    text_add(&t, "%s", "");
    for (int i = 0; i < m->nopset; i++)
        text_add(&t, "%s%s:%lld", i ? " " : "", m->opset[i].domain[0] ? m->opset[i].domain : "ai.onnx", (long long)m->opset[i].version);
    meta_add(s, "opset", t.at);
    for (int i = 0; i < m->nmeta; i++) meta_add(s, m->meta_key[i], m->meta_value[i]);
    return s;
}

typedef struct LoadCall { const char *path; const void *bytes; size_t n; bool from_memory; OnnxModel *m; sn_model *made; } LoadCall;

static void load_guarded(Ctx *cx, void *arg)
{
    LoadCall *c = arg;
    if (c->from_memory) api_need(cx, c->bytes, "bytes");
    else api_need(cx, c->path, "path");
    c->m = onnx_new(cx);
    onnx_load(cx, c->m, c->path ? c->path : "<memory>", c->from_memory ? c->bytes : NULL, c->n);
    c->made = model_wrap(c->m);
}

static sn_status model_load(LoadCall *c, sn_model **model, sn_error *err)
{
    Ctx cx;
    ctx_quiet(&cx);
    Status st = guard_call(&cx, load_guarded, c);
    if (st != E_OK && c->m) onnx_close(c->m);
    if (st == E_OK) {
        arena_bind(c->m->arena, NULL);
        *model = c->made;
    }
    return api_report(&cx, st, err);
}

sn_status sn_model_load(const char *path, sn_model **model, sn_error *err)
{
    LoadCall c = { .path = path };
    return model_load(&c, model, err);
}

sn_status sn_model_from_memory(const void *bytes, size_t n, const char *name, sn_model **model, sn_error *err)
{
    LoadCall c = { .path = name, .bytes = bytes, .n = n, .from_memory = true };
    return model_load(&c, model, err);
}

void sn_model_free(sn_model *model)
{
    if (model) onnx_close(model->m);
}

typedef struct PortCall { const OnnxValue *value; const char *what; int index, n; sn_port *port; } PortCall;

static void port_guarded(Ctx *cx, void *arg)
{
    PortCall *c = arg;
    api_need(cx, c->port, "port");
    if (!c->value) fail(cx, E_INVALID, "%s %d does not exist: the model has %d", c->what, c->index, c->n);
    const OnnxValue *v = c->value;
    if (v->rank > SN_MAX_RANK) fail(cx, E_INVALID, "%s '%s' has rank %d, wanted %d at most", c->what, v->name, v->rank, SN_MAX_RANK);
    sn_port p = { .name = v->name, .dtype = v->kind == 't' && v->dt ? (sn_dtype)dtype_info[v->dt].onnx : SN_NONE, .rank = v->rank };
    for (int k = 0; k < v->rank; k++) {
        p.dims[k] = v->dims[k].value >= 0 ? v->dims[k].value : -1;
        p.symbols[k] = v->dims[k].value < 0 && v->dims[k].sym && v->dims[k].sym[0] ? v->dims[k].sym : NULL;
    }
    *c->port = p;
}

static sn_status model_port(PortCall *c, sn_error *err)
{
    Ctx cx;
    ctx_quiet(&cx);
    return api_report(&cx, guard_call(&cx, port_guarded, c), err);
}

int sn_model_input_count(const sn_model *model) { return model->nin; }
int sn_model_output_count(const sn_model *model) { return model->m->graph->nout; }

sn_status sn_model_input(const sn_model *model, int index, sn_port *port, sn_error *err)
{
    PortCall c = { index >= 0 && index < model->nin ? model->in[index] : NULL, "input", index, model->nin, port };
    return model_port(&c, err);
}

sn_status sn_model_output(const sn_model *model, int index, sn_port *port, sn_error *err)
{
    const OnnxGraph *g = model->m->graph;
    PortCall c = { index >= 0 && index < g->nout ? &g->out[index] : NULL, "output", index, g->nout, port };
    return model_port(&c, err);
}

int sn_model_meta_count(const sn_model *model) { return model->nmeta; }

typedef struct MetaCall { int index, n; } MetaCall;

static void meta_guarded(Ctx *cx, void *arg)
{
    const MetaCall *c = arg;
    if (c->index < 0 || c->index >= c->n) fail(cx, E_INVALID, "metadata %d does not exist: the model has %d", c->index, c->n);
}

sn_status sn_model_meta_at(const sn_model *model, int index, const char **key, const char **value, sn_error *err)
{
    Ctx cx;
    ctx_quiet(&cx);
    MetaCall c = { index, model->nmeta };
    Status st = guard_call(&cx, meta_guarded, &c);
    if (st == E_OK) {
        if (key) *key = model->meta[index].key;
        if (value) *value = model->meta[index].value;
    }
    return api_report(&cx, st, err);
}

const char *sn_model_meta(const sn_model *model, const char *key)
{
    for (int i = 0; key && i < model->nmeta; i++)
        if (strcmp(model->meta[i].key, key) == 0) return model->meta[i].value;
    return NULL;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------------------------- */

void sn_tensor_release(sn_tensor *tensor)
{
    if (!tensor || !tensor->owner) return;
    if (tensor->owner == tensor->buffer) sn_buffer_free(tensor->buffer);
    else block_free(tensor->owner);
    memset(tensor, 0, sizeof *tensor);
}

/* The bytes after t.data that elements at these strides reach; -1 when they leave the range of numbers. */
static int64_t reach(const Tensor *t)
{
    int64_t far = 0, part, bytes;
    for (int k = 0; k < t->rank; k++) {
        if (t->dims[k] == 0) return 0;
        if (t->strides[k] < 0) continue;
        if (__builtin_mul_overflow(t->dims[k] - 1, t->strides[k], &part) || __builtin_add_overflow(far, part, &far)) return -1;
    }
    if (__builtin_mul_overflow(far + 1, (int64_t)dtype_size(t->dt), &bytes)) return -1;
    return bytes;
}

Tensor tensor_of_public(Ctx *cx, const sn_tensor *s, const char *what, const char *name)
{
    Tensor t;
    Note note;
    note_push(cx, &note, what, name, NULL);
    DType dt = dtype_from_onnx((int)s->dtype);
    if (!dt) fail(cx, E_INVALID, "the dtype is %d, which is none", (int)s->dtype);
    tensor_init(cx, &t, dt, s->rank, s->dims);
    if (s->has_strides)
        for (int k = 0; k < s->rank; k++) t.strides[k] = s->strides[k];
    t.data = s->data;
    int64_t wanted = reach(&t);
    if (wanted < 0) fail(cx, E_INVALID, "its strides leave the address space");
    if (s->data && s->bytes && (uint64_t)wanted > s->bytes) fail(cx, E_INVALID, "it has %zu bytes, wanted %lld", s->bytes, (long long)wanted);
    note_pop(cx);
    return t;
}

/* Copies src, whatever its strides, to `to`, row-major or (stride not NULL) at these strides in elements. */
void tensor_copy_to(const Tensor *src, void *to, const int64_t *stride)
{
    size_t size = dtype_size(src->dt);
    int64_t n = tensor_count(src), idx[MAX_RANK] = { 0 };
    if (!stride && tensor_dense(src)) {
        if (n) memcpy(to, src->data, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0, at = stride ? 0 : i;
        for (int k = 0; k < src->rank; k++) {
            from += idx[k] * src->strides[k];
            if (stride) at += idx[k] * stride[k];
        }
        memcpy((char *)to + at * (int64_t)size, (const char *)src->data + from * (int64_t)size, size);
        for (int k = src->rank - 1; k >= 0 && ++idx[k] == src->dims[k]; k--) idx[k] = 0;
    }
}

/* ---- programs ------------------------------------------------------------------------------------------------------------------------------ */

typedef struct CompileCall { const sn_model *model; const sn_options *options; sn_program *made; Arena *arena; volatile int *cancel; } CompileCall;

static void compile_guarded(Ctx *cx, void *arg)
{
    CompileCall *c = arg;
    api_need(cx, c->model, "model");
    c->arena = arena_new(cx);
    sn_program *p = NEW(c->arena, sn_program);
    const sn_options none = { 0 }, *o = c->options ? c->options : &none;
    if (o->threads < 0) fail(cx, E_INVALID, "%d threads", o->threads);
    p->arena = c->arena;
    p->model = c->model;
    p->cancel = c->cancel;
    if (o->cache) cx->opt.cache = o->cache;
    if (o->compiler) cx->opt.cc = o->compiler;
    if (o->device) cx->opt.target = o->device;
    if (o->rules) cx->opt.rules = o->rules;
    if (o->allow) cx->opt.allow = o->allow;
    if (o->threads) cx->opt.threads = o->threads;
    /* strings of the environment are copied too: the program outlives changes there */
#define OPT_STRING_int(name)
#define OPT_STRING_str(name) if (cx->opt.name) cx->opt.name = arena_str(c->arena, cx->opt.name);
#define OPT(name, type, value, text) OPT_STRING_##type(name)
#include "base/options.def"
#undef OPT
#undef OPT_STRING_int
#undef OPT_STRING_str
    p->opt = cx->opt;
    const char *unknown = onnx_unknown_ops(cx, c->arena, c->model->m);
    if (unknown) fail(cx, E_UNSUPPORTED, "%s: operators without a meaning here: %s", c->model->m->path, unknown);
    ProgramOptions po = { .fuse = !o->no_fuse, .check = o->check || cx->opt.check, .threads = o->threads };
    po.ready = o->background && !po.check;
    if (!o->interpret) p->program = program_new(cx, c->model->m, &po);
    c->made = p;
}

sn_status sn_compile(const sn_model *model, const sn_options *options, sn_program **program, sn_error *err)
{
    Ctx cx;
    ctx_init(&cx);
    CompileCall c = { .model = model, .options = options };
    c.cancel = options ? (volatile int *)(uintptr_t)options->cancel : NULL;
    cx.cancel = c.cancel;
    Status st = guard_call(&cx, compile_guarded, &c);
    if (st == E_OK) {
        arena_bind(c.arena, NULL);
        *program = c.made;
    } else {
        arena_free(c.arena);
    }
    return api_report(&cx, st, err);
}

typedef struct LoadProgram { const char *path; const sn_options *options; Arena *arena; Package *package; sn_program *made; } LoadProgram;

static void load_program_guarded(Ctx *cx, void *arg)
{
    LoadProgram *c = arg;
    api_need(cx, c->path, "path");
    c->arena = arena_new(cx);
    sn_program *p = NEW(c->arena, sn_program);
    c->package = package_open(cx, c->path, c->options ? c->options->threads : 0);
    sn_model *m = NEW(c->arena, sn_model);
    m->m = (OnnxModel *)package_model(c->package);
    m->in = model_inputs(c->arena, m->m, &m->nin);
    p->arena = c->arena; p->package = c->package; p->model = m;
    p->cancel = c->options ? (volatile int *)(uintptr_t)c->options->cancel : NULL;
    c->made = p;
}

sn_status sn_program_load(const char *path, const sn_options *options, sn_program **program, sn_error *err)
{
    Ctx cx;
    ctx_quiet(&cx);
    LoadProgram c = { .path = path, .options = options };
    Status st = guard_call(&cx, load_program_guarded, &c);
    if (st == E_OK) {
        arena_bind(c.arena, NULL);
        *program = c.made;
    } else {
        package_close(c.package);
        arena_free(c.arena);
    }
    return api_report(&cx, st, err);
}

const sn_model *sn_program_model(const sn_program *program) { return program->model; }

typedef struct ExportCall { const sn_model *model; const char *path; const sn_export_options *o; Arena *arena; } ExportCall;

static void export_guarded(Ctx *cx, void *arg)
{
    ExportCall *c = arg;
    const sn_export_options *o = c->o;
    api_need(cx, c->model, "model");
    api_need(cx, c->path, "path");
    api_need(cx, o, "options");
    if (o->nin != c->model->nin) fail(cx, E_INVALID, "%s: %d inputs are given, wanted %d", c->model->m->path, o->nin, c->model->nin);
    if (o->nin) api_need(cx, o->in, "options->in");
    if (o->nrange) api_need(cx, o->range, "options->range");
    if ((int)o->weights < 0 || o->weights > SN_WEIGHTS_POINTER) fail(cx, E_INVALID, "weights is %d, wanted one of sn_weights", (int)o->weights);
    if (o->compiler) cx->opt.cc = o->compiler;
    if (o->rules) cx->opt.rules = o->rules;
    if (o->allow) cx->opt.allow = o->allow;
    c->arena = arena_new(cx);
    const char *unknown = onnx_unknown_ops(cx, c->arena, c->model->m);
    if (unknown) fail(cx, E_UNSUPPORTED, "%s: operators without a meaning here: %s", c->model->m->path, unknown);
    Tensor *in = NEWS(c->arena, Tensor, o->nin + 1);
    AotRange *range = NEWS(c->arena, AotRange, o->nrange + 1);
    for (int i = 0; i < o->nin; i++) in[i] = tensor_of_public(cx, &o->in[i], "input", c->model->in[i]->name);
    for (int i = 0; i < o->nrange; i++) range[i] = (AotRange){ o->range[i].name, o->range[i].least };
    AotExport e = { .path = c->path, .isa = o->isa, .weights = (AotWeights)o->weights, .threads = o->threads > 1 ? o->threads : 1, .nrange = o->nrange, .range = range };
    AotFiles f = { 0 };
    aot_export(cx, c->arena, c->model->m, in, &e, &f);
}

sn_status sn_export(const sn_model *model, const char *path, const sn_export_options *options, sn_error *err)
{
    Ctx cx;
    ctx_init(&cx);
    ExportCall c = { .model = model, .path = path, .o = options };
    Status st = guard_call(&cx, export_guarded, &c);
    arena_free(c.arena);
    return api_report(&cx, st, err);
}

void sn_program_free(sn_program *program)
{
    if (!program) return;
    if (program->program) program_free(program->program);
    package_close(program->package);
    arena_free(program->arena);
}

void ctx_of(Ctx *cx, const sn_program *p)
{
    memset(cx, 0, sizeof *cx);
    cx->opt = p->opt;
    cx->cancel = p->cancel;
}

typedef struct RunCall {
    sn_program *p;
    int nin, nout;
    const sn_tensor *in;
    sn_tensor *out;
    Arena *arena;
    Tensor *result;
    void **block;                       /* allocated for outputs */
    sn_buffer **buffer;                 /* the same on the device */
    bool prepare;
    int runs;                           /* > 0: so many, to measure kernels; results are dropped */
    const volatile int *cancel;         /* of this call; NULL: the program's */
} RunCall;

static Tensor *run_inputs(Ctx *cx, RunCall *c)
{
    const sn_model *m = c->p->model;
    if (c->nin != m->nin) fail(cx, E_INVALID, "%s: %d inputs are given, wanted %d", m->m->path, c->nin, m->nin);
    if (c->nin) api_need(cx, c->in, "in");
    Tensor *in = NEWS(c->arena, Tensor, c->nin + 1);
    for (int i = 0; i < c->nin; i++) {
        if (c->in[i].buffer) { in[i] = buffer_input(cx, c->arena, c->p, &c->in[i], m->in[i]->name); continue; }
        in[i] = tensor_of_public(cx, &c->in[i], "input", m->in[i]->name);
        if (!in[i].data && tensor_count(&in[i]) && !c->prepare) fail(cx, E_INVALID, "input '%s' has no data", m->in[i]->name);
    }
    return in;
}

static void output_strided(Ctx *cx, RunCall *c, int i)
{
    const sn_tensor *s = &c->out[i];
    const Tensor *got = &c->result[i];
    const char *name = c->p->model->m->graph->out[i].name;
    Tensor t = tensor_of_public(cx, s, "output", name);
    bool same = t.dt == got->dt && t.rank == got->rank;
    for (int k = 0; same && k < t.rank; k++) same = t.dims[k] == got->dims[k];
    if (!same)
        fail(cx, E_INVALID, "output '%s' is %s%s, but the caller's tensor is %s%s", name, dtype_info[got->dt].name, shape_str(c->arena, got->rank, got->dims),
            dtype_info[t.dt].name, shape_str(c->arena, t.rank, t.dims));
    for (int k = 0; k < t.rank; k++)
        if (t.strides[k] < 0) fail(cx, E_INVALID, "output '%s' has the stride %lld, wanted none below 0", name, (long long)t.strides[k]);
    tensor_copy_to(got, s->data, t.strides);
}

static void public_run_guarded(Ctx *cx, void *arg)
{
    RunCall *c = arg;
    api_need(cx, c->p, "program");
    const OnnxGraph *g = c->p->model->m->graph;
    c->arena = arena_new(cx);
    Tensor *in = run_inputs(cx, c);
    if (c->prepare) {
        if (c->p->program) program_prepare(cx, c->p->program, in);
        return;
    }
    if (c->runs) {
        RunStats st;
        if (!c->p->program) fail(cx, E_UNSUPPORTED, "kernels are measured of compiled models only");
        program_profile(cx, c->p->program, in, c->runs, &st);
        return;
    }
    if (c->nout != g->nout) fail(cx, E_INVALID, "%s: %d outputs are asked for, wanted %d", c->p->model->m->path, c->nout, g->nout);
    if (c->nout) api_need(cx, c->out, "out");
    size_t *bytes = NEWS(c->arena, size_t, c->nout + 1);
    c->block = NEWS(c->arena, void *, c->nout + 1);
    c->buffer = NEWS(c->arena, sn_buffer *, c->nout + 1);
    c->result = NEWS(c->arena, Tensor, c->nout + 1);
    for (int i = 0; i < c->nout && (c->p->program || c->p->package); i++) {
        if (c->out[i].buffer) { buffer_output(cx, c->p, &c->out[i], g->out[i].name, c->nin, in, &c->result[i], &bytes[i]); continue; }
        if (!c->out[i].data && c->out[i].on_device) { c->result[i].make_far = true; bytes[i] = SIZE_MAX; }
        if (!c->out[i].data || c->out[i].has_strides) continue;
        c->result[i].data = c->out[i].data;
        bytes[i] = c->out[i].bytes;
    }
    if (c->p->program) program_run(cx, c->p->program, c->arena, in, c->result, bytes);
    else if (c->p->package) package_run(cx, c->p->package, c->arena, in, c->result, bytes);
    else interp_run(cx, c->arena, c->p->model->m, in, c->result);
    for (int i = 0; i < c->nout; i++) {
        const sn_tensor *s = &c->out[i];
        size_t n = tensor_bytes(&c->result[i]);
        if (s->buffer) buffer_finish(cx, s, g->out[i].name, &c->result[i]);
        else if (c->result[i].make_far && c->result[i].far) c->buffer[i] = buffer_adopt(cx, c->p, &c->result[i]);
        else if (s->data && s->has_strides) {
            output_strided(cx, c, i);
        } else if (s->data) {
            if (n > s->bytes) fail(cx, E_INVALID, "output '%s' has %zu bytes, but the caller's buffer %zu", g->out[i].name, n, s->bytes);
            if (s->data != c->result[i].data) tensor_copy_to(&c->result[i], s->data, NULL);
        } else if (tensor_dense(&c->result[i]) && arena_give(c->arena, c->result[i].data)) {
            c->block[i] = c->result[i].data;
        } else {
            c->block[i] = block_alloc(n);
            if (!c->block[i]) fail(cx, E_NOMEM, "no memory for %zu bytes", n);
            tensor_copy_to(&c->result[i], c->block[i], NULL);
        }
    }
}

static sn_status run_call(RunCall *c, sn_error *err)
{
    Ctx cx;
    if (c->p) ctx_of(&cx, c->p);
    else ctx_quiet(&cx);
    if (c->cancel) cx.cancel = (volatile int *)(uintptr_t)c->cancel;
    Status st = guard_call(&cx, public_run_guarded, c);
    for (int i = 0; i < c->nout && c->result; i++) {
        if (st != E_OK) {
            block_free(c->block[i]);
            sn_buffer_free(c->buffer[i]);
            buffer_drop(c->p, &c->result[i]);
            continue;
        }
        sn_tensor *s = &c->out[i];
        const Tensor *t = &c->result[i];
        s->dtype = (sn_dtype)dtype_info[t->dt].onnx;
        s->rank = t->rank;
        for (int k = 0; k < t->rank; k++) s->dims[k] = t->dims[k];
        if (c->buffer[i]) {
            s->owner = s->buffer = c->buffer[i];
            s->offset = 0;
            s->bytes = tensor_bytes(t);
            s->has_strides = 0;
        }
        if (!c->block[i]) continue;
        s->data = s->owner = c->block[i];
        s->bytes = tensor_bytes(t);
        s->has_strides = 0;
    }
    arena_free(c->arena);
    return api_report(&cx, st, err);
}

sn_status sn_prepare(sn_program *program, int nin, const sn_tensor *in, sn_error *err)
{
    RunCall c = { .p = program, .nin = nin, .in = in, .prepare = true };
    return run_call(&c, err);
}

sn_status sn_run(sn_program *program, int nin, const sn_tensor *in, int nout, sn_tensor *out, sn_error *err)
{
    RunCall c = { .p = program, .nin = nin, .in = in, .nout = nout, .out = out };
    return run_call(&c, err);
}

sn_status sn_run_cancellable(sn_program *program, const volatile int *cancel, int nin, const sn_tensor *in, int nout, sn_tensor *out, sn_error *err)
{
    RunCall c = { .p = program, .nin = nin, .in = in, .nout = nout, .out = out, .cancel = cancel };
    return run_call(&c, err);
}

sn_status sn_profile(sn_program *program, int nin, const sn_tensor *in, int runs, sn_error *err)
{
    RunCall c = { .p = program, .nin = nin, .in = in, .runs = runs < 1 ? 1 : runs };
    return run_call(&c, err);
}

int sn_program_compiling(sn_program *program) { return program->program && program_compiling(program->program); }

int sn_program_variants(sn_program *program) { return program->program ? program_variants(program->program) : 0; }

/* ---- explain ------------------------------------------------------------------------------------------------------------------------------- */

typedef struct ExplainCall { sn_program *p; sn_explain_form form; Arena *arena; json_t *json; char *made; } ExplainCall;

static char *string_out(Ctx *cx, const char *s, size_t n)
{
    char *copy = block_alloc(n + 1);
    if (!copy) fail(cx, E_NOMEM, "no memory for %zu bytes", n + 1);
    memcpy(copy, s, n);
    copy[n] = 0;
    return copy;
}

static void explain_guarded(Ctx *cx, void *arg)
{
    ExplainCall *c = arg;
    api_need(cx, c->p, "program");
    if (c->p->package) fail(cx, E_INVALID, "a package keeps no evidence; compile the model to get it");
    if (!c->p->program) fail(cx, E_INVALID, "an interpreted program has no kernels");
    if (program_variants(c->p->program) == 0) fail(cx, E_INVALID, "nothing is compiled before the first run");
    c->arena = arena_new(cx);
    const ExplainOptions o = { .why = true };
    if (c->form == SN_EXPLAIN_TEXT) {
        Text t = { .arena = c->arena };
        explain_text(cx, &t, c->p->program, &o);
        c->made = string_out(cx, t.at, t.n);
        return;
    }
    c->json = explain_json(cx, c->arena, c->p->program, &o);
    size_t n = json_dumpb(c->json, NULL, 0, JSON_INDENT(2));
    if (!n) fail(cx, E_NOMEM, "no memory for the report");
    char *s = arena_alloc(c->arena, n);
    json_dumpb(c->json, s, n, JSON_INDENT(2));
    c->made = string_out(cx, s, n);
}

sn_status sn_program_explain(sn_program *program, sn_explain_form form, char **text, sn_error *err)
{
    Ctx cx;
    if (program) ctx_of(&cx, program);
    else ctx_quiet(&cx);
    ExplainCall c = { .p = program, .form = form };
    Status st = guard_call(&cx, explain_guarded, &c);
    json_decref(c.json);
    arena_free(c.arena);
    if (st == E_OK) *text = c.made;
    return api_report(&cx, st, err);
}

void sn_string_free(char *text) { block_free(text); }

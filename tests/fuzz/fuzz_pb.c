/* Fuzz target: onnx_load of bytes in memory, binary and text, and a TensorProto with the same bytes.
 *
 * With clang -fsanitize=fuzzer this is a libFuzzer target; -DFUZZ_MAIN gives a main that runs the files named as arguments, to repeat
 * a finding without libFuzzer. What was loaded is walked, every byte of every tensor read, so that a pointer outside the input is found.
 * Memory must follow the input's size: an input that makes the arena grow beyond a fixed share of it is a finding too. */
#include "onnx/onnx.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Fuzz { OnnxModel *m; Arena *arena; const uint8_t *data; size_t size; const char *path; unsigned sum; } Fuzz;

static unsigned touch(const void *p, size_t n)
{
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((const uint8_t *)p)[i];
    return sum;
}

static unsigned touch_str(const char *s) { return s ? touch(s, strlen(s)) : 0; }

static unsigned walk_tensor(const OnnxTensor *t)
{
    unsigned sum = touch_str(t->name) + touch(t->dims, (size_t)t->rank * sizeof *t->dims);
    if (t->strings)
        for (int64_t i = 0; i < t->count; i++)
            sum += touch_str(t->strings[i]);
    else if (t->dt != DT_none)
        sum += touch(t->data, (size_t)t->count * dtype_size(t->dt));
    return sum;
}

static unsigned walk_value(const OnnxValue *v)
{
    unsigned sum = touch_str(v->name);
    for (int i = 0; i < v->rank; i++)
        sum += touch_str(v->dims[i].sym);
    return sum;
}

static unsigned walk_graph(const OnnxGraph *g);

static unsigned walk_attr(const OnnxAttr *a)
{
    unsigned sum = touch_str(a->name) + touch_str(a->ref) + touch(a->s, a->s ? a->s_len + 1 : 0);
    sum += a->t ? walk_tensor(a->t) : 0;
    sum += a->g ? walk_graph(a->g) : 0;
    sum += a->tp ? walk_value(a->tp) : 0;
    for (int i = 0; i < a->n; i++) {
        sum += a->floats ? touch(&a->floats[i], sizeof(float)) : 0;
        sum += a->ints ? touch(&a->ints[i], sizeof(int64_t)) : 0;
        sum += a->strings ? touch_str(a->strings[i]) : 0;
        sum += a->tensors ? walk_tensor(a->tensors[i]) : 0;
        sum += a->graphs ? walk_graph(a->graphs[i]) : 0;
    }
    if (a->sparse_values)
        sum += walk_tensor(a->sparse_values) + walk_tensor(a->sparse_indices) + touch(a->sparse_dims, (size_t)a->sparse_rank * 8);
    return sum;
}

static unsigned walk_node(const OnnxNode *n)
{
    unsigned sum = touch_str(n->name) + touch_str(n->op) + touch_str(n->domain) + touch_str(n->overload);
    for (int i = 0; i < n->nin; i++)
        sum += touch_str(n->in[i]);
    for (int i = 0; i < n->nout; i++)
        sum += touch_str(n->out[i]);
    for (int i = 0; i < n->nattr; i++)
        sum += walk_attr(&n->attr[i]);
    return sum;
}

static unsigned walk_graph(const OnnxGraph *g)
{
    unsigned sum = touch_str(g->name);
    for (int i = 0; i < g->nnode; i++)
        sum += walk_node(&g->node[i]);
    for (int i = 0; i < g->ninit; i++)
        sum += walk_tensor(&g->init[i]);
    for (int i = 0; i < g->nin; i++)
        sum += walk_value(&g->in[i]);
    for (int i = 0; i < g->nout; i++)
        sum += walk_value(&g->out[i]);
    for (int i = 0; i < g->ninfo; i++)
        sum += walk_value(&g->info[i]);
    return sum;
}

static unsigned walk_model(const OnnxModel *m)
{
    unsigned sum = walk_graph(m->graph) + touch_str(m->doc) + touch_str(m->producer);
    for (int i = 0; i < m->nfunction; i++) {
        const OnnxFunction *f = &m->function[i];
        for (int k = 0; k < f->nnode; k++)
            sum += walk_node(&f->node[k]);
        for (int k = 0; k < f->nattr_default; k++)
            sum += walk_attr(&f->attr_default[k]);
        for (int k = 0; k < f->nattr; k++)
            sum += touch_str(f->attr[k]);
    }
    for (int i = 0; i < m->nmeta; i++)
        sum += touch_str(m->meta_key[i]) + touch_str(m->meta_value[i]);
    return sum;
}

static void fuzz_new(Ctx *cx, void *arg) { ((Fuzz *)arg)->m = onnx_new(cx); }

static void fuzz_load(Ctx *cx, void *arg)
{
    Fuzz *z = arg;
    onnx_load(cx, z->m, z->path, z->data, z->size);
    z->sum += walk_model(z->m);
}

static void fuzz_tensor(Ctx *cx, void *arg)
{
    Fuzz *z = arg;
    OnnxReader r;
    OnnxTensor t;
    PbSpan all = {z->data, z->data + z->size, NULL, NULL};
    z->arena = arena_new(cx);
    onnx_reader_init(&r, cx, z->arena, NULL, z->data, z->size);
    onnx_tensor_read(&r, &all, &t);
    z->sum += walk_tensor(&t);
}

static void check_memory(const Arena *a, size_t size)
{
    size_t limit = ((size_t)20 << 20) + size * 1536;    /* sparse tensors may use 16 MiB and 1024 times the input; the rest is arrays */
    if (arena_used(a) > limit) {
        fprintf(stderr, "%zu bytes of memory for an input of %zu\n", arena_used(a), size);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const paths[] = {"fuzz.onnx", "fuzz.onnxtxt"};
    for (int i = 0; i < 2; i++) {
        Ctx cx;
        Fuzz z = {.data = data, .size = size, .path = paths[i]};
        ctx_init(&cx);
        cx.opt.fail = -1;
        if (guard_call(&cx, fuzz_new, &z) != E_OK)
            return 0;
        Status st = guard_call(&cx, fuzz_load, &z);
        if (st != E_OK && (cx.notes || !*cx.text))
            abort();
        check_memory(z.m->arena, size);
        onnx_close(z.m);
    }
    Ctx cx;
    Fuzz z = {.data = data, .size = size};
    ctx_init(&cx);
    cx.opt.fail = -1;
    guard_call(&cx, fuzz_tensor, &z);
    check_memory(z.arena, size);
    arena_free(z.arena);
    return 0;
}

#ifdef FUZZ_MAIN
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char why[256];
        File f;
        if (file_map(argv[i], &f, why, sizeof why) != E_OK) {
            fprintf(stderr, "%s: %s\n", argv[i], why);
            return 1;
        }
        LLVMFuzzerTestOneInput(f.data, f.size);
        file_unmap(&f);
    }
    printf("%d passed, 0 failed, 0 skipped\n", argc - 1);
    return 0;
}
#endif

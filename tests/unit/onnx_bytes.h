/* ONNX files as bytes made here: a tiny protobuf encoder, and loading what it made. */
#ifndef SN_TEST_ONNX_BYTES_H
#define SN_TEST_ONNX_BYTES_H
#include "test.h"
#include "onnx/onnx.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- encoder --------------------------------------------------------------------------------------------------------------- */

typedef struct Enc { uint8_t *at; size_t n, cap; } Enc;

static inline void put(Enc *e, const void *p, size_t n)
{
    if (e->n + n > e->cap) {
        e->cap = 2 * (e->n + n) + 64;
        e->at = realloc(e->at, e->cap);
        assert_non_null(e->at);
    }
    if (n)
        memcpy(e->at + e->n, p, n);
    e->n += n;
}

static inline void varint(Enc *e, uint64_t v)
{
    uint8_t b;
    for (; v >= 0x80; v >>= 7) {
        b = (uint8_t)(v | 0x80);
        put(e, &b, 1);
    }
    b = (uint8_t)v;
    put(e, &b, 1);
}

static inline void num(Enc *e, int field, uint64_t v) { varint(e, (uint64_t)field << 3); varint(e, v); }
static inline void bytes(Enc *e, int field, const void *p, size_t n) { varint(e, (uint64_t)field << 3 | 2); varint(e, n); put(e, p, n); }
static inline void str(Enc *e, int field, const char *s) { bytes(e, field, s, strlen(s)); }
static inline void f32(Enc *e, int field, float v) { varint(e, (uint64_t)field << 3 | 5); put(e, &v, 4); }
/* Puts the message and empties it. */
static inline void msg(Enc *e, int field, Enc *m) { bytes(e, field, m->at, m->n); free(m->at); *m = (Enc){0}; }

static inline Enc tensor(const char *name, int type, int rank, const int64_t *dims)
{
    Enc t = {0};
    for (int i = 0; i < rank; i++)
        num(&t, 1, (uint64_t)dims[i]);
    num(&t, 2, (uint64_t)type);
    str(&t, 8, name);
    return t;
}

static inline Enc node(const char *op, const char *in, const char *out)
{
    Enc n = {0};
    str(&n, 1, in);
    str(&n, 2, out);
    str(&n, 4, op);
    return n;
}

/* A model around a graph; empties the graph. */
static inline Enc model(Enc *graph)
{
    Enc m = {0}, o = {0};
    num(&m, 1, 8);
    num(&o, 2, 17);
    msg(&m, 8, &o);
    msg(&m, 7, graph);
    return m;
}

static inline Enc model_with_tensor(Enc *t) { Enc g = {0}; msg(&g, 5, t); return model(&g); }
static inline Enc model_with_node(Enc *n) { Enc g = {0}; msg(&g, 1, n); return model(&g); }
static inline Enc model_with_attr(Enc *a) { Enc n = node("Op", "x", "y"); msg(&n, 5, a); return model_with_node(&n); }

/* ---- loading ------------------------------------------------------------------------------------------------------------------ */

typedef struct Load { Ctx cx; OnnxModel *m; const char *path; const void *bytes; size_t n; Status st; } Load;

static inline void do_new(Ctx *cx, void *arg) { ((Load *)arg)->m = onnx_new(cx); }
static inline void do_load(Ctx *cx, void *arg) { Load *l = arg; onnx_load(cx, l->m, l->path, l->bytes, l->n); }

static inline Load load(const char *path, const void *p, size_t n)
{
    Load l = {.path = path, .bytes = p, .n = n};
    ctx_init(&l.cx);
    l.cx.opt.fail = -1;
    assert_int_equal(guard_call(&l.cx, do_new, &l), E_OK);
    l.st = guard_call(&l.cx, do_load, &l);
    return l;
}

static inline const OnnxGraph *loaded(const Load *l)
{
    if (l->st != E_OK)
        print_error("%s\n", l->cx.text);
    assert_int_equal(l->st, E_OK);
    return l->m->graph;
}

/* The load must have failed with this status and a message that has this piece. */
static inline void failed(Load l, Status st, const char *piece)
{
    if (l.st != st || !strstr(l.cx.text, piece)) {
        print_error("wanted %s and '%s', found %s: %s\n", status_name(st), piece, status_name(l.st), l.st ? l.cx.text : "");
        assert_true(!"the failure that was wanted");
    }
    onnx_close(l.m);
}

static inline void refuse(Enc e, Status st, const char *piece)
{
    failed(load(NULL, e.at, e.n), st, piece);
    free(e.at);
}
#endif

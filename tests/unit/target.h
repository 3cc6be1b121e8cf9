/* For tests of kernels: the instruction sets, and a device for each that this machine can run. */
#ifndef SN_TEST_TARGET_H
#define SN_TEST_TARGET_H
#include "api/segment.h"
#include <string.h>

static const char *const isa_names[] = { "amx", "avx512bf16", "avx512vnni", "avx512", "avx2", "sse2", "neon", "plain" };

/* False when the machine cannot run it, or SN_ISA asks for another one. Nothing is kept on disk. */
static inline bool isa_open(Ctx *cx, Arena *a, const char *isa, Target *t)
{
    RtError e = { .launch = -1 };
    Options opt = cx->opt;
    if (opt.isa && strcmp(opt.isa, isa))
        return false;
    opt.isa = isa;
    opt.cache = "";
    *t = (Target){ .name = "cpu", .dialect = &dialect_c, .api = &dev_cpu };
    if (dev_cpu.open(&t->device, &opt, &e) != E_OK)
        return false;
    t->isa = dev_cpu.isa(t->device);
    t->vectors = gen_c_vectors(t->isa);
    t->vectors.split = t->vectors.lanes >= 16;       /* right on all, quicker on some */
    t->prelude = gen_c_prelude(a, t->isa);
    t->rules = rules_new(cx, a, opt.rules);
    return true;
}

/* The same for the i-th name, where products of narrow numbers are nothing apart: of the sets that differ in these only the best is tried. *any: was one before? */
static inline bool isa_open_next(Ctx *cx, Arena *a, size_t i, bool *any, Target *t)
{
    if ((*any && isa_find(isa_names[i])->dots) || !isa_open(cx, a, isa_names[i], t)) return false;
    return *any = true;
}
#endif

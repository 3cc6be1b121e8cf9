/* OpenCL C 1.2, and sub-groups where a device has them. Buffers are memory objects with a byte offset, since an arena is one object. */
#include "gen/gen.h"

#include <string.h>

#include "gen/prelude.h"                 /* made from the files of prelude */

static Vectors opencl_vectors(const char *isa) { (void)isa; return (Vectors){ .lanes = LANES_simt }; }

static const char *opencl_prelude(Arena *a, const char *isa)
{
    const char *rest = gen_simt_prelude(a, prelude_opencl);
    return isa && !strcmp(isa, "sub-groups") ? arena_fmt(a, "#define SUB_GROUPS\n%s", rest) : rest;
}

static void opencl_print(Ctx *cx, Arena *a, const char *isa, const LoopKernel *k, KernelSource *out)
{
    (void)isa;
    static const SimtWords words = {
        .function = "__kernel __attribute__((reqd_work_group_size(%s, 1, 1)))", .global = "__global ", .alone = "", .local = "__local ",
        .group = "(i64)get_group_id(0)", .groups = "get_num_groups(0)", .thread = "(int)get_local_id(0)", .objects = true,
    };
    gen_simt(cx, a, k, &words, out);
}

const Dialect dialect_opencl = { .name = "opencl", .vectors = opencl_vectors, .prelude = opencl_prelude, .print = opencl_print };

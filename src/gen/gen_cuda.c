/* CUDA C++ without headers: NVRTC knows the functions that are called here. */
#include "gen/gen.h"

#include <stdlib.h>
#include <string.h>

#include "gen/prelude.h"                 /* made from the files of prelude */

static Vectors cuda_vectors(const char *isa) { (void)isa; return (Vectors){ .lanes = LANES_simt, .waits = true }; }

static const char *cuda_prelude(Arena *a, const char *isa)
{
    (void)isa;
    Text t = { .arena = a };
    text_add(&t, "%s%s%s%s", gen_simt_prelude(a, prelude_cuda), prelude_rows, prelude_packs, prelude_look);
    return t.at;
}

static const SimtWords words = {
    .function = "extern \"C\" __global__ __launch_bounds__(%s)", .at_once = true, .global = "", .alone = "__restrict__ ", .local = "__shared__ ",
    .cluster = "__cluster_dims__(%d, 1, 1)",
    .group = "group", .groups = "groups", .where = "const i64 group = blockIdx.x, groups = gridDim.x;", .thread = "(int)threadIdx.x",
};

static void cuda_print(Ctx *cx, Arena *a, const char *isa, const LoopKernel *k, KernelSource *out)
{
    bool bulk = isa && !strncmp(isa, "sm_", 3) && strtol(isa + 3, NULL, 10) >= 90;
    if (!gen_rows(cx, a, k, &words, bulk, out)) gen_simt(cx, a, k, &words, out);
}

static void cuda_join(Arena *a, int n, const LoopKernel *const *k, const KernelSource *const *texts, KernelSource *out) { gen_join(a, &words, n, k, texts, out); }

const Dialect dialect_cuda = { .name = "cuda", .vectors = cuda_vectors, .prelude = cuda_prelude, .print = cuda_print, .join = cuda_join };

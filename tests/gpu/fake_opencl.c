/* A libOpenCL.so.1 for tests that stands before the machine's own, and fails when it is told to. FAKE_OPENCL is a comma list:
 *     compile=hang    clBuildProgram of a source never returns;  compile=crash: the process ends there
 *     CALL=CODE       the call gives that status                 clFinish=-5, clEnqueueNDRangeKernel=-2
 *     subgroups=1     the device says that it has sub-groups, of one thread each
 * REAL_OPENCL is the path of the library behind it. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CL_API __attribute__((visibility("default")))
typedef struct Real {
#define CL(result, name, args) result (*name) args;
#include "rt/opencl.def"
#undef CL
} Real;
static Real real;

static const char *told(const char *name)
{
    const char *s = getenv("FAKE_OPENCL");
    size_t n = strlen(name);
    for (; s && *s; s += strcspn(s, ","), s += *s == ',')
        if (!strncmp(s, name, n) && s[n] == '=') return s + n + 1;
    return NULL;
}
static int32_t code(const char *name) { return told(name) ? atoi(told(name)) : 0; }

static __attribute__((constructor)) void real_open(void)
{
    const char *path = getenv("REAL_OPENCL");
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!lib) return;
#define CL(result, name, args) *(void **)&real.name = dlsym(lib, "cl" #name);
#include "rt/opencl.def"
#undef CL
}

#define PASS(name, params, args) CL_API int32_t cl##name params { return code("cl" #name) ? code("cl" #name) : real.name args; }
#define MAKE(name, params, args) CL_API void *cl##name params { if (code("cl" #name)) { *st = code("cl" #name); return NULL; } return real.name args; }
PASS(GetPlatformIDs, (uint32_t n, void **p, uint32_t *f), (n, p, f))
PASS(GetPlatformInfo, (void *p, uint32_t w, size_t n, void *t, size_t *s), (p, w, n, t, s))
PASS(GetDeviceIDs, (void *p, uint64_t k, uint32_t n, void **d, uint32_t *f), (p, k, n, d, f))
MAKE(CreateContext, (const intptr_t *p, uint32_t n, void *const *d, void (*f)(const char *, const void *, size_t, void *), void *a, int32_t *st), (p, n, d, f, a, st))
PASS(ReleaseContext, (void *c), (c))
MAKE(CreateCommandQueue, (void *c, void *d, uint64_t p, int32_t *st), (c, d, p, st))
PASS(ReleaseCommandQueue, (void *q), (q))
MAKE(CreateBuffer, (void *c, uint64_t f, size_t n, void *h, int32_t *st), (c, f, n, h, st))
PASS(ReleaseMemObject, (void *m), (m))
PASS(EnqueueWriteBuffer, (void *q, void *m, uint32_t w, size_t a, size_t n, const void *f, uint32_t ne, void *const *es, void **e), (q, m, w, a, n, f, ne, es, e))
PASS(EnqueueReadBuffer, (void *q, void *m, uint32_t w, size_t a, size_t n, void *t, uint32_t ne, void *const *es, void **e), (q, m, w, a, n, t, ne, es, e))
MAKE(CreateProgramWithBinary, (void *c, uint32_t n, void *const *d, const size_t *l, const uint8_t **b, int32_t *bs, int32_t *st), (c, n, d, l, b, bs, st))
PASS(GetProgramBuildInfo, (void *p, void *d, uint32_t w, size_t n, void *t, size_t *s), (p, d, w, n, t, s))
PASS(GetProgramInfo, (void *p, uint32_t w, size_t n, void *t, size_t *s), (p, w, n, t, s))
PASS(ReleaseProgram, (void *p), (p))
MAKE(CreateKernel, (void *p, const char *n, int32_t *st), (p, n, st))
PASS(ReleaseKernel, (void *k), (k))
PASS(SetKernelArg, (void *k, uint32_t i, size_t n, const void *v), (k, i, n, v))
PASS(EnqueueNDRangeKernel, (void *q, void *k, uint32_t r, const size_t *o, const size_t *g, const size_t *l, uint32_t n, void *const *es, void **e), (q, k, r, o, g, l, n, es, e))
PASS(GetEventProfilingInfo, (void *e, uint32_t w, size_t n, void *t, size_t *s), (e, w, n, t, s))
PASS(ReleaseEvent, (void *e), (e))
PASS(Finish, (void *q), (q))

enum { EXTENSIONS = 0x1030, SUB_GROUPS = 0x105C };
CL_API int32_t clGetDeviceInfo(void *device, uint32_t what, size_t n, void *to, size_t *size)
{
    static const char more[] = " cl_khr_subgroup_shuffle";
    int32_t st = real.GetDeviceInfo(device, what, n, to, size);
    if (!told("subgroups")) return st;
    if (what == SUB_GROUPS) {
        const uint32_t many = 1024;
        if (to && n >= sizeof many) memcpy(to, &many, sizeof many);
        return 0;
    }
    if (what == EXTENSIONS && size) *size += sizeof more;
    if (what == EXTENSIONS && to && strlen(to) + sizeof more <= n) strcat(to, more);
    return st;
}

static int from_source;
CL_API void *clCreateProgramWithSource(void *context, uint32_t n, const char **text, const size_t *length, int32_t *st)
{
    static const char one[] = "#define get_max_sub_group_size() 1u\n#define get_num_sub_groups() ((uint)get_local_size(0))\n#define get_sub_group_local_id() 0u\n"
                              "#define get_sub_group_id() ((uint)get_local_id(0))\n#define sub_group_shuffle_xor(v, m) (v)\n";
    from_source = 1;
    if (!told("subgroups") || n != 1) return real.CreateProgramWithSource(context, n, text, length, st);
    const char *both[] = { one, text[0] };
    const size_t lengths[] = { sizeof one - 1, length[0] };
    return real.CreateProgramWithSource(context, 2, both, lengths, st);
}

CL_API int32_t clBuildProgram(void *program, uint32_t n, void *const *devices, const char *options, void (*notify)(void *, void *), void *arg)
{
    const char *how = from_source ? told("compile") : NULL;
    if (how && !strncmp(how, "hang", 4)) for (;;) pause();
    if (how && !strncmp(how, "crash", 5)) abort();
    return code("clBuildProgram") ? code("clBuildProgram") : real.BuildProgram(program, n, devices, options, notify, arg);
}

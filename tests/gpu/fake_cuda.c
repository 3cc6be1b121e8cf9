/* A libcuda.so.1 for tests without a card: memory is this machine's, kernels are C++ compiled by _fake_nvrtc.sh and run by fake_kernel.h, and each call
 * fails when it is told to. FAKE_CUDA is a comma list:
 *     CALL=CODE     the call gives that CUresult          cuInit=100, cuMemAlloc_v2=2
 *     trap=CODE     a launch succeeds; the next wait gives CODE, and every call after it
 *     version=N     what cuDriverGetVersion says
 *     memory=N      bytes that the device has
 *     best=N        time as events tell it: a launch takes 1 ms with groups of N threads, else 2 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CALL __attribute__((visibility("default"))) int
static size_t used;
static int trapped;
static double told_ms;                  /* of the launches so far, where time is told */
static long calls;

static long long told(const char *name, long long otherwise)
{
    const char *s = getenv("FAKE_CUDA");
    size_t n = strlen(name);
    for (; s && *s; s += strcspn(s, ","), s += *s == ',')
        if (!strncmp(s, name, n) && s[n] == '=') return atoll(s + n + 1);
    return otherwise;
}
#define FAIL_IF_TOLD                                          \
    do {                                                      \
        calls++;                                              \
        if (trapped == 2) return (int)told("trap", 700);      \
        long long code_ = told(__func__, 0);                  \
        if (code_) return (int)code_;                         \
    } while (0)

static size_t memory(void) { return (size_t)told("memory", (long long)4 << 30); }

/* how many calls of the driver there were, for tests that load this library as well */
__attribute__((visibility("default"))) long fake_calls(void) { return calls; }
CALL cuInit(unsigned f) { (void)f; FAIL_IF_TOLD; return 0; }
CALL cuDriverGetVersion(int *v) { FAIL_IF_TOLD; *v = (int)told("version", 13000); return 0; }
CALL cuDeviceGetCount(int *n) { FAIL_IF_TOLD; *n = 1; return 0; }
CALL cuDeviceGet(int *d, int i) { FAIL_IF_TOLD; *d = i; return 0; }
CALL cuDeviceGetName(char *s, int n, int d) { (void)d; FAIL_IF_TOLD; snprintf(s, (size_t)n, "fake GPU"); return 0; }
CALL cuDeviceGetAttribute(int *v, int which, int d)
{
    (void)d;
    FAIL_IF_TOLD;
    *v = which == 16 ? 2 : which == 75 ? 9 : which == 76 ? 0 : which == 97 ? 232448 : 0;
    return 0;
}
CALL cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; FAIL_IF_TOLD; *c = &used; return 0; }
CALL cuDevicePrimaryCtxRelease_v2(int d) { (void)d; return 0; }
CALL cuCtxPushCurrent_v2(void *c) { (void)c; FAIL_IF_TOLD; return 0; }
CALL cuCtxPopCurrent_v2(void **c) { *c = &used; return 0; }
CALL cuStreamSynchronize(void *s);
CALL cuCtxSynchronize(void) { return cuStreamSynchronize(NULL); }
CALL cuMemGetInfo_v2(size_t *left, size_t *total) { FAIL_IF_TOLD; *total = memory(); *left = *total > used ? *total - used : 0; return 0; }
CALL cuMemAlloc_v2(uint64_t *at, size_t n)
{
    FAIL_IF_TOLD;
    size_t *p = NULL;
    if (used + n > memory() || posix_memalign((void **)&p, 256, n + 256)) return 2;
    memset(p, 0xA5, n + 256);
    *p = n;
    used += n;
    *at = (uint64_t)(uintptr_t)p + 256;
    return 0;
}
CALL cuMemFree_v2(uint64_t at) { FAIL_IF_TOLD; size_t *p = (size_t *)(uintptr_t)(at - 256); used -= *p; free(p); return 0; }
CALL cuMemAllocHost_v2(void **at, size_t n) { FAIL_IF_TOLD; *at = malloc(n ? n : 1); return *at ? 0 : 2; }
CALL cuMemFreeHost(void *at) { free(at); return 0; }
CALL cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *s) { (void)s; FAIL_IF_TOLD; memcpy((void *)(uintptr_t)to, from, n); return 0; }
CALL cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *s) { (void)s; FAIL_IF_TOLD; memcpy(to, (void *)(uintptr_t)from, n); return 0; }

/* ---- streams, graphs, events: a graph keeps its launches ---- */
typedef struct Call { void *fn; unsigned groups, threads, shared; int nparam; uint64_t word[96]; uint64_t clear; size_t nclear; } Call;
typedef struct Graph { int n, cap; Call *call; } Graph;
typedef struct Stream { Graph *recording; void (*call)(void *); void *arg; } Stream;
typedef struct Function { void *fn; int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, void **, int); int nparam, cluster; } Function;
typedef struct Module { void *lib; Function function[512]; int n; } Module;

static Stream by_default;
static Stream *stream_of(void *s) { return s ? s : &by_default; }

CALL cuStreamCreate(void **s, unsigned f) { (void)f; FAIL_IF_TOLD; *s = calloc(1, sizeof(Stream)); return *s ? 0 : 2; }
CALL cuStreamDestroy_v2(void *s) { free(s); return 0; }
/* launches run as they are made, a call of the host when it is waited for: what holds them back may be told later to let them go */
CALL cuLaunchHostFunc(void *s, void (*f)(void *), void *arg) { FAIL_IF_TOLD; stream_of(s)->call = f, stream_of(s)->arg = arg; return 0; }
CALL cuStreamSynchronize(void *s)
{
    Stream *q = stream_of(s);
    if (q->call) q->call(q->arg), q->call = NULL;
    if (trapped == 1) trapped = 2;
    FAIL_IF_TOLD;
    return 0;
}
static void *followed;                  /* the stream of the event that the default stream was told to wait for */
__attribute__((visibility("default"))) void *fake_followed(void) { return followed; }
CALL cuStreamWaitEvent(void *s, void *e, unsigned f) { (void)f; FAIL_IF_TOLD; if (!s) followed = ((void **)e)[1]; return 0; }
CALL cuStreamBeginCapture_v2(void *s, int mode) { (void)mode; FAIL_IF_TOLD; stream_of(s)->recording = calloc(1, sizeof(Graph)); return 0; }
CALL cuStreamEndCapture(void *s, void **g) { FAIL_IF_TOLD; *g = stream_of(s)->recording; stream_of(s)->recording = NULL; return 0; }
CALL cuGraphInstantiateWithFlags(void **x, void *g, unsigned long long f)
{
    (void)f;
    FAIL_IF_TOLD;
    Graph *c = malloc(sizeof *c), *from = g;
    *c = *from;
    c->call = malloc(sizeof(Call) * (size_t)(c->n + 1));
    if (c->n) memcpy(c->call, from->call, sizeof(Call) * (size_t)c->n);
    *x = c;
    return 0;
}
CALL cuGraphDestroy(void *g) { free(((Graph *)g)->call); free(g); return 0; }
CALL cuGraphExecDestroy(void *g) { free(((Graph *)g)->call); free(g); return 0; }
CALL cuEventCreate(void **e, unsigned f) { (void)f; FAIL_IF_TOLD; *e = calloc(2, sizeof(double)); return 0; }
CALL cuEventDestroy_v2(void *e) { free(e); return 0; }
CALL cuEventRecord(void *e, void *s)
{
    ((void **)e)[1] = s;
    FAIL_IF_TOLD;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    *(double *)e = told("best", 0) ? told_ms : (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
    return 0;
}
CALL cuEventSynchronize(void *e) { (void)e; FAIL_IF_TOLD; return 0; }
CALL cuEventElapsedTime(float *ms, void *a, void *b) { FAIL_IF_TOLD; *ms = (float)(*(double *)b - *(double *)a); return 0; }

/* ---- modules ---- */
CALL cuModuleLoadData(void **m, const void *code)
{
    FAIL_IF_TOLD;
    char path[64];
    int fd = memfd_create("kernel", 0);
    /* a unit is a shared object with a line "sinter-nvrtc" behind it */
    const char *at = code;
    size_t n = 0;
    for (;; n++) if (!memcmp(at + n, "\nsinter-nvrtc\n", 14)) break;
    if (fd < 0 || write(fd, code, n) != (ssize_t)n) return 1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    Module *x = calloc(1, sizeof *x);
    x->lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!x->lib) { fprintf(stderr, "fake gpu: %s\n", dlerror()); free(x); return 200; }      /* fd stays open: its path must stay unique */
    *m = x;
    return 0;
}
CALL cuModuleUnload(void *m) { dlclose(((Module *)m)->lib); free(m); return 0; }
CALL cuModuleGetFunction(void **f, void *m, const char *name)
{
    FAIL_IF_TOLD;
    Module *x = m;
    char count[256];
    if (x->n == 512) return 1;
    Function *fn = &x->function[x->n];
    fn->fn = dlsym(x->lib, name);
    void *launch = dlsym(x->lib, "fake_launch");
    memcpy(&fn->launch, &launch, sizeof launch);
    snprintf(count, sizeof count, "%s_params", name);
    const int *np = dlsym(x->lib, count);
    if (!fn->fn || !launch || !np) return 500;
    fn->nparam = np[0];
    fn->cluster = np[1];
    *f = fn;
    x->n++;
    return 0;
}
CALL cuFuncSetAttribute(void *f, int a, int v) { (void)f, (void)a, (void)v; FAIL_IF_TOLD; return 0; }
CALL cuFuncGetAttribute(int *v, int a, void *f) { (void)f; FAIL_IF_TOLD; *v = a == 4 ? 40 : 0; return 0; }      /* registers */
CALL cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int threads, size_t shared) { (void)f, (void)shared; FAIL_IF_TOLD; *n = 2048 / threads; return 0; }

CALL cuOccupancyMaxActiveClusters(int *n, void *f, const void *config) { (void)f, (void)config; FAIL_IF_TOLD; *n = 1; return 0; }

static int call_run(const Call *c)
{
    const Function *f = c->fn;
    void *param[96];
    if (!f) { memset((void *)(uintptr_t)c->clear, 0, c->nclear); return 0; }
    told_ms += (long long)c->threads == told("best", 0) ? 1 : 2;
    for (int i = 0; i < c->nparam; i++) param[i] = (void *)(uintptr_t)&c->word[i];
    return f->launch(f->fn, c->groups, c->threads, (unsigned)f->cluster, c->shared, param, c->nparam);
}

static void call_add(Graph *g, const Call *c)
{
    if (g->n == g->cap) { g->cap = g->cap ? 2 * g->cap : 16; g->call = realloc(g->call, sizeof(Call) * (size_t)g->cap); }
    g->call[g->n++] = *c;
}

CALL cuLaunchKernel(void *fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **param, void **extra)
{
    (void)gy, (void)gz, (void)by, (void)bz, (void)extra;
    FAIL_IF_TOLD;
    if (told("trap", 0)) { trapped = 1; return 0; }
    Call c = { .fn = fn, .groups = gx, .threads = bx, .shared = shared, .nparam = ((Function *)fn)->nparam };
    for (int i = 0; i < c.nparam; i++) c.word[i] = *(const uint64_t *)param[i];
    Graph *g = stream_of(s)->recording;
    if (!g) return call_run(&c);
    call_add(g, &c);
    return 0;
}
CALL cuMemsetD8Async(uint64_t to, unsigned char with, size_t n, void *s)
{
    FAIL_IF_TOLD;
    Graph *g = stream_of(s)->recording;
    if (!g) { memset((void *)(uintptr_t)to, with, n); return 0; }
    call_add(g, &(Call){ .clear = to, .nclear = n });
    return 0;
}
CALL cuGraphLaunch(void *x, void *s)
{
    (void)s;
    FAIL_IF_TOLD;
    const Graph *g = x;
    for (int i = 0; i < g->n; i++) { int r = call_run(&g->call[i]); if (r) return r; }
    return 0;
}
CALL cuGetErrorName(int code, const char **s) { *s = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER"; return 0; }
CALL cuGetErrorString(int code, const char **s) { (void)code; *s = "as the fake driver was told"; return 0; }

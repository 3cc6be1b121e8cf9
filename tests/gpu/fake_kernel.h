/* The other half of fake_cuda.c: what a kernel's text needs to be compiled as C++ for this machine. A thread of a block is a fiber; blocks run one after the
 * other. Shuffles and barriers hold a fiber until all others of the warp or block are there; one that never comes is a hang, and is reported. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct dim3 { unsigned x, y, z; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{ x, y }; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{ x, y, z, w }; }
template <class A, class B> static inline A fake_bits(B b) { A a; static_assert(sizeof a == sizeof b, "sizes"); memcpy(&a, &b, sizeof a); return a; }
static inline int __float_as_int(float x) { return fake_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return fake_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return fake_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return fake_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return fake_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return fake_bits<double>(x); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    const unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
    return r;
}

static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline double __dsqrt_rn(double a) { return sqrt(a); }

/* ---- threads ---- */
enum { FAKE_THREADS = 1024, FAKE_STACK = 192 << 10 };
typedef struct FakeMeeting { int here; unsigned turn; unsigned long long word[2][32]; } FakeMeeting;
static ucontext_t fake_main, *fake_uc;
static char *fake_stack;
static bool *fake_done;
static int fake_me, fake_n;
static long fake_idle;
static FakeMeeting fake_warp[FAKE_THREADS / 32], fake_block;
static dim3 threadIdx, blockIdx, blockDim, gridDim;
static void *fake_fn, **fake_param;
static int fake_nparam;

static void fake_wait(void)
{
    if (++fake_idle > 50000000) { fprintf(stderr, "fake gpu: threads wait for ever\n"); abort(); }
    swapcontext(&fake_uc[fake_me], &fake_main);
    threadIdx.x = (unsigned)fake_me;
}

static void fake_meet(FakeMeeting *m, int all)
{
    const unsigned turn = m->turn;
    if (++m->here == all) { m->here = 0; m->turn++; fake_idle = 0; return; }
    while (m->turn == turn) fake_wait();
}

static inline void __syncthreads(void) { fake_meet(&fake_block, fake_n); }
static inline void __syncwarp(void) { fake_meet(&fake_warp[fake_me / 32], 32); }
template <class T> static T fake_shuffle(T v, int from)
{
    FakeMeeting *const w = &fake_warp[fake_me / 32];
    const unsigned turn = w->turn;
    unsigned long long x = 0;
    memcpy(&x, &v, sizeof v);
    w->word[turn & 1][fake_me % 32] = x;
    fake_meet(w, 32);
    T r;
    memcpy(&r, &w->word[turn & 1][from], sizeof r);
    return r;
}
template <class T> static T __shfl_xor_sync(unsigned, T v, int with) { return fake_shuffle(v, (fake_me % 32) ^ with); }
template <class T> static T __shfl_sync(unsigned, T v, int from) { return fake_shuffle(v, from); }
template <class T> static T __shfl_up_sync(unsigned, T v, int by) { return fake_shuffle(v, fake_me % 32 >= by ? fake_me % 32 - by : fake_me % 32); }
template <class T> static T __shfl_down_sync(unsigned, T v, int by) { return fake_shuffle(v, fake_me % 32 + by < 32 ? fake_me % 32 + by : fake_me % 32); }
template <class T> static T atomicExch(T *p, T v) { T was = *p; *p = v; return was; }
template <class T> static T atomicAdd(T *p, T v) { T was = *p; *p = was + v; return was; }
template <class T> static T atomicCAS(T *p, T want, T v) { T was = *p; if (was == want) *p = v; return was; }

typedef unsigned long long fake_word;
static void fake_call(void)
{
    fake_word a[96];
    for (int i = 0; i < 96; i++) a[i] = i < fake_nparam ? *(const fake_word *)fake_param[i] : 0;
#define A8(i) a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4], a[i + 5], a[i + 6], a[i + 7]
#define W8 fake_word, fake_word, fake_word, fake_word, fake_word, fake_word, fake_word, fake_word
    ((void (*)(W8, W8, W8, W8, W8, W8, W8, W8, W8, W8, W8, W8))fake_fn)(A8(0), A8(8), A8(16), A8(24), A8(32), A8(40), A8(48), A8(56), A8(64), A8(72), A8(80), A8(88));
}

static void fake_thread(void)
{
    for (;;) {
        threadIdx.x = (unsigned)fake_me;
        fake_call();
        fake_done[fake_me] = true;
        swapcontext(&fake_uc[fake_me], &fake_main);
    }
}

/* A launch. Words are 8 bytes each; all parameters of a kernel are. */
extern "C" int fake_launch(void *fn, unsigned groups, unsigned threads, void **param, int nparam)
{
    if (threads > FAKE_THREADS || nparam > 96) return 1;
    if (!fake_uc) {
        fake_uc = (ucontext_t *)calloc(FAKE_THREADS, sizeof *fake_uc);
        fake_stack = (char *)malloc((size_t)FAKE_THREADS * FAKE_STACK);
        fake_done = (bool *)calloc(FAKE_THREADS, 1);
    }
    fake_fn = fn; fake_param = param; fake_nparam = nparam; fake_n = (int)threads;
    blockDim.x = threads; gridDim.x = groups;
    for (unsigned b = 0; b < groups; b++) {
        blockIdx.x = b;
        memset(fake_warp, 0, sizeof fake_warp);
        memset(&fake_block, 0, sizeof fake_block);
        for (int i = 0; i < fake_n; i++) {
            getcontext(&fake_uc[i]);
            fake_uc[i].uc_stack.ss_sp = fake_stack + (size_t)i * FAKE_STACK;
            fake_uc[i].uc_stack.ss_size = FAKE_STACK;
            fake_uc[i].uc_link = NULL;
            makecontext(&fake_uc[i], fake_thread, 0);
            fake_done[i] = false;
        }
        for (int left = fake_n; left;)
            for (int i = 0; i < fake_n; i++) {
                if (fake_done[i]) continue;
                fake_me = i;
                swapcontext(&fake_main, &fake_uc[i]);
                left -= fake_done[i];
            }
    }
    return 0;
}

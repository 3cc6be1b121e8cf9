/* The other half of fake_cuda.c: what a kernel's text needs to be compiled as C++ for this machine. A thread of a block is a fiber; blocks run one after the
 * other, those of a cluster together. Shuffles and barriers hold a fiber until all others of the warp, block or cluster are there; one that never comes is a
 * hang, and is reported. Of the copies that run by themselves, every second one is done at once and every other one when it is waited for, so that neither
 * what reads too early nor what writes too early goes unseen. Loads have no duration here: that a copy overtakes one is not seen. */
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
#define __cluster_dims__(...)
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
enum { FAKE_THREADS = 1024, FAKE_CLUSTER = 8, FAKE_STACK = 192 << 10 };
typedef struct FakeMeeting { int here; unsigned turn; unsigned long long word[2][32]; } FakeMeeting;
static ucontext_t fake_main, *fake_uc;
static char *fake_stack;
static bool *fake_done;
static int fake_me, fake_n;
static long fake_idle;
static FakeMeeting fake_warp[FAKE_CLUSTER * FAKE_THREADS / 32], fake_block[FAKE_CLUSTER], fake_cluster;
static int fake_ncluster;
static unsigned char *fake_room[FAKE_CLUSTER];      /* shared memory whose size the launch gives, of each block */
static dim3 threadIdx, blockIdx, blockDim, gridDim;
static void *fake_fn, **fake_param;
static int fake_nparam;

static void fake_wait(void)
{
    if (++fake_idle > 50000000) { fprintf(stderr, "fake gpu: threads wait for ever\n"); abort(); }
    swapcontext(&fake_uc[fake_me], &fake_main);
}

static void fake_meet(FakeMeeting *m, int all)
{
    const unsigned turn = m->turn;
    if (++m->here == all) { m->here = 0; m->turn++; fake_idle = 0; return; }
    while (m->turn == turn) fake_wait();
}

static inline void __syncthreads(void) { fake_meet(&fake_block[fake_me / fake_n], fake_n); }
static inline int __syncthreads_or(int x) { (void)x; __syncthreads(); return 0; }      /* of what is 0 in all threads */
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
static inline void __threadfence(void) { }
template <class T> static T atomicExch(T *p, T v) { T was = *p; *p = v; return was; }
template <class T> static T atomicAdd(T *p, T v) { T was = *p; *p = was + v; return was; }
template <class T> static T atomicCAS(T *p, T want, T v) { T was = *p; if (was == want) *p = v; return was; }

/* ---- clusters, and copies that run by themselves: see the prelude ---- */
#define ROOM(name) unsigned char *const name = fake_room[fake_me / fake_n]
static inline unsigned cluster_rank(void) { return (unsigned)(fake_me / fake_n); }
static inline void cluster_meet(void) { fake_meet(&fake_cluster, fake_ncluster * fake_n); }
typedef struct FakeBar { unsigned bytes; unsigned short turn, arrived; } FakeBar;      /* in the 8 bytes of a barrier */
typedef struct FakeCopy { void *to; const void *from; unsigned bytes; FakeBar *bar; } FakeCopy;
static FakeCopy fake_copy[4096];
static int fake_ncopy, fake_copies;
static void fake_fault(const char *what) { fprintf(stderr, "fake gpu: %s\n", what); abort(); }
static void fake_come(FakeBar *b, unsigned bytes)
{
    if (b->bytes < bytes) fake_fault("more bytes than a barrier expects");
    b->bytes -= bytes;
    if (!b->bytes && b->arrived) b->arrived = 0, b->turn ^= 1;
}
static inline void filled_open(long *bar) { memset(bar, 0, 8); }
template <int W> static bool last_of(unsigned *came, unsigned seen)
{
    if (seen) fake_fault("what was seen is not 0");
    __syncwarp();
    return fake_me % 32 == 0 && (*came)++ % W == W - 1;
}
static inline void filled_opened(void) {}
static inline void filled_expect(long *bar, unsigned bytes)
{
    FakeBar *b = (FakeBar *)bar;
    if (b->arrived) fake_fault("a barrier is used again before its turn is over");
    b->arrived = 1;
    b->bytes += bytes;
    fake_come(b, 0);
}
static inline void fill(void *to, const void *from, unsigned bytes, long *bar)
{
    if (((uintptr_t)to | (uintptr_t)from | bytes) % 16) fake_fault("a copy that is not of whole pieces of 16 bytes");
    if (fake_copies++ % 2) { memcpy(to, from, bytes); fake_come((FakeBar *)bar, bytes); return; }
    if (fake_ncopy == 4096) fake_fault("too many copies at a time");
    fake_copy[fake_ncopy++] = FakeCopy{ to, from, bytes, (FakeBar *)bar };
}
static inline void filled_wait(long *bar, unsigned turn)
{
    FakeBar *b = (FakeBar *)bar;
    for (int i = 0; i < fake_ncopy; i++) {
        const FakeCopy c = fake_copy[i];
        if (c.bar != b) continue;
        memcpy(c.to, c.from, c.bytes);
        fake_copy[i--] = fake_copy[--fake_ncopy];
        fake_come(b, c.bytes);
    }
    while (b->turn == turn) fake_wait();
    fake_idle = 0;
}

/* may come before they are expected */
template <class T> static void cluster_send(void *p, int block, T x, long *bar)
{
    FakeBar *b = (FakeBar *)(fake_room[block] + ((unsigned char *)bar - fake_room[fake_me / fake_n]));
    memcpy(fake_room[block] + ((unsigned char *)p - fake_room[fake_me / fake_n]), &x, sizeof x);
    b->bytes -= (unsigned)sizeof x;
    if (!b->bytes && b->arrived) b->arrived = 0, b->turn ^= 1;
}
static inline void cluster_wait(long *bar, unsigned turn) { filled_wait(bar, turn); }

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
        fake_call();
        fake_done[fake_me] = true;
        swapcontext(&fake_uc[fake_me], &fake_main);
    }
}

/* The stacks go with the module. */
__attribute__((destructor)) static void fake_end(void) { free(fake_uc); free(fake_stack); free(fake_done); }

/* A launch. Words are 8 bytes each; all parameters of a kernel are. */
extern "C" int fake_launch(void *fn, unsigned groups, unsigned threads, unsigned cluster, unsigned shared, void **param, int nparam)
{
    const int all = (int)(threads * cluster);
    if (threads > FAKE_THREADS || nparam > 96 || cluster > FAKE_CLUSTER || groups % cluster || (cluster > 1 && threads % 32)) return 1;
    static int room;
    if (all > room) {
        free(fake_uc); free(fake_stack); free(fake_done);
        room = all;
        fake_uc = (ucontext_t *)calloc((size_t)all, sizeof *fake_uc);
        fake_stack = (char *)malloc((size_t)all * FAKE_STACK);
        fake_done = (bool *)calloc((size_t)all, 1);
    }
    fake_fn = fn; fake_param = param; fake_nparam = nparam; fake_n = (int)threads; fake_ncluster = (int)cluster;
    blockDim.x = threads; gridDim.x = groups;
    for (unsigned i = 0; i < cluster; i++) if (posix_memalign((void **)&fake_room[i], 128, shared + 128)) return 2;
    for (unsigned b = 0; b < groups; b += cluster) {
        memset(fake_warp, 0, sizeof fake_warp);
        memset(fake_block, 0, sizeof fake_block);
        memset(&fake_cluster, 0, sizeof fake_cluster);
        for (unsigned i = 0; i < cluster; i++) memset(fake_room[i], 0xA5, shared + 128);
        fake_ncopy = 0;
        for (int i = 0; i < all; i++) {
            getcontext(&fake_uc[i]);
            fake_uc[i].uc_stack.ss_sp = fake_stack + (size_t)i * FAKE_STACK;
            fake_uc[i].uc_stack.ss_size = FAKE_STACK;
            fake_uc[i].uc_link = NULL;
            makecontext(&fake_uc[i], fake_thread, 0);
            fake_done[i] = false;
        }
        for (int left = all; left;)
            for (int i = 0; i < all; i++) {
                if (fake_done[i]) continue;
                fake_me = i;
                threadIdx.x = (unsigned)(i % fake_n);
                blockIdx.x = b + (unsigned)(i / fake_n);
                swapcontext(&fake_main, &fake_uc[i]);
                left -= fake_done[i];
            }
        if (fake_ncopy) fake_fault("copies that nobody waited for");
        for (unsigned i = 0; i < 128 * cluster; i++) if (fake_room[i / 128][shared + i % 128] != 0xA5) fake_fault("a kernel writes past its shared memory");
    }
    for (unsigned i = 0; i < cluster; i++) free(fake_room[i]);
    return 0;
}

/* Is a launch cut into parts where that is faster, and only there?
 *
 *   bench_grain [THREADS]
 *
 * One kernel (64 numbers for each point, 16 multiplications and additions for each) at sizes that last from half a microsecond to some hundreds, as a list of 16 launches and as
 * one launch after a pause in which the workers fell asleep. Each on one thread, in parts whatever it costs, and as the device chooses from what handing over
 * was seen to cost. In turns within one process; medians. The last column is the device's choice against the better of the other two. */
#include "rt/rt.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { POINT = 64, TURNS = 16, MOST = 4096, ROW = 16, ROUNDS = 101, HEAT = 40 };
enum { ALONE, PARTS, CHOSEN, FORMS };
static float numbers[MOST * POINT];

static void grain_kernel(void *const *buf, const int64_t *arg, void *scratch, int64_t lo, int64_t hi, int64_t *err)
{
    float *x = buf[0];
    (void)arg, (void)scratch, (void)err;
    for (int64_t i = lo; i < hi; i++)
        for (int k = 0; k < TURNS; k++)
            for (int j = 0; j < POINT; j++) x[i * POINT + j] = x[i * POINT + j] * 0.999f + 0.5f;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double middle(double *s)
{
    qsort(s, ROUNDS, sizeof *s, by_size);
    return s[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    Ctx cx;
    Device *d;
    RtError e = { 0 };
    int threads = argc > 1 ? atoi(argv[1]) : 0;
    ctx_init(&cx);
    cx.opt.threads = threads;
    if (dev_cpu.open(&d, &cx.opt, &e)) { fprintf(stderr, "%s\n", e.text); return 1; }
    KernelFn fn = grain_kernel;
    void *buf[1] = { numbers };
    static double s[FORMS][ROUNDS];
    for (int pause = 0; pause < 2; pause++) {
        int n = pause ? 1 : ROW;
        printf("%-34s %10s %10s %10s %8s\n", pause ? "one launch after a pause: points" : "16 launches in a row: points", "alone us", "parts us", "chosen us", "to best");
        for (int64_t total = 16; total <= MOST; total *= 2) {
            static Launch list[FORMS][ROW];
            static Pace pace[ROW];
            for (int f = 0; f < FORMS; f++)
                for (int i = 0; i < n; i++) {
                    list[f][i] = (Launch){ .kernel = (const Kernel *)(uintptr_t)fn, .buf = buf, .nbuf = 1, .total = total, .grain = f == ALONE ? total : 1 };
                    pace[i] = (Pace){ 0 };
                    if (f == CHOSEN) list[f][i].pace = &pace[i];
                }
            for (int r = -HEAT; r < ROUNDS; r++)
                for (int k = 0; k < FORMS; k++) {
                    int f = (k + r + HEAT) % FORMS;
                    const struct timespec nap = { 0, 300000 };
                    if (pause) nanosleep(&nap, NULL);
                    else dev_cpu.run(d, n, list[f], 0, NULL, NULL, &e);      /* what the form before left behind is gone */
                    double begin = time_now();
                    dev_cpu.run(d, n, list[f], 0, NULL, NULL, &e);
                    if (r >= 0) s[f][r] = (time_now() - begin) / n * 1e6;
                }
            double t[FORMS];
            for (int f = 0; f < FORMS; f++) t[f] = middle(s[f]);
            printf("%-34lld %10.2f %10.2f %10.2f %8.2f\n", (long long)total, t[ALONE], t[PARTS], t[CHOSEN], t[CHOSEN] / (t[ALONE] < t[PARTS] ? t[ALONE] : t[PARTS]));
        }
    }
    dev_cpu.close(d);
    return 0;
}

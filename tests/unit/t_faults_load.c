/* Models with data in other files, run as programs from another folder: found beside the model, read at offsets beyond 2 GiB, kept apart when it is shared
 * or missing. What the readers refuse is in t_onnx_read.c. */
#include "model.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char home[] = "/tmp/sinter-test-XXXXXX";

static const char *at_home(const char *name)
{
    static char path[4][256];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", home, name);
    return path[k];
}

static void put_text(const char *path, const char *text)
{
    char why[200];
    if (file_write(path, text, strlen(text), why, sizeof why)) fail_msg("%s", why);
}

/* A sparse file: it takes no room on the disk. */
static void put_floats(const char *path, int64_t offset, const float *v, size_t n)
{
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, v, n * sizeof *v, offset), (ssize_t)(n * sizeof *v));
    close(fd);
}

static int home_make(void **state)
{
    (void)state;
    return !mkdtemp(home);
}

static int home_remove(void **state)
{
    (void)state;
    static const char *const name[] = { "m/a.onnxtxt", "m/b.onnxtxt", "m/c.onnxtxt", "m/w.bin", "m/big.bin", "link/a.onnxtxt", "link/w.bin", "m", "link" };
    for (size_t i = 0; i < COUNT_OF(name); i++) remove(at_home(name[i]));
    return rmdir(home);
}

static void run_file(const char *path, Status want, const char *words)
{
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        Trial r;
        trial_open(&r, (TrialMode)mode, NULL);
        r.path = path;
        trial_inputs(&r, "f32[2,2] 1 2 3 4");
        if (trial_run(&r) != want) fail_msg("%s: %s %s", path, status_name(r.status), r.status ? r.cx.text : "");
        if (want) {
            if (!strstr(r.cx.text, words)) fail_msg("\"%s\" lacks \"%s\"", r.cx.text, words);
        } else {
            r.want = trial_tensors(&r.cx, r.arena, words, &r.nwant);
            assert_int_equal(trial_differences(&r, 0), 0);
        }
        trial_close(&r);
    }
}

static void test_beside_the_model(void **state)
{
    (void)state;
    mkdir(at_home("m"), 0700);
    mkdir(at_home("link"), 0700);
    put_floats(at_home("m/w.bin"), 0, (float[]){ 9, 9, 1, 10, 100, 1000 }, 6);
    /* two weights over the same bytes, one of them scaled by what follows */
    put_text(at_home("m/a.onnxtxt"), OPSET(18) "g (float[2,2] x) => (float[2,2] y, float[2,2] z) <float[2,2] w = [\"location\": \"w.bin\", \"offset\": \"8\"],\n"
             "float[2,2] v = [\"location\": \"w.bin\", \"offset\": \"8\"], float two = {2}> { a = Mul(w, two) y = MatMul(x, a) z = MatMul(x, v) }");
    char was[4096];
    assert_non_null(getcwd(was, sizeof was));
    assert_int_equal(chdir("/"), 0);
    run_file(at_home("m/a.onnxtxt"), E_OK, "f32[2,2] 402 4020 806 8060; f32[2,2] 201 2010 403 4030");
    assert_int_equal(symlink(at_home("m/a.onnxtxt"), at_home("link/a.onnxtxt")), 0);
    run_file(at_home("link/a.onnxtxt"), E_OK, "f32[2,2] 402 4020 806 8060; f32[2,2] 201 2010 403 4030");
    assert_int_equal(chdir(was), 0);
    put_text(at_home("m/b.onnxtxt"), OPSET(18) "g (float[2,2] x) => (float[2,2] y) <float[2,2] w = [\"location\": \"w.bin\", \"offset\": \"16\"]> { y = MatMul(x, w) }");
    run_file(at_home("m/b.onnxtxt"), E_FORMAT, "16 bytes at offset 16, but 'w.bin' has 24 bytes");
    put_text(at_home("m/b.onnxtxt"), OPSET(18) "g (float[2,2] x) => (float[2,2] y) <float[2,2] w = [\"location\": \"gone.bin\"]> { c = Mul(w, w) y = MatMul(x, c) }");
    run_file(at_home("m/b.onnxtxt"), E_IO, "gone.bin");
}

static void test_beyond_two_gigabytes(void **state)
{
    (void)state;
    mkdir(at_home("m"), 0700);
    put_floats(at_home("m/big.bin"), ((int64_t)1 << 31) + 16, (float[]){ 1, 10, 100, 1000 }, 4);
    put_floats(at_home("m/big.bin"), ((int64_t)1 << 32) + 64, (float[]){ 1, 0, 0, 1 }, 4);
    put_text(at_home("m/c.onnxtxt"), OPSET(18) "g (float[2,2] x) => (float[2,2] y) <float[2,2] w = [\"location\": \"big.bin\", \"offset\": \"2147483664\", \"length\": \"16\"],\n"
             "float[2,2] v = [\"location\": \"big.bin\", \"offset\": \"4294967360\"]> { a = MatMul(x, w) y = MatMul(a, v) }");
    run_file(at_home("m/c.onnxtxt"), E_OK, "f32[2,2] 201 2010 403 4030");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_beside_the_model), cmocka_unit_test(test_beyond_two_gigabytes) };
    return cmocka_run_group_tests(tests, home_make, home_remove);
}

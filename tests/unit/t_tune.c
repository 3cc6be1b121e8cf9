/* limit: 900 */
/* Tuning: every candidate schedule gives the results of the kernel's own; schedules as text; records in their file. */
#include "model.h"
#include <unistd.h>

#define DOT  OPSET(17) "g (float[37,45] x, float[45,70] w, float[70] b) => (float[37,70] y) { a = MatMul(x, w) c = Add(a, b) y = Relu(c) }"
#define ROWS OPSET(17) "g (float[9,333] x) => (float[9,333] y) { y = Softmax(x) }"

typedef struct Forced { Trial *t; ProgramOptions o; Program *p; Tensor *out; } Forced;

static void forced_body(Ctx *cx, void *arg)
{
    Forced *f = arg;
    if (!f->t->model->graph) onnx_load(cx, f->t->model, f->t->path, f->t->text, strlen(f->t->text));
    f->p = program_new(cx, f->t->model, &f->o);
    f->out = NEWS(f->t->arena, Tensor, 2);
    program_run(cx, f->p, f->t->arena, f->t->in, f->out, NULL);
}

static void every_candidate(const char *text, const char *in, SubKind kind)
{
    Trial t;
    trial_open(&t, MODE_fused, text);
    trial_inputs(&t, in);
    for (int j = 0; j < t.nin; j++)
        for (int64_t e = 0; e < tensor_count(&t.in[j]); e++) ((float *)t.in[j].data)[e] = (float)((e * 7919 + j) % 101) * 0.02f - 1;
    Forced own = { .t = &t, .o = { .fuse = true, .plain = true } };
    if (guard_call(&t.cx, forced_body, &own)) fail_msg("%s", t.cx.text);
    int n, tried = 0;
    const SegmentEvidence *e = program_evidence(&t.cx, own.p, t.arena, &n);
    for (int k = 0; k < e[0].nkernel; k++) {
        const KernelEvidence *v = &e[0].kernel[k];
        Sched *list;
        int count = v->loops && v->loops->sub->kind == kind ? sched_candidates(t.arena, v->loops, &list) : 0;
        for (int i = 0; i < count; i++) {
            Sched same;
            assert_true(sched_parse(sched_text(t.arena, &list[i]), &same));
            assert_memory_equal(&same, &list[i], sizeof same);
            if (i % 3) continue;         /* each compiles */
            Forced f = { .t = &t, .o = { .fuse = true, .plain = true, .force_kernel = v->structure, .force = list[i] } };
            if (guard_call(&t.cx, forced_body, &f)) fail_msg("%s: %s", sched_text(t.arena, &list[i]), t.cx.text);
            for (int64_t q = 0; q < tensor_count(&own.out[0]); q++) {
                float a = ((float *)f.out[0].data)[q], b = ((float *)own.out[0].data)[q];
                if (!(fabsf(a - b) <= 1e-5f * (1 + fabsf(b)))) fail_msg("%s: element %lld is %.9g, was %.9g", sched_text(t.arena, &list[i]), (long long)q, (double)a, (double)b);
            }
            program_free(f.p);
            tried++;
        }
    }
    if (own.p && program_target_of(own.p)->vectors.lanes > 1) assert_true(tried > 0);
    program_free(own.p);
    trial_close(&t);
}

static void test_dot(void **state) { (void)state; every_candidate(DOT, "f32[37,45] 0; f32[45,70] 0; f32[70] 0", SUB_dot); }
static void test_rows(void **state) { (void)state; every_candidate(ROWS, "f32[9,333] 0", SUB_rows); }

static void test_text(void **state)
{
    (void)state;
    Sched s;
    assert_true(sched_parse("", &s));
    assert_true(sched_parse("rows=6 vectors=2", &s));
    assert_int_equal(s.rows, 6);
    assert_int_equal(s.vectors, 2);
    assert_false(sched_parse("rows=0", &s));
    assert_false(sched_parse("rows=65", &s));
    assert_false(sched_parse("rows=6 colour=2", &s));
    assert_false(sched_parse("rows=6,vectors=2", &s));
}

typedef struct RecordJob { const char *path; Records *r; const RecordKey *key; const char *choice; char *got; Arena *a; } RecordJob;
static void open_body(Ctx *cx, void *arg) { RecordJob *j = arg; j->r = records_open(cx, j->path, true); }
static void put_body(Ctx *cx, void *arg) { RecordJob *j = arg; records_put(cx, j->r, j->key, j->choice, 1, 2); }

static void test_records(void **state)
{
    (void)state;
    Ctx cx;
    char path[] = "/tmp/sinter-records-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    ctx_init(&cx);
    Arena *a = arena_new(&cx);
    RecordKey key = { "k_1", "t1", "machine, of some kind", "cc" }, other = { "k_1", "t2", "machine, of some kind", "cc" };
    RecordJob j = { .path = path, .key = &key, .choice = "rows=2", .a = a };
    assert_null(records_open(&cx, "/nonexistent/records", false));
    assert_int_equal(guard_call(&cx, open_body, &j), E_OK);
    assert_null(records_get(j.r, a, &key));
    assert_int_equal(guard_call(&cx, put_body, &j), E_OK);
    j.choice = "rows=4";
    assert_int_equal(guard_call(&cx, put_body, &j), E_OK);
    assert_string_equal(records_get(j.r, a, &key), "rows=4");
    assert_null(records_get(j.r, a, &other));
    records_close(j.r);
    RecordJob bad = { .path = "/nonexistent/records" };
    assert_int_equal(guard_call(&cx, open_body, &bad), E_IO);
    arena_free(a);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_text), cmocka_unit_test(test_records), cmocka_unit_test(test_dot), cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

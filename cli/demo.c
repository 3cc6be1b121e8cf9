/* sinter demo: worked examples whose figures are those of real programs.
 *
 * add-relu: A = X + B, Y = max(A, 0) on N elements of b bytes. In two kernels X, B are read, A written and read again, Y written: 5Nb. In one kernel A stays in
 * a register: 3Nb; and when A is wanted as well it is written once, never read: 4Nb. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

typedef struct AddRelu {
    Cli *c;
    Arena *a;
    json_t *json;                       /* of the whole, or NULL */
    bool right;
} AddRelu;

/* The model: with_sum: A is an output too. Built by the public calls. */
static OnnxModel *add_relu_model(AddRelu *x, bool with_sum)
{
    sn_graph *g;
    sn_model *m;
    sn_error e;
    sn_value in[2] = { 0 }, a = 0, y = 0;
    const int64_t any = -1;
    const char *const n[2] = { "N", "M" };
    if (sn_graph_new(&g, &e)) fail(x->c->cx, (Status)e.code, "%s", e.text);
    sn_graph_input(g, "X", SN_F32, 1, &any, &n[0], &in[0]);
    sn_graph_input(g, "B", SN_F32, 1, &any, &n[1], &in[1]);
    sn_graph_op(g, "Add", NULL, 2, in, 1, &a);
    sn_graph_op(g, "Relu", NULL, 1, &a, 1, &y);
    sn_graph_output(g, "Y", y);
    if (with_sum) sn_graph_output(g, "A", a);
    if (sn_graph_finish(g, &m, &e)) fail(x->c->cx, (Status)e.code, "%s", e.text);
    vec_push(x->a, &x->c->model, m->m);
    return m->m;
}

static Tensor vector(AddRelu *x, int64_t n)
{
    return *tensor_new(x->a, x->c->cx, DT_f32, 1, &n);
}

/* Runs a model and says what it moved. */
static EvidenceSum traffic(AddRelu *x, const OnnxModel *m, bool fuse, const Tensor *in, Tensor *out)
{
    int n;
    Program *p = cli_program(x->c, m, fuse, false);
    program_run(x->c->cx, p, x->a, in, out, NEWS(x->a, size_t, 3));
    const SegmentEvidence *e = program_evidence(x->c->cx, p, x->a, &n);
    return evidence_sum(x->a, n, e);
}

static void say_traffic(AddRelu *x, const char *what, const char *key, EvidenceSum s, int64_t nb, int want_kernels, int want_nb)
{
    int64_t bytes = s.read_bytes + s.write_bytes;
    bool right = s.kernels == want_kernels && bytes == want_nb * nb;
    x->right &= right;
    if (!x->json)
        printf("%-36s %d kernel%s %4lld bytes = %gNb%s\n", what, s.kernels, s.kernels == 1 ? ", " : "s,", (long long)bytes, (double)bytes / (double)nb,
            right ? "" : "   WRONG");
    else
        json_object_set_new(x->json, key, json_pack("{s:i, s:I, s:f, s:b}", "kernels", s.kernels, "bytes", (json_int_t)bytes, "Nb", (double)bytes / (double)nb, "right", right));
}

/* A vector of n elements laid out with a stride (0: one element for all; negative: backwards). */
static Tensor strided(AddRelu *x, int64_t n, int64_t stride, uint64_t seed)
{
    int64_t step = stride < 0 ? -stride : stride, cells = (n ? (n - 1) * step : 0) + 1;
    Tensor all = vector(x, cells), t = vector(x, n);
    fill_random(&all, seed);
    t.strides[0] = stride;
    t.data = (float *)all.data + (stride < 0 ? cells - 1 : 0);
    return t;
}

/* Odd sizes, strided and broadcast operands: one program for all of them, against the arithmetic itself. */
static void check_shapes(AddRelu *x, const OnnxModel *m)
{
    static const int64_t sizes[] = { 0, 1, 2, 3, 7, 15, 17, 63, 65, 1023, 4097, 100003 }, strides[] = { 1, 2, 3, -1, 0 };
    int count = 0, wrong = 0;
    Program *p = cli_program(x->c, m, true, false);
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (size_t j = 0; j < COUNT_OF(strides); j++)
            for (int scalar = 0; scalar < 2; scalar++, count++) {
                int64_t n = sizes[i], nb = scalar ? 1 : n;
                Tensor in[2] = { strided(x, n, strides[j], 1 + i), strided(x, nb, scalar ? 1 : strides[(j + 1) % COUNT_OF(strides)], 100 + j) }, out[2] = { { 0 } };
                program_run(x->c->cx, p, x->a, in, out, NEWS(x->a, size_t, 3));
                bool same = out[0].rank == 1 && out[0].dims[0] == n;
                for (int64_t k = 0; same && k < n; k++) {
                    float a = *(const float *)tensor_at(&in[0], k) + *(const float *)tensor_at(&in[1], scalar ? 0 : k), y = a > 0 ? a : 0;
                    same = *(const float *)tensor_at(&out[0], k) == y && *(const float *)tensor_at(&out[1], k) == a;
                }
                wrong += !same;
            }
    x->right &= !wrong;
    if (x->json) json_object_set_new(x->json, "shapes", json_pack("{s:i, s:i, s:i}", "checked", count, "wrong", wrong, "variants", program_variants(p)));
    else printf("\n%d shapes (0 to 100003 elements, strides 1, 2, 3, -1, 0, B of one element): %d wrong, %d compiled variants\n", count, wrong, program_variants(p));
}

static bool values_are(AddRelu *x, const char *name, const Tensor *t, const float *want)
{
    bool right = t->rank == 1 && t->dims[0] == 4;
    for (int i = 0; right && i < 4; i++) right = *(const float *)tensor_at(t, i) == want[i];
    if (x->json) {
        json_t *j = tensor_json(name, t, 4);
        json_object_set(x->json, name, json_object_get(j, "values"));
        json_decref(j);
    } else show_tensor(x->a, name, t);
    return right;
}

static int demo_add_relu(Cli *c)
{
    AddRelu x = { .c = c, .a = c->arena, .json = flag_given(c, FLAG_json) ? json_object() : NULL, .right = true };
    static const float vx[4] = { -3, 1, 2, -1 }, vb[4] = { 1, 2, -4, 2 }, va[4] = { -2, 3, -2, 1 }, vy[4] = { 0, 3, 0, 1 };
    Tensor in[2] = { vector(&x, 4), vector(&x, 4) }, y[1] = { { 0 } }, both[2] = { { 0 } }, apart[1] = { { 0 } };
    memcpy(in[0].data, vx, sizeof vx);
    memcpy(in[1].data, vb, sizeof vb);
    const OnnxModel *m = add_relu_model(&x, false), *with_sum = add_relu_model(&x, true);
    EvidenceSum separate = traffic(&x, m, false, in, apart), fused = traffic(&x, m, true, in, y), kept = traffic(&x, with_sum, true, in, both);
    if (!x.json) printf("A = Add(X, B), Y = Relu(A), N = 4 elements of b = 4 bytes\n\n");
    x.right &= values_are(&x, "X", &in[0], vx);
    x.right &= values_are(&x, "B", &in[1], vb);
    x.right &= values_are(&x, "A", &both[1], va);
    x.right &= values_are(&x, "Y", &y[0], vy);
    for (int i = 0; i < 4; i++) x.right &= ((float *)apart[0].data)[i] == vy[i] && ((float *)both[0].data)[i] == vy[i];
    if (!x.json) printf("\nlogical memory traffic (each buffer that a kernel reads or writes, once)\n");
    say_traffic(&x, "separate", "separate", separate, 16, 2, 5);
    say_traffic(&x, "fused", "fused", fused, 16, 1, 3);
    say_traffic(&x, "fused, and A is wanted too", "fused_keeping_A", kept, 16, 1, 4);
    check_shapes(&x, with_sum);
    if (x.json) {
        json_object_set_new(x.json, "right", json_boolean(x.right));
        print_json(x.json);
    } else if (!x.right) {
        printf("WRONG: see above\n");
    }
    return x.right ? EXIT_FINE : EXIT_WRONG;
}

int cmd_demo(Cli *c)
{
    if (!c->narg) {
        const char *text = "A = X + B, Y = max(A, 0): what fusion saves, counted and checked";
        if (flag_given(c, FLAG_json)) print_json(json_pack("{s:s}", "add-relu", text));
        else printf("add-relu   %s\n", text);
        return EXIT_FINE;
    }
    if (strcmp(c->arg[0], "add-relu")) fail(c->cx, E_INVALID, "there is no demo '%s'; sinter demo lists them", c->arg[0]);
    return demo_add_relu(c);
}

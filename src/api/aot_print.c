/* What stands around the kernels of a C file: its header, its tables of inputs and outputs, and a main that reads and writes .npy files. */
#include "api/aot.h"

#include <inttypes.h>
#include <string.h>

#include "api/aot_text.h"                /* made from the files of api/aot: static const char aot_NAME[] */

const char *aot_calls_source(void) { return aot_calls; }
const char *aot_ctype(DType dt) { return dtype_info[dt].ctype; }

static const char *shape_c(Aot *x, const AotValue *v)
{
    Text t = { .arena = x->a };
    text_add(&t, "[");
    for (int k = 0; k < v->rank; k++) {
        const char *d = v->dim[k];
        if (!strncmp(d, "in->", 4)) d += 4;
        bool plain = v->lo[k] == v->hi[k] || !strpbrk(d, "(");
        for (const char *s = d; plain && *s; s++) if (!strncmp(s, "in->", 4)) plain = false;
        if (v->lo[k] == v->hi[k]) text_add(&t, "%s%" PRId64, k ? "," : "", v->hi[k]);
        else if (plain && strncmp(d, "size", 4) && strncmp(d, "n_", 2)) text_add(&t, "%s%s", k ? "," : "", d);
        else text_add(&t, "%s%" PRId64 "..%" PRId64, k ? "," : "", v->lo[k], v->hi[k]);
    }
    text_add(&t, "]");
    return t.at;
}

const char *aot_comment(Aot *x, const char *s)
{
    char *c = arena_str(x->a, s);
    for (char *p = c; *p; p++) if ((p[0] == '*' && p[1] == '/') || (p[0] == '/' && p[1] == '*') || (unsigned char)*p < 32) *p = '_';
    return c;
}

bool aot_varies(const AotValue *v)
{
    for (int k = 0; k < v->rank; k++) if (v->lo[k] != v->hi[k]) return true;
    return false;
}

void aot_header(Aot *x, Text *t)
{
    const AotOptions *o = x->o;
    const AotFiles *f = x->ports;
    text_add(t, "/* %s: made by sinter %s. No memory but the caller's is used, and no state is kept: several threads may run it, each with its own workspace. */\n", x->lower, SINTER_VERSION);
    text_add(t, "#ifndef %s_H\n#define %s_H\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n", x->upper, x->upper);
    text_add(t, "#define %s_WORKSPACE %" PRId64 "        /* bytes that %s_run needs, aligned to 64 */\n", x->upper, x->workspace, x->lower);
    text_add(t, "#define %s_WEIGHTS %zu        /* bytes of weights%s */\n", x->upper, x->weights.n, o->weights == AOT_POINTER ? ", from the caller, aligned to 64" : "");
    if (o->threads > 1) text_add(t, "#define %s_THREADS %d        /* at most so many parts at once */\n", x->upper, o->threads);
    text_add(t, "\nenum {\n    %s_OK = 0,\n    %s_SIZES = 1,        /* a size is outside its bounds, or of a kind that the file was not made for */\n"
        "    %s_VALUES = 2,       /* an input that decides about shapes or branches has other values than the file was made for */\n"
        "    %s_INDEX = 3         /* data made an index leave its axis; the outputs mean nothing */\n};\n\n", x->upper, x->upper, x->upper, x->upper);
    if (o->threads > 1)
        text_add(t, "/* Threads, as the caller has them. run calls part(job, lo, hi, slot) for pieces of [0, total), which together are all of it, each of about `grain` or more,\n"
            " * and returns when all are done; at one time no slot is used twice, and each is below both %s_THREADS and count(). */\n"
            "typedef struct %s_threads {\n    void *self;\n    int (*count)(void *self);\n"
            "    void (*run)(void *self, void (*part)(void *job, int64_t lo, int64_t hi, int slot), void *job, int64_t total, int64_t grain);\n} %s_threads;\n\n", x->upper, x->lower, x->lower);
    text_add(t, "/* Tensors are row-major without gaps. */\ntypedef struct %s_inputs {\n", x->lower);
    for (int i = 0; i < f->nin; i++) {
        Text shape = { .arena = x->a };
        for (int k = 0; k < f->in[i].rank; k++)
            if (f->in[i].dims[k] < 0) text_add(&shape, "%s%s", k ? "," : "", x->param.at[~f->in[i].dims[k]].var);
            else text_add(&shape, "%s%" PRId64, k ? "," : "", f->in[i].dims[k]);
        text_add(t, "    const %s *%s;        /* '%s': %s[%s] */\n", aot_ctype(f->in[i].dt), x->in_name[i], aot_comment(x, f->in[i].name), dtype_info[f->in[i].dt].name, shape.n ? shape.at : "");
    }
    for (int i = 0; i < x->param.n; i++)
        text_add(t, "    int64_t %s;        /* %" PRId64 "..%" PRId64 " */\n", x->param.at[i].var, x->param.at[i].lo, x->param.at[i].hi);
    if (o->weights == AOT_POINTER) text_add(t, "    const void *weights;        /* the bytes of %s */\n", o->bin);
    if (o->threads > 1) text_add(t, "    const %s_threads *threads;        /* NULL: the caller's thread only */\n", x->lower);
    if (!f->nin && !x->param.n && o->weights != AOT_POINTER && o->threads < 2) text_add(t, "    int nothing;\n");
    text_add(t, "} %s_inputs;\n\ntypedef struct %s_outputs {\n", x->lower, x->lower);
    for (int i = 0; i < f->nout; i++) {
        const AotValue *v = &x->result[i];
        text_add(t, "    %s *%s;        /* '%s': %s%s", aot_ctype(v->dt), x->out_name[i], aot_comment(x, f->out[i].name), dtype_info[v->dt].name, shape_c(x, v));
        if (aot_varies(v)) text_add(t, ", at most %" PRId64 " bytes", f->out[i].bytes);
        text_add(t, " */\n");
        if (aot_varies(v)) text_add(t, "    int64_t *%s_dims;        /* %d sizes, set by the run; may be NULL */\n", x->out_name[i], v->rank);
    }
    if (!f->nout) text_add(t, "    int nothing;\n");
    text_add(t, "} %s_outputs;\n\n/* %s_OK, or why there is no result. Outputs overlap neither inputs nor one another. */\n", x->lower, x->upper);
    text_add(t, "int %s_run(const %s_inputs *in, %s_outputs *out, void *workspace);\n\n#ifdef __cplusplus\n}\n#endif\n#endif\n", x->lower, x->lower, x->lower);
}

static const char *npy_descr(DType dt)
{
    const DTypeInfo *d = &dtype_info[dt];
    return d->bytes == 1 ? "|" : "<";
}

static void print_ports(Aot *x, Text *t, const char *what, int n, const AotPort *p)
{
    text_add(t, "static const struct port ports_%s[] = {\n", what);
    for (int i = 0; i < n; i++) {
        char *file = arena_str(x->a, p[i].name);
        for (char *s = file; *s; s++) if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+", *s)) *s = '_';
        if (file[0] == '.') file[0] = '_';
        bool plain = dtype_info[p[i].dt].numpy[0] != 'V';
        const int bits = dtype_bits(p[i].dt);
        text_add(t, "    { \"%.200s\", \"%s%s\", \"%s\", %d, %d, %d, %d, %" PRId64 ", {", file, npy_descr(p[i].dt), dtype_info[p[i].dt].numpy, plain ? "" : dtype_info[p[i].dt].name,
            dtype_info[p[i].dt].bytes, p[i].rank, bits < 8 ? bits : 0, bits < 8 && dtype_info[p[i].dt].class == 'S' ? 1 << (bits - 1) : 0, p[i].bytes);
        for (int k = 0; k < p[i].rank; k++) text_add(t, "%s%" PRId64, k ? ", " : " ", p[i].dims[k]);
        text_add(t, "%s } },\n", p[i].rank ? "" : " 0");
    }
    if (!n) text_add(t, "    { \"\", \"\", \"\", 0, 0, 0, 0, 0, { 0 } },\n");
    text_add(t, "};\n");
}

void aot_tail(Aot *x, Text *t)
{
    const AotFiles *f = x->ports;
    text_add(t, "\n#if defined MODEL_MAIN || defined MODEL_CALL\n");
    text_add(t, "/* The same with arrays of addresses. size: the sizes that vary. dims: 16 for each output. */\n"
        "#ifdef MODEL_MAIN\nstatic\n#else\nint sinter_call(const void *const *in, void *const *out, const int64_t *size, int64_t *dims, void *workspace, const void *weight_bytes, const void *threads);\n#endif\n"
        "int sinter_call(const void *const *in, void *const *out, const int64_t *size, int64_t *dims, void *workspace, const void *weight_bytes, const void *threads)\n{\n"
        "    (void)in, (void)out, (void)size, (void)dims, (void)weight_bytes, (void)threads;\n    const %s_inputs i = {", x->lower);
    int n = 0;
    for (int i = 0; i < f->nin; i++) text_add(t, "%s .%s = in[%d]", n++ ? "," : "", x->in_name[i], i);
    for (int i = 0; i < x->param.n; i++) text_add(t, "%s .%s = size[%d]", n++ ? "," : "", x->param.at[i].var, i);
    if (x->o->weights == AOT_POINTER) text_add(t, "%s .weights = weight_bytes", n++ ? "," : "");
    if (x->o->threads > 1) text_add(t, "%s .threads = threads", n++ ? "," : "");
    text_add(t, "%s };\n    %s_outputs o = {", n ? "" : " 0", x->lower);
    n = 0;
    for (int i = 0; i < f->nout; i++) {
        text_add(t, "%s .%s = out[%d]", n++ ? "," : "", x->out_name[i], i);
        if (aot_varies(&x->result[i])) text_add(t, ", .%s_dims = dims + %d", x->out_name[i], 16 * i);
    }
    text_add(t, "%s };\n", n ? "" : " 0");
    for (int i = 0; i < f->nout; i++)
        for (int k = 0; k < f->out[i].rank; k++) if (f->out[i].dims[k] >= 0) text_add(t, "    dims[%d] = %" PRId64 ";\n", 16 * i + k, f->out[i].dims[k]);
    text_add(t, "    return %s_run(&i, &o, workspace);\n}\n#endif\n\n#ifdef MODEL_MAIN\n", x->lower);
    text_add(t, "enum { NIN = %d, NOUT = %d, NSIZE = %d };\n#define WORKSPACE %s_WORKSPACE\n#define WEIGHTS_FILE %s%s%s\n", f->nin, f->nout, f->nsize, x->upper,
        x->o->weights == AOT_POINTER ? "\"" : "", x->o->weights == AOT_POINTER ? x->o->bin : "NULL", x->o->weights == AOT_POINTER ? "\"" : "");
    text_add(t, "/* bits: of an element below a byte, else 0; a file has them without their sign. A dim below 0: ~ number of a size */\n"
        "struct port { const char *file, *descr, *mark; int size, rank; unsigned bits, sign; int64_t bytes, dims[16]; };\n");
    print_ports(x, t, "in", f->nin, f->in);
    print_ports(x, t, "out", f->nout, f->out);
    text_put(t, aot_main, strlen(aot_main));
    text_add(t, "#endif\n");
}

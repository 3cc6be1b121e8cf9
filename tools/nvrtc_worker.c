/* sinter-nvrtc: compiles one file of CUDA C with NVRTC, which it loads at run time. A process of its own, because NVRTC compiles serially within one
 * process, and so that a compiler that hangs or crashes can be stopped.
 *
 *     sinter-nvrtc [--lib=PATH] [--stamp=WORD] OPTION... -o OUT FILE
 *     sinter-nvrtc [--lib=PATH] --version
 *
 * OUT is the cubin, and behind it a line "sinter-nvrtc" and the compiler's log, which tells registers and spills. Options are handed to NVRTC; the stamp
 * is only there to be part of the command. Messages go to stderr. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *Program;
typedef struct Nvrtc {
    int (*version)(int *major, int *minor);
    int (*create)(Program *p, const char *text, const char *name, int nheader, const char *const *header, const char *const *header_name);
    int (*compile)(Program p, int n, const char *const *option);
    int (*log_size)(Program p, size_t *n);
    int (*log)(Program p, char *text);
    int (*cubin_size)(Program p, size_t *n);
    int (*cubin)(Program p, char *code);
    const char *(*error)(int code);
    char path[4096];
} Nvrtc;

static const struct { const char *symbol; size_t at; } calls[] = {
    { "nvrtcVersion", offsetof(Nvrtc, version) },
    { "nvrtcCreateProgram", offsetof(Nvrtc, create) },
    { "nvrtcCompileProgram", offsetof(Nvrtc, compile) },
    { "nvrtcGetProgramLogSize", offsetof(Nvrtc, log_size) },
    { "nvrtcGetProgramLog", offsetof(Nvrtc, log) },
    { "nvrtcGetCUBINSize", offsetof(Nvrtc, cubin_size) },
    { "nvrtcGetCUBIN", offsetof(Nvrtc, cubin) },
    { "nvrtcGetErrorString", offsetof(Nvrtc, error) },
};

static int load(Nvrtc *n, const char *lib)
{
    static const char *const names[] = { "libnvrtc.so.13", "libnvrtc.so.12", NULL };
    void *h = NULL;
    if (lib) h = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; !lib && !h && names[i]; i++) h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!h) {
        fprintf(stderr, "error: NVRTC cannot be loaded: %s\n", dlerror());
        return 0;
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *f = dlsym(h, calls[i].symbol);
        if (!f) {
            fprintf(stderr, "error: %s has no %s: libnvrtc 12 or newer is wanted\n", lib ? lib : "libnvrtc", calls[i].symbol);
            return 0;
        }
        memcpy((char *)n + calls[i].at, &f, sizeof f);
    }
    void *f;
    memcpy(&f, &n->version, sizeof f);
    Dl_info at;
    snprintf(n->path, sizeof n->path, "%s", dladdr(f, &at) && at.dli_fname ? at.dli_fname : "libnvrtc");
    return 1;
}

static char *file_read(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *s = NULL;
    size_t n = 0, cap = 1 << 16;
    for (;;) {
        char *more = realloc(s, cap);
        if (!more) break;
        s = more;
        n += fread(s + n, 1, cap - n - 1, f);
        if (n < cap - 1) break;
        cap *= 2;
    }
    if (s) s[n] = 0;
    if (ferror(f)) { free(s); s = NULL; }
    fclose(f);
    return s;
}

static int compile(const Nvrtc *v, const char *source, const char *out, int nopt, const char *const *opt)
{
    Program p = NULL;
    char *text = file_read(source), *log = NULL, *code = NULL;
    size_t nlog = 0, n = 0;
    int ok = 0, r;
    FILE *f = NULL;
    if (!text) { fprintf(stderr, "error: %s cannot be read\n", source); goto done; }
    if ((r = v->create(&p, text, "kernels.cu", 0, NULL, NULL))) { fprintf(stderr, "error: NVRTC: %s\n", v->error(r)); goto done; }
    r = v->compile(p, nopt, opt);
    if (!v->log_size(p, &nlog) && nlog && (log = calloc(nlog + 1, 1))) v->log(p, log);
    if (r) { fprintf(stderr, "%s\nerror: NVRTC: %s\n", log ? log : "", v->error(r)); goto done; }
    if (v->cubin_size(p, &n) || !n || !(code = malloc(n)) || v->cubin(p, code)) { fprintf(stderr, "error: NVRTC made no code: the architecture must be a real one, sm_NN\n"); goto done; }
    if (!(f = fopen(out, "wb"))) { fprintf(stderr, "error: %s cannot be written\n", out); goto done; }
    fwrite(code, 1, n, f);
    fputs("\nsinter-nvrtc\n", f);
    if (log) fputs(log, f);
    ok = !ferror(f);
    ok &= !fclose(f);
    if (!ok) fprintf(stderr, "error: %s cannot be written: No space left\n", out);
done:
    free(text);
    free(log);
    free(code);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    Nvrtc v = { 0 };
    const char *lib = NULL, *out = NULL, *source = NULL, **opt = calloc((size_t)argc + 2, sizeof *opt);
    int version = 0, n = 0;
    if (!opt) return 1;
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--lib=", 6)) lib = argv[i] + 6;
        else if (!strncmp(argv[i], "--stamp=", 8)) continue;
        else if (!strcmp(argv[i], "--version")) version = 1;
        else if (!strcmp(argv[i], "-o") && i + 1 < argc) out = argv[++i];
        else if (argv[i][0] == '-') opt[n++] = argv[i];
        else source = argv[i];
    }
    int rc = 1;
    if (!load(&v, lib)) goto done;
    int major = 0, minor = 0;
    v.version(&major, &minor);
    if (major * 100 + minor >= 1209) opt[n++] = "--no-cache";   /* code is kept by who calls, and for its own cache NVRTC opens the device: 0.2 s on an H200 */
    if (version) {
        printf("NVRTC %d.%d (%s)\n", major, minor, v.path);
        rc = 0;
    } else if (out && source) rc = compile(&v, source, out, n, opt);
    else fprintf(stderr, "error: usage: sinter-nvrtc [--lib=PATH] OPTION... -o OUT FILE\n");
done:
    free(opt);
    return rc;
}

/* sinter-opencl: compiles one file of OpenCL C for a device. A process of its own, so that a compiler that hangs or crashes can be stopped, and several run at once.
 *
 *     sinter-opencl --device=N [--stamp=WORD] OPTION... -o OUT FILE
 *     sinter-opencl --version
 *
 * N counts the devices of all platforms. OUT is the size of the device's binary in 8 bytes, and the binary. Options are handed to the compiler; the stamp is only there to
 * be part of the command. Messages go to stderr. */
#include "rt/rt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CL_PROGRAM_BINARY_SIZES = 0x1165, CL_PROGRAM_BINARIES = 0x1166, CL_PROGRAM_BUILD_LOG = 0x1183 };

static int worker_said(const char *what, int32_t st)
{
    fprintf(stderr, "error: OpenCL: %s: %s (%d)\n", what, opencl_error(st), st);
    return 1;
}

static char *source_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *s = NULL;
    long size = -1;
    if (f && !fseek(f, 0, SEEK_END)) size = ftell(f);
    if (size >= 0 && !fseek(f, 0, SEEK_SET) && (s = malloc((size_t)size + 1))) *n = fread(s, 1, (size_t)size, f);
    if (f) fclose(f);
    if (s) s[*n] = 0;
    return s;
}

static int binary_write(const char *out, const uint8_t *binary, size_t size)
{
    FILE *f = fopen(out, "wb");
    const uint64_t length = size;
    bool ok = f && fwrite(&length, sizeof length, 1, f) == 1 && fwrite(binary, 1, size, f) == size;
    ok = f && !fclose(f) && ok;
    if (!ok) fprintf(stderr, "error: %s cannot be written: No space left\n", out);
    return ok ? 0 : 1;
}

/* Everything is given back by the end of the process. */
static int program_compile(uint32_t number, const char *options, const char *source, const char *out)
{
    ClApi cl;
    char why[256];
    void *device = NULL;
    int32_t st = 0;
    size_t n = 0, size = 0;
    if (!opencl_load(&cl, why, sizeof why) || !opencl_device(&cl, number, &device, why, sizeof why)) {
        fprintf(stderr, "error: %s\n", why);
        return 1;
    }
    const char *text = source_read(source, &n);
    if (!text) {
        fprintf(stderr, "error: %s cannot be read\n", source);
        return 1;
    }
    void *context = cl.CreateContext(NULL, 1, &device, NULL, NULL, &st);
    if (!context) return worker_said("no context", st);
    void *program = cl.CreateProgramWithSource(context, 1, &text, &n, &st);
    if (!program) return worker_said("no program", st);
    if ((st = cl.BuildProgram(program, 1, &device, options, NULL, NULL))) {
        size_t nlog = 0;
        char *log = NULL;
        if (!cl.GetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &nlog) && nlog > 1 && (log = calloc(nlog + 1, 1)))
            cl.GetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, nlog, log, NULL);
        if (log) fprintf(stderr, "%s\n", log);
        return worker_said(options, st);
    }
    if ((st = cl.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL)) || !size) return worker_said("no binary", st);
    uint8_t *binary = malloc(size);
    if (!binary) return worker_said("no memory for the binary", -6);
    if ((st = cl.GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL))) return worker_said("no binary", st);
    return binary_write(out, binary, size);
}

int main(int argc, char **argv)
{
    const char *out = NULL, *source = NULL;
    char options[1024] = "";
    unsigned long number = 0;
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--device=", 9)) number = strtoul(argv[i] + 9, NULL, 10);
        else if (!strncmp(argv[i], "--stamp=", 8)) continue;
        else if (!strcmp(argv[i], "--version")) {
            puts("sinter-opencl " SINTER_VERSION);
            return 0;
        } else if (!strcmp(argv[i], "-o") && i + 1 < argc) out = argv[++i];
        else if (argv[i][0] == '-') snprintf(options + strlen(options), sizeof options - strlen(options), "%s%s", options[0] ? " " : "", argv[i]);
        else source = argv[i];
    }
    if (out && source) _Exit(program_compile((uint32_t)number, options, source, out));       /* drivers take their time to leave in order, and keep memory all the same */
    fprintf(stderr, "error: usage: sinter-opencl --device=N OPTION... -o OUT FILE\n");
    return 1;
}

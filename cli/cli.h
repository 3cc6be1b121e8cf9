/* cli: the program `sinter`. */
#ifndef SN_CLI_H
#define SN_CLI_H
#include <jansson.h>
#include "api/api.h"

/* ---- main.c: flags, help, exit status ------------------------------------------------------------------------------------------------ */
typedef enum Flag {
#define FLAG(name, letter, value, commands, text) FLAG_##name,
#include "flags.def"
#undef FLAG
    FLAG_COUNT } Flag;
typedef struct Given { Flag flag; const char *value; } Given;
enum { EXIT_FINE = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_CANCELLED = 130 };
enum { CANCEL_USER = 1, CANCEL_TIME = 2 };

/* One run of the program. What holds more than memory is entered here and closed by main, however the command ends. */
typedef struct Cli {
    Ctx *cx;
    Arena *arena;
    int narg; const char **arg;         /* what is no flag */
    int ngiven; Given *given;
    VEC(OnnxModel *) model;
    VEC(Program *) program;
    VEC(Package *) package;
    Records *records;                   /* of tune */
    char made_dir[4096];                /* a temporary folder to remove, or "" */
    volatile int *cancel;               /* CANCEL_..., set by signals */
} Cli;
#define COMMAND(name, args, lo, hi, text, example) int cmd_##name(Cli *c);
#include "commands.def"
#undef COMMAND
bool flag_given(const Cli *c, Flag f);
const char *flag_value(const Cli *c, Flag f);            /* the last one; NULL when absent */
int flag_int(Cli *c, Flag f, int fallback, int lo);      /* raises INVALID below lo */
double flag_real(Cli *c, Flag f, double fallback);
OnnxModel *cli_load(Cli *c, const char *path);
Program *cli_program(Cli *c, const OnnxModel *m, bool fuse, bool check);
Program *cli_ready_program(Cli *c, const OnnxModel *m, bool fuse);       /* runs do not wait for its kernels */
void print_json(json_t *j);             /* prints and frees one object */
json_t *json_number(double v);          /* null for NaN and infinity */
bool on_terminal(void);                 /* stderr: may show progress */
/* Runs the interpreter for at most `limit` seconds; false when that was too short. */
bool interp_limited(Cli *c, const OnnxModel *m, const Tensor *in, Tensor *out, double limit);
void remove_tree(const char *dir);

/* ---- input.c ---------------------------------------------------------------------------------------------------------------------------- */
typedef struct Inputs { int n; const OnnxValue **value; Tensor *t; } Inputs;
/* The inputs of a model from -i and -d, else defaults. What was assumed goes to stderr, unless quiet. ranges: -d takes LO..HI, which is HI here. */
Inputs cli_inputs(Cli *c, const OnnxModel *m, bool quiet, bool ranges);
void fill_random(Tensor *t, uint64_t seed);              /* floats in [-1, 1), integers 0 or 1 */

/* ---- compare.c -------------------------------------------------------------------------------------------------------------------------- */
typedef struct Tolerance { double rtol, atol; bool shape_only; } Tolerance;
typedef struct Difference {
    bool same;
    int64_t wrong, count, first;        /* elements that differ */
    double max_abs, max_rel;            /* over elements where both are finite */
    char text[400];                     /* what differs */
} Difference;
/* Equal: dtype, shape, and |got - want| <= atol + rtol * |want| for each element; NaN equals NaN, infinities equal themselves. */
Difference compare_tensors(const char *name, const Tensor *got, const Tensor *want, Tolerance t);
Difference compare_outputs(const OnnxModel *m, const Tensor *got, const Tensor *want, Tolerance t);   /* all of them: the first that differs, maxima over all */
bool model_uses(const OnnxModel *m, const char *const *ops, int n);      /* main graph, bodies, functions */
/* Does a model draw random numbers that no definition fixes? in: its inputs, for Dropout's training_mode. */
bool model_is_random(const OnnxModel *m, const Tensor *in);

/* ---- show.c ------------------------------------------------------------------------------------------------------------------------------ */
void show_tensor(Arena *a, const char *name, const Tensor *t);           /* a line, and up to 24 elements */
json_t *tensor_json(const char *name, const Tensor *t, int64_t most);    /* name, dtype, shape, the first `most` values */
double median(int n, double *v);        /* sorts v */
#endif

/* fuzz: random graphs (gen_graph.c), and the program that compiles, runs, compares and shrinks them (fuzz_graph.c). */
#ifndef SN_FUZZ_GRAPH_H
#define SN_FUZZ_GRAPH_H
#include "api/segment.h"

typedef struct Rng { uint64_t s; } Rng;
uint64_t rng_word(Rng *r);
int rng_below(Rng *r, int n);           /* 0 .. n-1 */

/* What is known of a value: floats lie in [lo, hi] where they are finite, and a right kernel's result differs from the
 * interpreter's by at most err. */
typedef struct Val {
    Node *n;
    double lo, hi, err;
    bool exact;                         /* every right computation gives these very bits: steps may follow (round, compare, argmax) */
    bool whole;                         /* floats that are whole numbers: their sums are exact */
    bool special;                       /* may be NaN, infinite */
    bool tiny;                          /* may be so near to zero that its reciprocal overflows */
} Val;

enum { FUZZ_INPUTS = 24, FUZZ_OUTPUTS = 8 };
typedef enum Fill { FILL_real, FILL_whole, FILL_special } Fill;
typedef struct Case {
    Ctx *cx; Arena *arena; Graph *g;
    uint64_t seed;
    int nin; Fill fill[FUZZ_INPUTS]; Tensor in[FUZZ_INPUTS];
    int nout; Val out[FUZZ_OUTPUTS];
    int nop; char op[64][16];           /* the steps of the generator */
} Case;
/* Builds the graph of a seed, at most `most` steps, with inputs for the sizes that it is traced for. */
void case_make(Ctx *cx, Arena *a, uint64_t seed, int most, Case *c);
/* Inputs for other sizes of the symbols, as the variant-th draw. */
void case_inputs(const Case *c, Arena *a, int variant, Tensor *in);
#endif

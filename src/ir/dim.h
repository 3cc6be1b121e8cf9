/* The inside of dim.c, dimproof.c and dimdiv.c: polynomials being made. Functions that end in _try return NULL on overflow of a coefficient, and for NULL operands. */
#ifndef SN_DIM_H
#define SN_DIM_H
#include "ir/ir.h"

enum { MAX_DEGREE = 24 };               /* factors of a product */
static inline int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

/* Would arithmetic on sizes a and b (NULL: none) make an expression whose canonical form costs too much? Then it stays a number that the host computes, and
 * becomes a symbol of its own where a size is wanted: so what is nested without end costs no more than its depth. */
enum { LONG_SIZE = 96 };
static inline bool dim_long(const Dim *a, const Dim *b) { return a->weight + (b ? b->weight : 0) > LONG_SIZE; }

/* ---- dim.c: a sum that is being made. Overflow sets `over`, and then it has no result. ---- */
typedef struct Sum {
    Graph *g;
    int64_t c;
    DimTerm *term;
    int n, cap;
    int nfactor;
    bool over;
    DimTerm term0[16];
    Dim *factor0[64];
} Sum;
void sum_open(Sum *s, Graph *g);
Dim **sum_factors(Sum *s, int n);       /* room for n factors, as long as the sum */
void sum_term(Sum *s, int64_t coef, int n, Dim *const *factor);          /* + coef * their product; factor: borrowed, in order of id */
void sum_scaled(Sum *s, const Dim *d, int64_t by);                       /* + by * d */
void sum_product(Sum *s, const Dim *a, const Dim *b);                    /* + a * b */
void sum_merge(Sum *s);                 /* sorts, merges equal products, drops what cancelled */
Dim *sum_close(Sum *s);                 /* the expression, or NULL */
Dim *dim_atom(Graph *g, DimKind kind, Dim *a, Dim *b);
Dim *dim_add_try(Graph *g, Dim *a, Dim *b, int64_t by);                  /* a + by * b */
Dim *dim_addc_try(Graph *g, Dim *a, int64_t c);
Dim *dim_mul_try(Graph *g, Dim *a, Dim *b);
Dim *dim_muladd_try(Graph *g, Dim *rest, Dim *k, Dim *x);                /* rest + k * x */

/* ---- dimproof.c (dim_prove_ge0: false for NULL) ---- */
bool dim_split_atom(Graph *g, const Dim *p, const Dim *atom, Dim **coef, Dim **rest);    /* p = coef * atom + rest with the atom in no other product; false: p is not linear in it */
bool dim_block(Graph *g, Dim *r, Dim *b, int64_t *k);                    /* Is r in [k*b, (k+1)*b) for one k that is found here? */

/* ---- dimdiv.c ---- */
Dim *dim_div_try(Graph *g, Dim *a, Dim *b);
Dim *dim_mod_try(Graph *g, Dim *a, Dim *b);
Dim *dim_minmax_try(Graph *g, DimKind kind, Dim *a, Dim *b);
Dim *sum_recombine(Graph *g, Dim *p);   /* p, or a shorter sum in which a quotient and its remainder became what was divided */
#endif

/* fuzz: the inside of the generator: sizes and values (gen_values.c), the steps that make values of values (gen_steps.c, gen_models.c), leaves and graphs (gen_graph.c). */
#ifndef SN_GEN_VALUES_H
#define SN_GEN_VALUES_H
#include "fuzz_graph.h"

typedef struct Gen {
    Case *c; Graph *g; Ctx *cx; Rng r;
    VEC(Val) val;
    Dim *size[5]; int nsize;            /* sizes that axes are drawn from */
    bool special, big;                  /* NaN and the like among the inputs; sizes for several threads and long loops */
    int64_t most;                       /* elements of a value */
    uint64_t favoured;                  /* steps that this graph takes more often */
    bool places;                        /* products and windows are reduced over their places: from PLACES_SEEDS on, so that earlier seeds mean what they did */
    bool states;                        /* recurrences and linear attention: from STATES_SEEDS on */
} Gen;

enum { PLACES_SEEDS = 1 << 24, STATES_SEEDS = 1 << 25 };
enum { MOST_SIZE = 33 };                /* the most that a size may be, also in runs at other sizes */
typedef bool (*Want)(const Val *v);
int below(Gen *s, int n);
bool chance(Gen *s, int percent);
int64_t hint(Gen *s, Dim *d);
Dim *num(Gen *s, int64_t v);
double most_of(Gen *s, Dim *d);
int64_t elements(Gen *s, int rank, Dim *const *dims);
Dim *any_size(Gen *s);
int any_shape(Gen *s, Dim **dims);
bool has_zero(const Node *n);
double unit(DType t);
double mag(const Val *v);
bool is_float(const Val *v);
Val of_range(Node *n, double lo, double hi);
Val of_int(Node *n);
void keep(Gen *s, Val v);
bool usable(const Val *v);
bool want_any(const Val *v);
bool want_float(const Val *v);
bool want_int(const Val *v);
bool want_bool(const Val *v);
bool want_exact(const Val *v);
bool want_exact_float(const Val *v);
bool want_exact_number(const Val *v);
bool want_number(const Val *v);
bool want_wide(const Val *v);
Val pick(Gen *s, Want want);
Node *scalar_like(Gen *s, const Node *x, double v);
Val clamp(Gen *s, Val v, double lo, double hi);
Val tame(Gen *s, Val v, double most);
Val approx(Val v, double err, double ulps);
Val rounded_once(Val v, double err, const Val *a, const Val *b);
bool fits(const Node *a, const Node *b);
bool expands_to(const Node *x, int rank, Dim *const *dims);
int64_t broadcast_elements(Gen *s, const Node *a, const Node *b);
Val partner(Gen *s, Val a, Want want);
Val join_bounds(Val a, const Val *b);

/* THE table of steps: what a step is called, and how often it is taken beside the others. */
#define STEPS(ROW) \
    ROW(unary, 12) ROW(round, 3) ROW(binary, 18) ROW(pow, 2) ROW(remainder, 2) ROW(integer, 8) ROW(logic, 3) ROW(compare, 4) ROW(where, 6) \
    ROW(cast, 6) ROW(bitcast, 2) ROW(reshape, 6) ROW(transpose, 5) ROW(expand, 4) ROW(slice, 5) ROW(pad, 4) ROW(small_view, 5) ROW(window, 4) \
    ROW(fold, 12) ROW(argfold, 3) ROW(scan, 4) ROW(join, 4) ROW(gather_axis, 3) ROW(gather, 3) ROW(scatter, 3) ROW(matmul, 6) ROW(softmax, 4) \
    ROW(norm, 4) ROW(attention, 2) ROW(sigmoid, 3) ROW(call, 1) ROW(leaf, 6)
#define STEP(name, weight) void step_##name(Gen *s);
STEPS(STEP)
#undef STEP

void reduce_places(Gen *s);             /* gen_models.c: what was made last, and what follows it, over axes before the last one */

/* gen_steps.c: values of values, not kept yet */
Val cast_val(Gen *s, Val v, DType to);
void factors_agree(Gen *s, Val *a, Val *b);
Val binary(Gen *s, Op op, Val a, Val b);
double fold_count(Gen *s, const Node *x, uint32_t axes);                 /* elements of x that a fold over these axes takes together, at most */
Val sum_bounds(Val v, DType dt, double n);                               /* of a sum of n such values */
Val fold_val(Gen *s, FoldKind kind, Val v, uint32_t axes, bool keep_axes);
uint32_t any_axes(Gen *s, const Node *x);
DType any_dtype(Gen *s);

/* gen_graph.c */
void fill_tensor(Rng *r, Fill fill, Tensor *t);
Val leaf_val(Node *n, Fill fill);       /* of a constant or an input that was filled so */
#endif

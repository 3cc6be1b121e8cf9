/* Winograd's convolutions: a window of 3 x 3 that slides by one place over an image computes tiles of m x m results from m+2 x m+2 places with (m+2)^2 products for each pair of
 * channels instead of 9 m^2.
 *
 *     y = A' [ (G w G') * (B' x B) ] A        for each tile, * element by element and summed over channels
 *
 * Method: S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks (2016), whose matrices for
 * F(2x2,3x3) and F(4x4,3x3) are the rows below, bracketed so that what two rows share is computed once.
 *
 * The graph is rewritten in primitives. The image's tiles are elementwise sums of views of it, and pieces of one join, so one kernel writes them; (m+2)^2 products of matrices are one
 * contraction with one more axis; what comes back is summed by one kernel, which also does what follows the convolution (a bias, an activation, a residual). The weights' transform
 * depends on constants only and is computed once.
 *
 * Sums of differences round otherwise than sums of products, and what is not finite reaches the whole tile, so this is done with leave only (--allow winograd), and where it pays. */
#include "fuse/fuse.h"

#include <math.h>
#include <string.h>

enum { WINDOW = 3, MOST_PLACES = 6, MOST_TILE = 4, MOST_CONE = 16 };
/* Rows of the three matrices; a, b, c ...: the elements along one axis. Those of weights are whole numbers, of the window times `scale`, which is taken once for both axes
 * and has the powers of two by which tiles of the image are kept from growing. */
typedef struct Form { int tile; double scale; const char *image[MOST_PLACES], *weights[MOST_PLACES], *result[MOST_TILE]; } Form;
static const Form forms[] = {
    { 4, 16.0 / (24 * 24), { "0.25*(e - c) + (a - c)", "(0.25*e - c) + (0.25*d - b)", "(0.25*e - c) - (0.25*d - b)", "0.25*(e - c) + 0.5*(d - b)", "0.25*(e - c) - 0.5*(d - b)", "(0.25*f - d) - (0.25*d - b)" },
      { "6*a", "-4*(a + c) - 4*b", "4*b - 4*(a + c)", "(a + 4*c) + 2*b", "(a + 4*c) - 2*b", "24*c" },
      { "a + (b + c) + (d + e)", "(b - c) + 2*(d - e)", "(b + c) + 4*(d + e)", "(b - c) + 8*(d - e) + f" } },
    { 2, 1.0 / (2 * 2), { "a - c", "b + c", "c - b", "b - d" }, { "2*a", "(a + c) + b", "(a + c) - b", "2*c" }, { "a + b + c", "b - c - d" } },
};

/* A convolution: the sum `fold` over windows and channels of image * weights, views over its body. Axes of the body: */
typedef enum Role { ROLE_batch, ROLE_place, ROLE_out, ROLE_channel, ROLE_window } Role;
typedef struct Conv {
    const Node *fold, *image, *weights;
    Role role[MAX_RANK];
    int place[2], window[2], index[2];  /* axes of the body, and of the image's source */
    const Form *form;
    int ncone; const Node *cone[MOST_CONE];         /* the sum and what is computed of it alone, element by element; the last is what others need */
} Conv;
typedef struct Winograd {
    Graph *g;
    int *uses;
    uint8_t *known, *live;              /* by node id */
    Conv **conv;                        /* by node id of the last of a cone */
    Node **made;                        /* by node id */
} Winograd;

/* ---- which ----------------------------------------------------------------------------------------------------------------------------------- */
/* e = place + step + something else? */
static bool slides(Graph *g, Dim *e, int place, int window)
{
    Dim *c, *rest, *d, *other;
    return dim_linear(g, e, place, &c, &rest) && dim_is(c, 1) && dim_linear(g, rest, window, &d, &other) && dim_is(d, 1);
}

static bool view_uses(const View *v, int axis)
{
    for (int j = 0; j < v->nidx; j++) if (dim_uses(v->idx[j], axis)) return true;
    return false;
}

/* The two axes along which the window slides: in an index of the image with a step of the window. */
static bool find_places(Graph *g, Conv *c)
{
    const Node *body = c->fold->in[0];
    const View *v = &c->image->view;
    int n = 0;
    for (int j = 0; j < v->nidx; j++)
        for (int k = 0; k < body->rank; k++)
            for (int s = 0; s < body->rank; s++) {
                if ((c->fold->axes >> k & 1) || !(c->fold->axes >> s & 1) || !dim_uses(v->idx[j], k) || !dim_uses(v->idx[j], s)) continue;
                if (n == 2 || !dim_is(body->dims[s], WINDOW) || !slides(g, v->idx[j], k, s)) return false;
                c->place[n] = k; c->window[n] = s; c->index[n++] = j;
            }
    return n == 2 && c->place[0] != c->place[1] && c->window[0] != c->window[1] && c->index[0] != c->index[1];
}

static bool find_roles(Conv *c)
{
    const Node *body = c->fold->in[0];
    int channels = 0, outs = 0;
    for (int k = 0; k < body->rank; k++) {
        bool sum = c->fold->axes >> k & 1, x = view_uses(&c->image->view, k), w = view_uses(&c->weights->view, k);
        bool place = k == c->place[0] || k == c->place[1], window = k == c->window[0] || k == c->window[1];
        c->role[k] = place ? ROLE_place : window ? ROLE_window : sum ? ROLE_channel : w ? ROLE_out : ROLE_batch;
        if ((place && w) || (window && !w) || (c->role[k] == ROLE_channel && !(x && w)) || (c->role[k] == ROLE_out && x)) return false;
        channels += c->role[k] == ROLE_channel;
        outs += c->role[k] == ROLE_out;
    }
    return channels == 1 && outs == 1;
}

/* Do places and windows stand in the image's indices, and in what says where it is padded, only as their sum, and windows in those of the weights by themselves? */
static bool indices_plain(Graph *g, const Conv *c)
{
    const View *v = &c->image->view, *w = &c->weights->view;
    for (int i = 0; i < 2; i++) {
        int p = c->place[i], s = c->window[i];
        for (int j = 0; j < v->nidx; j++) if (j != c->index[i] && (dim_uses(v->idx[j], p) || dim_uses(v->idx[j], s))) return false;
        for (int q = 0; q < v->npred; q++)
            if (dim_uses(v->pred[q].n, p) || dim_uses(v->pred[q].n, s) || ((dim_uses(v->pred[q].e, p) || dim_uses(v->pred[q].e, s)) && !slides(g, v->pred[q].e, p, s))) return false;
    }
    return !w->npred && (!v->npred || v->fill.f == 0);
}

static bool is_conv(Winograd *w, const Node *f, Conv *c)
{
    const Node *body = f->op == OP_fold && f->kind == FOLD_sum && !f->whole && f->dt == DT_f32 ? f->in[0] : NULL;
    if (!body || body->op != OP_mul || w->known[f->id] || w->uses[body->id] != 1) return false;
    for (int side = 0; side < 2; side++) {
        *c = (Conv){ .fold = f, .image = body->in[side], .weights = body->in[1 - side] };
        if (c->image->op != OP_view || c->weights->op != OP_view || !w->known[c->weights->id] || w->known[c->image->id]) continue;
        return find_places(w->g, c) && find_roles(c) && indices_plain(w->g, c);
    }
    return false;
}

/* What is computed of the sum alone, element by element, up to one node that others need. */
static void cone_find(Winograd *w, Conv *c)
{
    const Node *f = c->fold, *cone[MOST_CONE] = { f };
    int n = 1, open = w->uses[f->id];    /* readers of the cone's nodes that were not met yet */
    c->cone[0] = f;
    c->ncone = 1;
    for (int id = f->id + 1; id < w->g->node.n && open > 0; id++) {
        const Node *x = w->g->node.at[id];
        int reads = 0;
        bool whole = x->rank == f->rank && by_element(x);
        for (int i = 0; w->live[id] && i < x->nin; i++)
            for (int k = 0; k < n; k++) reads += x->in[i] == cone[k];
        if (!reads) continue;
        for (int k = 0; whole && k < f->rank; k++) whole = x->dims[k] == f->dims[k];
        if (!whole || n == MOST_CONE) return;
        open += w->uses[id] - reads;
        cone[n++] = x;
        if (open != w->uses[id]) continue;      /* all that was read of those before is read in here */
        memcpy(c->cone, cone, sizeof cone);
        c->ncone = n;
    }
}

/* ---- the new graph --------------------------------------------------------------------------------------------------------------------------- */
/* Rows of a form along both axes of a square: n x n elements, row by row, become m x m. */
static void transform(Graph *g, const char *const *row, int n, int m, Node *const *x, Node **y)
{
    static const char *const name[MOST_PLACES] = { "a", "b", "c", "d", "e", "f" };
    Node *half[MOST_PLACES * MOST_PLACES];
    Binding b[MOST_PLACES];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            for (int k = 0; k < n; k++) b[k] = (Binding){ .name = name[k], .type = 'n', .node = x[k * n + j] };
            half[i * n + j] = expr_build(g, row[i], n, b);
        }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) {
            for (int k = 0; k < n; k++) b[k] = (Binding){ .name = name[k], .type = 'n', .node = half[i * n + k] };
            y[i * m + j] = expr_build(g, row[j], n, b);
        }
}

/* Pieces side by side along a new first axis. */
static Node *stacked(Graph *g, int n, Node **piece)
{
    for (int i = 0; i < n; i++) piece[i] = g_unsqueeze(g, piece[i], 0);
    return g_join(g, n, piece, 0);
}

/* An operand, made anew, seen through its view over the body, at to: the body's axes in a space of these dims. */
static Node *seen_at(Graph *g, const Conv *c, const Node *operand, Node *x, int rank, Dim *const *dims, Dim *const *to)
{
    const View *v = &operand->view;
    int axes = c->fold->in[0]->rank;
    Dim *idx[MAX_RANK];
    Pred *pred = NEWS(g->arena, Pred, v->npred + 2);
    View at = { .nidx = v->nidx, .idx = idx, .pred = pred, .fill = v->fill };
    for (int j = 0; j < v->nidx; j++) idx[j] = dim_subst(g, v->idx[j], axes, to);
    for (int q = 0; q < v->npred; q++) pred[at.npred++] = (Pred){ dim_subst(g, v->pred[q].e, axes, to), dim_subst(g, v->pred[q].n, axes, to) };
    for (int s = 0; s < 2 && operand == c->image; s++) pred[at.npred++] = (Pred){ idx[c->index[s]], operand->in[0]->dims[c->index[s]] };       /* the last tiles reach past the end */
    return g_view(g, x, rank, dims, &at);
}

/* All tiles of an operand, transformed: [places of a tile, dims...]. */
static Node *tiles(Winograd *w, const Conv *c, const Node *operand, const char *const *row, int n, int rank, Dim *const *dims, Dim **to)
{
    int m = c->form->tile + WINDOW - 1;
    Node *at[MOST_PLACES * MOST_PLACES], *out[MOST_PLACES * MOST_PLACES];
    for (int i = 0; i < n * n; i++) {
        for (int s = 0; s < 2; s++) to[c->window[s]] = dim_const(w->g, s ? i % n : i / n);
        at[i] = seen_at(w->g, c, operand, w->made[operand->in[0]->id], rank, dims, to);
        if (operand == c->weights) at[i] = g2(w->g, OP_mul, at[i], g_scalar(w->g, DT_f32, c->form->scale));
    }
    transform(w->g, row, n, m, at, out);
    return stacked(w->g, m * m, out);
}

/* The products: for each place of a tile, the tiles times the weights. dims: what the sum keeps, tiles for places; the result has one axis more, the first. */
static Node *products(Winograd *w, const Conv *c, Dim *const *dims)
{
    Graph *g = w->g;
    const Node *body = c->fold->in[0];
    int m = c->form->tile, n = m + WINDOW - 1, kept = 0, nx = 0, space = 1 + c->fold->rank;
    Dim *channels = NULL, *dx[MAX_RANK], *dw[2] = { NULL }, *at_x[MAX_RANK], *at_w[MAX_RANK], *of_x[MAX_RANK], *of_w[MAX_RANK], *all[MAX_RANK];
    all[0] = dim_const(g, n * n);
    of_x[0] = of_w[0] = dim_idx(g, 0, all[0]);
    for (int k = 0; k < body->rank; k++) {
        at_x[k] = at_w[k] = dim_const(g, 0);
        if (c->role[k] == ROLE_channel) channels = body->dims[k];
        if (c->fold->axes >> k & 1) continue;
        Dim *d = dims[kept++], *in_space = dim_idx(g, kept, d);
        all[kept] = d;
        if (c->role[k] == ROLE_out) { dw[0] = d; at_w[k] = dim_idx(g, 0, d); of_w[1] = in_space; continue; }
        dx[nx] = d;
        at_x[k] = dim_mulc(g, dim_idx(g, nx, d), c->role[k] == ROLE_place ? m : 1);
        of_x[++nx] = in_space;
    }
    ASSERT(channels && dw[0]);
    dx[nx] = dw[1] = all[space] = channels;
    of_x[nx + 1] = of_w[2] = dim_idx(g, space, channels);
    for (int k = 0; k < body->rank; k++)
        if (c->role[k] == ROLE_channel) { at_x[k] = dim_idx(g, nx, channels); at_w[k] = dim_idx(g, 1, channels); }
    Node *x = tiles(w, c, c->image, c->form->image, n, nx + 1, dx, at_x), *u = tiles(w, c, c->weights, c->form->weights, WINDOW, 2, dw, at_w);
    x = g_view(g, x, space + 1, all, &(View){ .nidx = nx + 2, .idx = of_x });
    u = g_view(g, u, space + 1, all, &(View){ .nidx = 3, .idx = of_w });
    return g_fold(g, FOLD_sum, g2(g, OP_mul, x, u), axis_bit(space), false);
}

/* A node of the cone at one place of all tiles. value: of those before it; to: the sum's axes there. */
static Node *cone_at(Winograd *w, const Conv *c, int which, Node *const *value, Dim *const *dims, Dim *const *to, const int *at)
{
    Graph *g = w->g;
    const Node *x = c->cone[which];
    Node *in[3], proto = *x;
    for (int i = 0; i < x->nin; i++) {
        in[i] = NULL;
        for (int k = 0; k < which; k++) if (x->in[i] == c->cone[k]) in[i] = value[k];
        if (in[i]) continue;
        Pred pred[2] = { { to[at[0]], x->dims[at[0]] }, { to[at[1]], x->dims[at[1]] } };
        in[i] = g_view(g, w->made[x->in[i]->id], x->rank, dims, &(View){ .nidx = x->rank, .idx = to, .npred = 2, .pred = pred });
    }
    proto.in = in; proto.dims = dims;
    g->cur_origin = x->origin;
    return graph_add(g, &proto);
}

/* What stands for the last node of the cone. */
static Node *winograd_make(Winograd *w, const Conv *c)
{
    Graph *g = w->g;
    const Node *f = c->fold, *last = c->cone[c->ncone - 1];
    int m = c->form->tile, n = m + WINDOW - 1, at[2] = { 0 }, kept = 0, rank = f->rank;
    Dim *dims[MAX_RANK] = { NULL }, *idx[MAX_RANK], *to[MAX_RANK], *size = dim_const(g, m);
    for (int k = 0; k < f->in[0]->rank; k++)
        for (int s = (f->axes >> k & 1) ? 2 : 0, own = kept; s < 2; s++, kept = own + 1) if (k == c->place[s]) at[s] = own;
    for (int k = 0; k < rank; k++) dims[k] = k == at[0] || k == at[1] ? dim_ceildiv(g, f->dims[k], size) : f->dims[k];
    g->cur_origin = f->origin;
    Node *sums = products(w, c, dims), *place[MOST_PLACES * MOST_PLACES], *out[MOST_TILE * MOST_TILE], *row[MOST_TILE] = { NULL };
    for (int k = 0; k < rank; k++) idx[k + 1] = to[k] = dim_idx(g, k, dims[k]);
    for (int i = 0; i < n * n; i++) {
        idx[0] = dim_const(g, i);
        place[i] = g_view(g, sums, rank, dims, &(View){ .nidx = rank + 1, .idx = idx });
    }
    transform(g, c->form->result, n, m, place, out);
    int low = at[0] > at[1];            /* which of the two stands first in the result */
    for (int i = 0; i < m; i++) {
        Node *piece[MOST_TILE] = { NULL };
        for (int j = 0; j < m; j++) {
            Node *value[MOST_CONE] = { out[i * m + j] };
            for (int s = 0; s < 2; s++) to[at[s]] = dim_addc(g, dim_mulc(g, dim_idx(g, at[s], dims[at[s]]), m), s ? j : i);
            for (int k = 1; k < c->ncone; k++) value[k] = cone_at(w, c, k, value, dims, to, at);
            piece[j] = g_unsqueeze(g, g_unsqueeze(g, value[c->ncone - 1], at[!low] + 1), at[low] + 1);
        }
        row[i] = g_join(g, m, piece, at[1] + 1 + !low);
    }
    Node *all = g_join(g, m, row, at[0] + 1 + low);
    int to_k = 0;
    for (int k = 0; k < rank; k++) {
        Dim *v = dim_idx(g, k, f->dims[k]);
        bool tiled = k == at[0] || k == at[1];
        idx[to_k++] = tiled ? dim_div(g, v, size) : v;
        if (tiled) idx[to_k++] = dim_mod(g, v, size);
    }
    g->cur_origin = last->origin;
    return g_view(g, all, rank, f->dims, &(View){ .nidx = rank + 2, .idx = idx });
}

/* ---- the pass -------------------------------------------------------------------------------------------------------------------------------- */
/* Multiplications that a convolution takes, and what tiles of a form take, in the same unit: their products; for each weight of the transform LOAD, since in a run of a whole model weights come
 * from memory; and for each number of the two transforms MOVE, which is mostly its way through the caches, and more where channels do not lie together. LAUNCH: four or five kernels are
 * started instead of one, and their threads woken. Measured on an AMD EPYC with AVX-512
 * on 33 convolutions of four models, 6 to 56 places wide with 8 to 512 channels: the ratio of the two was found within a fifth where it is above a tenth; WORTH leaves room for that. */
enum { MOVE = 10, LOAD = 8, FAR = 50, LAUNCH = 1000000 };
static const double PRODUCT = 1.05, WORTH = 0.85;
typedef struct Sizes { double images, place[2], channels, outs; bool far; } Sizes;

static Sizes sizes_of(const Winograd *w, const Conv *c)
{
    const Node *body = c->fold->in[0];
    Sizes z = { .images = 1, .channels = 1, .outs = 1, .far = true };
    for (int k = 0; k < body->rank; k++) {
        double d = (double)dim_hint(w->g, body->dims[k]);
        switch (c->role[k]) {
        case ROLE_batch: z.images *= d; break;
        case ROLE_place: z.place[k == c->place[1]] = d; break;
        case ROLE_channel: z.channels = d; z.far = !dim_uses(c->image->view.idx[c->image->view.nidx - 1], k); break;
        case ROLE_out: z.outs = d; break;
        case ROLE_window: break;
        }
    }
    return z;
}

static double cost_direct(const Sizes *z) { return z->images * z->place[0] * z->place[1] * WINDOW * WINDOW * z->channels * z->outs; }

static double cost_tiles(const Sizes *z, const Form *f)
{
    double n = f->tile + WINDOW - 1, count = z->images;
    for (int s = 0; s < 2; s++) count *= ceil(z->place[s] / f->tile);
    return LAUNCH + n * n * (z->channels * z->outs * (PRODUCT * count + LOAD) + count * (z->channels * (z->far ? FAR : MOVE) + z->outs * MOVE));
}

/* Sets the form: that of this tile, or (0) the one that costs least. */
static const char *why_not(const Winograd *w, Conv *c, int tile)
{
    Sizes z = sizes_of(w, c);
    double least = cost_direct(&z) * WORTH;
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        double cost = tile == forms[i].tile ? 0 : cost_tiles(&z, &forms[i]);
        if (cost >= least || (tile && cost > 0)) continue;
        least = cost;
        c->form = &forms[i];
    }
    return c->form ? NULL : "Winograd: transforming tiles and weights costs more than it saves";
}

/* Known when the program is made, and not larger than what it comes from: what plan.c computes once. */
static void mark_known(Winograd *w)
{
    for (int id = 0; id < w->g->node.n; id++) {
        const Node *x = w->g->node.at[id];
        bool all = x->op == OP_view ? !view_open(&x->view) : by_element(x), grows = x->op != OP_view;
        for (int i = 0; i < x->nin; i++) {
            const Node *from = x->in[i]->op == OP_view ? x->in[i]->in[0] : x->in[i];
            all = all && w->known[x->in[i]->id];
            grows = grows && g_count(w->g, from) != g_count(w->g, x);
        }
        w->known[id] = x->op == OP_const || (all && !grows);
    }
}

int winograd_choose(Ctx *cx, Arena *a, Graph *g, int tile, Refusals *why)
{
    int n = g->node.n, origin = g->cur_origin, chosen = 0;
    Winograd *w = NEW(a, Winograd);
    *w = (Winograd){ .g = g, .uses = graph_uses(a, g), .known = NEWS(a, uint8_t, n + 1), .live = graph_live(a, g), .conv = NEWS(a, Conv *, n + 1), .made = NEWS(a, Node *, n + 1) };
    mark_known(w);
    for (int id = 0; id < n; id++) {
        Conv c;
        if (!w->live[id] || !is_conv(w, g->node.at[id], &c)) continue;
        const char *no = why_not(w, &c, tile);
        if (!no && cx->opt.limit >= 0 && g->nrewrite >= cx->opt.limit) no = "the limit on decisions is reached";
        if (no) { vec_push(a, why, ((Refusal){ c.fold, c.fold, "winograd", no })); continue; }
        cone_find(w, &c);
        w->conv[c.cone[c.ncone - 1]->id] = arena_copy(a, &c, sizeof c);
        g->nrewrite++;
        chosen++;
    }
    for (int id = 0; chosen && id < n; id++) {
        if (!w->live[id]) continue;
        if ((id & 255) == 0) ctx_poll(cx);
        Node *x = g->node.at[id];
        g->cur_origin = x->origin;
        w->made[id] = w->conv[id] ? winograd_make(w, w->conv[id]) : graph_remake(g, x, w->made);
    }
    for (int i = 0; chosen && i < g->output.n; i++) g->output.at[i].node = w->made[g->output.at[i].node->id];
    g->cur_origin = origin;
    if (chosen) log_line(cx, 2, "winograd: %d convolutions by tiles", chosen);
    return chosen;
}

/* The base folder: memory, errors, maps, number printing, element types, tensors, files.
 *
 * Conversions are checked against a second method: the values of every code are listed by the formula of the format,
 * and the nearest one (the even code on a tie) is found by search. */
#include "test.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Ctx *new_ctx(void)
{
    static Ctx cx;
    ctx_init(&cx);
    cx.opt.fail = -1;
    return &cx;
}

/* ---- arena --------------------------------------------------------------------------------------------------------- */

static void check_arena(Ctx *cx, void *arg)
{
    (void)arg;
    Arena *a = arena_new(cx);
    size_t sum = 0;
    unsigned char *before = NULL;
    for (int i = 0; i < 200000; i++) {
        size_t n = (size_t)(i * 7919 % 97);
        unsigned char *p = arena_alloc(a, n);
        assert_true(((uintptr_t)p & 15) == 0);
        assert_ptr_not_equal(p, before);
        for (size_t j = 0; j < n; j++)
            assert_true(p[j] == 0);
        memset(p, 0xA5, n);
        sum += n;
        before = p;
    }
    unsigned char *big = arena_alloc(a, 5 << 20), *small = arena_alloc(a, 8);
    assert_int_equal(big[0] | big[(5 << 20) - 1] | small[7], 0);
    assert_true(arena_used(a) == sum + (5 << 20) + 8);
    assert_string_equal(arena_fmt(a, "%s-%d", "x", 12), "x-12");
    assert_string_equal(arena_str(a, ""), "");
    VEC(int) v = { 0 };
    for (int i = 0; i < 1000; i++)
        vec_push(a, &v, i * i);
    assert_int_equal(v.n, 1000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(v.at[i], i * i);
    arena_free(a);
    arena_free(NULL);
}

static void test_arena(void **state)
{
    (void)state;
    Ctx *cx = new_ctx();
    assert_int_equal(guard_call(cx, check_arena, NULL), E_OK);
}

static void take_too_much(Ctx *cx, void *arg)
{
    Arena *a = arg;
    (void)cx;
    (void)NEWS(a, int64_t, SIZE_MAX / 4);
}

static void take_huge(Ctx *cx, void *arg) { (void)cx; arena_alloc(arg, SIZE_MAX - 8); }

static void take_ten(Ctx *cx, void *arg)
{
    int *done = arg;
    for (*done = 0; *done < 10; ++*done)
        arena_free(arena_new(cx));
}

/* Blocks end with their arena, but for those that were given away. */
static void test_arena_blocks(void **state)
{
    (void)state;
    Arena *a = arena_new(new_ctx());
    char *kept = arena_block(a, 100), *other = arena_block(a, 0), *third = arena_block(a, 1 << 20);
    assert_true((uintptr_t)kept % 64 == 0 && (uintptr_t)third % 64 == 0);
    memset(third, 1, 1 << 20);
    assert_false(arena_give(a, kept + 1));
    assert_true(arena_give(a, kept));
    assert_false(arena_give(a, kept));
    assert_true(arena_give(a, other));
    arena_free(a);
    memset(kept, 2, 100);
    block_free(kept);
    block_free(other);
}

static void test_arena_limits(void **state)
{
    (void)state;
    Ctx *cx = new_ctx();
    Arena *a = arena_new(cx);
    assert_int_equal(guard_call(cx, take_too_much, a), E_NOMEM);
    assert_int_equal(guard_call(cx, take_huge, a), E_NOMEM);
    arena_free(a);
    for (int n = 1; n <= 11; n++) {
        int done = -1;
        cx->opt.fail = n;
        cx->allocs = 0;
        Status st = guard_call(cx, take_ten, &done);
        assert_int_equal(st, n <= 10 ? E_NOMEM : E_OK);
        assert_int_equal(done, n <= 10 ? n - 1 : 10);
    }
    assert_null(block_alloc(SIZE_MAX));
    for (size_t n = 0; n < 200; n += 33) {
        void *p = block_alloc(n);
        assert_true(p && ((uintptr_t)p & 63) == 0);
        block_free(p);
    }
}

/* ---- errors -------------------------------------------------------------------------------------------------------- */

static void raise_in_node(Ctx *cx, void *arg)
{
    Note file, axis, node;
    note_push(cx, &file, "file", "net.onnx", NULL);
    note_push(cx, &node, "node", "conv1", "Conv");
    if (arg) {
        note_push(cx, &axis, "axis", "a\nb", NULL);
        note_pop(cx);
    }
    fail(cx, E_UNSUPPORTED, "group %d does not divide %d channels", 3, 64);
}

static void raise_again(Ctx *cx, void *arg)
{
    Note n;
    note_push(cx, &n, "axis", "a\nb", NULL);
    assert_int_equal(guard_call(cx, raise_in_node, arg), E_UNSUPPORTED);
    assert_ptr_equal(cx->notes, &n);
    assert_string_equal(cx->text, "axis 'a?b': net.onnx: node 'conv1' (Conv): group 3 does not divide 64 channels");
    fail(cx, E_INVALID, "outer (%s)", cx->text + 12);
}

static void raise_long(Ctx *cx, void *arg)
{
    Note notes[300];
    for (int i = 0; i < 300; i++)
        note_push(cx, &notes[i], "node", "caf\xC3\xA9", "If");
    fail(cx, E_FORMAT, "%s", (const char *)arg);
}

static void do_nothing(Ctx *cx, void *arg) { (void)cx; *(int *)arg = 7; }
static void poll_once(Ctx *cx, void *arg) { (void)arg; ctx_poll(cx); }

static void test_errors(void **state)
{
    (void)state;
    Ctx *cx = new_ctx();
    int done = 0;
    assert_int_equal(guard_call(cx, raise_in_node, cx), E_UNSUPPORTED);
    assert_string_equal(cx->text, "net.onnx: node 'conv1' (Conv): group 3 does not divide 64 channels");
    assert_null(cx->notes);
    assert_null(cx->guard);
    assert_int_equal(guard_call(cx, raise_again, NULL), E_INVALID);
    assert_string_equal(cx->text, "axis 'a?b': outer (net.onnx: node 'conv1' (Conv): group 3 does not divide 64 channels)");
    assert_int_equal(guard_call(cx, do_nothing, &done), E_OK);
    assert_int_equal(done, 7);
    assert_int_equal(cx->code, E_OK);

    assert_int_equal(guard_call(cx, raise_long, "the message stays"), E_FORMAT);
    const char *tail = cx->text + strlen(cx->text) - strlen("the message stays");
    assert_string_equal(tail, "the message stays");
    char wide[4096];
    for (size_t i = 0; i + 1 < sizeof wide; i++)
        wide[i] = "\xE2\x82\xAC"[i % 3];    /* three-byte characters: the cut must fall between two of them */
    wide[sizeof wide - 1] = 0;
    cx->notes = NULL;
    assert_int_equal(guard_call(cx, raise_long, wide), E_FORMAT);
    size_t n = strlen(cx->text);
    assert_true(n >= sizeof cx->text - 4 && (unsigned char)cx->text[n - 1] == 0xAC);

    volatile int stop = 0;
    cx->cancel = &stop;
    assert_int_equal(guard_call(cx, poll_once, NULL), E_OK);
    stop = 1;
    assert_int_equal(guard_call(cx, poll_once, NULL), E_CANCELLED);
    assert_string_equal(status_name(E_NOMEM), "NOMEM");
    assert_string_equal(status_name((Status)99), "?");
}

/* ---- maps and text ------------------------------------------------------------------------------------------------- */

static void test_map(void **state)
{
    (void)state;
    Ctx *cx = new_ctx();
    Arena *a = arena_new(cx);
    MapStr *m = mapstr_new(a);
    char key[32];
    void **first = mapstr_at(m, "");
    *first = key;
    for (intptr_t i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "k%d", (int)i);
        assert_null(mapstr_get(m, key));
        *mapstr_at(m, key) = (void *)(i + 1);
    }
    for (intptr_t i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "k%d", (int)i);
        assert_ptr_equal(mapstr_get(m, key), (void *)(i + 1));
    }
    assert_ptr_equal(mapstr_at(m, ""), first);
    assert_null(mapstr_get(m, "k"));
    assert_true(hash_bytes(NULL, 0, 0) == 0xEF46DB3751D8E999u);     /* published values of XXH64 */
    assert_true(hash_bytes("abc", 3, 0) == 0x44BC2CF5AD770999u);
    assert_true(hash_bytes("abc", 3, 1) != hash_bytes("abc", 3, 0));
    arena_free(a);
}

static const char *float_text(Arena *a, double v, bool is_f32)
{
    Text t = { .arena = a };
    text_float(&t, v, is_f32);
    return t.at;
}

static void test_numbers(void **state)
{
    (void)state;
    Ctx *cx = new_ctx();
    Arena *a = arena_new(cx);
    static const struct { double v; bool f32; const char *want; } row[] = {
        { 1.5, true, "1.5f" }, { 0, true, "0.0f" }, { -0.0, false, "-0.0" }, { 2, false, "2.0" }, { -3, true, "-3.0f" },
        { 0.1f, true, "0.1f" }, { 0.1f, false, "0.10000000149011612" }, { 0.1, false, "0.1" }, { 1e6, false, "1000000.0" },
        { 123456789, true, "123456790.0f" }, { 1e16, false, "1e16" }, { 1.25e20, false, "1.25e20" },
        { 1e15, false, "1000000000000000.0" }, { 0.00001, false, "0.00001" }, { 1.5e-6, false, "1.5e-6" },
        { 1234567.5, false, "1234567.5" }, { 5e-324, false, "5e-324" }, { 0x1p-149, true, "1e-45f" },
        { INFINITY, true, "__builtin_inff()" }, { -INFINITY, true, "(-__builtin_inff())" },
        { -INFINITY, false, "(-__builtin_inf())" }, { NAN, true, "__builtin_nanf(\"\")" },
        { 1e300, true, "__builtin_inff()" }, { 1.7976931348623157e308, false, "1.7976931348623157e308" },
    };
    for (size_t i = 0; i < COUNT_OF(row); i++)
        assert_string_equal(float_text(a, row[i].v, row[i].f32), row[i].want);
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double d;
        float f;
        uint32_t low = (uint32_t)(seed >> 32);
        memcpy(&d, &seed, sizeof d);
        memcpy(&f, &low, sizeof f);
        if (isfinite(d)) {
            double back = strtod(float_text(a, d, false), NULL);
            assert_memory_equal(&back, &d, sizeof d);
        }
        if (isfinite(f)) {
            const char *s = float_text(a, f, true);
            float back = strtof(s, NULL);
            assert_memory_equal(&back, &f, sizeof f);
            assert_true(strpbrk(s, ".e") != NULL && s[strlen(s) - 1] == 'f');
        }
    }
    arena_free(a);
}

static void test_text(void **state)
{
    (void)state;
    Ctx *cx = new_ctx();
    Arena *a = arena_new(cx);
    Text t = { .arena = a };
    for (int i = 0; i < 1000; i++)
        text_add(&t, "%d,", i);
    assert_int_equal(t.n, 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(strlen(t.at), t.n);
    assert_string_equal(t.at + t.n - 8, "998,999,");
    Text empty = { .arena = a };
    text_add(&empty, "%s", "");
    assert_string_equal(empty.at, "");
    static const char whole[] = "a\xC3\xA9\xE2\x82\xAC\xED\x9F\xBF\xEE\x80\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF";
    assert_ptr_equal(text_utf8(a, whole), whole);
    static const char *const odd[][2] = {       /* single continuations, forms that are too long, surrogates, above U+10FFFF, cut at the end */
        { "\x80z", "\\x80z" }, { "\xC0\xAF", "\\xC0\\xAF" }, { "\xE0\x9F\xBF", "\\xE0\\x9F\\xBF" }, { "\xED\xA0\x80", "\\xED\\xA0\\x80" },
        { "\xF0\x8F\xBF\xBF", "\\xF0\\x8F\\xBF\\xBF" }, { "\xF4\x90\x80\x80", "\\xF4\\x90\\x80\\x80" }, { "\xF5", "\\xF5" }, { "b\xE2\x82", "b\\xE2\\x82" },
    };
    for (size_t i = 0; i < COUNT_OF(odd); i++) assert_string_equal(text_utf8(a, odd[i][0]), odd[i][1]);
    assert_true(list_has("a,bc, d ", "bc") && list_has("a,bc, d ", "d") && list_has("a", "a"));
    assert_false(list_has("a,bc", "b") || list_has(NULL, "a") || list_has("", "") || list_has("a,,b", "") || list_has("ab", "a"));
    arena_free(a);
}

static void test_options(void **state)
{
    (void)state;
    Options o;
    setenv("SN_DEBUG", "3", 1);
    setenv("SN_CACHE_MB", "7x", 1);
    setenv("SN_CACHE", "", 1);
    options_default(&o);
    assert_int_equal(o.debug, 3);
    assert_int_equal(o.cache_mb, 512);      /* not a number: the default stays, and a line says so */
    assert_string_equal(o.cache, "");
    assert_int_equal(o.limit, -1);
    unsetenv("SN_DEBUG");
    unsetenv("SN_CACHE_MB");
    unsetenv("SN_CACHE");
    options_default(&o);
    assert_int_equal(o.debug, 0);
    assert_null(o.cache);
}

/* ---- element types -------------------------------------------------------------------------------------------------- */

typedef struct Format { DType t; int bits, ebits, mbits, bias; char kind; } Format;   /* kind: Ieee, oNe NaN, Zero's NaN, Finite */
static const Format formats[] = {
    { DT_f16, 16, 5, 10, 15, 'I' },       { DT_bf16, 16, 8, 7, 127, 'I' },    { DT_f8e4m3fn, 8, 4, 3, 7, 'N' },
    { DT_f8e4m3fnuz, 8, 4, 3, 8, 'Z' },   { DT_f8e5m2, 8, 5, 2, 15, 'I' },    { DT_f8e5m2fnuz, 8, 5, 2, 16, 'Z' },
    { DT_f4e2m1, 4, 2, 1, 1, 'F' },
};

static double value_of(const Format *f, uint32_t code)
{
    int e = (int)(code >> f->mbits) & ((1 << f->ebits) - 1), m = (int)(code & ((1u << f->mbits) - 1));
    bool top = e == (1 << f->ebits) - 1;
    double sign = code >> (f->bits - 1) ? -1.0 : 1.0;
    if (f->kind == 'Z' && code == 1u << (f->bits - 1))
        return NAN;
    if (f->kind == 'N' && top && m == (1 << f->mbits) - 1)
        return NAN;
    if (f->kind == 'I' && top)
        return m ? NAN : sign * INFINITY;
    return sign * (e ? ldexp(1 + ldexp(m, -f->mbits), e - f->bias) : ldexp(m, 1 - f->bias - f->mbits));
}

static double load_code(DType t, uint32_t code)
{
    uint8_t byte = (uint8_t)code;
    uint16_t half = (uint16_t)code;
    return scalar_load(t, dtype_size(t) == 2 ? (const void *)&half : &byte).f;
}

static uint32_t store_code(DType t, double v)
{
    uint8_t byte = 0;
    uint16_t half = 0;
    scalar_store(t, dtype_size(t) == 2 ? (void *)&half : &byte, (Scalar){ .f = v });
    return dtype_size(t) == 2 ? half : byte;
}

static bool same(double a, double b) { return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b)); }

static void test_small_floats(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(formats); i++) {
        const Format *f = &formats[i];
        uint32_t top = 1u << (f->bits - 1);
        for (uint32_t c = 0; c < 2 * top; c++) {
            double v = load_code(f->t, c);
            assert_true(same(v, value_of(f, c)));
            assert_int_equal(store_code(f->t, v), c);
            assert_true(same(scalar_round(f->t, (Scalar){ .f = v }, false).f, v));
        }
        /* between neighbours: the middle goes to the even code, just beside it to the nearer one */
        for (uint32_t c = 0; c + 1 < top && isfinite(value_of(f, c + 1)); c++) {
            double low = value_of(f, c), high = value_of(f, c + 1), mid = (low + high) / 2;
            uint32_t neg = f->kind == 'Z' && c == 0 ? 0 : top;
            assert_int_equal(store_code(f->t, mid), c & 1 ? c + 1 : c);
            assert_int_equal(store_code(f->t, nextafter(mid, 0)), c);
            assert_int_equal(store_code(f->t, nextafter(mid, INFINITY)), c + 1);
            assert_int_equal(store_code(f->t, -nextafter(mid, 0)), c | neg);
            assert_int_equal(store_code(f->t, -nextafter(mid, INFINITY)), (c + 1) | top);
        }
        assert_int_equal(store_code(f->t, 5e-324), 0);
    }
}

static void test_special_floats(void **state)
{
    (void)state;
    /* what a value becomes: plain and saturating; what ONNX's tables for Cast say */
    static const struct { DType t; double v, plain, saturated; } row[] = {
        { DT_f16, 65519, 65504, 65504 },         { DT_f16, 65520, INFINITY, INFINITY },
        { DT_f16, -1e300, -INFINITY, -INFINITY }, { DT_bf16, 3.4e38, INFINITY, INFINITY },
        { DT_f8e4m3fn, 464, 448, 448 },          { DT_f8e4m3fn, 465, NAN, 448 },
        { DT_f8e4m3fn, -INFINITY, NAN, -448 },   { DT_f8e4m3fnuz, 248, NAN, 240 },
        { DT_f8e4m3fnuz, 247, 240, 240 },        { DT_f8e4m3fnuz, INFINITY, NAN, 240 },
        { DT_f8e4m3fnuz, -0.0, 0.0, 0.0 },       { DT_f8e5m2, 61439, 57344, 57344 },
        { DT_f8e5m2, 61440, INFINITY, 57344 },   { DT_f8e5m2, -INFINITY, -INFINITY, -57344 },
        { DT_f8e5m2fnuz, 61440, NAN, 57344 },    { DT_f8e5m2fnuz, -1e-30, 0.0, 0.0 },
        { DT_f4e2m1, 5, 4, 4 },                  { DT_f4e2m1, -1e9, -6, -6 },
        { DT_f4e2m1, INFINITY, 6, 6 },           { DT_f4e2m1, -0.0, -0.0, -0.0 },
        { DT_f4e2m1, 0.25, 0, 0 },               { DT_f4e2m1, 0.75, 1, 1 },
        { DT_f32, 1e39, INFINITY, INFINITY },    { DT_f32, 16777217, 16777216, 16777216 },
        { DT_f8e8m0, 0, NAN, 0x1p-127 },         { DT_f8e8m0, 1.1, 1, 2 },
        { DT_f8e8m0, 3, 4, 4 },                  { DT_f8e8m0, 2.9, 2, 4 },
        { DT_f8e8m0, INFINITY, NAN, 0x1p127 },   { DT_f8e8m0, 0x1.8p127, NAN, 0x1p127 },
        { DT_f8e8m0, 0x1p-140, NAN, 0x1p-127 },  { DT_f8e8m0, -1, NAN, NAN },
    };
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        Scalar v = { .f = row[i].v };
        assert_true(same(scalar_round(row[i].t, v, false).f, row[i].plain));
        assert_true(same(scalar_round(row[i].t, v, true).f, row[i].saturated));
    }
    for (DType t = DT_none + 1; t < DT_COUNT; t++)
        if (dtype_is_float(t) && t != DT_f4e2m1)
            assert_true(isnan(scalar_round(t, (Scalar){ .f = NAN }, true).f));
    assert_true(scalar_round(DT_f4e2m1, (Scalar){ .f = NAN }, true).f == 0);
    assert_int_equal(store_code(DT_f8e4m3fn, copysign(NAN, -1)), 0xFF);
    for (uint32_t c = 0; c < 255; c++) {
        assert_true(load_code(DT_f8e8m0, c) == ldexp(1, (int)c - 127));
        assert_int_equal(store_code(DT_f8e8m0, ldexp(1, (int)c - 127)), c);
    }
    assert_int_equal(store_code(DT_f8e8m0, load_code(DT_f8e8m0, 255)), 255);
    /* f32 and f64: payloads and signalling NaNs survive a copy */
    static const uint32_t odd[] = { 0x7F800001, 0xFFC12345, 0x7FC00000, 0x00000001, 0x80000000, 0x7F7FFFFF, 0xFF800000 };
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        uint32_t back;
        scalar_store(DT_f32, &back, scalar_load(DT_f32, &odd[i]));
        assert_int_equal(back, odd[i]);
    }
}

static void test_integers(void **state)
{
    (void)state;
    for (DType t = DT_none + 1; t < DT_COUNT; t++) {
        if (!dtype_is_int(t))
            continue;
        Scalar lo = scalar_min(t), hi = scalar_max(t);
        int bits = dtype_bits(t);
        bool is_signed = dtype_info[t].class == 'S';
        assert_true(is_signed ? lo.i == -((int64_t)1 << (bits - 2)) * 2 : lo.u == 0);
        assert_true(is_signed ? hi.i == ~lo.i : hi.u == (bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1));
        Scalar over = { .u = hi.u + 1 }, under = { .u = lo.u - 1 };
        assert_true(scalar_round(t, over, false).i == lo.i && scalar_round(t, under, true).i == hi.i);
        const Scalar ends[] = { lo, hi, { .i = 0 }, { .i = 1 } };
        for (size_t i = 0; i < COUNT_OF(ends); i++) {
            uint8_t raw[9] = { 0 };
            scalar_store(t, raw + 1, ends[i]);      /* any alignment */
            assert_true(scalar_load(t, raw + 1).i == ends[i].i);
        }
    }
    uint8_t byte;
    scalar_store(DT_i4, &byte, (Scalar){ .i = -1 });
    assert_int_equal(byte, 0xFF);
    scalar_store(DT_u4, &byte, (Scalar){ .i = -1 });
    assert_int_equal(byte, 0x0F);
}

static void test_casts(void **state)
{
    (void)state;
    static const struct { DType to; double v; int64_t want; } down[] = {
        { DT_i32, 2.9, 2 },           { DT_i32, -2.9, -2 },          { DT_i32, NAN, 0 },          { DT_u8, 300, 44 },
        { DT_u8, -1, 255 },           { DT_i8, 200.5, -56 },         { DT_i64, 1e30, INT64_MAX }, { DT_i64, -1e30, INT64_MIN },
        { DT_i64, INFINITY, INT64_MAX }, { DT_i32, INFINITY, -1 },   { DT_i32, -INFINITY, 0 },    { DT_u64, -5, 0 },
        { DT_u64, 1e30, -1 },         { DT_u64, 0x1p63, INT64_MIN }, { DT_u32, 4294967296.0, 0 }, { DT_i4, 9, -7 },
        { DT_i64, 0x1p63, INT64_MAX }, { DT_i64, -0x1p63, INT64_MIN }, { DT_bool, NAN, 1 },       { DT_bool, -0.0, 0 },
        { DT_bool, 0.5, 1 },          { DT_bool, 5e-324, 1 },
    };
    for (size_t i = 0; i < COUNT_OF(down); i++)
        assert_true(scalar_cast(down[i].to, DT_f64, (Scalar){ .f = down[i].v }, true).i == down[i].want);
    assert_true(scalar_cast(DT_f32, DT_u64, (Scalar){ .u = UINT64_MAX }, true).f == 0x1p64);
    assert_true(scalar_cast(DT_f64, DT_u32, (Scalar){ .i = 4000000000 }, true).f == 4e9);
    assert_true(scalar_cast(DT_u8, DT_u64, (Scalar){ .u = 0xFFFFFFFFFFFFFF7F }, true).i == 0x7F);
    assert_true(scalar_cast(DT_bool, DT_i32, (Scalar){ .i = 256 }, true).i == 1);
    assert_true(scalar_cast(DT_f16, DT_bool, (Scalar){ .i = 1 }, true).f == 1);
    /* one rounding, not two: just above the middle of two bf16 or f32 values, and no double can tell */
    assert_true(scalar_cast(DT_bf16, DT_i64, (Scalar){ .i = ((int64_t)1 << 62) + ((int64_t)1 << 54) + 1 }, true).f == 0x1.02p62);
    assert_true(scalar_cast(DT_f32, DT_i64, (Scalar){ .i = -(((int64_t)1 << 62) + ((int64_t)1 << 38) + 1) }, true).f == -0x1.000002p62);
    assert_true(scalar_cast(DT_f64, DT_i64, (Scalar){ .i = INT64_MAX }, true).f == 0x1p63);
    assert_true(scalar_cast(DT_f32, DT_i64, (Scalar){ .i = INT64_MIN }, true).f == -0x1p63);
    uint64_t seed = 99;
    for (int i = 0; i < 100000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int64_t v = (int64_t)seed >> (seed & 63);
        assert_true(scalar_cast(DT_f32, DT_i64, (Scalar){ .i = v }, true).f == (double)(float)v);
        assert_true(scalar_cast(DT_f32, DT_u64, (Scalar){ .i = v }, true).f == (double)(float)(uint64_t)v);
        assert_true(scalar_cast(DT_f64, DT_i64, (Scalar){ .i = v }, true).f == (double)v);
    }
}

static void test_dtype_table(void **state)
{
    (void)state;
    for (DType t = DT_none + 1; t < DT_COUNT; t++) {
        assert_int_equal(dtype_from_onnx(dtype_info[t].onnx), t);
        assert_int_equal(dtype_from_name(dtype_info[t].name), t);
        assert_true(dtype_info[t].compute != DT_none && dtype_size(t) >= 1 && dtype_bits(t) <= 8 * dtype_info[t].bytes);
        Scalar lo = scalar_min(t), hi = scalar_max(t);
        if (dtype_is_float(t))
            assert_true(lo.f < hi.f && same(scalar_round(t, lo, false).f, lo.f) && same(scalar_round(t, hi, false).f, hi.f));
    }
    assert_int_equal(dtype_from_onnx(8), DT_none);      /* string */
    assert_int_equal(dtype_from_name("none"), DT_none);
    assert_true(scalar_max(DT_f8e4m3fn).f == 448 && scalar_min(DT_f8e4m3fn).f == -448 && isinf(scalar_min(DT_f16).f));
    assert_true(scalar_max(DT_f4e2m1).f == 6 && scalar_max(DT_f8e5m2fnuz).f == 57344 && scalar_max(DT_bool).i == 1);
}

/* ---- tensors and files ------------------------------------------------------------------------------------------------ */

typedef struct Shape { DType t; int rank; int64_t dims[20]; } Shape;

static void init_tensor(Ctx *cx, void *arg)
{
    Shape *s = arg;
    Tensor t;
    tensor_init(cx, &t, s->t, s->rank, s->dims);
}

static void test_tensors(void **state)
{
    (void)state;
    Ctx *cx = new_ctx();
    Arena *a = arena_new(cx);
    Tensor *t = tensor_new(a, cx, DT_f32, 3, (int64_t[]){ 2, 3, 4 });
    assert_true(tensor_count(t) == 24 && tensor_bytes(t) == 96 && tensor_dense(t));
    assert_true(t->strides[0] == 12 && t->strides[1] == 4 && t->strides[2] == 1);
    t->strides[2] = 2;
    assert_false(tensor_dense(t));
    Tensor *scalar = tensor_new(a, cx, DT_i64, 0, NULL);
    assert_true(tensor_count(scalar) == 1 && tensor_bytes(scalar) == 8 && tensor_dense(scalar));
    Tensor *empty = tensor_new(a, cx, DT_f64, 4, (int64_t[]){ INT64_MAX, INT64_MAX, 0, 5 });
    assert_true(tensor_count(empty) == 0 && tensor_bytes(empty) == 0 && tensor_dense(empty));
    assert_string_equal(shape_str(a, 2, (int64_t[]){ 2, -1 }), "[2,-1]");
    assert_string_equal(shape_str(a, 0, NULL), "[]");
    Shape bad[] = { { DT_f32, 17, { 1 } }, { DT_f32, -1, { 1 } }, { DT_f32, 2, { 3, -1 } }, { DT_none, 0, { 0 } },
                    { DT_f32, 2, { INT64_MAX / 4, 2 } }, { DT_u8, 3, { 1 << 30, 1 << 30, 8 } } };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(guard_call(cx, init_tensor, &bad[i]), E_INVALID);
    arena_free(a);
}

static void test_files(void **state)
{
    (void)state;
    Ctx *cx = new_ctx();
    Arena *a = arena_new(cx);
    char folder[] = "/tmp/sinter-test-XXXXXX", why[128] = "";
    assert_non_null(mkdtemp(folder));
    char *path = path_join(a, folder, "x.bin");
    File f;
    assert_int_equal(file_map(path, &f, why, sizeof why), E_IO);
    assert_string_equal(why, "No such file or directory");
    assert_int_equal(file_map(folder, &f, why, sizeof why), E_IO);
    assert_string_equal(why, "is a folder, wanted a file");
    assert_int_equal(file_write(path, "old", 3, why, sizeof why), E_OK);
    assert_int_equal(file_map(path, &f, why, sizeof why), E_OK);
    assert_int_equal(file_write(path, "newer", 5, why, sizeof why), E_OK);
    assert_true(f.size == 3 && !memcmp(f.data, "old", 3));      /* the mapping keeps the file it opened */
    file_unmap(&f);
    assert_int_equal(file_map(path, &f, why, sizeof why), E_OK);
    assert_true(f.size == 5 && !memcmp(f.data, "newer", 5));
    file_unmap(&f);
    assert_int_equal(file_write(path, "", 0, why, sizeof why), E_OK);
    assert_int_equal(file_map(path, &f, why, sizeof why), E_OK);
    assert_true(f.size == 0 && f.data != NULL);
    file_unmap(&f);
    assert_int_equal(file_write("/dev/null", "x", 1, why, sizeof why), E_OK);
    assert_int_equal(file_write(path_join(a, path, "y"), "x", 1, why, sizeof why), E_IO);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);     /* no temporary file is left */
    assert_string_equal(path_dir(a, "a/b/c"), "a/b");
    assert_string_equal(path_dir(a, "c"), ".");
    assert_string_equal(path_dir(a, "/c"), "/");
    assert_string_equal(path_join(a, "a/", "b"), "a/b");
    assert_string_equal(path_join(a, "a", "/b"), "/b");
    assert_string_equal(path_join(a, "", "b"), "b");
    double before = time_now();
    assert_true(time_now() >= before);
    assert_true(cpu_count() >= 1 && cpu_count() <= sysconf(_SC_NPROCESSORS_CONF));
    assert_true(memory_total() > 1 << 20);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena),         cmocka_unit_test(test_arena_blocks), cmocka_unit_test(test_arena_limits), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_map),           cmocka_unit_test(test_numbers),      cmocka_unit_test(test_text),
        cmocka_unit_test(test_options),       cmocka_unit_test(test_small_floats), cmocka_unit_test(test_special_floats),
        cmocka_unit_test(test_integers),      cmocka_unit_test(test_casts),        cmocka_unit_test(test_dtype_table),
        cmocka_unit_test(test_tensors),       cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

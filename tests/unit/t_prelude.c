/* The kernels' prelude: which parts of it a unit gets, and that each part comes with all that it needs. */
#include "target.h"
#include "test.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static const char small[] = "always first(\n"
                            "/*? one_f32 */\n"
                            "one(two_i32\n"
                            "/*? two_* */\n"
                            "two(\n"
                            "/*? three four */\n"
                            "three(one_f32v one_f3 xone_f32) /* one_f32 in words */\n"
                            "/*?*/\n"
                            "always last(\n";

static void needed_of(const char *prelude, const char *text, const char *want)
{
    const KernelText k = { .name = "k", .text = text }, *const list[] = { &k };
    char *got = prelude_needed(prelude, 1, list);
    assert_non_null(got);
    assert_string_equal(got, want);
    block_free(got);
}

static void needed(const char *text, const char *want) { needed_of(small, text, want); }

static void test_parts(void **state)
{
    (void)state;
    needed("", "always first(\nalways last(\n");
    needed("one_f32v two three4 /* three, four, two_i32 */ one_f3", "always first(\nalways last(\n");
    needed("two_(", "always first(\ntwo(\nalways last(\n");
    needed("x = one_f32(y);", "always first(\none(two_i32\ntwo(\nalways last(\n");
    needed("four", "always first(\nthree(one_f32v one_f3 xone_f32) /* one_f32 in words */\nalways last(\n");
}

/* No text, which is what a device without a prelude gives; a mark in the first line; one without a line after it. */
static void test_borders(void **state)
{
    (void)state;
    needed_of("", "one", "");
    needed_of("/*? one */\none\n/*?*/\nlast\n", "two", "last\n");
    needed_of("/*? one */\none\n/*?*/\nlast\n", "one", "one\nlast\n");
    needed_of("first\n/*? one */", "one", "first\n");
}

/* A unit for each name that a part is there for compiles, for each instruction set. */
static void test_whole(void **state)
{
    Ctx ctx, *cx = &ctx;
    ctx_init(cx);
    Arena *a = arena_new(cx);
    int sets = 0, units = 0;
    bool any = false;
    (void)state;
    for (size_t i = 0; i < sizeof isa_names / sizeof *isa_names; i++) {
        Target t;
        if (!isa_open_next(cx, a, i, &any, &t)) continue;
        sets++;
        for (const char *at = t.prelude; (at = strstr(at, "\n/*? ")); at++) {
            const int n = (int)strcspn(at + 5, " *");
            const char *name = arena_fmt(a, "k%d", units++);
            const KernelText k = { .name = name, .text = arena_fmt(a, "#define USED %.*s\nvoid %s(void *const *buf, const i64 *arg, void *scratch, i64 lo, i64 hi, i64 *err) {}\n", n, at + 5, name) };
            const Kernel *kernel = NULL;
            BuildStats s;
            RtError e = { .launch = -1 };
            const Status st = t.api->build(t.device, t.prelude, 1, &k, &kernel, &s, NULL, &e);
            if (st) print_error("%s: a unit with %.*s: %s\n", t.isa, n, at + 5, e.text);
            assert_int_equal(st, E_OK);
        }
        t.api->close(t.device);
    }
    assert_true(sets > 0 && units > 10 * sets);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_parts), cmocka_unit_test(test_borders), cmocka_unit_test(test_whole) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

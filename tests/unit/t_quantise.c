/* Quantisation where it is decided: numbers next to the multiples k + 1/2 of a step, and next to the middles between the floats around k + 1/2, for all k of the
 * range; numbers far out, infinities, NaN. What is wanted is computed here, with C's division. */
#include "model.h"

enum { MOST = 9000, TEXT = 1 << 18 };
static char model[1024], input[TEXT], wanted[4 * TEXT];
static float number[MOST];

static int numbers_near(float step)
{
    int n = 0;
    static const float far[] = { 0, 1e30f, 3e38f, 2147483648.0f, 4294967296.0f, 1e-40f, INFINITY };
    for (size_t i = 0; i < COUNT_OF(far); i++) {
        number[n++] = far[i]; number[n++] = -far[i];
        number[n++] = far[i] * step; number[n++] = -far[i] * step;
    }
    number[n++] = NAN;
    for (int k = 0; k < 258; k++) {
        float half = (float)k + 0.5f, at = half * step;
        for (int i = 0; i < 3; i++) at = nextafterf(at, 0);
        for (int i = 0; i < 7; i++, at = nextafterf(at, INFINITY)) { number[n++] = at; number[n++] = -at; }
        for (int side = 0; side < 2; side++) {
            double middle = ((double)half + (double)nextafterf(half, side ? INFINITY : 0)) / 2;
            number[n++] = (float)(middle * (double)step);
            number[n++] = -(float)(middle * (double)step);
        }
    }
    return n;
}

static double quantised(float x, float step, int zero, int low, int high)
{
    double v = (double)rintf(x / step) + zero;
    return isnan(v) ? 0 : v < low ? low : v > high ? high : v;
}

static char *put_numbers(char *at, const char *type, int n, float step, int zero, int low, int high, bool relu)
{
    at += sprintf(at, "; %s[%d] ", type, n);
    for (int i = 0; i < n; i++) at += sprintf(at, "%.0f ", quantised(relu && number[i] < 0 ? 0 : number[i], step, zero, low, high));
    return at;
}

static void check_step(float step, int zero)
{
    int n = numbers_near(step);
    sprintf(model, OPSET(18) "g (float[%d] x) => (uint8[%d] u, uint8[%d] v, int8[%d] i, int8[%d] j) <float s = {%.9g}, uint8 z = {%d}, uint8 z0 = {0}, int8 y = {%d}, int8 y0 = {0}>"
            "{ u = QuantizeLinear(x, s, z) r = Relu(x) v = QuantizeLinear(r, s, z0) i = QuantizeLinear(x, s, y) j = QuantizeLinear(x, s, y0) }",
            n, n, n, n, n, step, zero, zero - 128);
    char *at = input + sprintf(input, "f32[%d] ", n);
    for (int i = 0; i < n; i++) at += sprintf(at, "%.9g ", number[i]);
    at = put_numbers(wanted, "u8", n, step, zero, 0, 255, false);
    at = put_numbers(at, "u8", n, step, 0, 0, 255, true);
    at = put_numbers(at, "i8", n, step, zero - 128, -128, 127, false);
    put_numbers(at, "i8", n, step, 0, -128, 127, false);
    trial_gives(model, input, wanted + 2, 0);
}

static void test_steps(void **state)
{
    (void)state;
    static const float step[] = { 1, 0.1f, 0.0235284399f, 0x1.fffffep-5f, 0x1.000002p-9f, 0x1.5a5a5ap3f, 1e-39f, 1e-33f, 3e35f };
    for (size_t i = 0; i < COUNT_OF(step); i++) check_step(step[i], (int)(i * 97 % 256));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_steps) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Text that grows in an arena, and numbers as they stand in C source and JSON.
 *
 * A number is printed with the fewest digits that read back as the same number. The host program may have set any
 * locale, so only the digits of printf's "%e" are used and the decimal point is written here. */
#include "base/base.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void text_room(Text *t, size_t more)
{
    if (t->at && more < t->cap - t->n)
        return;
    size_t cap = t->cap ? t->cap : 64;
    while (cap - t->n <= more)
        cap = size_mul(t->arena, cap, 2);
    char *grown = arena_alloc(t->arena, cap);
    if (t->at)
        memcpy(grown, t->at, t->n);
    t->at = grown;
    t->cap = cap;
}

void text_put(Text *t, const char *s, size_t n)
{
    text_room(t, n);
    if (n)
        memcpy(t->at + t->n, s, n);
    t->n += n;
    t->at[t->n] = 0;
}

void text_add(Text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    size_t left = t->at ? t->cap - t->n : 0;
    int n = vsnprintf(left ? t->at + t->n : NULL, left, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    if ((size_t)n >= left) {
        text_room(t, (size_t)n);
        vsnprintf(t->at + t->n, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    t->n += (size_t)n;
}

/* Digits d1 d2 ... and exponent e with v = d1.d2... * 10^e, the fewest that read back; returns their count. */
static int shortest_digits(double v, bool is_f32, char digits[24], int *exponent)
{
    char e[64];
    int most = is_f32 ? 9 : 17;
    for (int n = 1; n <= most; n++) {
        snprintf(e, sizeof e, "%.*e", n - 1, v);
        if (n == most || (is_f32 ? strtof(e, NULL) == (float)v : strtod(e, NULL) == v))
            break;
    }
    int n = 0;
    const char *c = e;
    for (; *c && *c != 'e'; c++)
        if (*c >= '0' && *c <= '9')
            digits[n++] = *c;
    *exponent = *c ? atoi(c + 1) : 0;
    return n;
}

void text_float(Text *t, double v, bool is_f32)
{
    const char *suffix = is_f32 ? "f" : "";
    if (is_f32)
        v = (float)v;
    if (isnan(v)) {
        text_add(t, "__builtin_nan%s(\"\")", suffix);
        return;
    }
    if (isinf(v)) {
        text_add(t, v < 0 ? "(-__builtin_inf%s())" : "__builtin_inf%s()", suffix);
        return;
    }
    if (signbit(v))
        text_put(t, "-", 1);
    v = fabs(v);
    if (v < 1e6 && v == floor(v)) {     /* most constants are small whole numbers: one print suffices */
        text_add(t, "%d.0%s", (int)v, suffix);
        return;
    }
    char digits[24] = "0";
    int e, n = shortest_digits(v, is_f32, digits, &e);
    if (e >= -5 && e < 16) {            /* plain: 0.00123, 1234.5, 123000.0 */
        if (e < 0)
            text_add(t, "0.%.*s", -e - 1, "0000");
        for (int i = 0; i < n || i <= e; i++) {
            text_put(t, i < n ? &digits[i] : "0", 1);
            if (i == e)
                text_put(t, ".", 1);
        }
        if (e >= 0 && n <= e + 1)
            text_put(t, "0", 1);
        text_add(t, "%s", suffix);
    } else if (n == 1) {
        text_add(t, "%ce%d%s", digits[0], e, suffix);
    } else {
        text_add(t, "%c.%.*se%d%s", digits[0], n - 1, digits + 1, e, suffix);
    }
}

bool list_has(const char *comma_list, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = comma_list; s; ) {
        while (*s == ' ')
            s++;
        size_t len = strcspn(s, ",");
        const char *next = s[len] ? s + len + 1 : NULL;
        while (len && s[len - 1] == ' ')
            len--;
        if (len == n && n && !memcmp(s, word, n))
            return true;
        s = next;
    }
    return false;
}

/* Bytes of the character at s, or 0: it is no UTF-8 (RFC 3629: shortest forms only, no surrogates, up to U+10FFFF). */
static int utf8_bytes(const unsigned char *s)
{
    int n = s[0] < 0x80 ? 1 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : 0;
    for (int i = 1; i < n; i++) if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] >= 0xA0) || (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] >= 0x90)) return 0;
    return n;
}

const char *text_utf8(Arena *a, const char *s)
{
    const char *at = s;
    for (int n; *at && (n = utf8_bytes((const unsigned char *)at)) > 0;) at += n;
    if (!*at) return s;
    Text t = { .arena = a };
    for (at = s; *at;) {
        int n = utf8_bytes((const unsigned char *)at);
        if (n) text_put(&t, at, (size_t)n);
        else text_add(&t, "\\x%02X", (unsigned)(unsigned char)*at);
        at += n ? n : 1;
    }
    return t.at;
}

/* The scanner of ONNX's text syntax (onnxtext.c): characters, words, strings and numbers.
 *
 * There is no list of tokens: the parser asks for what may come next, straight over the bytes, and each question skips white space and comments first.
 * A message names line and column, which are counted only then. */
#include "onnx/onnx.h"
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tx_fail(const Tx *t, Status code, const char *at, const char *fmt, ...)
{
    char what[1024];
    int line = 1;
    const char *bol = t->start;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    for (const char *c = t->start; c < at; c++)
        if (*c == '\n') {
            line++;
            bol = c + 1;
        }
    fail(t->cx, code, "line %d, column %d: %s", line, (int)(at - bol) + 1, what);
}

static bool tx_is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool tx_is_digit(char c) { return c >= '0' && c <= '9'; }
static bool tx_is_word(char c) { return tx_is_alpha(c) || tx_is_digit(c) || c == '_'; }
static bool tx_is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

char tx_peek(Tx *t)
{
    for (;;) {
        while (t->at < t->end && tx_is_white(*t->at))
            t->at++;
        if (t->at == t->end || *t->at != '#')
            return t->at < t->end ? *t->at : 0;
        while (t->at < t->end && *t->at != '\n')
            t->at++;
    }
}

void tx_wanted(Tx *t, const char *wanted)
{
    char found[32];
    tx_peek(t);
    size_t n = (size_t)(t->end - t->at), k = 0;
    while (k < n && k < sizeof found - 1 && (unsigned char)t->at[k] > 0x20 && (k == 0 || tx_is_word(t->at[k]) == tx_is_word(t->at[0])))
        k++;
    snprintf(found, sizeof found, "%.*s", (int)k, t->at);
    tx_fail(t, E_FORMAT, t->at, k ? "found '%s', wanted %s" : "found the end of the text%s, wanted %s", found, wanted);
}

bool tx_take(Tx *t, char c)
{
    if (tx_peek(t) != c || t->at == t->end)
        return false;
    t->at++;
    return true;
}

void tx_need(Tx *t, char c)
{
    if (!tx_take(t, c)) {
        char wanted[] = {'\'', c, '\'', 0};
        tx_wanted(t, wanted);
    }
}

void tx_arrow(Tx *t)
{
    if (tx_peek(t) != '=' || t->end - t->at < 2 || t->at[1] != '>')
        tx_wanted(t, "'=>'");
    t->at += 2;
}

size_t tx_word_len(Tx *t)
{
    char c = tx_peek(t);
    size_t n = 0;
    if (tx_is_alpha(c) || c == '_')
        while (t->at + n < t->end && tx_is_word(t->at[n]))
            n++;
    return n;
}

static const char *tx_copy(Tx *t, const char *from, size_t n)
{
    char *s = arena_alloc(t->a, n + 1);
    memcpy(s, from, n);
    return s;
}

/* An identifier, or NULL. */
static const char *tx_word(Tx *t)
{
    size_t n = tx_word_len(t);
    if (!n)
        return NULL;
    t->at += n;
    return tx_copy(t, t->at - n, n);
}

const char *tx_need_word(Tx *t, const char *wanted)
{
    const char *s = tx_word(t);
    if (!s)
        tx_wanted(t, wanted);
    return s;
}

const char *tx_string(Tx *t, size_t *len)
{
    if (tx_peek(t) != '"')
        tx_wanted(t, "a quoted string");
    const char *open = t->at++, *close = t->at;
    while (close < t->end && *close != '"')
        close += *close == '\\' ? 2 : 1;
    if (close >= t->end)
        tx_fail(t, E_FORMAT, open, "the string that starts here does not end");
    char *s = arena_alloc(t->a, (size_t)(close - t->at) + 1);
    size_t n = 0;
    for (; t->at < close; t->at++) {
        if (*t->at == '\\')
            t->at++;
        if (!*t->at)
            tx_fail(t, E_FORMAT, t->at, "a zero byte within a string");
        s[n++] = *t->at;
    }
    t->at = close + 1;
    if (len)
        *len = n;
    return s;
}

const char *tx_name(Tx *t)
{
    return tx_peek(t) == '"' ? tx_string(t, NULL) : tx_word(t);
}

const char *tx_need_name(Tx *t, const char *wanted)
{
    const char *s = tx_name(t);
    if (!s)
        tx_wanted(t, wanted);
    return s;
}

const char *tx_qualified(Tx *t, const char **domain, const char *wanted)
{
    const char *s = tx_need_word(t, wanted);
    Text dom = {.arena = t->a};
    while (tx_take(t, '.')) {
        text_add(&dom, "%s%s", dom.n ? "." : "", s);
        s = tx_need_word(t, wanted);
    }
    *domain = dom.n ? onnx_domain(dom.at) : "";
    return s;
}

/* ---- numbers ---------------------------------------------------------------------------------------------------------------------------------- */
bool tx_next_is_special(Tx *t)
{
    static const char *const words[] = {"inf", "infinity", "nan"};
    size_t n = tx_word_len(t);
    for (size_t w = 0; w < COUNT_OF(words); w++) {
        size_t i = 0;
        while (i < n && words[w][i] && (t->at[i] | 32) == words[w][i])
            i++;
        if (n && i == n && !words[w][i])
            return true;
    }
    return false;
}

char tx_number(Tx *t, char *buf, size_t size)
{
    tx_peek(t);
    const char *from = t->at, *at = from;
    char kind = 'i';
    if (at < t->end && *at == '-')
        at++;
    t->at = at;
    if (at < t->end && tx_is_alpha(*at)) {
        if (!tx_next_is_special(t))
            tx_wanted(t, "a number");
        at += tx_word_len(t);
        kind = 'f';
    } else {
        if (at == t->end || !tx_is_digit(*at))
            tx_wanted(t, "a number");
        while (at < t->end && tx_is_digit(*at))
            at++;
        if (at < t->end && *at == '.') {
            kind = 'f';
            for (at++; at < t->end && tx_is_digit(*at);)
                at++;
        }
        if (at < t->end && (*at | 32) == 'e') {
            kind = 'f';
            at++;
            if (at < t->end && (*at == '+' || *at == '-'))
                at++;
            if (at == t->end || !tx_is_digit(*at)) {
                t->at = at;
                tx_wanted(t, "digits of an exponent");
            }
            while (at < t->end && tx_is_digit(*at))
                at++;
        }
    }
    t->at = at;
    if (at < t->end && tx_is_word(*at))
        tx_wanted(t, "the end of the number");
    if ((size_t)(at - from) >= size)
        tx_fail(t, E_FORMAT, from, "a number of %zu characters, at most %zu", (size_t)(at - from), size - 1);
    memcpy(buf, from, (size_t)(at - from));
    buf[at - from] = 0;
    return kind;
}

/* strtod takes the locale's decimal point; the syntax has a full stop. */
double tx_to_float(Tx *t, char *buf, bool is_f32)
{
    const char *point = localeconv()->decimal_point;
    char *dot = strchr(buf, '.'), *end;
    if (dot && point[0] && !point[1])
        *dot = point[0];
    double v = is_f32 ? (double)strtof(buf, &end) : strtod(buf, &end);
    if (*end)
        tx_fail(t, E_FORMAT, t->at, "'%s' is no number", buf);
    if (isinf(v) && tx_is_digit(buf[buf[0] == '-']))
        tx_fail(t, E_FORMAT, t->at, "%s is too large for a float", buf);
    return v;
}

int64_t tx_to_int(Tx *t, const char *buf)
{
    errno = 0;
    long long v = strtoll(buf, NULL, 10);
    if (errno)
        tx_fail(t, E_FORMAT, t->at, "%s does not fit 64 bits", buf);
    return v;
}

int64_t tx_int(Tx *t)
{
    char buf[64];
    if (tx_number(t, buf, sizeof buf) != 'i')
        tx_fail(t, E_FORMAT, t->at, "found %s, wanted a whole number", buf);
    return tx_to_int(t, buf);
}

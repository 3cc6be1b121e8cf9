/* The protobuf wire format: a cursor over the fields of one message.
 *
 * Nothing is copied and nothing is allocated but strings. proto.def says which fields there are; a known field with a foreign
 * wire type is an error, an unknown field is skipped. Every length is checked against the end of the enclosing message
 * before it is used, so no count or length of the file reaches an allocation unless the bytes behind it are there. */
#include "onnx/onnx.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef enum PbKind { PK_none, PK_varint, PK_f32, PK_varints, PK_f32s, PK_f64s, PK_string, PK_bytes, PK_message } PbKind;
typedef struct PbField { const char *name; PbKind kind; } PbField;

static const PbField pb_field[PB_MESSAGES][PB_FIELDS] = {
#define MESSAGE(m, text)
#define FIELD(m, name, number, kind) [PB_##m][number] = {#name, PK_##kind},
#include "onnx/proto.def"
#undef MESSAGE
#undef FIELD
};
static const char *const pb_message_name[PB_MESSAGES] = {
#define MESSAGE(m, text) text,
#define FIELD(m, name, number, kind)
#include "onnx/proto.def"
#undef MESSAGE
#undef FIELD
};

void pb_fail(const Pb *p, Status code, const char *fmt, ...)
{
    char what[1024], field[80];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    int k = p->number;
    if (k > 0 && k < PB_FIELDS && pb_field[p->message][k].name)
        snprintf(field, sizeof field, ".%s", pb_field[p->message][k].name);
    else if (k > 0)
        snprintf(field, sizeof field, " field %d", k);
    else
        field[0] = 0;
    /* a fault in the outermost message: most likely another kind of file */
    fail(p->cx, code, "%sbyte %zu: %s%s: %s", p->message == PB_Model ? "no ONNX model, or a damaged one: " : "", (size_t)(p->tag_at - p->base), pb_message_name[p->message], field, what);
}

/* At most ten bytes of seven bits, the lowest first; the tenth holds one bit. */
static const uint8_t *pb_varint(const Pb *p, const uint8_t *at, const uint8_t *end, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0; at < end; shift += 7, at++) {
        uint8_t b = *at;
        if (shift == 63 && b > 1)
            pb_fail(p, E_FORMAT, "a varint has more than 64 bits");
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return at + 1;
        }
    }
    pb_fail(p, E_FORMAT, "the message ends within a varint");
}

void pb_open(Pb *p, Ctx *cx, const uint8_t *base, PbMessage m, const PbSpan *msg)
{
    memset(p, 0, sizeof *p);
    p->cx = cx;
    p->base = base;
    p->message = m;
    p->span = msg;
    p->at = p->tag_at = msg->at ? msg->at : base;
    p->end = msg->at ? msg->end : base;
}

static const char *pb_wire_name(int wire)
{
    static const char *const names[8] = {"varint", "64-bit", "length-delimited", "start of a group", "end of a group", "32-bit", "6", "7"};
    return names[wire];
}

static void pb_check_wire(const Pb *p, PbKind kind)
{
    bool ok = false;
    int want = 2;
    switch (kind) {
    case PK_none: return;
    case PK_varint: want = 0; break;
    case PK_f32: want = 5; break;
    case PK_varints: want = 0; ok = p->wire == 2; break;
    case PK_f32s: want = 5; ok = p->wire == 2; break;
    case PK_f64s: want = 1; ok = p->wire == 2; break;
    case PK_string: case PK_bytes: case PK_message: break;
    }
    if (!ok && p->wire != want)
        pb_fail(p, E_FORMAT, "found wire type %s, wanted %s", pb_wire_name(p->wire), pb_wire_name(want));
    size_t unit = kind == PK_f32s ? 4 : kind == PK_f64s ? 8 : 1, n = (size_t)(p->bytes.end - p->bytes.at);
    if (p->wire == 2 && n % unit)
        pb_fail(p, E_FORMAT, "packed field of %zu bytes, wanted a multiple of %zu", n, unit);
    if (p->wire == 2 && kind == PK_varints && n && (p->bytes.end[-1] & 0x80))
        pb_fail(p, E_FORMAT, "packed field ends within a varint");
}

bool pb_next(Pb *p)
{
    for (;;) {
        while (p->at == p->end) {
            if (!p->span->next)
                return false;
            p->span = p->span->next;
            p->at = p->span->at;
            p->end = p->span->end;
        }
        p->tag_at = p->at;
        p->number = 0;
        uint64_t tag;
        p->at = pb_varint(p, p->at, p->end, &tag);
        if (tag > UINT32_MAX || tag < 8)
            pb_fail(p, E_FORMAT, "field number %llu, wanted 1 to 536870911", (unsigned long long)(tag >> 3));
        p->number = (int)(tag >> 3);
        p->wire = (int)(tag & 7);
        size_t left = (size_t)(p->end - p->at);
        switch (p->wire) {
        case 0:
            p->at = pb_varint(p, p->at, p->end, &p->v);
            break;
        case 1: case 5: {
            size_t n = p->wire == 1 ? 8 : 4;
            if (left < n)
                pb_fail(p, E_FORMAT, "the message ends within a %s value: %zu bytes left", pb_wire_name(p->wire), left);
            p->v = 0;
            for (size_t i = 0; i < n; i++)
                p->v |= (uint64_t)p->at[i] << (8 * i);
            p->at += n;
            break;
        }
        case 2: {
            uint64_t n;
            p->at = pb_varint(p, p->at, p->end, &n);
            left = (size_t)(p->end - p->at);
            if (n > left)
                pb_fail(p, E_FORMAT, "found length %llu, but the enclosing message has %zu bytes left", (unsigned long long)n, left);
            p->bytes = (PbSpan){p->at, p->at + n, NULL, NULL};
            p->at += n;
            break;
        }
        default:
            pb_fail(p, E_FORMAT, "found wire type %s, which is not in use", pb_wire_name(p->wire));
        }
        if (p->number < PB_FIELDS && pb_field[p->message][p->number].name) {
            pb_check_wire(p, pb_field[p->message][p->number].kind);
            return true;
        }
    }
}

void pb_count(Ctx *cx, const uint8_t *base, PbMessage m, const PbSpan *msg, int n[PB_FIELDS])
{
    Pb p;
    memset(n, 0, PB_FIELDS * sizeof *n);
    pb_open(&p, cx, base, m, msg);
    while (pb_next(&p))
        if (n[p.number]++ == INT_MAX - 1)
            pb_fail(&p, E_UNSUPPORTED, "more than %d of them", INT_MAX - 1);
}

const char *pb_str(const Pb *p, Arena *a)
{
    size_t n = (size_t)(p->bytes.end - p->bytes.at);
    if (n == 0)
        return "";
    if (memchr(p->bytes.at, 0, n))
        pb_fail(p, E_FORMAT, "a zero byte within a string");
    char *s = arena_alloc(a, n + 1);
    memcpy(s, p->bytes.at, n);
    return s;
}

void pb_merge(const Pb *p, Arena *a, PbSpan *msg)
{
    if (!msg->at) {
        *msg = p->bytes;
        msg->next = NULL;
        msg->last = msg;
        return;
    }
    PbSpan *s = NEW(a, PbSpan);
    *s = p->bytes;
    s->next = NULL;
    msg->last->next = s;
    msg->last = s;
}

size_t pb_elems(const Pb *p)
{
    if (p->wire != 2)
        return 1;
    size_t n = (size_t)(p->bytes.end - p->bytes.at), unit = 0, ends = 0;
    switch (pb_field[p->message][p->number].kind) {
    case PK_f32s: unit = 4; break;
    case PK_f64s: unit = 8; break;
    default: break;
    }
    if (unit)
        return n / unit;
    for (size_t i = 0; i < n; i++)
        ends += p->bytes.at[i] < 0x80;
    return ends;
}

void pb_ints(const Pb *p, int64_t *out)
{
    if (p->wire != 2) {
        *out = (int64_t)p->v;
        return;
    }
    for (const uint8_t *at = p->bytes.at; at < p->bytes.end; out++) {
        uint64_t v;
        at = pb_varint(p, at, p->bytes.end, &v);
        *out = (int64_t)v;
    }
}

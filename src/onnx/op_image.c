/* ImageDecoder: a file's bytes become pixels. Formats that store the pixels as they are: BMP (24 and 32 bits, or 8 with a palette), PNM (grey and
 * colour, binary and text), TIFF (8 bits for a sample, strips). Compressed formats are named in the error, not decoded.
 *
 * Every offset and size comes from the file and is checked before it is used. A decoder fills rows of red, green, blue; grey is three equal ones. */
#include <string.h>
#include "onnx/onnx.h"

enum { IMAGE_SIDE = 1 << 24 };

typedef struct Image {
    Ctx *cx; Arena *a;
    const uint8_t *b; int64_t n;        /* the file */
    const char *format;
    int64_t w, h;
    uint8_t *px;                        /* h * w * 3 */
} Image;

static _Noreturn void image_fail(const Image *m, const char *what) { fail(m->cx, E_FORMAT, "the %s image: %s", m->format, what); }

static void image_size(Image *m, int64_t w, int64_t h)
{
    if (w < 1 || h < 1 || w > IMAGE_SIDE || h > IMAGE_SIDE) fail(m->cx, E_FORMAT, "the %s image: %lld x %lld pixels", m->format, (long long)w, (long long)h);
    m->w = w;
    m->h = h;
}

/* The pixels are made when it is known that the file has as many bytes as they need. */
static void image_pixels(Image *m) { m->px = arena_alloc(m->a, size_mul(m->a, size_mul(m->a, (size_t)m->w, (size_t)m->h), 3)); }

static const uint8_t *image_at(const Image *m, int64_t at, int64_t n)
{
    if (at < 0 || n < 0 || at > m->n || n > m->n - at) image_fail(m, "it ends before its data");
    return m->b + at;
}

static void put_pixel(Image *m, int64_t x, int64_t y, uint8_t r, uint8_t g, uint8_t b)
{
    uint8_t *p = m->px + (y * m->w + x) * 3;
    p[0] = r, p[1] = g, p[2] = b;
}

/* ---- BMP ------------------------------------------------------------------------------------------------------------------------------ */

static int64_t bmp_u32(const Image *m, int64_t at)
{
    const uint8_t *p = image_at(m, at, 4);
    return (int64_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static void decode_bmp(Image *m)
{
    int64_t data = bmp_u32(m, 10), header = bmp_u32(m, 14), w = (int32_t)bmp_u32(m, 18), h = (int32_t)bmp_u32(m, 22);
    int bits = image_at(m, 28, 2)[0];
    if (header < 40) image_fail(m, "its header is too old");
    if (bmp_u32(m, 30)) image_fail(m, "it is compressed");
    if (bits != 8 && bits != 24 && bits != 32) fail(m->cx, E_FORMAT, "the BMP image: %d bits for a pixel, wanted 8, 24 or 32", bits);
    image_size(m, w, h < 0 ? -h : h);
    int64_t pitch = (m->w * bits / 8 + 3) / 4 * 4, colours = bits == 8 ? bmp_u32(m, 46) : 0;
    if (bits == 8 && !colours) colours = 256;
    if (colours > 256) image_fail(m, "its palette has more than 256 colours");
    const uint8_t *palette = image_at(m, 14 + header, colours * 4);
    image_at(m, data, pitch * m->h);
    image_pixels(m);
    for (int64_t y = 0; y < m->h; y++) {
        const uint8_t *row = image_at(m, data + (h < 0 ? y : m->h - 1 - y) * pitch, pitch);     /* the last row is stored first */
        for (int64_t x = 0; x < m->w; x++) {
            const uint8_t *p = row + x * (bits / 8);
            if (bits == 8) {
                if (*p >= colours) image_fail(m, "a colour is outside of its palette");
                p = palette + *p * 4;
            }
            put_pixel(m, x, y, p[2], p[1], p[0]);
        }
    }
}

/* ---- PNM ------------------------------------------------------------------------------------------------------------------------------ */

static bool pnm_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Spaces and comments come before a number. */
static int64_t pnm_number(const Image *m, int64_t *at)
{
    bool comment = false;
    for (; *at < m->n && (comment || pnm_space(m->b[*at]) || m->b[*at] == '#'); ++*at) comment = (comment || m->b[*at] == '#') && m->b[*at] != '\n';
    int64_t v = 0, from = *at;
    for (; *at < m->n && m->b[*at] >= '0' && m->b[*at] <= '9' && v <= IMAGE_SIDE; ++*at) v = v * 10 + m->b[*at] - '0';
    if (*at == from) image_fail(m, "a number is wanted");
    return v;
}

static void decode_pnm(Image *m)
{
    bool text = m->b[1] < '4', colour = m->b[1] == '3' || m->b[1] == '6';
    int64_t at = 2, w = pnm_number(m, &at), h = pnm_number(m, &at), most = pnm_number(m, &at), each = colour ? 3 : 1;
    if (most < 1 || most > 255) fail(m->cx, E_FORMAT, "the PNM image: the largest value is %lld, wanted 1 to 255", (long long)most);
    image_size(m, w, h);
    at += !text;                                        /* one space, then the bytes */
    image_at(m, at, m->w * m->h * each);                /* in text too each sample takes a byte or more */
    image_pixels(m);
    for (int64_t y = 0; y < m->h; y++)
        for (int64_t x = 0; x < m->w; x++) {
            uint8_t v[3];
            for (int k = 0; k < each; k++) {
                int64_t s = text ? pnm_number(m, &at) : m->b[at++];
                if (s > most) image_fail(m, "a sample is above the largest value");
                v[k] = (uint8_t)((s * 255 + most / 2) / most);
            }
            put_pixel(m, x, y, v[0], v[colour ? 1 : 0], v[colour ? 2 : 0]);
        }
}

/* ---- TIFF ----------------------------------------------------------------------------------------------------------------------------- */

static int64_t tiff_uint(const Image *m, int64_t at, int bytes)
{
    const uint8_t *p = image_at(m, at, bytes);
    bool big = m->b[0] == 'M';
    uint32_t v = 0;
    for (int k = 0; k < bytes; k++) v |= (uint32_t)p[k] << 8 * (big ? bytes - 1 - k : k);
    return v;
}

/* Value i of a tag of the first directory; fallback when the tag is absent. */
static int64_t tiff_tag(const Image *m, int tag, int64_t i, int64_t fallback)
{
    int64_t dir = tiff_uint(m, 4, 4), n = tiff_uint(m, dir, 2);
    for (int64_t k = 0; k < n; k++) {
        int64_t e = dir + 2 + k * 12;
        if (tiff_uint(m, e, 2) != tag) continue;
        int64_t type = tiff_uint(m, e + 2, 2), count = tiff_uint(m, e + 4, 4);
        int bytes = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;
        if (!bytes || i >= count) image_fail(m, "a tag has another type or fewer values than wanted");
        return tiff_uint(m, (count * bytes <= 4 ? e + 8 : tiff_uint(m, e + 8, 4)) + i * bytes, bytes);
    }
    if (fallback < 0) fail(m->cx, E_FORMAT, "the TIFF image: tag %d is missing", tag);
    return fallback;
}

static void decode_tiff(Image *m)
{
    enum { WIDTH = 256, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 262, OFFSETS = 273, SAMPLES = 277, ROWS = 278, PLANAR = 284 };
    image_size(m, tiff_tag(m, WIDTH, 0, -1), tiff_tag(m, HEIGHT, 0, -1));
    int64_t samples = tiff_tag(m, SAMPLES, 0, 1), kind = tiff_tag(m, PHOTOMETRIC, 0, -1), rows = tiff_tag(m, ROWS, 0, m->h);
    if (tiff_tag(m, COMPRESSION, 0, 1) != 1) image_fail(m, "it is compressed");
    if (tiff_tag(m, PLANAR, 0, 1) != 1) image_fail(m, "its colours lie in planes");
    if (kind > 2 || samples < (kind == 2 ? 3 : 1) || samples > 4 || rows < 1) image_fail(m, "it is neither grey nor of red, green and blue");
    for (int64_t k = 0; k < samples; k++)
        if (tiff_tag(m, BITS, k, 1) != 8) image_fail(m, "its samples have not 8 bits");
    image_at(m, 0, m->w * samples * m->h);
    image_pixels(m);
    const uint8_t *p = NULL;
    for (int64_t y = 0; y < m->h; y++) {
        if (y % rows == 0) {
            int64_t some = m->h - y < rows ? m->h - y : rows;
            p = image_at(m, tiff_tag(m, OFFSETS, y / rows, -1), some * m->w * samples);
        }
        for (int64_t x = 0; x < m->w; x++, p += samples) {
            uint8_t grey = kind ? p[0] : (uint8_t)(255 - p[0]);
            if (kind == 2) put_pixel(m, x, y, p[0], p[1], p[2]);
            else put_pixel(m, x, y, grey, grey, grey);
        }
    }
}

/* ---- the operator ----------------------------------------------------------------------------------------------------------------------- */

typedef struct ImageFormat { const char *name; int at, n; const char *magic; void (*decode)(Image *m); } ImageFormat;
static const ImageFormat image_format[] = {
    { "BMP", 0, 2, "BM", decode_bmp }, { "PNM", 0, 2, "P2", decode_pnm }, { "PNM", 0, 2, "P3", decode_pnm }, { "PNM", 0, 2, "P5", decode_pnm },
    { "PNM", 0, 2, "P6", decode_pnm }, { "TIFF", 0, 4, "II*\0", decode_tiff }, { "TIFF", 0, 4, "MM\0*", decode_tiff },
    { "JPEG", 0, 3, "\xff\xd8\xff", NULL }, { "JPEG 2000", 4, 4, "jP  ", NULL }, { "WebP", 8, 4, "WEBP", NULL }, { "PNG", 1, 3, "PNG", NULL },
};

typedef enum PixelFormat { PIXEL_rgb, PIXEL_bgr, PIXEL_grey } PixelFormat;

static void image_eval(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    PixelFormat pixel = *(const PixelFormat *)call->attr;
    Image m = { .cx = cx, .a = a, .b = in[0].data, .n = tensor_count(&in[0]) };
    const ImageFormat *f = NULL;
    for (int i = 0; i < (int)COUNT_OF(image_format) && !f; i++) {
        const ImageFormat *t = &image_format[i];
        if (m.n >= t->at + t->n && memcmp(m.b + t->at, t->magic, (size_t)t->n) == 0) f = t;
    }
    if (!f) fail(cx, E_FORMAT, "the input is no image in a known format");
    if (!f->decode) fail(cx, E_UNSUPPORTED, "the input is a %s image; BMP, PNM and TIFF without compression are read", f->name);
    m.format = f->name;
    f->decode(&m);
    *out = *tensor_new(a, cx, DT_u8, 3, (int64_t[]){ m.h, m.w, pixel == PIXEL_grey ? 1 : 3 });
    uint8_t *y = out->data;
    for (int64_t i = 0; i < m.w * m.h; i++) {
        const uint8_t *p = m.px + 3 * i;
        if (pixel == PIXEL_grey) {      /* luma of ITU-R BT.601 in 16 bits */
            y[i] = (uint8_t)((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16);
        } else {
            y[3 * i] = p[pixel == PIXEL_bgr ? 2 : 0];
            y[3 * i + 1] = p[1];
            y[3 * i + 2] = p[pixel == PIXEL_bgr ? 0 : 2];
        }
    }
}
static const CallDef image_def = { .name = "image_decoder", .dynamic = true, .eval = image_eval };

void op_image_decoder(OpCall *o)
{
    const char *text = op_string(o, "pixel_format", "RGB");
    PixelFormat pixel = strcmp(text, "RGB") == 0 ? PIXEL_rgb : strcmp(text, "BGR") == 0 ? PIXEL_bgr : PIXEL_grey;
    if (pixel == PIXEL_grey && strcmp(text, "Grayscale") != 0) fail(o->cx, E_FORMAT, "pixel_format is '%s', wanted RGB, BGR or Grayscale", text);
    if (o->in[0]->dt != DT_u8 || o->in[0]->rank != 1) fail(o->cx, E_INVALID, "the input is %s of rank %d, wanted u8 of rank 1", dtype_info[o->in[0]->dt].name, o->in[0]->rank);
    DType dt = DT_u8;
    o->out[0] = op_host_call(o, &image_def, 1, o->in, 1, &dt, &pixel, sizeof pixel)[0];
}

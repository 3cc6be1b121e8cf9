/* ImageDecoder: small files byte by byte; each file cut short is refused, whatever its length. And optional values that are known. */
#include "model.h"

#define MODEL(format) OPSET(20) "g (uint8[N] x) => (uint8[H,W,C] y) { y = ImageDecoder<pixel_format = \"" format "\">(x) }"

static const char *file_text(const void *bytes, int n)
{
    static char text[4096];
    int at = snprintf(text, sizeof text, "u8[%d]", n);
    for (int i = 0; i < n; i++) at += snprintf(text + at, sizeof text - (size_t)at, " %d", ((const uint8_t *)bytes)[i]);
    return text;
}

static void decodes(const char *model, const void *bytes, int n, const char *want)
{
    trial_gives(model, file_text(bytes, n), want, 0);
}

static void refuses_prefixes(const uint8_t *bytes, int n)
{
    for (int k = 0; k < n; k++) {
        Trial r;
        trial_open(&r, MODE_interpreter, MODEL("RGB"));
        trial_inputs(&r, file_text(bytes, k));
        if (trial_run(&r) != E_FORMAT) fail_msg("%d of %d bytes: %s %s", k, n, status_name(r.status), r.cx.text);
        trial_close(&r);
    }
}

/* Two rows of one pixel, padded to 4 bytes, the lower one first: red, then blue above. */
static const uint8_t bmp[62] = { 'B', 'M', 62, [10] = 54, [14] = 40, [18] = 1, [22] = 2, [26] = 1, [28] = 24, [54] = 10, 20, 30, 0, 200, 100, 50, 0 };
static const uint8_t bmp_palette[70] = { 'B', 'M', 70, [10] = 62, [14] = 40, [18] = 2, [22] = 0xfe, 0xff, 0xff, 0xff, [26] = 1, [28] = 8, [46] = 2,
    [54] = 1, 2, 3, 0, 4, 5, 6, 0, [62] = 0, 1, 0, 0, 1, 1, 0, 0 };
static const char pnm_grey[] = "P5 # a remark\n2 1\n100 \n2", pnm_text[] = "P3\n1 2 255\n1 2 3\n40 50 60";

static void test_formats(void **state)
{
    (void)state;
    decodes(MODEL("RGB"), bmp, sizeof bmp, "u8[2,1,3] 50 100 200 30 20 10");
    decodes(MODEL("BGR"), bmp, sizeof bmp, "u8[2,1,3] 200 100 50 10 20 30");
    decodes(MODEL("Grayscale"), bmp, sizeof bmp, "u8[2,1,1] 96 22");
    decodes(MODEL("RGB"), bmp_palette, sizeof bmp_palette, "u8[2,2,3] 3 2 1 6 5 4 6 5 4 6 5 4");
    decodes(MODEL("Grayscale"), pnm_grey, sizeof pnm_grey - 1, "u8[1,2,1] 26 128");
    decodes(MODEL("RGB"), pnm_text, sizeof pnm_text - 1, "u8[2,1,3] 1 2 3 40 50 60");
    refuses_prefixes(bmp, sizeof bmp);
    refuses_prefixes((const uint8_t *)pnm_text, sizeof pnm_text - 4);
}

/* One directory of 16-bit values, most significant byte first; two strips, of which the second lies in front. */
static void test_tiff(void **state)
{
    (void)state;
    static const uint16_t tag[][2] = { { 256, 2 }, { 257, 2 }, { 258, 8 }, { 259, 1 }, { 262, 0 }, { 277, 1 }, { 278, 1 } };
    uint8_t f[128] = { 'M', 'M', 0, 42, 0, 0, 0, 12, 7, 8, 9, 10, 0, 8 };
    int at = 14;
    for (int k = 0; k < (int)COUNT_OF(tag); k++, at += 12) {
        const uint8_t e[12] = { (uint8_t)(tag[k][0] >> 8), (uint8_t)tag[k][0], 0, 3, 0, 0, 0, 1, (uint8_t)(tag[k][1] >> 8), (uint8_t)tag[k][1] };
        memcpy(f + at, e, 12);
    }
    memcpy(f + at, (const uint8_t[]){ 1, 17, 0, 3, 0, 0, 0, 2, 0, 10, 0, 8 }, 12);
    at += 12;
    decodes(MODEL("RGB"), f, at, "u8[2,2,3] 246 246 246 245 245 245 248 248 248 247 247 247");
    refuses_prefixes(f, at);
    f[at - 1] = 200;
    trial_refused(MODEL("RGB"), file_text(f, at), E_FORMAT, "it ends before its data");
}

static void test_refused(void **state)
{
    (void)state;
    trial_refused(MODEL("RGB"), file_text("\xff\xd8\xff\xe0", 4), E_UNSUPPORTED, "a JPEG image");
    trial_refused(MODEL("RGB"), file_text("nothing", 7), E_FORMAT, "no image in a known format");
    trial_refused(MODEL("RGB"), file_text("P5 70000 70000 255 xyz", 22), E_FORMAT, "ends before its data");
    trial_refused(MODEL("CMYK"), file_text(bmp, sizeof bmp), E_FORMAT, "pixel_format is 'CMYK'");
}

static void test_optional(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[2] x) => (float[2] y, bool there, bool gone, bool none) { v = OptionalGetElement(x) y = Neg(v) there = OptionalHasElement(x) gone = OptionalHasElement(\"\")\n"
                "none = OptionalHasElement() }", "f32[2] 1 2", "f32[2] -1 -2; bool[] 1; bool[] 0; bool[] 0", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_formats), cmocka_unit_test(test_tiff), cmocka_unit_test(test_refused), cmocka_unit_test(test_optional) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The unit for tiles in plain C, as text that precedes the prelude of kernels: what the instructions do, in words of Intel's manual (64-ia-32, AMX). So kernels
 * for such a unit can be tested on any processor with vectors of 16 floats. */
#ifndef SN_TEST_TILES_H
#define SN_TEST_TILES_H

static const char tiles_text[] =
    "static __thread unsigned char tile_file[8][16][64];\n"
    "static __thread int tile_ready;\n"
    "static inline float tile_half(const unsigned char *p) { union { unsigned u; float f; } x = { (unsigned)(p[0] | p[1] << 8) << 16 }; return x.f; }\n"
    "static void tile_fail(void) { *(volatile int *)0 = 0; }\n"
    "static void tile_load(int t, const void *from, long apart) { if (!tile_ready) tile_fail(); for (int r = 0; r < 16; r++) for (int b = 0; b < 64; b++) tile_file[t][r][b] = ((const unsigned char *)from)[r * apart + b]; }\n"
    "static void tile_store(int t, void *to, long apart) { for (int r = 0; r < 16; r++) for (int b = 0; b < 64; b++) ((unsigned char *)to)[r * apart + b] = tile_file[t][r][b]; }\n"
    "static void tile_dot(int pairs, int c, int a, int w) {\n"
    "    for (int m = 0; m < 16; m++) for (int n = 0; n < 16; n++) {\n"
    "        union { unsigned char b[4]; float f; int i; } s;\n"
    "        for (int b = 0; b < 4; b++) s.b[b] = tile_file[c][m][n * 4 + b];\n"
    "        for (int k = 0; k < 16; k++) {\n"
    "            const unsigned char *x = &tile_file[a][m][k * 4], *y = &tile_file[w][k][n * 4];\n"
    "            for (int i = 0; pairs && i < 2; i++) s.f += tile_half(x + 2 * i) * tile_half(y + 2 * i);\n"
    "            for (int i = 0; !pairs && i < 4; i++) s.i += (int)x[i] * (int)(signed char)y[i];\n"
    "        }\n"
    "        for (int b = 0; b < 4; b++) tile_file[c][m][n * 4 + b] = s.b[b];\n"
    "    } }\n"
    "#define TILE_OPEN(form) (tile_ready = (form)->palette == 1 && (form)->rows[0] == 16 && (form)->bytes[7] == 64)\n"
    "#define TILE_CLOSE() (tile_ready = 0)\n"
    "#define TILE_ZERO(t) __builtin_memset(tile_file[t], 0, 1024)\n"
    "#define TILE_LOAD(t, from, apart) tile_load(t, from, apart)\n"
    "#define TILE_STORE(t, to, apart) tile_store(t, to, apart)\n"
    "#define TILE_DOT(op, c, a, b) tile_dot(op[4] == 'f', c, a, b)\n";
#endif

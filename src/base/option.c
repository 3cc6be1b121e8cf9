/* Options: the defaults of options.def, then the environment (SN_<NAME>). The only reader of the environment.
 *
 * Strings are borrowed from the environment; a caller that changes the environment meanwhile copies them first. */
#include "base/base.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

const char *env_get(const char *name) { return getenv(name); }

/* The variable of an option: "cache_mb" is SN_CACHE_MB. */
static const char *option_env(const char *option, char name[64])
{
    int n = snprintf(name, 64, "SN_%s", option);
    for (int i = 3; i < n && i < 63; i++)
        name[i] = (char)toupper((unsigned char)name[i]);
    return env_get(name);
}

static void read_int(const char *option, int *value)
{
    char name[64], *end;
    const char *s = option_env(option, name);
    if (!s || !*s)
        return;
    errno = 0;
    long v = strtol(s, &end, 10);
    if (*end || errno || v < INT_MIN || v > INT_MAX)
        fprintf(stderr, "sinter: %s is '%s', wanted a whole number; %d is used\n", name, s, *value);
    else
        *value = (int)v;
}

static void read_str(const char *option, const char **value)
{
    char name[64];
    const char *s = option_env(option, name);
    if (s)
        *value = s;
}

void options_default(Options *o)
{
    *o = (Options){
#define OPT(name, type, value, text) .name = value,
#include "base/options.def"
#undef OPT
    };
#define OPT(name, type, value, text) read_##type(#name, &o->name);
#include "base/options.def"
#undef OPT
}

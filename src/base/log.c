/* The log: whole lines to stderr, when opt.debug asks for their level. A line is written with one call, so that lines
 * of several threads or processes do not mix. Level 0 is always printed. */
#include "base/base.h"
#include <stdio.h>
#include <string.h>

void log_line(const Ctx *cx, int level, const char *fmt, ...)
{
    if (cx->opt.debug < level)
        return;
    char line[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    size_t len = strlen(line);
    line[len++] = '\n';
    fwrite(line, 1, len, stderr);
}

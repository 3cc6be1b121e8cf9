/* The table of instruction sets. */
#include "base/base.h"

#include <string.h>

#define ISA(name, machine, level, lanes, dots, features, macros) { name, machine, features, macros, level, lanes, dots },
static const IsaInfo isa_table[] = {
#include "base/isas.def"
};

const IsaInfo *isa_list(int *n)
{
    *n = (int)COUNT_OF(isa_table);
    return isa_table;
}

const IsaInfo *isa_find(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(isa_table); i++)
        if (!strcmp(isa_table[i].name, name)) return &isa_table[i];
    return NULL;
}

bool isa_within(const IsaInfo *x, const IsaInfo *of)
{
    return !x->machine[0] || (!strcmp(x->machine, of->machine) && x->level <= of->level);
}

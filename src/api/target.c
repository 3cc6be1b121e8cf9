/* The table of targets, and opening one. What a target is called stands in targets.def only: everything else gets a dialect and a device and knows neither. */
#include "api/api.h"

#include <string.h>

static const TargetInfo target_info[] = {
#define TARGET(name, dialect, device, text) { #name, &dialect, &device, text },
#include "api/targets.def"
#undef TARGET
};

const TargetInfo *target_list(int *n)
{
    *n = (int)COUNT_OF(target_info);
    return target_info;
}

void target_open(Ctx *cx, Arena *a, const Options *opt, Target *t)
{
    const char *want = opt->target && opt->target[0] ? opt->target : target_info[0].name;
    size_t len = strcspn(want, ":");
    const TargetInfo *info = NULL;
    Text names = { .arena = a };
    for (size_t i = 0; i < COUNT_OF(target_info); i++) {
        if (strlen(target_info[i].name) == len && !strncmp(target_info[i].name, want, len)) info = &target_info[i];
        text_add(&names, "%s%s", i ? ", " : "", target_info[i].name);
    }
    if (!info) fail(cx, E_INVALID, "there is no target '%s'; wanted one of %s", want, names.at);
    RtError e = { .launch = -1 };
    *t = (Target){ .name = info->name, .dialect = info->dialect, .api = info->api, .rules = rules_new(cx, a, opt->rules) };
    if (info->api->open(&t->device, opt, &e) != E_OK) fail(cx, e.code, "%s", e.text);
    t->isa = info->api->isa(t->device);
    t->vectors = info->dialect->vectors(t->isa);
    t->prelude = info->dialect->prelude(a, t->isa);
}

void target_close(Target *t)
{
    records_close(t->records);
    t->records = NULL;
    if (t->device) t->api->close(t->device);
    t->device = NULL;
}

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

/* What may be switched off: rows of tables, and of the user's file. */
static bool switch_known(const RuleSet *rules, const char *word)
{
    static const char *const name[] = {
#define PASS(name, text) #name,
#include "fuse/passes.def"
#undef PASS
#define FUSE(name, producer, consumer, allowed, text) #name,
#include "fuse/fusion.def"
#undef FUSE
    };
    int nrow;
    const FileRow *row = rules_rows(rules, &nrow);
    for (size_t i = 0; i < COUNT_OF(name); i++) if (strcmp(name[i], word) == 0) return true;
    for (int i = 0; i < rules_count(rules); i++) if (strcmp(rules_name(rules, i), word) == 0) return true;
    for (int i = 0; i < nrow; i++) if (row[i].n && strcmp(row[i].field[0], word) == 0) return true;
    return false;
}

/* A misspelt name would switch nothing off, and look as if the rule made no difference. */
static void switches_check(Ctx *cx, Arena *a, const RuleSet *rules)
{
    for (const char *s = cx->opt.off; s && *s; ) {
        size_t n = strcspn(s, ","), from = strspn(s, " "), to = n;
        while (to > from && s[to - 1] == ' ') to--;
        const char *word = arena_fmt(a, "%.*s", to > from ? (int)(to - from) : 0, s + from);
        if (*word && !switch_known(rules, word))
            fail(cx, E_INVALID, "SN_OFF: there is no '%s'; wanted a row of src/fuse/fusion.def, src/ir/rules.def or the file of rules, or a pass:"
#define PASS(name, text) " " #name
#include "fuse/passes.def"
#undef PASS
                 , word);
        s += n + (s[n] == ',');
    }
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
    switches_check(cx, a, t->rules);
    rules_leave(cx, opt->allow);
    if (info->api->open(&t->device, opt, &e) != E_OK) fail(cx, e.code, "%s", e.text);
    t->isa = info->api->isa(t->device);
    t->vectors = info->dialect->vectors(t->isa);
    t->vectors.split = t->vectors.lanes >= 16 && cpu_splits_vectors();
    t->prelude = info->dialect->prelude(a, t->isa);
}

void target_close(Target *t)
{
    records_close(t->records);
    t->records = NULL;
    if (t->device) t->api->close(t->device);
    t->device = NULL;
}

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

static const SwitchInfo switch_info[] = {
#define PASS(name, text) { #name, "pass", text },
#include "fuse/passes.def"
#undef PASS
#define FUSE(name, producer, consumer, allowed, text) { #name, "fusion", text },
#include "fuse/fusion.def"
#undef FUSE
#define RULE(name, dtypes, needs, pattern, replacement, text) { #name, "rule", text },
#define RULE_C(name, dtypes, needs, function, text) { #name, "rule", text },
#include "ir/rules.def"
#undef RULE
#undef RULE_C
};

const SwitchInfo *switch_list(int *n)
{
    *n = (int)COUNT_OF(switch_info);
    return switch_info;
}

static bool switch_known(const RuleSet *rules, const char *word)
{
    int nrow;
    const FileRow *row = rules_rows(rules, &nrow);      /* of the user's file */
    for (size_t i = 0; i < COUNT_OF(switch_info); i++) if (strcmp(switch_info[i].name, word) == 0) return true;
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
            fail(cx, E_INVALID, "SN_OFF: there is no '%s'; wanted a pass or a rule that `sinter ops` lists, or a row of the file of rules", word);
        s += n + (s[n] == ',');
    }
}

const RuleSet *target_rules(Ctx *cx, Arena *a, const Options *opt)
{
    const RuleSet *rules = rules_new(cx, a, opt->rules);
    switches_check(cx, a, rules);
    rules_leave(cx, opt->allow);
    return rules;
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
    *t = (Target){ .name = info->name, .dialect = info->dialect, .api = info->api, .rules = target_rules(cx, a, opt) };
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

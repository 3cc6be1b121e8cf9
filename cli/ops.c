/* sinter ops: the tables of operators, primitives, element types and targets, and of what SN_OFF switches off. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    const OpRow *x = *(const OpRow *const *)a, *y = *(const OpRow *const *)b;
    int k = strcmp(x->domain, y->domain);
    if (!k) k = strcmp(x->op, y->op);
    return k ? k : x->since - y->since;
}

static bool same_op(const OpRow *a, const OpRow *b) { return strcmp(a->op, b->op) == 0 && strcmp(a->domain, b->domain) == 0; }

int cmd_ops(Cli *c)
{
    int n = op_table_n;
    const OpRow **row = NEWS(c->arena, const OpRow *, n + 1);
    bool json = flag_given(c, FLAG_json);
    for (int i = 0; i < n; i++) row[i] = &op_table[i];
    qsort(row, (size_t)n, sizeof *row, by_name);
    json_t *ops = json_array(), *prims = json_array(), *dtypes = json_array();
    int count = 0;
    for (int i = 0, end; i < n; i = end, count++) {
        json_t *versions = json_array();
        if (!json && (i == 0 || strcmp(row[i]->domain, row[i - 1]->domain)))
            printf("%soperators of %s: name, and the versions that change its meaning\n", i ? "\n" : "", row[i]->domain[0] ? row[i]->domain : "ai.onnx");
        if (!json) printf("  %-34s", row[i]->op);
        for (end = i; end < n && same_op(row[end], row[i]); end++) {
            if (!json) printf(" %d", row[end]->since);
            json_array_append_new(versions, json_integer(row[end]->since));
        }
        if (!json) printf("\n");
        const char *domain = row[i]->domain[0] ? row[i]->domain : "ai.onnx";
        json_array_append_new(ops, json_pack("{s:s, s:s, s:o}", "domain", domain, "op", row[i]->op, "versions", versions));
    }
    if (!json) printf("\nprimitives: name, operands, element types (F floats, I integers, B truth values)\n");
    for (int k = 0; k < OP_COUNT; k++) {
        const PrimInfo *p = &prim_info[k];
        if (!json && p->elementwise) printf("  %-12s %d  %s\n", p->name, p->arity, p->domain ? p->domain : "");
        if (!json && !p->elementwise) printf("  %-12s -\n", p->name);
        json_array_append_new(prims, json_pack("{s:s, s:i, s:b, s:s?}", "name", p->name, "arity", p->arity, "elementwise", p->elementwise, "domain", p->domain));
    }
    if (!json) printf("\nelement types: name, number in ONNX, bytes in memory, bits in a file\n");
    for (int t = 1; t < DT_COUNT; t++) {
        const DTypeInfo *d = &dtype_info[t];
        if (!json) printf("  %-12s %2d  %d  %2d\n", d->name, d->onnx, d->bytes, dtype_bits((DType)t));
        json_array_append_new(dtypes, json_pack("{s:s, s:i, s:i, s:i}", "name", d->name, "onnx", d->onnx, "bytes", d->bytes, "bits", dtype_bits((DType)t)));
    }
    json_t *targets = json_array();
    int ntarget;
    const TargetInfo *target = target_list(&ntarget);
    if (!json) printf("\ntargets of --device\n");
    for (int i = 0; i < ntarget; i++) {
        if (!json) printf("  %-12s %s\n", target[i].name, target[i].text);
        json_array_append_new(targets, json_pack("{s:s, s:s}", "name", target[i].name, "text", target[i].text));
    }
    json_t *switches = json_array();
    int nswitch;
    const SwitchInfo *off = switch_list(&nswitch);
    if (!json) printf("\npasses, fusions and rewriting rules, which SN_OFF=NAME,NAME switches off\n");
    for (int i = 0; i < nswitch; i++) {
        if (!json) printf("  %-14s %-7s %s\n", off[i].name, off[i].what, off[i].text);
        json_array_append_new(switches, json_pack("{s:s, s:s, s:s}", "name", off[i].name, "what", off[i].what, "text", off[i].text));
    }
    json_t *all = json_pack("{s:o, s:o, s:o, s:o, s:o}", "operators", ops, "primitives", prims, "dtypes", dtypes, "targets", targets, "switches", switches);
    if (json) {
        print_json(all);
        return EXIT_FINE;
    }
    json_decref(all);
    printf("\n%d operators, %d primitives, %d element types\n", count, OP_COUNT, DT_COUNT - 1);
    return EXIT_FINE;
}

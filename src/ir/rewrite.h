/* The inside of rules.c and rewrite.c. */
#ifndef SN_REWRITE_H
#define SN_REWRITE_H
#include "ir/ir.h"

typedef struct Rewrite {
    Ctx *cx; Graph *g; Arena *arena; const RuleSet *rules;
    unsigned allow;                     /* RULE_... */
    VEC(Node *) to;                     /* by node id: what became of it */
    VEC(uint8_t) known;                 /* by node id: 1 depends on constants only, 2 does not, 0 not looked at */
    VEC(int) uses;                      /* by node id of the graph before: nodes and outputs that read it */
} Rewrite;
bool rewrite_known(Rewrite *w, const Node *n);           /* is its value known when the program is made? */
Node *rules_rewrite(Rewrite *w, Node *n, int *rule);     /* by the first rule that matches; NULL: none does */
Node *rule_hoist(Rewrite *w, Node *n);
Node *rule_cast_cast(Rewrite *w, Node *n);
Node *rule_cast_wide(Rewrite *w, Node *n);
Node *rule_scale_sum(Rewrite *w, Node *n);
Node *rule_root_least(Rewrite *w, Node *n);
#endif

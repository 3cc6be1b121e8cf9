/* Tuning records in SQLite: several processes may read and write at once, and a process that is killed leaves a whole file. */
#include "tune/tune.h"
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BUSY_MS = 2000, FIELDS = 7, TRIAL_FIELDS = 9 };
#define COLUMNS       "kernel, bucket, machine, compiler, choice, seconds, before"
#define TRIAL_COLUMNS COLUMNS ", own, features"

static sqlite3 *database(Records *r) { return (sqlite3 *)(void *)r; }      /* a handle of ours has nothing else */

void records_close(Records *r) { sqlite3_close_v2(database(r)); }

Records *records_open(Ctx *cx, const char *path, bool make)
{
    sqlite3 *db = NULL;
    if (!make && access(path, R_OK) != 0) return NULL;
    int st = sqlite3_open_v2(path, &db, make ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY, NULL);
    if (st == SQLITE_OK) sqlite3_busy_timeout(db, BUSY_MS);
    if (st == SQLITE_OK && make)
        st = sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS record (kernel TEXT, bucket TEXT, machine TEXT, compiler TEXT, choice TEXT NOT NULL, seconds REAL, before REAL,"
                              " PRIMARY KEY (kernel, bucket, machine, compiler)) WITHOUT ROWID;"
                              "CREATE TABLE IF NOT EXISTS trial (kernel TEXT, bucket TEXT, machine TEXT, compiler TEXT, choice TEXT, seconds REAL, before REAL, own TEXT, features TEXT,"
                              " PRIMARY KEY (kernel, bucket, machine, compiler, choice)) WITHOUT ROWID", NULL, NULL, NULL);
    if (st == SQLITE_OK) return (Records *)(void *)db;
    char why[200];
    snprintf(why, sizeof why, "%s", db ? sqlite3_errmsg(db) : "no memory");
    sqlite3_close_v2(db);
    fail(cx, E_IO, "%s: tuning records: %s", path, why);
}

static sqlite3_stmt *prepared(Records *r, const char *sql, int n, const char *const *text)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(database(r), sql, -1, &s, NULL) != SQLITE_OK) return NULL;
    for (int i = 0; i < n; i++) sqlite3_bind_text(s, i + 1, text[i], -1, SQLITE_TRANSIENT);
    return s;
}

char *records_get(Records *r, Arena *a, const RecordKey *k)
{
    const char *key[] = { k->kernel, k->bucket, k->machine, k->compiler };
    char found[512] = "";
    bool there = false;
    sqlite3_stmt *s = prepared(r, "SELECT choice FROM record WHERE kernel = ? AND bucket = ? AND machine = ? AND compiler = ?", 4, key);
    if (s && sqlite3_step(s) == SQLITE_ROW) there = snprintf(found, sizeof found, "%s", (const char *)sqlite3_column_text(s, 0)) < (int)sizeof found;
    sqlite3_finalize(s);
    return there ? arena_str(a, found) : NULL;
}

/* text: kernel, bucket, machine, compiler, choice; of a trial also the features of the kernel and of the candidate. */
static bool record_write(Records *r, bool trial, const char *const *text, double seconds, double before)
{
    sqlite3_stmt *s = prepared(r, trial ? "INSERT OR REPLACE INTO trial (" TRIAL_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                                        : "INSERT OR REPLACE INTO record (" COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?)", 5, text);
    if (!s) return false;
    sqlite3_bind_double(s, 6, seconds);
    sqlite3_bind_double(s, 7, before);
    for (int i = 0; trial && i < 2; i++) sqlite3_bind_text(s, 8 + i, text[5 + i], -1, SQLITE_TRANSIENT);
    bool ok = sqlite3_step(s) == SQLITE_DONE;
    sqlite3_finalize(s);
    return ok;
}

void records_put(Ctx *cx, Records *r, const RecordKey *k, const char *choice, double seconds, double before)
{
    const char *text[] = { k->kernel, k->bucket, k->machine, k->compiler, choice };
    if (!record_write(r, false, text, seconds, before)) fail(cx, E_IO, "tuning records: %s", sqlite3_errmsg(database(r)));
}

void trials_put(Ctx *cx, Records *r, const RecordKey *k, const char *choice, double seconds, double before, const Features *own, const Features *it)
{
    char of[2][FEATURES_TEXT];
    features_text(of[0], own);
    features_text(of[1], it);
    const char *text[] = { k->kernel, k->bucket, k->machine, k->compiler, choice, of[0], of[1] };
    if (!record_write(r, true, text, seconds, before)) fail(cx, E_IO, "tuning records: %s", sqlite3_errmsg(database(r)));
}

int trials_get(Ctx *cx, Records *r, Arena *a, const char *machine, const char *compiler, Example **out)
{
    const char *key[] = { machine, compiler };
    VEC(Example) all = { 0 };
    sqlite3_stmt *s = prepared(r, "SELECT kernel, bucket, seconds, before, own, features FROM trial WHERE machine = ? AND compiler = ? ORDER BY kernel, bucket, choice", 2, key);
    if (!s) fail(cx, E_IO, "tuning records: %s", sqlite3_errmsg(database(r)));
    while (sqlite3_step(s) == SQLITE_ROW) {
        Example e = { 0 };
        double seconds = sqlite3_column_double(s, 2), before = sqlite3_column_double(s, 3);
        const char *text[4];
        for (int i = 0; i < 4; i++) text[i] = (const char *)sqlite3_column_text(s, i < 2 ? i : i + 2);
        if (!(seconds > 0) || !(before > 0) || !text[0] || !text[1] || !text[2] || !text[3] || !features_parse(text[2], &e.own) || !features_parse(text[3], &e.it)) continue;
        e.gain = example_gain(seconds / before);
        e.kernel = arena_fmt(a, "%s %s", text[0], text[1]);
        vec_push(a, &all, e);
    }
    sqlite3_finalize(s);
    *out = all.at;
    return all.n;
}

static int table_export(Records *r, FILE *f, const char *sql, int fields)
{
    int n = 0;
    sqlite3_stmt *s = prepared(r, sql, 0, NULL);
    for (; s && sqlite3_step(s) == SQLITE_ROW; n++)
        for (int i = 0; i < fields; i++) fprintf(f, "%s%c", (const char *)sqlite3_column_text(s, i), i + 1 < fields ? '\t' : '\n');
    bool ok = s != NULL;
    sqlite3_finalize(s);
    return ok ? n : -1;
}

int records_export(Ctx *cx, Records *r, const char *path)
{
    FILE *f = fopen(path, "we");
    if (!f) fail(cx, E_IO, "%s: %s", path, strerror(errno));
    int n = table_export(r, f, "SELECT " COLUMNS " FROM record ORDER BY kernel, bucket, machine, compiler", FIELDS);
    int trials = table_export(r, f, "SELECT " TRIAL_COLUMNS " FROM trial ORDER BY kernel, bucket, machine, compiler, choice", TRIAL_FIELDS);
    if (fclose(f) != 0 || n < 0 || trials < 0) fail(cx, E_IO, "%s: the records could not be written", path);
    return n + trials;
}

int records_import(Ctx *cx, Records *r, const char *path)
{
    char line[8192];
    int n = 0, bad = 0;
    FILE *f = fopen(path, "re");
    if (!f) fail(cx, E_IO, "%s: %s", path, strerror(errno));
    while (!bad && fgets(line, sizeof line, f)) {
        const char *text[TRIAL_FIELDS] = { 0 };
        int fields = 0;
        double seconds, before;
        line[strcspn(line, "\n")] = 0;
        for (char *p = line; p && fields < TRIAL_FIELDS;) {
            text[fields++] = p;
            if ((p = strchr(p, '\t'))) *p++ = 0;
        }
        n++;
        bool ok = (fields == FIELDS || fields == TRIAL_FIELDS) && sscanf(text[5], "%lf", &seconds) == 1 && sscanf(text[6], "%lf", &before) == 1;
        const char *row[] = { text[0], text[1], text[2], text[3], text[4], text[7], text[8] };
        if (!ok || !record_write(r, fields == TRIAL_FIELDS, row, seconds, before)) bad = n;
    }
    fclose(f);
    if (bad) fail(cx, E_FORMAT, "%s: line %d is no record: wanted kernel, bucket, machine, compiler, choice, seconds, before between tabs, of a trial also two lists of features", path, bad);
    return n;
}

/* Tuning records in SQLite: several processes may read and write at once, and a process that is killed leaves a whole file. */
#include "tune/tune.h"
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BUSY_MS = 2000, FIELDS = 7 };
#define COLUMNS "kernel, bucket, machine, compiler, choice, seconds, before"

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
                              " PRIMARY KEY (kernel, bucket, machine, compiler)) WITHOUT ROWID", NULL, NULL, NULL);
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

static bool record_write(Records *r, const char *const text[5], double seconds, double before)
{
    sqlite3_stmt *s = prepared(r, "INSERT OR REPLACE INTO record (" COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?)", 5, text);
    if (!s) return false;
    sqlite3_bind_double(s, 6, seconds);
    sqlite3_bind_double(s, 7, before);
    bool ok = sqlite3_step(s) == SQLITE_DONE;
    sqlite3_finalize(s);
    return ok;
}

void records_put(Ctx *cx, Records *r, const RecordKey *k, const char *choice, double seconds, double before)
{
    const char *text[] = { k->kernel, k->bucket, k->machine, k->compiler, choice };
    if (!record_write(r, text, seconds, before)) fail(cx, E_IO, "tuning records: %s", sqlite3_errmsg(database(r)));
}

int records_export(Ctx *cx, Records *r, const char *path)
{
    int n = 0;
    FILE *f = fopen(path, "we");
    if (!f) fail(cx, E_IO, "%s: %s", path, strerror(errno));
    sqlite3_stmt *s = prepared(r, "SELECT " COLUMNS " FROM record ORDER BY kernel, bucket, machine, compiler", 0, NULL);
    for (; s && sqlite3_step(s) == SQLITE_ROW; n++)
        for (int i = 0; i < FIELDS; i++) fprintf(f, "%s%c", (const char *)sqlite3_column_text(s, i), i + 1 < FIELDS ? '\t' : '\n');
    bool ok = s != NULL;
    sqlite3_finalize(s);
    if (fclose(f) != 0 || !ok) fail(cx, E_IO, "%s: the records could not be written", path);
    return n;
}

int records_import(Ctx *cx, Records *r, const char *path)
{
    char line[4096];
    int n = 0, bad = 0;
    FILE *f = fopen(path, "re");
    if (!f) fail(cx, E_IO, "%s: %s", path, strerror(errno));
    while (!bad && fgets(line, sizeof line, f)) {
        const char *text[FIELDS] = { 0 };
        int fields = 0;
        double seconds, before;
        line[strcspn(line, "\n")] = 0;
        for (char *p = line; p && fields < FIELDS;) {
            text[fields++] = p;
            if ((p = strchr(p, '\t'))) *p++ = 0;
        }
        n++;
        if (fields != FIELDS || sscanf(text[5], "%lf", &seconds) != 1 || sscanf(text[6], "%lf", &before) != 1 || !record_write(r, text, seconds, before)) bad = n;
    }
    fclose(f);
    if (bad) fail(cx, E_FORMAT, "%s: line %d is no record: wanted kernel, bucket, machine, compiler, choice, seconds, before between tabs", path, bad);
    return n;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* claim.c - claims are names alone, so that a listing of the folder tells all. */
#include "ckpt/claim.h"

#include <inttypes.h>
#include <stdio.h>

void dtpi_claim_name(const dtpi_claim *c, char name_out[DTPI_CLAIM_NAME])
{
    snprintf(name_out, DTPI_CLAIM_NAME, DTPI_CLAIM_PREFIX "%016" PRIx64 "-%08x-%08x.%016" PRIx64,
             c->job, c->attempt, c->generation, c->id);
}

/* `n` lower-case digits; moves on behind them. */
static bool parse_hex(const char **at, int n, uint64_t *v_out)
{
    uint64_t v = 0;

    for (int i = 0; i < n; i++, (*at)++) {
        const char c = **at;
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        v = v << 4 | (uint64_t)digit;
    }
    *v_out = v;
    return true;
}

bool dtpi_claim_parse(const char *name, dtpi_claim *claim_out)
{
    const size_t prefix = strlen(DTPI_CLAIM_PREFIX);
    const char *at = name + prefix;
    uint64_t job, attempt, generation, id;

    if (strncmp(name, DTPI_CLAIM_PREFIX, prefix) != 0 || !parse_hex(&at, 16, &job) || *at++ != '-' ||
        !parse_hex(&at, 8, &attempt) || *at++ != '-' || !parse_hex(&at, 8, &generation) ||
        *at++ != '.' || !parse_hex(&at, 16, &id) || *at)
        return false;
    *claim_out = (dtpi_claim){ job, (uint32_t)attempt, (uint32_t)generation, id };
    return true;
}

bool dtpi_claim_is_newer(const dtpi_claim *other, const dtpi_claim *c)
{
    if (other->job != c->job || other->attempt < c->attempt)
        return false;
    return other->attempt > c->attempt || other->generation > c->generation;
}

typedef struct looker {
    const dtpi_claim *own;
    dtpi_claim newest;          /* of those that are newer; id 0: none */
    bool is_there;              /* the own one */
} looker;

static dtp_status look_at(void *user, const char *name, dtp_error *err)
{
    looker *l = user;
    dtpi_claim c;

    (void)err;
    if (!dtpi_claim_parse(name, &c))
        return DTP_OK;
    l->is_there |= memcmp(&c, l->own, sizeof(c)) == 0;
    if (dtpi_claim_is_newer(&c, l->own) && (!l->newest.id || dtpi_claim_is_newer(&c, &l->newest)))
        l->newest = c;
    return DTP_OK;
}

static dtp_status look(dtpi_files *files, const char *step_dir, looker *l, dtp_error *err)
{
    const dtp_status st = files->ops->list(files, step_dir, look_at, l, err);
    char name[DTPI_CLAIM_NAME];

    if (st < 0 || !l->newest.id)
        return st;
    dtpi_claim_name(&l->newest, name);
    return dtpi_fail(err, DTP_ERR_BUSY,
                     "attempt %u, generation %u of this job writes this step (%s/%s): attempt %u, "
                     "generation %u is late", l->newest.attempt, l->newest.generation, step_dir, name,
                     l->own->attempt, l->own->generation);
}

dtp_status dtpi_claim_check(dtpi_files *files, const char *step_dir, const dtpi_claim *c,
                            dtp_error *err)
{
    looker l = { .own = c };

    return look(files, step_dir, &l, err);
}

dtp_status dtpi_claim_holds(dtpi_files *files, const char *step_dir, const dtpi_claim *c,
                            dtp_error *err)
{
    looker l = { .own = c };

    const dtp_status st = look(files, step_dir, &l, err);
    if (st < 0 || l.is_there)
        return st;
    return dtpi_fail(err, DTP_ERR_BUSY, "another save writes %s now", step_dir);
}

dtp_status dtpi_claim_put(dtpi_files *files, const char *step_dir, const dtpi_claim *c, dtp_error *err)
{
    char name[DTPI_CLAIM_NAME], path[DTPI_PATH_MAX];
    dtpi_file *f = NULL;

    dtpi_claim_name(c, name);
    dtp_status st = dtpi_path_join(path, step_dir, name, err);
    if (st >= 0)
        st = files->ops->create(files, path, 0, &f, err);
    return st < 0 ? st : files->ops->close_file(f, err);
}

void dtpi_claim_drop(dtpi_files *files, const char *step_dir, const dtpi_claim *c)
{
    char name[DTPI_CLAIM_NAME], path[DTPI_PATH_MAX];

    dtpi_claim_name(c, name);
    if (dtpi_path_join(path, step_dir, name, NULL) >= 0)
        files->ops->remove(files, path, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race.c - connects to whichever end point of a list answers.
 *
 * Few connections are under way at a time. One that hangs makes room for the next, and is given more time
 * when its turn comes again.
 */
#include "net/race.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "net/lookup.h"

enum {
    MAX_TRIES = 128,
    MAX_AT_ONCE = 6,
    STEP_MS = 30,
    RETRY_FIRST_MS = 10, RETRY_MAX_MS = 250, RETRY_MANY_MS = 1000, MANY = 16,
    PATIENCE_FIRST_MS = 300, PATIENCE_MAX_MS = 4800,
    LOOKUP_POLL_MS = 10, LOOKUP_AGAIN_MS = 1000, RELINK_SOON_MS = 100, RELINKS_SOON = 30, RELINK_MS = 1000,
    WHY_MAX = 120
};

/* Segments that fit IPv6's least MTU of 1280 with room for a tunnel, then the least IPv4 promises. */
static const int smaller_mss[] = { 1160, 536 };

static const char vanish[] = "it connects, but large messages vanish on the way (MTU)";

enum try_state { IDLE, CONNECTING, CONNECTED };

struct try {
    dtpi_race *race;
    enum try_state state;
    dtpi_sa to, from;           /* from: of the last try, family 0: unknown */
    int fd;
    dtpi_source source;
    int64_t at_ns;              /* idle: when it starts; connecting: since when */
    uint32_t n_fails;
    uint32_t n_hangs;
    uint32_t n_shrinks;
    bool says_why;              /* the peer did, not the kernel */
    char why[WHY_MAX];
};

struct name {
    dtpi_lookup *lookup;
    int64_t at_ns;              /* when to ask (again) */
    char why[DTP_ERROR_TEXT];
};

struct dtpi_race {
    dtp_ctx *ctx;
    const dtpi_race_ops *ops;
    void *user;
    uint16_t own_port;
    dtpi_endpoint end;
    struct name names[DTPI_ENDPOINT_HOSTS];
    dtpi_timer timer;
    uint32_t n_tries, n_under_way;
    bool in_call, closing;
    int64_t relink_at_ns;       /* INT64_MAX: no address depends on the links there are */
    uint32_t n_relinks;
    struct try tries[MAX_TRIES];
};

static void run(dtpi_race *r);

/* ---- failures ---- */

static int64_t retry_ns(const dtpi_race *r, const struct try *t)
{
    const int64_t max = r->n_tries > MANY ? RETRY_MANY_MS : RETRY_MAX_MS;
    const int64_t ms = (int64_t)RETRY_FIRST_MS << DTPI_MIN(t->n_fails, 7u);

    return DTPI_MIN(ms, max) * DTPI_NS_PER_MS;
}

/* The next that has not been tried need not wait for its step any longer. */
static void hurry_next(dtpi_race *r, int64_t now)
{
    for (uint32_t i = 0; i < r->n_tries; i++)
        if (r->tries[i].state == IDLE && r->tries[i].n_fails == 0 && r->tries[i].at_ns > now) {
            r->tries[i].at_ns = now;
            return;
        }
}

static void stop(dtpi_race *r, struct try *t)
{
    if (t->state == CONNECTING) {
        socklen_t len = sizeof(t->from);
        if (getsockname(t->fd, &t->from.any, &len) < 0)
            t->from.any.sa_family = 0;
        dtpi_source_remove(r->ctx, &t->source);
        dtpi_close_fd(&t->fd);
    }
    if (t->state != IDLE)
        r->n_under_way--;
    t->state = IDLE;
}

static void failed(dtpi_race *r, struct try *t, bool says_why, const char *why)
{
    const int64_t now = dtp_ctx_now_ns(r->ctx);

    stop(r, t);
    t->at_ns = now + retry_ns(r, t);
    t->n_fails++;
    t->says_why = says_why;
    snprintf(t->why, sizeof(t->why), "%s", why);
    hurry_next(r, now);
}

/* ---- trying ---- */

/* Mind that the owner may close the race in its callback. */
static void connected(dtpi_race *r, struct try *t)
{
    socklen_t len = sizeof(t->from);

    if (getsockname(t->fd, &t->from.any, &len) < 0)
        t->from.any.sa_family = 0;
    dtpi_source_remove(r->ctx, &t->source);
    t->state = CONNECTED;
    dtpi_sa_set_port(&t->from, 0);
    r->ops->connected(r->user, (uint32_t)(t - r->tries), dtpi_take_fd(&t->fd));
}

static void try_ready(dtpi_source *s, uint32_t revents)
{
    struct try *t = DTPI_CONTAINER(s, struct try, source);
    dtpi_race *r = t->race;
    int e = 0;
    socklen_t len = sizeof(e);

    (void)revents;
    r->in_call = true;
    if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
        e = errno;
    if (e)
        failed(r, t, false, strerror(e));
    else
        connected(r, t);
    if (e && r->ops->failed && !r->closing)
        r->ops->failed(r->user);
    r->in_call = false;
    if (r->closing)
        dtpi_race_close(r);
    else
        run(r);
}

static bool is_itself(const dtpi_race *r, const dtpi_sa *to)
{
    char name[64];

    return r->own_port && dtpi_sa_port(to) == r->own_port &&
           (dtpi_sa_is_loopback(to) || dtpi_interface_of(to, name, sizeof(name)));
}

static void start(dtpi_race *r, struct try *t)
{
    const int mss = t->n_shrinks ? smaller_mss[t->n_shrinks - 1] : 0;

    if (is_itself(r, &t->to)) {
        failed(r, t, false, "that is this agent itself");
        t->at_ns = INT64_MAX;
        return;
    }
    if (dtpi_tcp_connect(&t->to, mss, &t->fd, NULL) < 0) {
        const int e = errno;
        t->from.any.sa_family = 0;
        failed(r, t, false, strerror(e));
        return;
    }
    t->source = (dtpi_source){ .fd = t->fd, .events = EPOLLOUT, .ready = try_ready };
    if (dtpi_source_add(r->ctx, &t->source, NULL) < 0) {
        dtpi_close_fd(&t->fd);
        failed(r, t, false, "out of memory or descriptors");
        return;
    }
    t->state = CONNECTING;
    t->at_ns = dtp_ctx_now_ns(r->ctx);
    r->n_under_way++;
}

static int64_t patience_ns(const struct try *t)
{
    const int64_t ms = (int64_t)PATIENCE_FIRST_MS << DTPI_MIN(t->n_hangs, 4u);

    return DTPI_MIN(ms, (int64_t)PATIENCE_MAX_MS) * DTPI_NS_PER_MS;
}

/* Gives up what has hung longest, where others wait for its place. */
static void make_room(dtpi_race *r, int64_t now)
{
    struct try *oldest = NULL;

    for (uint32_t i = 0; i < r->n_tries; i++) {
        struct try *t = &r->tries[i];
        if (t->state == CONNECTING && now - t->at_ns >= patience_ns(t) &&
            (!oldest || t->at_ns < oldest->at_ns))
            oldest = t;
    }
    if (!oldest)
        return;
    failed(r, oldest, false, "no answer");
    oldest->n_hangs++;
}

static struct try *next_due(dtpi_race *r, int64_t now)
{
    struct try *best = NULL;

    for (uint32_t i = 0; i < r->n_tries; i++) {
        struct try *t = &r->tries[i];
        if (t->state == IDLE && t->at_ns <= now && (!best || t->at_ns < best->at_ns))
            best = t;
    }
    return best;
}

/* ---- names ---- */

/* Tries for addresses that were not there before. */
static void add_tries(dtpi_race *r, int64_t now)
{
    const uint32_t n = DTPI_MIN(dtpi_endpoint_n_attempts(&r->end), (uint32_t)MAX_TRIES);

    for (uint32_t i = 0, at = r->n_tries; i < n && r->n_tries < MAX_TRIES; i++) {
        dtpi_sa to;
        bool is_new = true;
        dtpi_endpoint_get(&r->end, i, &to);
        for (uint32_t k = 0; k < r->n_tries && is_new; k++)
            is_new = !dtpi_sa_same_host(&to, &r->tries[k].to) ||
                     dtpi_sa_port(&to) != dtpi_sa_port(&r->tries[k].to);
        if (!is_new)
            continue;
        r->tries[r->n_tries] = (struct try){
            .race = r, .to = to, .fd = -1, .at_ns = now + (r->n_tries - at) * STEP_MS * DTPI_NS_PER_MS
        };
        r->n_tries++;
    }
}

static void ask_again(struct name *n, int64_t now, const char *why)
{
    snprintf(n->why, sizeof(n->why), "%s", why);
    n->at_ns = now + LOOKUP_AGAIN_MS * DTPI_NS_PER_MS;
    dtpi_lookup_free(DTPI_TAKE(n->lookup));
}

static void poll_name(dtpi_race *r, uint32_t host, int64_t now)
{
    struct name *n = &r->names[host];
    const struct addrinfo *list;
    dtp_error e;

    if (!n->lookup) {
        if (n->at_ns > now)
            return;
        n->lookup = dtpi_lookup_start(r->end.hosts[host].name);
        if (!n->lookup) {
            ask_again(n, now, "out of memory");
            return;
        }
    }
    const dtp_status st = dtpi_lookup_poll(n->lookup, 0, &list, &e);
    if (st < 0) {
        ask_again(n, now, e.text);
    } else if (st == DTP_OK) {
        dtpi_endpoint_add(&r->end, (int)host, list);
        dtpi_lookup_free(DTPI_TAKE(n->lookup));
        add_tries(r, now);
    }
}

static void relink(dtpi_race *r, int64_t now)
{
    const int64_t ms = r->n_relinks++ < RELINKS_SOON ? RELINK_SOON_MS : RELINK_MS;

    r->relink_at_ns = dtpi_endpoint_relink(&r->end) ? now + ms * DTPI_NS_PER_MS : INT64_MAX;
    add_tries(r, now);
}

static void poll_names(dtpi_race *r, int64_t now)
{
    if (now >= r->relink_at_ns)
        relink(r, now);
    for (uint32_t i = 0; i < r->end.n_hosts; i++)
        if (!r->end.hosts[i].is_resolved)
            poll_name(r, i, now);
}

/* ---- the turn ---- */

static int64_t next_ns(const dtpi_race *r, int64_t now)
{
    const bool is_full = r->n_under_way >= MAX_AT_ONCE;
    int64_t at = r->relink_at_ns, start_at = INT64_MAX, room_at = INT64_MAX;

    for (uint32_t i = 0; i < r->n_tries; i++) {
        const struct try *t = &r->tries[i];
        if (t->state == IDLE)
            start_at = DTPI_MIN(start_at, t->at_ns);
        if (t->state != CONNECTING)
            continue;
        room_at = DTPI_MIN(room_at, t->at_ns + patience_ns(t));
        at = DTPI_MIN(at, t->at_ns + PATIENCE_MAX_MS * DTPI_NS_PER_MS);
    }
    at = DTPI_MIN(at, is_full ? DTPI_MAX(start_at, room_at) : start_at);
    for (uint32_t i = 0; i < r->end.n_hosts; i++)
        if (!r->end.hosts[i].is_resolved)
            at = DTPI_MIN(at, r->names[i].lookup ? now + LOOKUP_POLL_MS * DTPI_NS_PER_MS
                                                 : r->names[i].at_ns);
    return at;
}

/* Cuts those who hung too long even where nobody waits: their segments may have been lost. */
static void cut_hung(dtpi_race *r, int64_t now)
{
    for (uint32_t i = 0; i < r->n_tries; i++) {
        struct try *t = &r->tries[i];
        if (t->state == CONNECTING && now - t->at_ns >= PATIENCE_MAX_MS * DTPI_NS_PER_MS) {
            failed(r, t, false, "no answer");
            t->n_hangs++;
        }
    }
}

static void run(dtpi_race *r)
{
    const int64_t now = dtp_ctx_now_ns(r->ctx);
    struct try *t;

    poll_names(r, now);
    cut_hung(r, now);
    while ((t = next_due(r, now))) {
        if (r->n_under_way >= MAX_AT_ONCE)
            make_room(r, now);
        if (r->n_under_way >= MAX_AT_ONCE)
            break;
        start(r, t);
    }
    dtpi_timer_set(r->ctx, &r->timer, next_ns(r, now), NULL);
}

static void timer_due(dtpi_timer *timer)
{
    dtpi_race *r = DTPI_CONTAINER(timer, dtpi_race, timer);

    r->in_call = true;
    run(r);
    if (r->ops->failed)
        r->ops->failed(r->user);
    r->in_call = false;
    if (r->closing)
        dtpi_race_close(r);
}

void dtpi_race_lost(dtpi_race *r, uint32_t try, const char *why)
{
    /* What was found out about the path says more than how the last connection ended. */
    failed(r, &r->tries[try], true, r->tries[try].n_shrinks ? vanish : why);
    if (!r->in_call)
        run(r);
}

void dtpi_race_shrink(dtpi_race *r, uint32_t try)
{
    struct try *t = &r->tries[try];

    failed(r, t, true, vanish);
    if (t->n_shrinks < DTPI_ARRAY_LEN(smaller_mss)) {
        t->n_shrinks++;
        t->at_ns = dtp_ctx_now_ns(r->ctx);
    }
    if (!r->in_call)
        run(r);
}

uint32_t dtpi_race_n_tries(const dtpi_race *r)
{
    return r->n_tries + (dtpi_endpoint_next_name(&r->end) >= 0);
}

/* ---- what is told ---- */

/* The try that says most about the host of try `first`: a peer's word, else the first one's; and its ports. */
static const struct try *speaker(const dtpi_race *r, uint32_t first, uint16_t *last_port_out)
{
    const struct try *best = &r->tries[first];

    *last_port_out = dtpi_sa_port(&best->to);
    for (uint32_t i = first + 1; i < r->n_tries; i++) {
        const struct try *t = &r->tries[i];
        if (!dtpi_sa_same_host(&t->to, &best->to))
            continue;
        *last_port_out = DTPI_MAX(*last_port_out, dtpi_sa_port(&t->to));
        if (t->says_why && !best->says_why)
            best = t;
    }
    return best;
}

static bool is_repeated(const dtpi_race *r, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (dtpi_sa_same_host(&r->tries[k].to, &r->tries[i].to))
            return true;
    return false;
}

/* "10.0.0.1:5-9 from 10.0.0.2 (eth0): why" */
static void item_text(const dtpi_race *r, uint32_t i, char *text_out, size_t room)
{
    char to[DTPI_ADDR_TEXT], own[DTPI_ADDR_TEXT], from[DTPI_ADDR_TEXT + 80] = "", ports[8] = "", name[64];
    uint16_t last_port;
    const struct try *t = speaker(r, i, &last_port);
    dtpi_sa sa = t->from;

    dtpi_sa_text(&t->to, to, sizeof(to));
    if (!t->says_why && last_port > dtpi_sa_port(&t->to))
        snprintf(ports, sizeof(ports), "-%u", last_port);
    if (t->state == CONNECTING) {
        socklen_t len = sizeof(sa);
        if (getsockname(t->fd, &sa.any, &len) < 0)
            sa.any.sa_family = 0;
    }
    if (sa.any.sa_family) {
        dtpi_sa_set_port(&sa, 0);
        dtpi_sa_text(&sa, own, sizeof(own));
        if (dtpi_interface_of(&sa, name, sizeof(name)))
            snprintf(from, sizeof(from), " from %s (%s)", own, name);
        else
            snprintf(from, sizeof(from), " from %s", own);
    }
    snprintf(text_out, room, "%s%s%s: %s", to, ports, from,
             t->why[0] ? t->why : t->state == IDLE ? "not tried" : "no answer");
}

/* Adds an item, or counts it where no room is left; the first is there in any case, cut where it must be. */
static void add_item(char *text, size_t room, const char *item, uint32_t *n_more)
{
    enum { MORE_ROOM = 20 };
    const size_t at = strlen(text);

    if (at > 0 && (*n_more > 0 || at + strlen(item) + MORE_ROOM > room))
        (*n_more)++;
    else
        snprintf(text + at, room - at, "%s%s", at ? "; " : "", item);
}

void dtpi_race_text(const dtpi_race *r, char *text_out, size_t room)
{
    char item[400];
    uint32_t n_more = 0;

    text_out[0] = '\0';
    for (uint32_t i = 0; i < r->n_tries; i++) {
        if (is_repeated(r, i))
            continue;
        item_text(r, i, item, sizeof(item));
        add_item(text_out, room, item, &n_more);
    }
    for (uint32_t i = 0; i < r->end.n_hosts; i++) {
        if (r->end.hosts[i].is_resolved)
            continue;
        snprintf(item, sizeof(item), "%s", r->names[i].why[0] ? r->names[i].why : "");
        if (!item[0])
            snprintf(item, sizeof(item), "no name service gave an address of host %.100s yet",
                     r->end.hosts[i].name);
        add_item(text_out, room, item, &n_more);
    }
    if (r->n_tries == 0 && r->relink_at_ns < INT64_MAX)
        add_item(text_out, room, "no link has an IPv6 address", &n_more);
    const size_t at = strlen(text_out);
    if (n_more)
        snprintf(text_out + at, room - at, "%s... and %u more", at ? "; " : "", n_more);
}

/* ---- life ---- */

dtp_status dtpi_race_open(dtp_ctx *ctx, const char *list, uint16_t own_port, const dtpi_race_ops *ops,
                          void *user, dtpi_race **race_out, dtp_error *err)
{
    dtpi_race *r = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*r));

    if (!r)
        return dtpi_fail_nomem(err, sizeof(*r));
    r->ctx = ctx;
    r->ops = ops;
    r->user = user;
    r->own_port = own_port;
    r->timer.due = timer_due;
    dtp_status st = dtpi_endpoint_parse(list, &r->end, err);
    if (st >= 0)
        st = dtpi_timer_set(ctx, &r->timer, 0, err);
    if (st < 0) {
        dtpi_free(dtpi_ctx_alloc(ctx), r, sizeof(*r));
        return st;
    }
    add_tries(r, dtp_ctx_now_ns(ctx));
    *race_out = r;
    return DTP_OK;
}

void dtpi_race_close(dtpi_race *r)
{
    if (!r)
        return;
    dtpi_timer_clear(r->ctx, &r->timer);
    for (uint32_t i = 0; i < r->n_tries; i++)
        stop(r, &r->tries[i]);
    for (uint32_t i = 0; i < DTPI_ENDPOINT_HOSTS; i++)
        dtpi_lookup_free(DTPI_TAKE(r->names[i].lookup));
    r->closing = true;
    if (!r->in_call)
        dtpi_free(dtpi_ctx_alloc(r->ctx), r, sizeof(*r));
}

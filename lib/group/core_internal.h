/* SPDX-License-Identifier: Apache-2.0 */
/* core_internal.h - fields of the agent's core, for core.c, join.c, gather.c, members.c and kv.c. */
#ifndef DTPI_GROUP_CORE_INTERNAL_H
#define DTPI_GROUP_CORE_INTERNAL_H

#include "group/core.h"
#include "group/keys.h"

enum { CORE_LANES = 16, CORE_MAX_OPEN = 1024 };

/* Where a rank is, where that is no child's slot. */
enum { DTPI_VIA_LOCAL = -1, DTPI_VIA_ABOVE = -2 };

/* below.c: a cell of flags and a slot for every rank that an agent has to do with. */
enum {
    CORE_PAGE_RANKS = 128,
    CORE_SLOT = (1 << 24) - 1,  /* a child's, or a local one */
    CORE_KNOWN = 1 << 24,       /* is in this subtree */
    CORE_LOCAL = 1 << 25,
    CORE_LEFT = 1 << 26,
    CORE_DEAD = 1 << 27,
    CORE_NAMED = 1 << 28        /* is in the list of the dead that are to be judged */
};

struct core_page {
    uint32_t base;              /* rank / CORE_PAGE_RANKS */
    uint32_t cells[CORE_PAGE_RANKS];
};

struct core_below {
    const dtp_allocator *a;
    struct core_page **pages;   /* ascending */
    uint32_t n_pages, cap;
};

/* A row as the root gathers it, until it has made the table. */
struct core_row {
    uint32_t node;
    uint32_t local_rank;
    int32_t pid;
    bool is_there;
};

/*
 * The table is one part, or some of nodes and then some of rows: four or a few more, so that there are few
 * messages, and none is large.
 */
enum {
    CORE_ROW_BYTES = 16,
    CORE_PART_HEAD = 32,
    CORE_PART_BYTES = 256 << 10,        /* at least */
    CORE_PART_MAX = 8 << 20,
    CORE_PARTS = 4
};

struct core_part {
    uint32_t world, n_all_nodes, n_parts;
    uint32_t first_node, n_nodes;
    uint32_t first_rank, n_rows, rows_at;
    const uint8_t *offsets;     /* n_nodes numbers */
    size_t bytes;               /* of the message */
};

struct core_node {
    uint64_t id;
    int32_t host_rank;
    uint32_t first_rank, n_ranks;
    const char *host;           /* lent */
};

struct core_local {
    bool used, joined, left, sent;      /* sent: its row went up */
    bool calls;                 /* for a re-form */
    bool is_new;                /* waits for one */
    int32_t rank, pid;
    uint32_t local_rank;
};

struct core_child {
    bool used, bye;
    bool has_all;               /* all of its subtree has joined */
    bool came_back;             /* after the table: it is no source of this generation's groups */
    bool complete;              /* all that live behind it have called for a re-form */
    int64_t heard_ns;
    uint64_t node;              /* id; 0: no rows came yet */
    char host[DTPI_HOST_MAX + 1];
};

/* Where contributions to a group come from: a local rank or a child's subtree. */
struct core_source {
    bool is_child;
    uint32_t slot;
    uint32_t n, n_left;         /* members behind it */
    uint32_t index;             /* in the group, of a local rank */
};

/* A collective call in the making. */
struct core_gather {
    struct core_gather *next;
    uint8_t lane, kind;
    uint32_t seq;
    bool has_kind;
    uint8_t *got;               /* by source */
    uint32_t n_got;             /* how many sources there are */
    uint32_t n_in;              /* and how many have come */
    dtp_status status;          /* the first failure */
    int32_t rank;
    char text[DTP_ERROR_TEXT];
    dtpi_buf missing;           /* int32_t */
    dtpi_buf entries;
    uint32_t n_entries;
    size_t data_bytes;
    int32_t root;               /* broadcast */
    bool has_root, has_data;
    uint64_t min, max;
    uint32_t min_index, max_index;
    bool expired, probed, sent;
    int64_t answer_by_ns;       /* children that were probed say who is missing, or all behind them are */
};

struct core_reader {
    struct core_reader *next;
    int32_t rank;
    uint32_t seq;
    uint64_t hash;
    char key[DTPI_KEY_ROOM];
};

/* The last change that a rank asked for, by rank: asked again, it is answered and not done again. */
struct core_asked {
    int32_t rank;               /* plus one; 0: free */
    uint32_t seq;
    dtpi_changed done;
};

struct core_group {
    struct core_group *next;
    uint64_t id;
    uint32_t n;
    int32_t *members;           /* world ranks; NULL: all of the world */
    struct core_source *sources;
    uint32_t n_sources, cap_sources;
    uint32_t *source_of_local;  /* by slot, plus one */
    uint32_t *source_of_child;
    uint32_t n_of_local, n_of_child;
    uint32_t n_subtree, n_left;
    bool is_top;
    uint32_t done[CORE_LANES];
    uint32_t n_open;
    struct core_gather *gathers;
    dtpi_keys keys;             /* at the top */
    struct core_reader *readers;
    uint32_t n_readers;
    struct core_asked *asked;   /* a hash table */
    uint32_t n_asked, cap_asked;
};

/* A re-form in the making. */
struct core_reform {
    bool is_on;                 /* somebody has called */
    bool said;                  /* to the parent: complete */
    bool is_due;                /* to be looked at in the next tick */
    uint32_t round;             /* re-forms of this generation that failed */
    uint32_t min_size;
    int64_t deadline_ns;        /* the first of the callers' */
    int64_t flush_at_ns;
    dtpi_buf callers;           /* int32_t: all of this subtree */
    uint32_t n_sent;            /* of these have gone up */
};

struct dtpi_core {
    dtp_allocator a;
    dtpi_core_opts o;
    char host[DTPI_HOST_MAX + 1];
    const dtpi_core_ops *ops;
    void *user;
    int64_t now;
    uint32_t generation;
    int32_t *members;           /* identities in this generation, ascending; NULL: all of the first */
    uint32_t n_members;
    dtpi_buf newcomers;         /* newcomer.c */
    dtpi_buf extras;            /* struct core_row: of those taken in since the first generation */
    uint64_t n_stale;           /* messages of another generation, dropped */
    bool is_alone;              /* its parent is gone, and no other was found */
    bool is_judge;              /* the root, or who stands in for it */
    /* attach.c */
    bool had_parent;
    bool came_back;             /* in this generation */
    dtpi_msg *formed;           /* how this generation began, for those who missed it; NULL: the first */
    bool is_orphan;             /* its parent is gone, and another is sought */
    int64_t orphan_until_ns, succeed_at_ns;
    dtpi_buf orphans;           /* int32_t: ranks that may come back through another agent; at the judge */
    int64_t orphans_until_ns;
    dtpi_buf said_orphans;      /* int32_t: below the judge, those it was told of */
    struct core_reform reform;

    struct core_local *locals;
    uint32_t n_locals;          /* room */
    struct core_child *children;
    uint32_t n_children;
    bool has_parent, parent_bye, parent_left;
    uint64_t parent_node;       /* id */
    int64_t parent_heard_ns, beat_at_ns;
    int64_t silence_at_ns;      /* when the first peer may have been silent for too long */
    char parent_text[DTP_ERROR_TEXT];   /* why the parent is not reached yet */

    struct core_below below;    /* table.c alone looks at these */
    uint32_t n_below;           /* ranks of this subtree that are known */
    uint32_t n_rows;            /* of these are there */
    struct core_row *rows;      /* at the root, until it has made the table, and nodes */
    dtpi_node *nodes;
    uint32_t n_nodes, cap_nodes;
    uint32_t *node_slots;       /* a hash of the nodes by id: index + 1 */
    dtpi_msg **parts;           /* the table as it came */
    uint32_t n_parts, n_node_parts, n_have;    /* n_node_parts 0: one for all */

    dtpi_buf up;                /* rows of children that have not gone up yet */
    uint32_t n_up;
    uint32_t n_joined_local;
    uint32_t n_came;            /* joins seen, refused ones too */
    uint32_t n_rows_sent;       /* own rows that went up */
    bool sent_complete, said_expired;
    char *addresses;            /* NULL: none */
    dtpi_buf seen;              /* missing.c */
    dtpi_standby *standbys;     /* at the root, until it has made the table */
    uint32_t n_standbys;
    int64_t join_at_ns, flush_at_ns;
    int64_t probe_at_ns;        /* the first answer_by_ns of all calls */
    bool has_table;

    struct core_group *groups;

    bool verdict_due;           /* deaths are gathered until verdict_at_ns */
    int64_t verdict_at_ns;
    char death_text[DTP_ERROR_TEXT];
    dtpi_buf dead;              /* int32_t, world ranks, unsorted until the verdict */
    dtpi_verdict verdict;
    bool has_verdict;
    bool told_deaths;           /* the root will judge them */
    bool is_out_of_memory;      /* the root has been told */
    bool ended;
    dtpi_core_stats stats;
};

/* core.c */
dtpi_buf core_begin(const dtpi_core *c, uint8_t type, uint64_t group, uint8_t lane, uint32_t seq,
                    int32_t rank);
/* These take the buffer. */
void core_to_local(dtpi_core *c, uint32_t slot, dtpi_buf *b);
void core_to_child(dtpi_core *c, uint32_t slot, dtpi_buf *b);
void core_to_parent(dtpi_core *c, dtpi_buf *b);
void core_send_parent(dtpi_core *c, dtpi_msg *m);
dtpi_msg *core_msg(dtpi_core *c, dtpi_buf *b);
void core_send_local(dtpi_core *c, uint32_t slot, dtpi_msg *m);
void core_send_child(dtpi_core *c, uint32_t slot, dtpi_msg *m);
/* A reference to a message that came, to pass it on or keep it; NULL without memory. */
dtpi_msg *core_keep(dtpi_core *c, const dtpi_in *in);
void core_nomem(dtpi_core *c);
/* Ends the connection of a local rank with a reason. */
void core_refuse(dtpi_core *c, uint32_t slot, dtp_status status, const char *fmt, ...)
    DTPI_PRINTF(4, 5);

/* table.c: facts about a rank (a valid number) and a node */
enum { CORE_NO_NODE = UINT32_MAX };
bool core_part_read(const dtpi_msg *m, struct core_part *out);
uint32_t core_nodes_per_part(const dtpi_core *c);
uint32_t core_rows_per_part(const dtpi_core *c);
uint32_t core_first_row_part(const dtpi_core *c);
bool core_is_rank(const dtpi_core *c, int32_t rank);
bool core_is_known(const dtpi_core *c, int32_t rank);       /* joined, as far as is known here */
uint32_t core_node_of(const dtpi_core *c, int32_t rank);    /* CORE_NO_NODE: not known here */
int32_t core_pid_of(const dtpi_core *c, int32_t rank);      /* 0: not known here */
/* Where it is: a child's slot, DTPI_VIA_LOCAL or DTPI_VIA_ABOVE (outside this subtree). */
int32_t core_child_of(const dtpi_core *c, int32_t rank);
uint32_t core_slot_of(const dtpi_core *c, int32_t rank);    /* of a local rank */
/* The next rank of this subtree that is known, -1: none. Begin with -1. */
int32_t core_next_below(const dtpi_core *c, int32_t after);
/* The rank is in this subtree, behind a child's slot, or local (`via`) in `slot`. False without memory. */
bool core_add_below(dtpi_core *c, int32_t rank, int32_t via, uint32_t slot);
/* It is not in this subtree any more. */
void core_drop_below(dtpi_core *c, int32_t rank);
bool core_is_dead(const dtpi_core *c, int32_t rank);
void core_set_dead(dtpi_core *c, int32_t rank);
bool core_has_left(const dtpi_core *c, int32_t rank);
void core_set_left(dtpi_core *c, int32_t rank);
const char *core_node_host(const dtpi_core *c, uint32_t node);      /* lent */
uint64_t core_node_id(const dtpi_core *c, uint32_t node);
int32_t core_node_host_rank(const dtpi_core *c, uint32_t node);
uint32_t core_node_find(const dtpi_core *c, uint64_t id);   /* CORE_NO_NODE: none */
/* Appends the ranks of a node, int32_t, ascending; false without memory. At the root, or with the table. */
bool core_ranks_of_node(const dtpi_core *c, uint32_t node, dtpi_buf *out);

/* below.c */
uint32_t core_cell(const struct core_below *b, int32_t rank);      /* 0 where there is none */
uint32_t *core_cell_for(struct core_below *b, int32_t rank);       /* makes it; NULL without memory */
/* The next rank after `after` whose cell has the flag, -1: none. */
int32_t core_next_cell(const struct core_below *b, int32_t after, uint32_t flag);
void core_below_free(struct core_below *b);

/* verdict.c */
void core_decide(dtpi_core *c, dtp_status status, const int32_t *failed, uint32_t n_failed,
                 const char *fmt, ...) DTPI_PRINTF(5, 6);
void core_apply(dtpi_core *c, const dtpi_verdict *v);
/* Forgets verdict and deaths: a generation begins, or the core ends. */
void core_verdict_drop(dtpi_core *c);
/* Tells the parent, which judges. */
void core_death_up(dtpi_core *c, const dtpi_verdict *v);
/* Ascending. */
void core_deaths(dtpi_core *c, const int32_t *ranks, uint32_t n, const char *text);
void core_death_of_local(dtpi_core *c, int32_t rank, int32_t pid, const char *cause);
/* A local rank says that it cannot go on: nobody waits for its end. */
void core_failure_of_local(dtpi_core *c, int32_t rank, int32_t pid, const char *why);
void core_on_failed(dtpi_core *c, uint32_t slot, const dtpi_frame *f);
void core_child_died(dtpi_core *c, uint32_t slot);
/* The ranks of a node are lost with its agent. */
void core_node_lost(dtpi_core *c, uint64_t node);
void core_deaths_up(dtpi_core *c);
void core_text_of_deaths(const dtpi_core *c, const int32_t *ranks, uint32_t n, char *text_out, size_t room);
void core_parent_died(dtpi_core *c, dtp_status status, const char *why);
void core_verdict_tick(dtpi_core *c);
void core_on_death(dtpi_core *c, const dtpi_frame *f);
void core_on_lost(dtpi_core *c, const dtpi_frame *f);
void core_on_verdict(dtpi_core *c, const dtpi_frame *f);
/* From an agent that came back: what the root said before it was gone. */
void core_on_verdict_below(dtpi_core *c, const dtpi_frame *f, const dtpi_in *in);
void core_on_abort(dtpi_core *c, const dtpi_frame *f);

/* reform.c */
void core_reform_init(dtpi_core *c);
void core_reform_free(dtpi_core *c);
void core_on_reform_local(dtpi_core *c, uint32_t slot, const dtpi_frame *f);
bool core_on_reform_child(dtpi_core *c, uint32_t slot, const dtpi_frame *f);
void core_on_formed(dtpi_core *c, const dtpi_frame *f, const dtpi_in *in);
/* Something changed that a re-form may have waited for. */
void core_reform_check(dtpi_core *c);
/* The same in the next tick, which is due at once. */
void core_reform_check_soon(dtpi_core *c);
/* What waits to go up goes, before something that must not overtake it. */
void core_reform_flush(dtpi_core *c);
/* Ascending. */
void core_reform_lost(dtpi_core *c, const int32_t *lost, uint32_t n);
/* To a new parent: all that was said to the one before. */
void core_reform_again(dtpi_core *c);
void core_reform_tick(dtpi_core *c);
int64_t core_reform_next_ns(const dtpi_core *c);

/* newcomer.c */
/* There, has not left, and does not wait to be taken in. */
bool core_is_local_member(const dtpi_core *c, uint32_t slot);
void core_newcomer_joins(dtpi_core *c, uint32_t slot, uint32_t local_rank, int32_t pid, uint64_t id);
/* Of a local slot, or all behind a child. */
void core_newcomer_ends(dtpi_core *c, int32_t via, uint32_t slot);
bool core_on_new(dtpi_core *c, uint32_t slot, const dtpi_frame *f);
void core_newcomers_again(dtpi_core *c);
/* At the judge: writes them, and appends their identities to the members. */
void core_newcomers_write(const dtpi_core *c, dtpi_buf *b, dtpi_buf *members);
/* They have rows and routes from now on; false: malformed, or no memory. */
bool core_newcomers_take(dtpi_core *c, dtpi_rd r);
const struct core_row *core_extra(const dtpi_core *c, int32_t rank);    /* NULL: none */
uint32_t core_limit(const dtpi_core *c);    /* all identities are below */

/* attach.c */
/* The parent ended: false where no other can be sought. */
bool core_become_orphan(dtpi_core *c);
/* Whoever was behind this child's agent, and is not lost with it, may come back. */
void core_orphans_of(dtpi_core *c, uint32_t slot);
bool core_on_orphans(dtpi_core *c, uint32_t slot, const dtpi_frame *f);
bool core_has_orphans(const dtpi_core *c);
void core_orphans_changed(dtpi_core *c);
void core_attach_say(dtpi_core *c);
/* A generation began: deaths that were told in the one before may have been dropped at its fence. */
void core_say_again(dtpi_core *c);
/* A child is in another generation: brings it up where it missed one. */
void core_child_is_stale(dtpi_core *c, uint32_t slot, const dtpi_frame *f);
bool core_on_attach(dtpi_core *c, uint32_t slot, const dtpi_frame *f);
bool core_has_quorum(dtpi_core *c, uint32_t *here_out, uint32_t *all_out);
void core_attach_tick(dtpi_core *c);
int64_t core_attach_next_ns(const dtpi_core *c);

/* join.c */
void core_on_join(dtpi_core *c, uint32_t slot, const dtpi_frame *f);
bool core_on_rows(dtpi_core *c, uint32_t slot, const dtpi_frame *f);
void core_join_tick(dtpi_core *c);
/* The parent is another, or has not heard what went up: all rows go up again. */
void core_join_again(dtpi_core *c);
void core_join_expired(dtpi_core *c);

/* At the root: rows of this node are there. */
bool core_has_rows_of(const dtpi_core *c, uint64_t node);

/* missing.c: the root's verdict when the time to join is over */
void core_decide_missing(dtpi_core *c);

/* spread.c */
/* All rows are here: the root makes the table and gives it to everybody. */
void core_make_table(dtpi_core *c);
/* False where it is malformed. */
bool core_on_table(dtpi_core *c, const dtpi_frame *f, const dtpi_in *in);
/* What there is of the table, to a child that came late. */
void core_send_table(dtpi_core *c, uint32_t slot);
void core_table_free(dtpi_core *c);

/* members.c */
struct core_group *core_group_find(const dtpi_core *c, uint64_t id);
bool core_group_add(dtpi_core *c, uint64_t id, int32_t *members_take, uint32_t n);
void core_group_free(dtpi_core *c, struct core_group *g);
int32_t core_member(const struct core_group *g, uint32_t index);
/* Index of a rank in the group of all ranks of this generation, -1: none; before the table: itself. */
int32_t core_index_of(const dtpi_core *c, int32_t rank);
uint32_t core_world_n(const dtpi_core *c);
/* The next member after index `after` in this subtree, -1: none. Begin with -1. */
int32_t core_next_member(const dtpi_core *c, const struct core_group *g, int32_t after);
/* The first member outside this subtree; 0 where there is none. */
uint32_t core_first_above(const dtpi_core *c, const struct core_group *g);
struct core_source *core_source_of_local(struct core_group *g, uint32_t slot);
struct core_source *core_source_of_child(struct core_group *g, uint32_t slot);
void core_on_leave(dtpi_core *c, struct core_source *s, struct core_group *g, const dtpi_frame *f);
/* A child's agent ended in order: nobody behind it is reached any more. */
void core_child_left(dtpi_core *c, uint32_t slot);
bool core_split(dtpi_core *c, struct core_group *g, const dtpi_frame *f, dtpi_rd rest);

/* gather.c */
/* False where the sender broke the protocol. */
bool core_on_up(dtpi_core *c, struct core_group *g, struct core_source *s, const dtpi_frame *f);
void core_on_down(dtpi_core *c, struct core_group *g, const dtpi_frame *f, const dtpi_in *in);
void core_on_expire(dtpi_core *c, struct core_group *g, const dtpi_frame *f);
void core_on_probe(dtpi_core *c, struct core_group *g, const dtpi_frame *f);
/* Those below that a probe found silent are missing. */
void core_gather_tick(dtpi_core *c);
/* The parent ended in order: calls that need it fail, now and later. */
void core_parent_left(dtpi_core *c);
void core_source_left(dtpi_core *c, struct core_group *g, struct core_source *s);
void core_gather_free(dtpi_core *c, struct core_gather *x);

/* kv.c */
bool core_on_kv(dtpi_core *c, struct core_group *g, const dtpi_frame *f, const dtpi_in *in);
void core_on_value(dtpi_core *c, const dtpi_frame *f, const dtpi_in *in);
void core_kv_free(dtpi_core *c, struct core_group *g);

#endif /* DTPI_GROUP_CORE_INTERNAL_H */

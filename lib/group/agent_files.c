/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_files.c - the memory files of a node: control page, table of ranks, and what members ask for.
 *
 * All are memfds passed over the Unix sockets: /dev/shm is not needed.
 */
#include "group/agent_internal.h"
#include "group/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MEMORY_MAX_BYTES (1ull << 46)

void dtpi_control_set(struct control_page *page, dtp_status status)
{
    uint32_t healthy = 0;

    atomic_compare_exchange_strong(&page->word, &healthy, (uint32_t)-status);
    syscall(SYS_futex, &page->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void agent_set_word(dtpi_agent *agent, dtp_status status)
{
    dtpi_control_set(agent->control, status);
}

void agent_note_newcomers(dtpi_agent *agent)
{
    atomic_store(&agent->control->n_waiting, dtpi_core_n_newcomers(agent->core));
}

static dtp_status make_file(const char *name, uint64_t bytes, int *fd_out, dtp_error *err)
{
    DTPI_AUTO_FD int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make a memory file: %m");
    if (ftruncate(fd, (off_t)bytes) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make a memory file of %llu bytes: %m",
                         (unsigned long long)bytes);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot seal a memory file: %m");
    *fd_out = dtpi_take_fd(&fd);
    return DTP_OK;
}

/* A control page; the one before, of the generation before, is let go. */
dtp_status agent_files_open(dtpi_agent *agent, dtp_error *err)
{
    DTPI_AUTO_FD int fd = -1;

    const dtp_status st = make_file("dtp-control", SHARED_PAGE_BYTES, &fd, err);
    if (st < 0)
        return st;
    void *p = mmap(NULL, SHARED_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return dtpi_fail(err, DTP_ERR_NOMEM, "cannot map the control page: %m");
    struct control_page *const former = agent->control;
    dtpi_close_fd(&agent->control_fd);
    agent->control_fd = dtpi_take_fd(&fd);
    agent->control = p;
    if (former) {
        memcpy(agent->control->root, former->root, sizeof(former->root));
        munmap(former, SHARED_PAGE_BYTES);
    }
    agent->control->magic = SHARED_MAGIC;
    return DTP_OK;
}

/* The address that a parent or a child was met with says more than all those that the root may have. */
void agent_files_say_met(dtpi_agent *agent, const struct agent_conn *conn)
{
    char text[DTPI_ADDR_TEXT];
    dtpi_sa own;

    if (!dtpi_sa_own(dtpi_link_fd(conn->link), &own))
        return;
    dtpi_sa_text(&own, text, sizeof(text));
    snprintf(agent->control->root, sizeof(agent->control->root), "%s", text);
}

void agent_files_say_root(dtpi_agent *agent)
{
    snprintf(agent->control->root, sizeof(agent->control->root), "%s",
             agent->o.root ? agent->o.root : "");
}

static void drop_memories(dtpi_agent *agent)
{
    while (agent->memory) {
        struct agent_memory *m = agent->memory;
        agent->memory = m->next;
        dtpi_close_fd(&m->fd);
        dtpi_buf_free(&m->given);
        dtpi_free(dtpi_ctx_alloc(agent->ctx), m, sizeof(*m));
    }
}

void agent_files_close(dtpi_agent *agent)
{
    drop_memories(agent);
    if (agent->control)
        munmap(agent->control, SHARED_PAGE_BYTES);
    dtpi_close_fd(&agent->control_fd);
    dtpi_close_fd(&agent->table_fd);
}

/* ---- table ---- */

static void write_rows(dtpi_buf *b, const uint8_t *rows, uint32_t n)
{
    dtpi_rd r = dtpi_rd_init(rows, (size_t)n * 16);

    for (uint32_t i = 0; i < n; i++) {
        struct shared_row row;
        row.node = dtpi_rd_u32(&r);
        row.local_rank = dtpi_rd_u32(&r);
        row.pid = (int32_t)dtpi_rd_u32(&r);
        row.reserved = dtpi_rd_u32(&r);
        dtpi_buf_append(b, &row, sizeof(row));
    }
}

static void write_table(dtpi_agent *agent, dtpi_buf *b)
{
    const uint32_t n_nodes = dtpi_core_n_nodes(agent->core);
    const uint32_t n_all = dtpi_core_n_rows(agent->core);
    uint32_t n_rows;
    dtpi_row r = { 0 };
    dtpi_node n = { 0 };
    const struct shared_table head = { SHARED_MAGIC, DTPI_WIRE_VERSION, n_all, n_nodes };

    dtpi_buf_append(b, &head, sizeof(head));
    for (uint32_t i = 0; i < agent->o.world_size; i += n_rows) {
        const uint8_t *rows = dtpi_core_rows(agent->core, i, &n_rows);
        write_rows(b, rows, n_rows);
        if (!rows)
            break;
    }
    /* Newcomers. */
    for (uint32_t i = agent->o.world_size; i < n_all; i++) {
        dtpi_core_row(agent->core, (int32_t)i, &r);
        const struct shared_row row = { r.node, r.local_rank, r.pid, 0 };
        dtpi_buf_append(b, &row, sizeof(row));
    }
    for (uint32_t i = 0; i < n_nodes; i++) {
        dtpi_core_node(agent->core, i, &n);
        struct shared_node node = { .host_rank = n.host_rank };
        snprintf(node.host, sizeof(node.host), "%s", n.host);
        dtpi_buf_append(b, &node, sizeof(node));
    }
}

static dtp_status publish_table(dtpi_agent *agent, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));

    write_table(agent, &b);
    if (b.failed)
        return dtpi_fail_nomem(err, 0);
    dtpi_close_fd(&agent->table_fd);
    agent->n_table_rows = dtpi_core_n_rows(agent->core);
    dtp_status st = make_file("dtp-table", b.len, &agent->table_fd, err);
    if (st < 0)
        return st;
    for (size_t at = 0; at < b.len;) {
        const ssize_t n = pwrite(agent->table_fd, b.data + at, b.len - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return dtpi_fail(err, DTP_ERR_IO, "cannot write the table of ranks: %m");
        at += (size_t)n;
    }
    if (fcntl(agent->table_fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot seal the table of ranks: %m");
    return DTP_OK;
}

static dtpi_buf begin(const dtpi_agent *agent, uint8_t type, uint64_t group, uint32_t seq)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));
    const dtpi_frame f = { .type = type, .attempt = agent->o.attempt, .generation = dtpi_core_generation(agent->core),
                           .seq = seq,
                           .group = group, .rank = -1 };

    dtpi_frame_begin(&b, &f);
    return b;
}

static void give_files(struct agent_conn *conn, dtpi_msg *m)
{
    dtpi_agent *agent = conn->agent;
    const int fds[2] = { agent->control_fd, agent->table_fd };

    if (dtpi_link_send(conn->link, m, fds, 2) || dtpi_link_is_broken(conn->link))
        return;
    dtpi_fail(&agent->trouble, dtpi_status_of_errno(errno),
              "cannot give the memory files to rank %d: %m", conn->rank);
}

void agent_welcome_all(dtpi_agent *agent)
{
    if (publish_table(agent, &agent->trouble) < 0)
        return;
    dtpi_buf b = begin(agent, DTPI_F_WELCOME, DTPI_WORLD_ID, 0);
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    for (uint32_t i = 0; m && i < agent->n_by_local; i++)
        if (agent->by_local[i] && !dtpi_core_slot_is_free(agent->core, i) &&
            !dtpi_core_is_newcomer(agent->core, i))
            give_files(agent->by_local[i], m);
    if (!m)
        dtpi_fail_nomem(&agent->trouble, 0);
    dtpi_close_fd(&agent->control_fd);      /* all who ever get it have it */
}

/* A generation begins: its members get a control page of its own; and a table where there are newcomers. */
void agent_formed_all(dtpi_agent *agent, dtpi_msg *msg)
{
    drop_memories(agent);
    if (agent_files_open(agent, &agent->trouble) < 0 ||
        (agent->n_table_rows != dtpi_core_n_rows(agent->core) &&
         publish_table(agent, &agent->trouble) < 0))
        return;
    for (uint32_t i = 0; i < agent->n_by_local; i++)
        if (agent->by_local[i] && dtpi_core_is_local_member(agent->core, DTPI_WORLD_ID, i))
            give_files(agent->by_local[i], msg);
    dtpi_close_fd(&agent->control_fd);
}

/* ---- node memory ---- */

static bool was_given(const struct agent_memory *m, uint32_t slot)
{
    const uint32_t *slots = (const uint32_t *)(const void *)m->given.data;

    for (size_t i = 0; i < m->given.len / sizeof(*slots); i++)
        if (slots[i] == slot)
            return true;
    return false;
}

/* The oldest file with this tag that `slot` has not fetched; NULL: a new one is due. */
static struct agent_memory *find_memory(dtpi_agent *agent, uint64_t group, uint32_t tag,
                                        uint32_t slot)
{
    for (struct agent_memory *m = agent->memory; m; m = m->next)
        if (m->group == group && m->tag == tag && !was_given(m, slot))
            return m;
    return NULL;
}

static struct agent_memory *make_memory(dtpi_agent *agent, uint64_t group, uint32_t tag,
                                        uint64_t bytes, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(agent->ctx);
    struct agent_memory **tail = &agent->memory;
    struct agent_memory *m = dtpi_alloc(a, sizeof(*m));

    if (!m) {
        dtpi_fail_nomem(err, sizeof(*m));
        return NULL;
    }
    if (make_file("dtp-node", bytes, &m->fd, err) < 0) {
        dtpi_free(a, m, sizeof(*m));
        return NULL;
    }
    m->group = group;
    m->tag = tag;
    m->bytes = bytes;
    m->given = dtpi_buf_init(a);
    while (*tail)
        tail = &(*tail)->next;
    *tail = m;
    return m;
}

static void drop_memory(dtpi_agent *agent, struct agent_memory *m)
{
    for (struct agent_memory **p = &agent->memory; *p; p = &(*p)->next)
        if (*p == m) {
            *p = m->next;
            break;
        }
    dtpi_close_fd(&m->fd);
    dtpi_buf_free(&m->given);
    dtpi_free(dtpi_ctx_alloc(agent->ctx), m, sizeof(*m));
}

/* Finds or makes the file; NULL with the reason in `err`. */
static struct agent_memory *serve_memory(struct agent_conn *conn, const dtpi_frame *f, dtp_error *err)
{
    dtpi_agent *agent = conn->agent;
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    const uint32_t tag = dtpi_rd_u32(&r);
    const uint64_t bytes = dtpi_rd_u64(&r);

    if (!dtpi_rd_done(&r) || !dtpi_core_is_local_member(agent->core, f->group, conn->slot)) {
        dtpi_fail(err, DTP_ERR_PROTO, "malformed question for node memory");
        return NULL;
    }
    if (bytes == 0 || bytes > MEMORY_MAX_BYTES) {
        dtpi_fail(err, DTP_ERR_LIMIT, "node memory of %llu bytes", (unsigned long long)bytes);
        return NULL;
    }
    struct agent_memory *m = find_memory(agent, f->group, tag, conn->slot);
    if (!m)
        m = make_memory(agent, f->group, tag, bytes, err);
    if (m && m->bytes != bytes) {
        dtpi_fail(err, DTP_ERR_INVAL, "node memory %u: rank %d wants %llu bytes, others %llu", tag,
                  f->rank, (unsigned long long)bytes, (unsigned long long)m->bytes);
        return NULL;
    }
    return m;
}

/* False where the answer could not be sent. */
static bool answer_memory(struct agent_conn *conn, const dtpi_frame *f, const struct agent_memory *m,
                          const dtp_error *err)
{
    dtpi_buf b = begin(conn->agent, DTPI_F_MEMORY_IS, f->group, f->seq);

    dtpi_wr_u32(&b, (uint32_t)(m ? DTP_OK : err->status));
    dtpi_wr_text(&b, m ? "" : err->text);
    DTPI_AUTO(msg) dtpi_msg *msg = dtpi_msg_new(&b);
    return (msg && dtpi_link_send(conn->link, msg, m ? &m->fd : NULL, m ? 1 : 0)) ||
           dtpi_link_is_broken(conn->link);
}

bool agent_memory_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    dtpi_agent *agent = conn->agent;
    dtp_error err = { .status = DTP_OK };
    dtpi_frame f;

    if (!dtpi_frame_read(data, bytes, &f) || f.type != DTPI_F_MEMORY)
        return false;
    struct agent_memory *m = serve_memory(conn, &f, &err);
    if (m && !answer_memory(conn, &f, m, &err)) {
        dtpi_fail(&err, dtpi_status_of_errno(errno), "cannot give node memory to rank %d: %m", conn->rank);
        m = NULL;
    }
    if (!m && !answer_memory(conn, &f, NULL, &err))
        agent_unsent(conn);
    if (!m)
        return true;
    dtpi_buf_append(&m->given, &conn->slot, sizeof(conn->slot));
    if (m->given.failed ||
        m->given.len / sizeof(conn->slot) >= dtpi_core_n_local_members(agent->core, f.group))
        drop_memory(agent, m);
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx.c - the network through UCX: one context and worker with wake-up, end points that notice a dead
 * peer, tags for bulk data, active messages for small ones.
 *
 * UCX has state of the process (logging, signal handlers): logging goes to the open network that was
 * opened last, and handlers that UCX installed when it was loaded are taken back.
 * Source: UCX 1.13 API documentation, ucp/api/ucp.h.
 */
#include "net/net.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include "ctx/ctx.h"

enum { AM_ID = 1, FLUSH_MS = 500, FORCE_MS = 1000 };

struct dtpi_net {
    dtp_allocator a;
    dtpi_log log;
    void (*message)(void *user, const uint8_t *data, size_t bytes);
    void *user;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t n_address;
    int fd;
    dtpi_net *next_open;
};

struct dtpi_net_ep {
    dtpi_net *net;
    ucp_ep_h ep;
    bool broken;
};

/* ---- what UCX does to a process ---- */

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static dtpi_net *open_nets;     /* the last opened first */

static dtp_log_level level_of(ucs_log_level_t level)
{
    if (level <= UCS_LOG_LEVEL_ERROR)
        return DTP_LOG_ERROR;
    if (level == UCS_LOG_LEVEL_WARN)
        return DTP_LOG_WARN;
    return level <= UCS_LOG_LEVEL_INFO ? DTP_LOG_INFO : DTP_LOG_DEBUG;
}

/* A peer's death is a verdict of ours; UCX's error about it is news for those who debug. */
static ucs_log_func_rc_t on_log(const char *file, unsigned line, const char *function,
                                ucs_log_level_t level,
                                const ucs_log_component_config_t *component, const char *format,
                                va_list ap)
{
    char text[512];

    (void)file;
    (void)line;
    (void)function;
    (void)component;
    vsnprintf(text, sizeof(text), format, ap);
    const dtp_log_level own = DTPI_MAX(level_of(level), DTP_LOG_WARN);
    /* Held during the call: the one who hears it may be closed by another thread. */
    pthread_mutex_lock(&log_mutex);
    if (open_nets)
        dtpi_logf(&open_nets->log, own, "ucx", "%s", text);
    pthread_mutex_unlock(&log_mutex);
    return UCS_LOG_FUNC_RC_STOP;
}

static void take_log(dtpi_net *net)
{
    pthread_mutex_lock(&log_mutex);
    if (!open_nets)
        ucs_log_push_handler(on_log);
    net->next_open = open_nets;
    open_nets = net;
    pthread_mutex_unlock(&log_mutex);
}

static void give_log(dtpi_net *net)
{
    dtpi_net **at = &open_nets;

    pthread_mutex_lock(&log_mutex);
    while (*at != net)
        at = &(*at)->next_open;
    *at = net->next_open;
    if (!open_nets)
        ucs_log_pop_handler();
    pthread_mutex_unlock(&log_mutex);
}

/* Only where the present handler is UCX's: a host's own stays. */
static void give_signals_back(void)
{
    static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGHUP };
    struct sigaction sa;
    Dl_info info;

    for (size_t i = 0; i < DTPI_ARRAY_LEN(signals); i++)
        if (sigaction(signals[i], NULL, &sa) == 0 && sa.sa_handler != SIG_DFL &&
            sa.sa_handler != SIG_IGN &&
            dladdr((const void *)(uintptr_t)sa.sa_handler, &info) && info.dli_fname &&
            strstr(info.dli_fname, "libucs"))
            ucs_debug_disable_signal(signals[i]);
}

/* ---- failures ---- */

static dtp_status status_of(ucs_status_t st)
{
    switch (st) {
    case UCS_OK:
        return DTP_OK;
    case UCS_ERR_NO_MEMORY:
        return DTP_ERR_NOMEM;
    case UCS_ERR_CANCELED:
        return DTP_ERR_CANCELED;
    case UCS_ERR_MESSAGE_TRUNCATED:
        return DTP_ERR_PROTO;
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_UNSUPPORTED:
        return DTP_ERR_UNSUPPORTED;
    case UCS_ERR_NO_RESOURCE:
        return DTP_ERR_LIMIT;
    default:
        return DTP_ERR_PEER;
    }
}

static dtp_status fail_ucs(dtp_error *err, const char *what, ucs_status_t st)
{
    return dtpi_fail(err, status_of(st) == DTP_ERR_PEER ? DTP_ERR_IO : status_of(st), "%s: %s", what,
                     ucs_status_string(st));
}

/* ---- life ---- */

static void ucx_version(char *text_out, size_t room)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    snprintf(text_out, room, "%u.%u", major, minor);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    dtpi_net *net = arg;

    (void)header;
    (void)header_bytes;
    /* Only eager messages are sent; a rendezvous is refused by returning OK. */
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) && net->message)
        net->message(net->user, data, bytes);
    return UCS_OK;
}

static dtp_status open_context(dtpi_net *net, const dtpi_net_opts *o, dtp_error *err)
{
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
    };
    ucp_config_t *config;

    ucs_status_t st = ucp_config_read(NULL, NULL, &config);
    if (st != UCS_OK)
        return fail_ucs(err, "cannot read UCX's settings", st);
    st = ucp_config_modify(config, "TLS", o->transports);
    if (st == UCS_OK && o->devices)
        st = ucp_config_modify(config, "NET_DEVICES", o->devices);
    if (st == UCS_OK)
        st = ucp_init(&params, config, &net->context);
    ucp_config_release(config);
    if (st != UCS_OK)
        return dtpi_fail(err, status_of(st) == DTP_ERR_PEER ? DTP_ERR_IO : status_of(st),
                         "cannot start UCX on %s (%s): %s", o->devices ? o->devices : "all devices",
                         o->transports, ucs_status_string(st));
    return DTP_OK;
}

/* Serialized: a context may move between threads, and UCX asserts that a single one never changes. */
static dtp_status open_worker(dtpi_net *net, dtp_error *err)
{
    const ucp_worker_params_t params = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = UCS_THREAD_MODE_SERIALIZED };
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
        .id = AM_ID,
        .cb = on_message,
        .arg = net,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
    };

    ucs_status_t st = ucp_worker_create(net->context, &params, &net->worker);
    if (st != UCS_OK)
        return fail_ucs(err, "cannot make a UCX worker", st);
    st = ucp_worker_set_am_recv_handler(net->worker, &handler);
    if (st == UCS_OK)
        st = ucp_worker_get_efd(net->worker, &net->fd);
    if (st == UCS_OK)
        st = ucp_worker_get_address(net->worker, &net->address, &net->n_address);
    return st == UCS_OK ? DTP_OK : fail_ucs(err, "cannot prepare a UCX worker", st);
}

static void ucx_close(dtpi_net *net)
{
    if (net->address)
        ucp_worker_release_address(net->worker, net->address);
    if (net->worker)
        ucp_worker_destroy(net->worker);
    if (net->context)
        ucp_cleanup(net->context);
    give_log(net);
    const dtp_allocator a = net->a;
    dtpi_free(&a, net, sizeof(*net));
}

static dtp_status ucx_open(const dtpi_net_opts *o, dtpi_net **net_out, dtp_error *err)
{
    dtpi_net *net = dtpi_alloc(o->allocator, sizeof(*net));

    if (!net)
        return dtpi_fail_nomem(err, sizeof(*net));
    net->a = *o->allocator;
    net->log = *o->log;
    net->message = o->message;
    net->user = o->user;
    net->fd = -1;
    give_signals_back();
    take_log(net);
    dtp_status st = open_context(net, o, err);
    if (st >= 0)
        st = open_worker(net, err);
    if (st < 0) {
        ucx_close(net);
        return st;
    }
    *net_out = net;
    return DTP_OK;
}

static const void *ucx_address(const dtpi_net *net, size_t *bytes_out)
{
    *bytes_out = net->n_address;
    return net->address;
}

static int ucx_fd(const dtpi_net *net)
{
    return net->fd;
}

static bool ucx_arm(dtpi_net *net)
{
    return ucp_worker_arm(net->worker) == UCS_OK;
}

static bool ucx_progress(dtpi_net *net)
{
    return ucp_worker_progress(net->worker) != 0;
}

/* ---- end points ---- */

static void on_ep_error(void *arg, ucp_ep_h ep, ucs_status_t st)
{
    dtpi_net_ep *e = arg;

    (void)ep;
    e->broken = true;
    dtpi_logf(&e->net->log, DTP_LOG_INFO, "ucx", "a peer is gone: %s", ucs_status_string(st));
}

static dtp_status ucx_connect(dtpi_net *net, const void *address, size_t bytes,
                              dtpi_net_ep **ep_out, dtp_error *err)
{
    dtpi_net_ep *e = dtpi_alloc(&net->a, sizeof(*e));
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = { on_ep_error, e },
    };

    (void)bytes;
    if (!e)
        return dtpi_fail_nomem(err, sizeof(*e));
    e->net = net;
    const ucs_status_t st = ucp_ep_create(net->worker, &params, &e->ep);
    if (st != UCS_OK) {
        dtpi_free(&net->a, e, sizeof(*e));
        return dtpi_fail(err, status_of(st), "cannot make a UCX end point: %s", ucs_status_string(st));
    }
    *ep_out = e;
    return DTP_OK;
}

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Lets a request end; false after `ms`. */
static bool finish(dtpi_net *net, void *request, int ms)
{
    const int64_t end = now_ms() + ms;

    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
        if (now_ms() >= end)
            return false;
        if (!ucp_worker_progress(net->worker))
            nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    }
    return true;
}

static void ucx_disconnect(dtpi_net_ep *e, bool flush)
{
    ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags = UCP_EP_CLOSE_FLAG_FORCE };

    if (flush && !e->broken) {
        const ucp_request_param_t none = { 0 };
        void *request = ucp_ep_flush_nbx(e->ep, &none);
        if (UCS_PTR_IS_PTR(request)) {
            finish(e->net, request, FLUSH_MS);
            ucp_request_free(request);
        }
    }
    void *request = ucp_ep_close_nbx(e->ep, &param);
    if (UCS_PTR_IS_PTR(request)) {
        finish(e->net, request, FORCE_MS);
        ucp_request_free(request);
    }
    const dtp_allocator a = e->net->a;
    dtpi_free(&a, e, sizeof(*e));
}

static bool ucx_is_broken(const dtpi_net_ep *e)
{
    return e->broken;
}

/* The line of lane 0 as UCX prints it: "lane[0]:  1:tcp/eth0.0 md[1] -> ...". */
static void ucx_lane(dtpi_net_ep *e, char *text_out, size_t room)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);

    text_out[0] = '\0';
    if (!f)
        return;
    ucp_ep_print_info(e->ep, f);
    fclose(f);
    const char *p = text ? strstr(text, "lane[0]:") : NULL;
    p = p ? strchr(p + strlen("lane[0]:"), ':') : NULL;
    if (p) {
        size_t n = strcspn(p + 1, " \n");
        const char *dot = memchr(p + 1, '.', n);
        if (dot)
            n = (size_t)(dot - p) - 1;
        snprintf(text_out, room, "%.*s", (int)n, p + 1);
    }
    free(text);
}

/* ---- transfers ---- */

static void end_xfer(dtpi_xfer *x, ucs_status_t st, size_t got)
{
    dtpi_xfer_end(x, st == UCS_OK && got != x->bytes ? DTP_ERR_PROTO : status_of(st));
}

static void on_sent(void *request, ucs_status_t st, void *user)
{
    dtpi_xfer *x = user;

    end_xfer(x, st, x->bytes);
    ucp_request_free(request);
}

static void on_received(void *request, ucs_status_t st, const ucp_tag_recv_info_t *info, void *user)
{
    end_xfer(user, st, info->length);
    ucp_request_free(request);
}

static void ucx_send(dtpi_net_ep *e, uint64_t tag, const void *data, size_t bytes, dtpi_xfer *x)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = on_sent,
        .user_data = x,
    };

    x->bytes = bytes;
    if (e->broken) {
        end_xfer(x, UCS_ERR_CONNECTION_RESET, bytes);
        return;
    }
    void *request = ucp_tag_send_nbx(e->ep, data, bytes, tag, &param);
    if (UCS_PTR_IS_PTR(request))
        x->request = request;
    else
        end_xfer(x, UCS_PTR_STATUS(request), bytes);
}

static void ucx_recv(dtpi_net *net, uint64_t tag, void *data, size_t bytes, dtpi_xfer *x)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv = on_received,
        .user_data = x,
    };

    x->bytes = bytes;
    void *request = ucp_tag_recv_nbx(net->worker, data, bytes, tag, UINT64_MAX, &param);
    if (!UCS_PTR_IS_PTR(request))
        end_xfer(x, UCS_PTR_STATUS(request), bytes);
    else if (!x->done)
        x->request = request;
}

static void ucx_cancel(dtpi_net *net, dtpi_xfer *x)
{
    if (x->request)
        ucp_request_cancel(net->worker, x->request);
}

/* ---- small messages ---- */

struct posted {
    dtpi_net *net;
    size_t bytes;
    uint8_t data[];
};

static void posted_free(struct posted *p)
{
    const dtp_allocator a = p->net->a;

    dtpi_free(&a, p, sizeof(*p) + p->bytes);
}

static void on_posted(void *request, ucs_status_t st, void *user)
{
    (void)st;       /* a broken end point says so itself */
    posted_free(user);
    ucp_request_free(request);
}

static dtp_status ucx_post(dtpi_net_ep *e, const void *data, size_t bytes, dtp_error *err)
{
    struct posted *p = dtpi_alloc_aligned(&e->net->a, sizeof(*p) + bytes, 16);
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = on_posted,
        .user_data = p,
    };

    if (!p)
        return dtpi_fail_nomem(err, bytes);
    p->net = e->net;
    p->bytes = bytes;
    memcpy(p->data, data, bytes);
    void *request = ucp_am_send_nbx(e->ep, AM_ID, NULL, 0, p->data, bytes, &param);
    if (UCS_PTR_IS_PTR(request))
        return DTP_OK;
    posted_free(p);
    const ucs_status_t st = UCS_PTR_STATUS(request);
    return st == UCS_OK ? DTP_OK : dtpi_fail(err, status_of(st), "cannot send: %s", ucs_status_string(st));
}

static const struct dtpi_net_ops ucx_ops = {
    .name = "ucx",
    .version = ucx_version,
    .open = ucx_open,
    .close = ucx_close,
    .address = ucx_address,
    .fd = ucx_fd,
    .arm = ucx_arm,
    .progress = ucx_progress,
    .connect = ucx_connect,
    .disconnect = ucx_disconnect,
    .is_broken = ucx_is_broken,
    .send = ucx_send,
    .recv = ucx_recv,
    .cancel = ucx_cancel,
    .post = ucx_post,
    .lane = ucx_lane,
};

DTPI_MODULE(net_ucx, "net-ucx", &ucx_ops);

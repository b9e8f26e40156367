/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c - values of sysfs and procfs files. A value that is not exactly understood is unknown: the
 * functions say false and write nothing.
 */
#include "topo/parse.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>

/* 1 to `max` hexadecimal digits ending at `end`; moves *text behind `end`. */
static bool take_hex(const char **text, size_t max, char end, uint64_t *out)
{
    const char *p = *text;
    uint64_t v = 0;
    size_t n = 0;

    for (; isxdigit((unsigned char)*p) && n <= max; p++, n++)
        v = v << 4 | (uint64_t)(isdigit((unsigned char)*p) ? *p - '0' : tolower(*p) - 'a' + 10);
    if (!n || n > max || *p != end)
        return false;
    *text = end ? p + 1 : p;
    *out = v;
    return true;
}

bool dtpi_topo_parse_pci(const char *text, uint64_t *place_out)
{
    uint64_t domain, bus, dev = 0, fn = 0;
    const bool host = strncmp(text, "pci", 3) == 0;

    if (host)
        text += 3;
    if (!take_hex(&text, 8, ':', &domain))
        return false;
    if (host ? !take_hex(&text, 2, '\0', &bus)
             : !take_hex(&text, 2, ':', &bus) || !take_hex(&text, 2, '.', &dev) ||
                   !take_hex(&text, 1, '\0', &fn))
        return false;
    if (dev > 31 || fn > 7)
        return false;
    /* A host bridge comes before the devices of its bus. */
    *place_out = domain << 17 | bus << 9 | dev << 4 | fn << 1 | !host;
    return true;
}

bool dtpi_topo_parse_cpumask(const char *text, dtpi_cpuset *set_out)
{
    size_t len = strlen(text);
    uint32_t cpu = 0;
    dtpi_cpuset set = { 0 };

    while (len && isspace((unsigned char)text[len - 1]))
        len--;
    if (!len)
        return false;
    while (len) {
        size_t from = len;
        while (from && text[from - 1] != ',')
            from--;
        if (len == from || len - from > 8)
            return false;
        for (size_t i = len, bit = 0; i > from; i--, bit += 4) {
            const char c = text[i - 1];
            if (!isxdigit((unsigned char)c))
                return false;
            const int v = isdigit((unsigned char)c) ? c - '0' : tolower(c) - 'a' + 10;
            for (uint32_t k = 0; k < 4; k++)
                if (v >> k & 1) {
                    if (cpu + bit + k >= DTPI_CPUSET_MAX)
                        return false;
                    dtpi_cpuset_set(&set, cpu + (uint32_t)bit + k);
                }
        }
        cpu += 32;
        if (cpu > 4u * DTPI_CPUSET_MAX)
            return false;
        if (from == 1)
            return false;
        len = from ? from - 1 : 0;
    }
    *set_out = set;
    return true;
}

bool dtpi_topo_parse_hwloc_set(const char *text, dtpi_cpuset *set_out)
{
    dtpi_cpuset set = { 0 };
    uint32_t n_words = 1;

    for (const char *p = text; *p; p++)
        n_words += *p == ',';
    if (n_words > 4 * DTPI_CPUSET_MAX / 32)
        return false;
    for (const char *p = text; n_words-- > 0; p++) {
        uint64_t word = 0;
        const char end = n_words ? ',' : '\0';
        if (p[0] == '0' && p[1] == 'x') {
            p += 2;
            if (!take_hex(&p, 8, end, &word))
                return false;
            p -= end != '\0';
        } else if (*p != end || p == text) {
            return false;
        }
        for (uint32_t bit = 0; bit < 32; bit++) {
            if (!(word >> bit & 1))
                continue;
            if (n_words * 32 + bit >= DTPI_CPUSET_MAX)
                return false;
            dtpi_cpuset_set(&set, n_words * 32 + bit);
        }
    }
    *set_out = set;
    return true;
}

/*
 * A decimal number such as "16" or "2.5" times `scale` (a power of ten), up to 10^9; NULL: none. Not
 * strtod: what a point is must not depend on the host's locale.
 */
static const char *take_decimal(const char *text, int64_t scale, int64_t *out)
{
    int64_t v = 0, unit = scale / 10;

    if (!isdigit((unsigned char)*text))
        return NULL;
    for (; isdigit((unsigned char)*text); text++) {
        v = v * 10 + (*text - '0');
        if (v > 1000000000)
            return NULL;
    }
    v *= scale;
    if (*text == '.')
        for (text++; isdigit((unsigned char)*text); text++, unit /= 10)
            v += (*text - '0') * unit;
    *out = v;
    return text;
}

bool dtpi_topo_parse_pci_link(const char *speed, const char *width, int64_t *mbps_out)
{
    int64_t mega, lanes;
    const char *rest = take_decimal(speed, 1000, &mega);
    const char *end = take_decimal(width, 1000, &lanes);

    if (!rest || strncmp(rest, " GT/s", 5) != 0 || !end || (*end && !isspace((unsigned char)*end)))
        return false;
    lanes /= 1000;
    /* The kernel writes 255 lanes where it does not know. */
    if (mega <= 0 || mega > 1024000 || lanes < 1 || lanes > 32)
        return false;
    if (mega <= 5000)
        *mbps_out = mega * lanes * 8 / 10;
    else if (mega <= 32000)
        *mbps_out = mega * lanes * 128 / 130;
    else
        *mbps_out = mega * lanes * 242 / 256;
    return true;
}

bool dtpi_topo_parse_gb_per_s(const char *text, int64_t *mbps_out)
{
    int64_t micro = 0;
    const char *rest = take_decimal(text, 1000000, &micro);

    if (!rest || *rest || micro <= 0 || micro >= 10000 * 1000000ll)
        return false;
    *mbps_out = (micro * 8 + 500) / 1000;
    return true;
}

bool dtpi_topo_parse_kib(const char *text, int64_t *bytes_out)
{
    int64_t milli;
    const char *rest = take_decimal(text, 1000, &milli);

    if (!rest)
        return false;
    while (*rest == ' ')
        rest++;
    const int64_t n = milli / 1000;
    if (*rest == 'k' || *rest == 'K')
        *bytes_out = n << 10;
    else if (*rest == 'M')
        *bytes_out = n << 20;
    else
        return false;
    return true;
}

bool dtpi_topo_find_kib(const char *doc, const char *key, int64_t *bytes_out)
{
    /* KiB may need more digits than take_decimal() allows: parse them here. */
    const char *p = strstr(doc, key);

    if (!p)
        return false;
    p += strlen(key);
    while (*p == ' ' || *p == ':' || *p == '\t')
        p++;
    int64_t kib = 0;
    int digits = 0;
    for (; isdigit((unsigned char)*p) && digits < 16; p++, digits++)
        kib = kib * 10 + (*p - '0');
    if (!digits || strncmp(p, " kB", 3) != 0 || kib > INT64_MAX >> 10)
        return false;
    *bytes_out = kib << 10;
    return true;
}

int32_t dtpi_topo_parse_port_state(const char *text)
{
    return text[0] >= '1' && text[0] <= '4' && text[1] == ':' ? text[0] - '0' : 0;
}

bool dtpi_topo_parse_port_rate(const char *text, int64_t *mbps_out)
{
    int64_t milli;
    const char *rest = take_decimal(text, 1000, &milli);

    if (!rest || milli <= 0 || milli > 100000000 || strncmp(rest, " Gb/sec", 7) != 0)
        return false;
    *mbps_out = milli;          /* thousandths of a gigabit are megabits */
    return true;
}

dtpi_gid_kind dtpi_topo_parse_gid(const char *text)
{
    uint8_t gid[16];
    char copy[64];
    uint8_t any = 0, tail = 0;
    const size_t len = strcspn(text, " ,\n\t");

    if (!len || len >= sizeof(copy))
        return DTPI_GID_NONE;
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (inet_pton(AF_INET6, copy, gid) != 1)
        return DTPI_GID_NONE;
    for (size_t i = 0; i < sizeof(gid); i++)
        any |= gid[i];
    for (size_t i = 8; i < sizeof(gid); i++)
        tail |= gid[i];
    /* A subnet prefix without an interface is an empty entry of the table. */
    if (!any || !tail)
        return DTPI_GID_NONE;
    return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? DTPI_GID_LOCAL : DTPI_GID_ROUTED;
}

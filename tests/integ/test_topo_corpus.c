/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_topo_corpus.c - recorded machines of other projects, where they are at hand beside the source
 * tree (../shared/corpus/topology): every hwloc XML file and sysfs tree gives the numbers that its
 * MANIFEST.tsv has from hwloc 2.9.
 */
#include "check.h"

#include <ftw.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dtp/topo.h>

#include "base/base.h"
#include "base/cpuset.h"

static dtp_ctx *ctx;

/* The folder of recorded machines; NULL and a message where it is not there. */
static const char *corpus(void)
{
    static char dir[1024];

    snprintf(dir, sizeof(dir), "%s/../shared/corpus/topology", getenv("DTP_TEST_SOURCE") ? getenv("DTP_TEST_SOURCE") : ".");
    if (access(dir, R_OK) == 0)
        return dir;
    print_message("skipped: no recorded machines in %s\n", dir);
    return NULL;
}

/* "numa=4" of a manifest line; -1 where the line has no such value. */
static long value(const char *line, const char *key)
{
    char word[32];

    snprintf(word, sizeof(word), " %s=", key);
    const char *p = strstr(line, word);
    return p ? strtol(p + strlen(word), NULL, 10) : -1;
}

static int differs(const char *file, const char *what, long want, long got)
{
    if (want < 0 || want == got)
        return 0;
    print_message("%s: %s: expected %ld, got %ld\n", file, what, want, got);
    return 1;
}

static long allowed(const dtp_topo *topo)
{
    const char *list = dtp_topo_cpus(topo, DTP_CPUS_ALLOWED);
    dtpi_cpuset set;

    if (!list)
        return -1;
    assert_ok(dtpi_cpuset_parse(list, &set, ERR));
    return dtpi_cpuset_count(&set);
}

/* Every rendering works, whatever the machine. */
static void render(const dtp_topo *topo)
{
    for (int format = DTP_TOPO_TEXT; format <= DTP_TOPO_MATRIX; format++) {
        char *text = NULL;
        assert_ok(dtp_topo_render(topo, (dtp_topo_format)format, &text, ERR));
        assert_null(strchr(text, '\x1b'));
        dtp_text_free(text);
    }
}

static int compare(const dtp_topo *topo, const char *file, const char *line, int with_pu)
{
    const long got_allowed = allowed(topo);
    int bad = 0;

    bad += differs(file, "packages", value(line, "pkg"), dtp_topo_count(topo, DTP_TOPO_PACKAGE));
    bad += differs(file, "NUMA nodes", value(line, "numa"), dtp_topo_count(topo, DTP_TOPO_NUMA));
    bad += differs(file, "cores", value(line, "core"), dtp_topo_count(topo, DTP_TOPO_CORE));
    bad += differs(file, "PUs", value(line, "pu"), dtp_topo_count(topo, DTP_TOPO_PU));
    if (with_pu || got_allowed >= 0)
        bad += differs(file, "allowed PUs", value(line, "allowed_pu"), got_allowed);
    assert_null(dtp_topo_cpus(topo, DTP_CPUS_BOUND));
    return bad != 0;
}

/* Calls `each` with the name and line of every file below `folder` whose name ends in `suffix`. */
static uint32_t each_line(const char *dir, const char *folder, const char *suffix,
                          int (*each)(const char *dir, const char *file, const char *line),
                          uint32_t *bad)
{
    char path[1200], line[4096];
    uint32_t n = 0;

    snprintf(path, sizeof(path), "%s/MANIFEST.tsv", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        char file[512];
        snprintf(file, sizeof(file), "%.*s", (int)strcspn(line, "\t"), line);
        const size_t len = strlen(file), tail = strlen(suffix);
        if (strncmp(file, folder, strlen(folder)) != 0 || len < tail ||
            strcmp(file + len - tail, suffix) != 0 || !strstr(line, "hwloc"))
            continue;
        const int got = each(dir, file, line);
        n += got >= 0;
        *bad += got > 0;
    }
    fclose(f);
    return n;
}

static int check_xml(const char *dir, const char *file, const char *line)
{
    char path[1800];
    dtp_topo *topo = NULL;
    dtp_topo_opts opts = { .size = sizeof(opts), .hwloc_xml = path };

    if (!strstr(line, "pkg=") && !strstr(line, "REJECT"))
        return -1;
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    const dtp_status st = dtp_topo_load(ctx, &opts, &topo, ERR);
    if (strncmp(file, "hwloc-master-3.0/", 17) == 0 && strstr(line, "REJECT")) {
        /* Format 3, which hwloc 2.9 does not read. */
        assert_int_equal(st, DTP_OK);
        render(topo);
        dtp_topo_close(topo);
        return 0;
    }
    if (strstr(line, "REJECT")) {
        assert_int_equal(st, DTP_ERR_FORMAT);
        assert_text(strrchr(file, '/'));
        return 0;
    }
    if (st < 0) {
        print_message("%s: %s\n", file, ERR->text);
        return 1;
    }
    const int bad = compare(topo, file, line, 1);
    render(topo);
    dtp_topo_close(topo);
    return bad;
}

static void test_every_hwloc_xml_gives_the_numbers_of_its_manifest(void **state)
{
    static const char *const folders[] = { "hwloc-2.9.0-xml/", "hwloc-1.11-xml/", "hwloc-2.14-xml/",
                                           "mpibind-hwloc-xml/", "hwloc-master-3.0/" };
    const char *dir = corpus();
    uint32_t n = 0, bad = 0;

    (void)state;
    if (!dir)
        return;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(folders); i++)
        n += each_line(dir, folders[i], ".xml", check_xml, &bad);
    print_message("%u hwloc XML files, %u differ\n", n, bad);
    assert_true(n > 60);
    assert_int_equal(bad, 0);
}

/* Trees that hwloc corrects by knowledge of the processor or rules of its own. */
static const char *const corrected[] = {
    "8em64t-2s2ca2c-buggynuma",     /* nodes that overlap: hwloc drops all but one */
    "40intel64-4n10c+pci-conflicts",
    "fakeheterocpunuma",            /* again */
    "nvidiagpunumanodes",           /* hwloc hides the memory of GPUs */
};

/* The rest is unpacked with --long: thousands of small files. */
static const char *const quick[] = {
    "16amd64-4n4c-cgroup-distance-merge", "32amd64-4s2n4c-cgroup2", "8em64t-4c2t",
};

static int is_quick(const char *file)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(quick); i++)
        if (strstr(file, quick[i]))
            return 1;
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *ftw)
{
    (void)info;
    (void)flag;
    (void)ftw;
    return remove(path);
}

/* Unpacks a tree below `tmp`; the path of its root, where sys/ lies, into `root_out`. */
static int unpack(const char *tar, const char *tmp, char *root_out, size_t room)
{
    char command[4096];

    snprintf(command, sizeof(command),
             "tar xjf '%s' -C '%s' 2>/dev/null && cd '%s' && dirname \"$(find . -maxdepth 3 -name sys |"
             " head -1)\"", tar, tmp, tmp);
    FILE *p = popen(command, "r");
    char line[512] = "";
    if (!p || !fgets(line, sizeof(line), p)) {
        if (p)
            pclose(p);
        return 0;
    }
    pclose(p);
    line[strcspn(line, "\n")] = '\0';
    return line[0] && (size_t)snprintf(root_out, room, "%s/%s", tmp, line) < room;
}

static int check_tree(const char *dir, const char *file, const char *line)
{
    char tar[1800], tmp[] = "/tmp/dtp-corpus-XXXXXX", root[1024];
    dtp_topo *topo = NULL;
    dtp_topo_opts opts = { .size = sizeof(opts), .fsroot = root };
    int bad = 0;

    if (!strstr(line, "pkg=") || (!check_is_long() && !is_quick(file)))
        return -1;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(corrected); i++)
        if (strstr(file, corrected[i]))
            return -1;
    snprintf(tar, sizeof(tar), "%s/%s", dir, file);
    assert_non_null(mkdtemp(tmp));
    if (!unpack(tar, tmp, root, sizeof(root))) {
        print_message("%s: cannot be unpacked\n", file);
        bad = 1;
    } else if (dtp_topo_load(ctx, &opts, &topo, ERR) < 0) {
        print_message("%s: %s\n", file, ERR->text);
        bad = 1;
    } else {
        bad = compare(topo, file, line, 0);
        render(topo);
    }
    dtp_topo_close(topo);
    nftw(tmp, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return bad;
}

static void test_every_sysfs_tree_gives_the_numbers_of_its_manifest(void **state)
{
    const char *dir = corpus();
    uint32_t bad = 0;

    (void)state;
    if (!dir)
        return;
    if (system("tar --version >/dev/null 2>&1 && bzip2 --help >/dev/null 2>&1") != 0) {
        print_message("skipped: tar and bzip2 are not installed\n");
        return;
    }
    const uint32_t n = each_line(dir, "hwloc-2.9.0-linux/", ".tar.bz2", check_tree, &bad);
    print_message("%u sysfs trees, %u differ\n", n, bad);
    assert_int_equal(bad, 0);
}

static void make_root(char *root, const char *infiniband)
{
    char command[4096];

    snprintf(command, sizeof(command),
             "mkdir -p %s/sys/class/infiniband %s/sys/devices/system/cpu/cpu0 && cd '%s' && "
             "cp --parents */ports/*/[rspl]* %s/sys/class/infiniband",
             root, root, infiniband, root);
    assert_int_equal(system(command), 0);
}

static void test_ports_of_a_real_h100_node(void **state)
{
    const char *dir = corpus();
    char tmp[] = "/tmp/dtp-corpus-XXXXXX", source[1200];
    dtp_topo_opts opts = { .size = sizeof(opts), .fsroot = tmp };
    dtp_topo *topo = NULL;

    (void)state;
    if (!dir)
        return;
    snprintf(source, sizeof(source), "%s/gpud/sys-class-infiniband-h100.0", dir);
    assert_non_null(mkdtemp(tmp));
    make_root(tmp, source);
    assert_ok(dtp_topo_load(ctx, &opts, &topo, ERR));
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_NIC), 9);
    for (uint32_t i = 0; i < 9; i++) {
        dtp_topo_obj nic = { .size = sizeof(nic) };
        assert_ok(dtp_topo_nth(topo, DTP_TOPO_NIC, i, &nic, ERR));
        const int bond = strcmp(nic.name, "mlx5_bond_0") == 0;
        assert_int_equal(nic.port_mbps, bond ? 200000 : 400000);
        assert_int_equal(nic.port_state, 4);
        assert_string_equal(nic.link_layer, bond ? "Ethernet" : "InfiniBand");
        assert_null(nic.pci);
        assert_null(nic.gid);
        assert_int_equal(nic.usable, 0);
    }
    render(topo);
    dtp_topo_close(topo);
    nftw(tmp, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int set_up(void **state)
{
    dtp_ctx_opts opts = { .size = sizeof(opts), .module_dir = check_module_dir() };

    (void)state;
    return dtp_ctx_open(&opts, &ctx, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    dtp_ctx_close(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_hwloc_xml_gives_the_numbers_of_its_manifest),
        cmocka_unit_test(test_every_sysfs_tree_gives_the_numbers_of_its_manifest),
        cmocka_unit_test(test_ports_of_a_real_h100_node),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

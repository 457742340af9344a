/* test_memory_use.c - limits and use of memory, read from cgroups' files in folders made here. */
#include "cgroup_files.h"
#include "os/memory_use.h"

enum { MIB = 1024 * 1024 };

static void expect(uint64_t limit_mib, uint64_t used_mib, uint32_t stalled_percent)
{
    teffi_memory_use use;
    assert_int_equal(teffi_memory_use_read(root, &use), limit_mib > 0);
    assert_int_equal(use.limit_bytes, limit_mib * MIB);
    assert_int_equal(use.used_bytes, used_mib * MIB);
    assert_int_equal(use.stalled_percent, stalled_percent);
}

/* in: 0 MiB of a limit: "max". */
static void put_v2(const char *group, unsigned high_mib, unsigned max_mib, unsigned used_mib,
                   unsigned cached_mib)
{
    char at[200], text[200];
    const struct {
        const char *name;
        unsigned mib;
    } limits[] = {{"high", high_mib}, {"max", max_mib}, {"current", used_mib}};
    for (int i = 0; i < 3; i++) {
        snprintf(at, sizeof at, "/sys/fs/cgroup%s/memory.%s", group, limits[i].name);
        snprintf(text, sizeof text, "%llu\n", (unsigned long long)limits[i].mib * MIB);
        put(at, i < 2 && !limits[i].mib ? "max\n" : text);
    }
    snprintf(at, sizeof at, "/sys/fs/cgroup%s/memory.stat", group);
    snprintf(text, sizeof text, "anon 1\nfile 2\ninactive_anon 3\ninactive_file %llu\n",
             (unsigned long long)cached_mib * MIB);
    put(at, text);
}

static void test_no_limit(void **state)
{
    expect(0, 0, 0);
    put("/proc/self/cgroup", "0::/a\n");
    expect(0, 0, 0);
    put_v2("/a", 0, 0, 50, 10);
    expect(0, 0, 0);
    put("/sys/fs/cgroup/a/memory.max", "junk\n");
    expect(0, 0, 0);
    put("/sys/fs/cgroup/a/memory.max", "0\n");
    expect(0, 0, 0);
}

static void test_version_2(void **state)
{
    put("/proc/self/cgroup", "0::/a\n");
    put_v2("/a", 0, 100, 50, 10);
    expect(100, 40, 0);
    put_v2("/a", 80, 100, 50, 10);
    expect(80, 40, 0);
    put_v2("/a", 80, 0, 50, 60); /* the numbers are not of one moment */
    expect(80, 0, 0);
    put("/sys/fs/cgroup/a/memory.stat", "");
    expect(80, 50, 0);
}

static void test_stalls(void **state)
{
    put("/proc/self/cgroup", "0::/a\n");
    put_v2("/a", 0, 100, 50, 10);
    put("/sys/fs/cgroup/a/memory.pressure",
        "some avg10=12.75 avg60=1.00 avg300=0.00 total=9\nfull avg10=99.00 avg60=0 avg300=0\n");
    expect(100, 40, 12);
    put("/sys/fs/cgroup/a/memory.pressure", "some avg10=0.99 avg60=7.00\n");
    expect(100, 40, 0);
    put("/sys/fs/cgroup/a/memory.pressure", "");
    expect(100, 40, 0);
}

/* A cgroup above may have a larger limit and be nearer to it, as others use it, too. */
static void test_the_nearest_to_its_limit_counts(void **state)
{
    put("/proc/self/cgroup", "0::/a/b\n");
    put_v2("/a/b", 0, 100, 50, 0);
    put_v2("/a", 0, 1000, 900, 0);
    expect(1000, 900, 0);
    put_v2("/a", 0, 1000, 400, 0);
    expect(100, 50, 0);
    put_v2("/a/b", 0, 0, 50, 0);
    expect(1000, 400, 0);
    put_v2("", 0, 200, 190, 0); /* the root that a container sees */
    expect(200, 190, 0);
}

static void test_version_1(void **state)
{
    put("/proc/self/cgroup", "3:cpu,cpuacct:/c\n2:memory:/a\n0::/\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "52428800\n");
    expect(0, 0, 0);
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "104857600\n");
    expect(100, 50, 0);
    put("/sys/fs/cgroup/memory/a/memory.stat",
        "inactive_file 0\ntotal_cache 1\ntotal_inactive_file 20971520\n");
    expect(100, 30, 0);
}

/* It has a limit, or has none. */
static void test_this_machine(void **state)
{
    teffi_memory_use use;
    if (teffi_memory_use_read("", &use))
        assert_in_range(use.used_bytes, 1, 2 * use.limit_bytes);
}

int main(void)
{
#define FOLDER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        FOLDER(test_no_limit),  FOLDER(test_version_2),
        FOLDER(test_stalls),    FOLDER(test_the_nearest_to_its_limit_counts),
        FOLDER(test_version_1), cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_cpus.c - the count of cores: the affinity mask, and CPU quotas of cgroups, read from folders
 * made here. */
#include "cgroup_files.h"
#include <sched.h>
#include <sys/resource.h>
#include "os/cpus.h"

/* ---- quotas ---- */

static void test_no_cgroups(void **state)
{
    assert_int_equal(teffi_cpu_quota(root), 0);
    put("/proc/self/cgroup", "");
    assert_int_equal(teffi_cpu_quota(root), 0);
    put("/proc/self/cgroup", "what is this\n0::\n0\n:::::\n");
    assert_int_equal(teffi_cpu_quota(root), 0);
}

static void test_own_quota_is_rounded_up(void **state)
{
    static const struct {
        const char *text;
        unsigned cores;
    } c[] = {{"max 100000\n", 0},
             {"100000 100000\n", 1},
             {"100001 100000\n", 2},
             {"50000 100000\n", 1},
             {"1000 1000000\n", 1},
             {"1 100000\n", 1},
             {"6400000 100000\n", 64},
             {"350000 100000\n", 4},
             {"", 0},
             {"junk\n", 0},
             {"-1 100000\n", 0},
             {"100000 0\n", 0},
             {"9000000000000000000 1\n", 1 << 20}};
    put("/proc/self/cgroup", "0::/user.slice/app\n");
    for (unsigned i = 0; i < sizeof c / sizeof c[0]; i++) {
        put("/sys/fs/cgroup/user.slice/app/cpu.max", c[i].text);
        assert_int_equal(teffi_cpu_quota(root), c[i].cores);
    }
}

static void test_the_least_of_the_ancestors_counts(void **state)
{
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put("/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
    assert_int_equal(teffi_cpu_quota(root), 8);
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    assert_int_equal(teffi_cpu_quota(root), 3);
    put("/sys/fs/cgroup/cpu.max", "150000 100000\n"); /* as the root of a container */
    assert_int_equal(teffi_cpu_quota(root), 2);
    put("/sys/fs/cgroup/a/b/cpu.max", "100000 100000\n");
    assert_int_equal(teffi_cpu_quota(root), 1);
    put("/sys/fs/cpu.max", "1 100000\n"); /* none of them */
    put("/cpu.max", "1 100000\n");
    assert_int_equal(teffi_cpu_quota(root), 1);
}

static void test_long_names(void **state)
{
    char name[200] = "0::/sys/fs/cgroup/", path[300];
    memset(name + 18, 'n', sizeof name - 19);
    snprintf(path, sizeof path, "%s/cpu.max", name + 3);
    put(path, "300000 100000\n");
    memmove(name + 4, name + 18, sizeof name - 18); /* 0::/nnn.. */
    put("/proc/self/cgroup", name);
    assert_int_equal(teffi_cpu_quota(root), 3);
}

static void test_a_container_has_its_own_root(void **state)
{
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(teffi_cpu_quota(root), 2);
    put("/proc/self/cgroup", "0::/docker/0123456789abcdef\n"); /* the host's name for it */
    assert_int_equal(teffi_cpu_quota(root), 2);
}

static void test_version_1(void **state)
{
    put("/proc/self/cgroup", "9:name=systemd:/x\n4:memory:/m\n3:cpuset:/s\n2:cpuacct,cpu:/a/b\n"
                             "0::/\n");
    put("/sys/fs/cgroup/cpu/s/cpu.cfs_quota_us", "100000\n"); /* of another hierarchy */
    put("/sys/fs/cgroup/cpu/s/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
    assert_int_equal(teffi_cpu_quota(root), 0);
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(teffi_cpu_quota(root), 3);
    put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "50000\n");
    assert_int_equal(teffi_cpu_quota(root), 1);
}

static void test_a_name_that_is_too_long_is_no_cgroup(void **state)
{
    char line[4090] = "0::/";
    memset(line + 4, 'a', sizeof line - 5);
    line[sizeof line - 1] = '\0';
    FILE *file;
    char at[400];
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    snprintf(at, sizeof at, "%s/proc/self/cgroup", root);
    assert_non_null(file = fopen(at, "w"));
    assert_true(fputs(line, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(teffi_cpu_quota(root), 0);
}

static void test_files_are_closed(void **state)
{
    enum { FILES = 32 };
    struct rlimit before, few;
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){FILES, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < 2 * FILES; i++)
        assert_int_equal(teffi_cpu_quota(root), 2);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- the mask ---- */

static void test_this_machine(void **state)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    unsigned mask = (unsigned)CPU_COUNT(&set), quota = teffi_cpu_quota("");
    assert_true(mask > 0);
    assert_int_equal(teffi_cpu_count(), quota && quota < mask ? quota : mask);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t i = 0; !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &set))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(teffi_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
}

int main(void)
{
#define FOLDER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        FOLDER(test_no_cgroups),
        FOLDER(test_own_quota_is_rounded_up),
        FOLDER(test_long_names),
        FOLDER(test_the_least_of_the_ancestors_counts),
        FOLDER(test_a_container_has_its_own_root),
        FOLDER(test_version_1),
        FOLDER(test_a_name_that_is_too_long_is_no_cgroup),
        FOLDER(test_files_are_closed),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Mounts: none, later, with odd and very long lines, of several sizes, named by the environment, gone again; quotas.
 * Needs 8 free pages. */
#include "check.h"

static long size;
static char there[64];
static char path[4096];

static const char *at(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", there, name);
	return path;
}

static void without_a_mount(void)
{
	CHECK(hugetlbfs_find_path() == NULL);
	REFUSED(hugetlbfs_unlinked_fd() == -1, ENOENT);
	REFUSED(hugetlbfs_find_path_for_size(size) == NULL, ENOENT);
	/* Anonymous huge pages need none. */
	void *memory = NULL;
	QUIET((memory = get_huge_pages(size, GHP_DEFAULT)) != NULL);
	free_huge_pages(memory);
}

static void sizes_that_are_none(void)
{
	long none[] = { 0, -1, LONG_MIN, LONG_MAX, 1, 3, 4096, 4097, size + 1, 1L << 62 };
	for (unsigned i = 0; i < sizeof(none) / sizeof(*none); i++) {
		CHECK(hugetlbfs_find_path_for_size(none[i]) == NULL);
		CHECK(hugetlbfs_unlinked_fd_for_size(none[i]) == -1);
	}
}

/* A path of nearly 4096 bytes, in a line that is longer still: blanks are written as four letters each. */
static void long_lines(void)
{
	char name[251];
	memset(name, ' ', 250);
	name[250] = 0;
	CHECK(chdir(there) == 0);
	for (int depth = 0; depth < 15; depth++) {
		CHECK(mkdir(name, 0755) == 0 && chdir(name) == 0);
	}
	CHECK(mkdir("\\t\t\n", 0755) == 0 && chdir("\\t\t\n") == 0);
	CHECK(mount("a b\\c", ".", "hugetlbfs", 0, NULL) == 0);
	CHECK(chdir("/") == 0);
	const char *found = NULL;
	QUIET((found = hugetlbfs_find_path()) != NULL);
	CHECK(strlen(found) == strlen(there) + 15 * 251 + 5);
	CHECK(strcmp(found + strlen(found) - 5, "/\\t\t\n") == 0);
	QUIET(hugetlbfs_test_path(found) == 1);
	int fd = hugetlbfs_unlinked_fd();
	CHECK(fd >= 0);
	close(fd);
}

static void a_mount_made_later(void)
{
	mount_at(at("later"), "");
	CHECK(strcmp(hugetlbfs_find_path(), at("later")) == 0);
	/* The pointer stays what it is. */
	const char *found = hugetlbfs_find_path();
	mount_at(at("another"), "");
	CHECK(hugetlbfs_find_path() == found && hugetlbfs_find_path_for_size(size) == found);
	/* Gone: files are not made on what lies beneath. */
	CHECK(umount2(at("later"), MNT_DETACH) == 0);
	REFUSED(hugetlbfs_unlinked_fd() == -1, ENODEV);
}

static void several_sizes(void)
{
	long sizes[16];
	int count = gethugepagesizes(sizes, 16);
	for (int i = 0; i < count; i++) {
		char name[32], options[64];
		snprintf(name, sizeof(name), "of-%ld", sizes[i]);
		snprintf(options, sizeof(options), "pagesize=%ld", sizes[i]);
		mount_at(at(name), options);
	}
	for (int i = 0; i < count; i++) {
		char name[32];
		struct statfs stat;
		snprintf(name, sizeof(name), "of-%ld", sizes[i]);
		CHECK(strcmp(hugetlbfs_find_path_for_size(sizes[i]), at(name)) == 0);
		int fd = -1;
		QUIET((fd = hugetlbfs_unlinked_fd_for_size(sizes[i])) >= 0);
		CHECK(fstatfs(fd, &stat) == 0 && stat.f_bsize == sizes[i]);
		close(fd);
	}
	sizes_that_are_none();
}

static void one_that_may_not_be_used(void)
{
	mount_at(at("mine"), "mode=0700");
	CHECK(mkdir(at("none"), 0755) == 0);
	int status = IN_CHILD({
		CHECK(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
		CHECK(hugetlbfs_find_path() == NULL);
		REFUSED(hugetlbfs_unlinked_fd() == -1, ENOENT);
	});
	CHECK(ended_well(status));
	CHECK(mount(NULL, at("mine"), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
	CHECK(hugetlbfs_find_path() == NULL);
}

/* A mount with a quota of 2 pages, which the environment names: started anew by main. */
static void quota(void)
{
	CHECK(strcmp(hugetlbfs_find_path(), getenv("HUGETLB_PATH")) == 0);
	void *two = NULL;
	QUIET((two = get_huge_pages(2 * size, GHP_DEFAULT)) != NULL);
	memset(two, 1, 2 * size);
	CHECK(get_huge_pages(size, GHP_DEFAULT) == NULL);
	char *fallen = get_hugepage_region(10, GHR_DEFAULT);
	CHECK(fallen != NULL && kernel_page_kib(fallen) == 4);
	free_hugepage_region(fallen);
	free_huge_pages(two);
	void *again = get_huge_pages(2 * size, GHP_DEFAULT);
	CHECK(again != NULL);
	free_huge_pages(again);
	int fd = hugetlbfs_unlinked_fd();
	CHECK(fd >= 0);
	CHECK(mmap(NULL, 3 * size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
}

/* The environment is read when a program starts. */
static void quota_in_new_program(void)
{
	char options[64], self[4096] = "";
	snprintf(options, sizeof(options), "size=%ld", 2 * size);
	mount_at(at("first"), "");
	mount_at(at("small"), options);
	CHECK(setenv("HUGETLB_PATH", at("small"), 1) == 0);
	CHECK(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	execl(self, self, "quota", NULL);
	CHECK(!"exec");
}

static void paths_are_told_apart(void)
{
	mount_at(at("huge"), "");
	QUIET(hugetlbfs_test_path(at("huge")) == 1);
	QUIET(hugetlbfs_test_path(there) == 0);
	REFUSED(hugetlbfs_test_path("/nowhere") == -1, ENOENT);
	REFUSED(hugetlbfs_test_path("") == -1, ENOENT);
	REFUSED(hugetlbfs_test_path(NULL) == -1, EINVAL);
}

int main(int argc, char **argv)
{
	void (*tests[])(void) = { without_a_mount, long_lines,		     a_mount_made_later,   several_sizes,
				  paths_are_told_apart, one_that_may_not_be_used, quota_in_new_program };
	size = gethugepagesize();
	if (argc > 1 && strcmp(argv[1], "quota") == 0) {
		quota();
		return 0;
	}
	/* Each in a process of its own, which has found no mount yet, and with mounts of its own. */
	for (unsigned i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		int status = IN_CHILD({
			own_mounts();
			no_hugetlbfs();
			scratch(there);
			tests[i]();
		});
		CHECK(ended_well(status), "test %u", i);
	}
	return 0;
}

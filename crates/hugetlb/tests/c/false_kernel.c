/* What the library learns of the kernel it learns through calls that a program may interpose: kernels that are not there. */
#include "check.h"
#include <dirent.h>
#include <dlfcn.h>

/* For libhugetlbfs's own tests; in no header. */
void __tp_kernel_default_hugepage_size_reset(void);

static const char *meminfo;
static const char *mounts;
static int no_sysfs;

int open(const char *path, int flags, ...)
{
	int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
	va_list more;
	va_start(more, flags);
	int mode = va_arg(more, int);
	va_end(more);
	const char *content = strcmp(path, "/proc/meminfo") == 0 ? meminfo : strcmp(path, "/proc/mounts") == 0 ? mounts : NULL;
	if (content == NULL)
		return next(path, flags, mode);
	int fd = memfd_create("false", MFD_CLOEXEC);
	CHECK(fd >= 0);
	CHECK(write(fd, content, strlen(content)) == (ssize_t)strlen(content));
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

/* One byte at a time, with signals in between: a file may be read in any pieces. */
ssize_t read(int fd, void *buffer, size_t length)
{
	static int calls;
	ssize_t (*next)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
	if (++calls % 3 == 0) {
		errno = EINTR;
		return -1;
	}
	return next(fd, buffer, length ? 1 : 0);
}

DIR *opendir(const char *path)
{
	DIR *(*next)(const char *) = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
	if (no_sysfs && strncmp(path, "/sys/kernel/mm/hugepages", 24) == 0) {
		errno = no_sysfs;
		return NULL;
	}
	return next(path);
}

int main(void)
{
	long sizes[32];
	long real = gethugepagesize();
	int count = gethugepagesizes(NULL, 0);
	CHECK(real > 0 && count >= 1);

	meminfo = "MemTotal: 1 kB\nHugepagesize:       64 kB\nDirectMap4k: 1 kB\n";
	CHECK(gethugepagesize() == real);
	__tp_kernel_default_hugepage_size_reset();
	CHECK(gethugepagesize() == 64 << 10);
	CHECK(gethugepagesizes(sizes, 32) == count + 1 && sizes[0] == 64 << 10);

	no_sysfs = ENOENT;
	QUIET(gethugepagesizes(sizes, 32) == 1);
	QUIET(getpagesizes(sizes, 32) == 2);
	no_sysfs = EACCES;
	REFUSED(gethugepagesizes(sizes, 32) == -1, EACCES);
	REFUSED(getpagesizes(NULL, 0) == -1, EACCES);

	const char *without[] = { "", "\n", "MemTotal: 1 kB\n", "Hugepagesize: x kB\n", "Hugepagesize: 3 kB\n",
				  "Hugepagesize: 18446744073709551615 kB\n", "Hugepagesize: 2048" };
	no_sysfs = ENOENT;
	for (unsigned i = 0; i < sizeof(without) / sizeof(*without); i++) {
		meminfo = without[i];
		__tp_kernel_default_hugepage_size_reset();
		REFUSED(gethugepagesize() == -1, ENOSYS);
		REFUSED(get_huge_pages(1, GHP_DEFAULT) == NULL, ENOSYS);
		REFUSED(get_hugepage_region(1, GHR_STRICT) == NULL, ENOSYS);
		CHECK(hugetlbfs_find_path() == NULL && hugetlbfs_unlinked_fd() == -1);
		QUIET(gethugepagesizes(sizes, 32) == 0);
		QUIET(getpagesizes(sizes, 32) == 1);
		char *memory = NULL;
		QUIET((memory = get_hugepage_region(9000, GHR_DEFAULT)) != NULL);
		memory[8999] = 1;
		free_hugepage_region(memory);
	}

	meminfo = NULL;
	no_sysfs = 0;
	__tp_kernel_default_hugepage_size_reset();
	CHECK(gethugepagesize() == real);
	mounts = "none /proc hugetlbfs rw 0 0\nnone /nowhere hugetlbfs rw 0 0\nhugetlbfs / ext4 rw 0 0\ngarbage\n\n \\";
	CHECK(hugetlbfs_find_path() == NULL);
	mounts = "";
	REFUSED(hugetlbfs_unlinked_fd() == -1, ENOENT);
	return 0;
}

/* Unlinked files: no name, read back, truncated, misaligned, moved, shared and private. Needs 8 free pages. */
#include "check.h"

static long size;

static int new_file(void)
{
	int fd = -1;
	QUIET((fd = hugetlbfs_unlinked_fd()) >= 0);
	return fd;
}

static char *map(int fd, long pages, int kind)
{
	char *memory = mmap(NULL, pages * size, PROT_READ | PROT_WRITE, kind, fd, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static void it_has_no_name_and_is_empty(void)
{
	struct stat stat;
	struct statfs system;
	int one = new_file(), other = new_file();
	CHECK(fstat(one, &stat) == 0 && stat.st_nlink == 0 && stat.st_size == 0 && (stat.st_mode & 0777) == 0600);
	ino_t inode = stat.st_ino;
	CHECK(fstat(other, &stat) == 0 && stat.st_ino != inode);
	CHECK(fstatfs(one, &system) == 0 && system.f_type == HUGETLBFS_MAGIC && system.f_bsize == size);
	/* As mkstemp has it: programs may hand it on. */
	CHECK((fcntl(one, F_GETFD) & FD_CLOEXEC) == 0);
	close(one);
	close(other);
}

static void what_is_written_is_read_back(void)
{
	int fd = new_file();
	char *one = map(fd, 2, MAP_SHARED), *other = map(fd, 2, MAP_SHARED), *own = map(fd, 2, MAP_PRIVATE);
	for (long at = 0; at < 2 * size; at += 8)
		*(long *)(one + at) = at;
	for (long at = 0; at < 2 * size; at += 8)
		CHECK(*(long *)(other + at) == at && *(long *)(own + at) == at);
	own[0] = 1;
	CHECK(one[0] == 0 && other[0] == 0);
	munmap(one, 2 * size);
	munmap(other, 2 * size);
	munmap(own, 2 * size);
	close(fd);
}

static void truncated_pages_are_gone(void)
{
	long free_before = pool(size, "free");
	int fd = new_file();
	char *memory = map(fd, 2, MAP_SHARED);
	memset(memory, 1, 2 * size);
	CHECK(pool(size, "free") == free_before - 2);
	CHECK(ftruncate(fd, size + 1) == -1 && errno == EINVAL);
	CHECK(ftruncate(fd, size) == 0);
	CHECK(pool(size, "free") == free_before - 1);
	CHECK(memory[0] == 1);
	int status = IN_CHILD(memory[size] = 1);
	CHECK(killed_by(status, SIGBUS));
	CHECK(ftruncate(fd, 0) == 0 && pool(size, "free") == free_before);
	munmap(memory, 2 * size);
	close(fd);
	CHECK(pool(size, "free") == free_before && pool(size, "resv") == 0);
}

static void misaligned_is_refused(void)
{
	int fd = new_file();
	CHECK(mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 4096) == MAP_FAILED && errno == EINVAL);
	char *memory = map(fd, 2, MAP_SHARED);
	CHECK(munmap(memory, 4096) == -1 && errno == EINVAL);
	CHECK(munmap(memory + 4096, size) == -1 && errno == EINVAL);
	CHECK(mprotect(memory, 4096, PROT_READ) == -1 && errno == EINVAL);
	CHECK(mmap(memory + 4096, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(munmap(memory, 2 * size) == 0);
	close(fd);
}

static void it_moves_and_does_not_grow(void)
{
	int fd = new_file();
	char *memory = map(fd, 1, MAP_SHARED);
	memory[1] = 5;
	CHECK(mremap(memory, size, 2 * size, MREMAP_MAYMOVE) == MAP_FAILED);
	char *room = mmap(NULL, 3 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *target = (char *)(((uintptr_t)room + size - 1) & -size);
	/* Kernels before 5.16 do not move them. */
	char *moved = mremap(memory, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, target);
	CHECK(moved == target || errno == EINVAL);
	CHECK((moved == MAP_FAILED ? memory : moved)[1] == 5);
	munmap(moved == MAP_FAILED ? memory : moved, size);
	close(fd);
}

static void files_do_not_leak(void)
{
	int first = new_file();
	close(first);
	for (int i = 0; i < 2000; i++) {
		int fd = new_file();
		CHECK(fd == first);
		close(fd);
	}
}

int main(void)
{
	char there[64], path[128];
	size = gethugepagesize();
	long pages = pool(size, "free");
	CHECK(pages >= 8);
	own_mounts();
	no_hugetlbfs();
	scratch(there);
	snprintf(path, sizeof(path), "%s/huge", there);
	mount_at(path, "");
	it_has_no_name_and_is_empty();
	what_is_written_is_read_back();
	truncated_pages_are_gone();
	misaligned_is_refused();
	it_moves_and_does_not_grow();
	files_do_not_leak();
	CHECK(pool(size, "free") == pages && pool(size, "resv") == 0);
	return 0;
}

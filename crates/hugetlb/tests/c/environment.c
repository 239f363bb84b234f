/* What a program sees of the environment it was started with: `environment WHAT`. Prints what it found, for the test to
 * compare. */
#include "check.h"
#include <sys/shm.h>
#include <sys/syscall.h>

static void reserved(long pages)
{
	long size = gethugepagesize(), before = pool(size, "resv"), free_before = pool(size, "free");
	void *memory = get_huge_pages(pages * size, GHP_DEFAULT);
	if (memory == NULL) {
		printf("refused\n");
		return;
	}
	printf("reserved %ld, faulted %ld, mount %s\n", pool(size, "resv") - before, free_before - pool(size, "free"),
	       hugetlbfs_find_path() ? "known" : "unknown");
	free_huge_pages(memory);
	CHECK(pool(size, "resv") == before && pool(size, "free") == free_before);
}

static void shared_memory(size_t length)
{
	long size = gethugepagesize(), before = pool(size, "resv");
	struct shmid_ds segment;
	int id = -1;
	QUIET((id = shmget(IPC_PRIVATE, length, IPC_CREAT | 0600)) >= 0);
	long taken = pool(size, "resv") - before;
	CHECK(shmctl(id, IPC_STAT, &segment) == 0);
	char *memory = shmat(id, NULL, 0);
	CHECK(memory != (void *)-1);
	memory[length - 1] = 1;
	printf("%s, reserved %ld, %zu bytes\n", kernel_page_kib(memory) > 4 ? "huge pages" : "base pages", taken,
	       segment.shm_segsz);
	CHECK(shmdt(memory) == 0 && shmctl(id, IPC_RMID, NULL) == 0);
	CHECK(pool(size, "resv") == before);
}

/* A segment that is there is found, whatever its pages are. */
static void shared_memory_by_key(void)
{
	key_t key = 0x48500000 + getpid();
	int id = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600);
	CHECK(id >= 0);
	QUIET(shmget(key, 0, 0) == id);
	QUIET(shmget(key, 4096, 0600) == id);
	QUIET(shmget(key, 4096, IPC_CREAT | 0600) == id);
	REFUSED(shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600) == -1, EEXIST);
	REFUSED(shmget(key, 1UL << 40, 0) == -1, EINVAL);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	REFUSED(shmget(key, 4096, 0) == -1, ENOENT);
	REFUSED(shmget(IPC_PRIVATE, 0, IPC_CREAT | 0600) == -1, EINVAL);
	/* Of base pages, by somebody who did not go through the library. */
	id = syscall(SYS_shmget, key, 4096, IPC_CREAT | IPC_EXCL | 0600);
	CHECK(id >= 0);
	QUIET(shmget(key, 4096, IPC_CREAT | 0600) == id);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	printf("found\n");
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	if (strcmp(argv[1], "size") == 0)
		printf("%ld\n", gethugepagesize());
	else if (strcmp(argv[1], "reserved") == 0)
		reserved(2);
	else if (strcmp(argv[1], "too-much") == 0)
		reserved(1 + pool(gethugepagesize(), "free"));
	else if (strcmp(argv[1], "mounted") == 0) {
		char there[64];
		own_mounts();
		no_hugetlbfs();
		scratch(there);
		mount_at("/mnt/huge", "");
		reserved(2);
	} else if (strcmp(argv[1], "shm") == 0)
		shared_memory(5 << 20);
	else if (strcmp(argv[1], "shm-key") == 0)
		shared_memory_by_key();
	else
		CHECK(!"known");
	return 0;
}

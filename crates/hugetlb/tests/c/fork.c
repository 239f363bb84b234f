/* Fork while threads take and give back: the child can use the library at once, nothing in it is locked. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, FORKS = 200 };
static volatile int stop;

static void *take_and_give_back(void *nothing)
{
	while (!stop) {
		char *memory[64];
		for (int i = 0; i < 64; i++)
			CHECK((memory[i] = get_hugepage_region(100, GHR_DEFAULT)) != NULL);
		for (int i = 0; i < 64; i++)
			free_hugepage_region(memory[i]);
	}
	return nothing;
}

static void use_everything(void)
{
	within_seconds(60);
	char *memory[100];
	for (int i = 0; i < 100; i++) {
		CHECK((memory[i] = get_hugepage_region(5000, GHR_DEFAULT)) != NULL);
		memory[i][4999] = 1;
	}
	for (int i = 0; i < 100; i++)
		free_hugepage_region(memory[i]);
	CHECK(gethugepagesize() > 0);
	hugetlbfs_find_path();
	int fd = hugetlbfs_unlinked_fd();
	if (fd >= 0)
		close(fd);
}

int main(void)
{
	pthread_t threads[THREADS];
	within_seconds(300);
	char *ours = get_hugepage_region(100, GHR_DEFAULT);
	CHECK(ours != NULL);
	ours[0] = 1;
	for (long i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, take_and_give_back, NULL) == 0);
	for (int i = 0; i < FORKS; i++) {
		int status = IN_CHILD(use_everything(); free_hugepage_region(ours); CHECK(kernel_page_kib(ours) == 0));
		CHECK(ended_well(status), "child %d: status %#x", i, status);
		/* What the child gives back is the child's. */
		CHECK(ours[0] == 1);
	}
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	return 0;
}

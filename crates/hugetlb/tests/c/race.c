/* Threads that take and give back more than there is: each has what it asked for, reserved, or ENOMEM; nothing is lost. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 250 };
static long size;
static volatile int refused;

static void *take_and_give_back(void *number)
{
	long thread = (long)number;
	for (int round = 0; round < ROUNDS;) {
		long pages = 1 + (round + thread) % 3;
		errno = UNTOUCHED;
		char *memory = round % 2 ? get_huge_pages(pages * size, GHP_DEFAULT) :
					   get_hugepage_region(pages * size - 100, GHR_STRICT | GHR_COLOR);
		if (memory == NULL) {
			CHECK(errno == ENOMEM);
			refused = 1;
			sched_yield();
			continue;
		}
		CHECK(errno == UNTOUCHED);
		round++;
		/* Every fault succeeds, or SIGBUS ends this. */
		for (long page = 0; page < pages; page++)
			memory[page * size] = thread + 1;
		for (long page = 0; page < pages; page++)
			CHECK(memory[page * size] == thread + 1);
		free_hugepage_region(memory);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	within_seconds(300);
	size = gethugepagesize();
	long pages = pool(size, "free");
	CHECK(pages >= 4 && pool(size, "resv") == 0);
	for (long i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, take_and_give_back, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(refused, "so they did race");
	CHECK(pool(size, "free") == pages && pool(size, "resv") == 0);
	return 0;
}

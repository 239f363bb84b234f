/* What the library's calls cost, in nanoseconds: medians, one line. Needs 2 free huge pages.
 *
 * compare.sh runs it against two libraries in turn: it is linked to libhugetlbfs.so.0, whichever that is. */
#define _GNU_SOURCE
#include <hugetlbfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { CALLS = 2000, KINDS = 5 };
static double cost[KINDS][CALLS];

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static int by_size(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;
	return (a > b) - (a < b);
}

#define COST(kind, call)                         \
	do {                                     \
		double begin = now();            \
		call;                            \
		cost[kind][i] = now() - begin;   \
	} while (0)

int main(int argc, char **argv)
{
	static const char *names[KINDS] = { "get_huge_pages", "free_huge_pages", "get_hugepage_region", "free_hugepage_region",
					    "gethugepagesize" };
	/* Other mappings of the program: a library that reads /proc/self/maps reads them too. */
	int others = argc > 1 ? atoi(argv[1]) : 0;
	for (int i = 0; i < others; i++)
		if (mmap(NULL, 8192, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			return 1;
	long size = gethugepagesize();
	for (int i = 0; i < CALLS; i++) {
		void *memory;
		COST(0, memory = get_huge_pages(size, GHP_DEFAULT));
		if (memory == NULL)
			return 1;
		COST(1, free_huge_pages(memory));
		COST(2, memory = get_hugepage_region(size / 2, GHR_DEFAULT));
		if (memory == NULL)
			return 1;
		COST(3, free_hugepage_region(memory));
		COST(4, gethugepagesize());
	}
	for (int kind = 0; kind < KINDS; kind++) {
		qsort(cost[kind], CALLS, sizeof(double), by_size);
		printf("%s %.0f  ", names[kind], cost[kind][CALLS / 2]);
	}
	putchar('\n');
	return 0;
}

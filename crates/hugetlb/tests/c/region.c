/* get_hugepage_region: strict, with fallback, coloured. Needs 8 free pages and no surplus. */
#include "check.h"

#define LINE 64

static long size;

static void strict_is_huge_or_nothing(long pages)
{
	char *memory = NULL;
	QUIET((memory = get_hugepage_region((pages - 1) * size + 1, GHR_STRICT)) != NULL);
	CHECK((uintptr_t)memory % size == 0);
	CHECK(kernel_page_kib(memory + (pages - 1) * size) == size / 1024);
	REFUSED(get_hugepage_region(1, GHR_STRICT) == NULL, ENOMEM);
	REFUSED(get_hugepage_region(1, 0) == NULL, ENOMEM);
	REFUSED(get_hugepage_region(1, GHR_STRICT | GHR_FALLBACK) == NULL, ENOMEM);
	QUIET((free_hugepage_region(memory), 1));
}

static void fallback_is_base_pages(long pages)
{
	char *all = get_huge_pages(pages * size, GHP_DEFAULT);
	char *one = NULL, *other = NULL;
	CHECK(all != NULL);
	QUIET((one = get_hugepage_region(size, GHR_FALLBACK)) != NULL);
	QUIET((other = get_hugepage_region(3 * size + 5, GHR_FALLBACK)) != NULL);
	CHECK(kernel_page_kib(one) == 4 && kernel_page_kib(other + 3 * size + 4) == 4);
	memset(one, 1, size);
	memset(other, 2, 3 * size + 5);
	/* The kernel merges such mappings; each is freed by itself all the same. */
	free_hugepage_region(one);
	CHECK(kernel_page_kib(one) == 0);
	CHECK(other[0] == 2 && other[3 * size + 4] == 2);
	free_hugepage_region(other);
	CHECK(kernel_page_kib(other) == 0 && kernel_page_kib(other + 3 * size + 4) == 0);
	free_huge_pages(all);
	CHECK(pool(size, "free") == pages && pool(size, "resv") == 0);
}

static void colours_stay_within_what_is_left_over(long pages)
{
	size_t lengths[] = { 1, LINE, size / 2, size - LINE, size - LINE + 1, size - 1, size, size + 1 };
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		for (int time = 0; time < 100; time++) {
			char *memory = get_hugepage_region(lengths[i], GHR_DEFAULT);
			CHECK(memory != NULL && (uintptr_t)memory % LINE == 0);
			char *begin = (char *)((uintptr_t)memory & -size);
			size_t whole = (lengths[i] + size - 1) & -size;
			CHECK(memory + lengths[i] <= begin + whole);
			memory[0] = memory[lengths[i] - 1] = 1;
			CHECK(kernel_page_kib(memory) == size / 1024);
			free_hugepage_region(memory);
			CHECK(kernel_page_kib(begin) == 0 && pool(size, "free") == pages);
		}
	}
}

static void colours_differ(void)
{
	enum { COUNT = 256 };
	uintptr_t shifts[COUNT];
	for (int i = 0; i < COUNT; i++) {
		char *memory = get_hugepage_region(size / 2, GHR_STRICT | GHR_COLOR);
		CHECK(memory != NULL);
		shifts[i] = (uintptr_t)memory & (size - 1);
		for (int j = 0; j < i; j++)
			CHECK(shifts[i] != shifts[j], "%d and %d at %lu", i, j, shifts[i]);
		free_hugepage_region(memory);
	}
	/* Without being asked for, there is none. */
	char *memory = get_hugepage_region(size / 2, GHR_STRICT);
	CHECK(((uintptr_t)memory & (size - 1)) == 0);
	free_hugepage_region(memory);
}

int main(void)
{
	size = gethugepagesize();
	long pages = pool(size, "free");
	CHECK(pages >= 8 && pool(size, "resv") == 0);
	strict_is_huge_or_nothing(pages);
	fallback_is_base_pages(pages);
	colours_stay_within_what_is_left_over(pages);
	colours_differ();
	return 0;
}

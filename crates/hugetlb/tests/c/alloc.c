/* get_huge_pages: reserved when mapped, faulted when touched, all given back; lengths of every kind. Needs 8 free pages. */
#include "check.h"

static long size;

static void counters_follow(long pages)
{
	long free_before = pool(size, "free"), reserved_before = pool(size, "resv"), total = pool(size, "nr");
	char *memory = NULL;
	QUIET((memory = get_huge_pages(pages * size, GHP_DEFAULT)) != NULL);
	CHECK((uintptr_t)memory % size == 0);
	CHECK(kernel_page_kib(memory) == size / 1024);
	CHECK(kernel_page_kib(memory + pages * size - 1) == size / 1024);
	CHECK(pool(size, "resv") == reserved_before + pages);
	CHECK(pool(size, "free") == free_before);
	for (long page = 0; page < pages; page++) {
		memory[page * size] = 1;
		CHECK(pool(size, "free") == free_before - page - 1);
		CHECK(pool(size, "resv") == reserved_before + pages - page - 1);
	}
	QUIET((free_huge_pages(memory), 1));
	CHECK(pool(size, "free") == free_before && pool(size, "resv") == reserved_before);
	CHECK(pool(size, "nr") == total && pool(size, "surplus") == 0);
	CHECK(kernel_page_kib(memory) == 0);
}

static void the_pool_ends(long pages)
{
	void *all = get_huge_pages(pages * size, GHP_DEFAULT);
	CHECK(all != NULL);
	REFUSED(get_huge_pages(size, GHP_DEFAULT) == NULL, ENOMEM);
	REFUSED(get_hugepage_region(1, GHR_STRICT) == NULL, ENOMEM);
	free_huge_pages(all);
	REFUSED(get_huge_pages((pages + 1) * size, GHP_DEFAULT) == NULL, ENOMEM);
	CHECK(pool(size, "resv") == 0);
}

static void odd_lengths(void)
{
	REFUSED(get_huge_pages(0, GHP_DEFAULT) == NULL, EINVAL);
	REFUSED(get_hugepage_region(0, GHR_DEFAULT) == NULL, EINVAL);
	size_t ends[] = { SIZE_MAX,		SIZE_MAX - 1,	   SIZE_MAX - size,	 SIZE_MAX - size + 1,
			  SIZE_MAX - size + 2,	(size_t)1 << 63,  ((size_t)1 << 63) - 1, (size_t)1 << 62,
			  (size_t)1 << 48,	((size_t)1 << 47) - 1, ((size_t)1 << 47) - size };
	for (unsigned i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		REFUSED(get_huge_pages(ends[i], GHP_DEFAULT) == NULL, ENOMEM);
		REFUSED(get_hugepage_region(ends[i], GHR_STRICT | GHR_COLOR) == NULL, ENOMEM);
	}
	CHECK(get_hugepage_region(SIZE_MAX, GHR_DEFAULT) == NULL);
	CHECK(get_hugepage_region((size_t)1 << 60, GHR_DEFAULT) == NULL);
	/* Rounded up, as the kernel does. */
	long reserved = pool(size, "resv");
	char *memory = get_huge_pages(size + 1, GHP_DEFAULT);
	CHECK(memory != NULL && pool(size, "resv") == reserved + 2);
	memory[2 * size - 1] = 1;
	free_huge_pages(memory);
	CHECK(pool(size, "resv") == reserved);
}

static void what_is_not_ours_stays(void)
{
	char *other = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(other != MAP_FAILED);
	memset(other, 7, 2 * size);
	QUIET((free_huge_pages(NULL), free_hugepage_region(NULL), 1));
	QUIET((free_huge_pages(other), free_hugepage_region(other + 1), free_huge_pages((void *)1), 1));
	CHECK(other[0] == 7 && other[2 * size - 1] == 7);
	char *memory = get_huge_pages(2 * size, GHP_DEFAULT);
	CHECK(memory != NULL);
	free_huge_pages(memory + size);
	memory[size] = 1;
	free_huge_pages(memory);
	/* A second time: nothing, even when somebody else lives there now. */
	char *next = mmap(memory, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(next == memory);
	next[0] = 9;
	free_huge_pages(memory);
	CHECK(next[0] == 9);
	munmap(next, size);
	/* Unmapped behind our back, and the same address handed out again: the length is the new one. */
	long reserved = pool(size, "resv");
	memory = get_huge_pages(3 * size, GHP_DEFAULT);
	CHECK(munmap(memory, 3 * size) == 0);
	char *again = get_huge_pages(size, GHP_DEFAULT);
	CHECK(again != NULL);
	free_huge_pages(again);
	CHECK(pool(size, "resv") == reserved);
	munmap(other, 2 * size);
}

static void the_kernel_s_calls_work_on_it(void)
{
	char *memory = get_huge_pages(2 * size, GHP_DEFAULT);
	CHECK(memory != NULL);
	memory[0] = 3;
	CHECK(mprotect(memory, size, PROT_READ) == 0);
	int status = IN_CHILD(memory[0] = 1);
	CHECK(killed_by(status, SIGSEGV));
	CHECK(memory[0] == 3);
	CHECK(mprotect(memory + 4096, 4096, PROT_NONE) == -1 && errno == EINVAL);
	CHECK(mprotect(memory, size, PROT_READ | PROT_WRITE) == 0);
	CHECK(madvise(memory + size, size, MADV_DONTNEED) == 0);
	CHECK(mincore(memory, size, (unsigned char[512]){ 0 }) == 0);
	/* It may shrink from its end; what we remember is then too long, which the kernel does not mind. */
	CHECK(mremap(memory, 2 * size, size, 0) == memory);
	free_huge_pages(memory);
	CHECK(kernel_page_kib(memory) == 0 && pool(size, "resv") == 0);
}

int main(void)
{
	size = gethugepagesize();
	long pages = pool(size, "free");
	CHECK(pages >= 8 && pool(size, "resv") == 0);
	for (long count = 1; count <= pages; count++)
		counters_follow(count);
	the_pool_ends(pages);
	odd_lengths();
	what_is_not_ours_stays();
	the_kernel_s_calls_work_on_it();
	CHECK(pool(size, "free") == pages && pool(size, "resv") == 0);
	return 0;
}

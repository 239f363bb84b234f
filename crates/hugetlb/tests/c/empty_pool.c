/* With an empty pool: huge pages are refused, regions fall back, thousands at once, and all of them can be freed. */
#include "check.h"

enum { COUNT = 20000 };
static char *regions[COUNT];
static size_t lengths[COUNT];

/* Lines of /proc/self/maps. */
static int mappings(void)
{
	int count = 0, byte;
	FILE *maps = fopen("/proc/self/maps", "re");
	CHECK(maps != NULL);
	while ((byte = getc(maps)) != EOF)
		count += byte == '\n';
	fclose(maps);
	return count;
}

int main(void)
{
	long size = gethugepagesize();
	CHECK(size > 0 && pool(size, "nr") == 0);
	REFUSED(get_huge_pages(size, GHP_DEFAULT) == NULL, ENOMEM);
	REFUSED(get_hugepage_region(1, GHR_STRICT) == NULL, ENOMEM);
	int before = mappings();
	unsigned random = 1;
	for (int i = 0; i < COUNT; i++) {
		random = random * 1103515245 + 12345;
		lengths[i] = 1 + random / 65536 % 20000;
		QUIET((regions[i] = get_hugepage_region(lengths[i], GHR_DEFAULT)) != NULL);
		memset(regions[i], i, lengths[i]);
	}
	/* In an order that leaves holes first. */
	for (int step = 0; step < 7; step++) {
		for (int i = step; i < COUNT; i += 7) {
			for (size_t byte = 0; byte < lengths[i]; byte += 4000)
				CHECK(regions[i][byte] == (char)i);
			QUIET((free_hugepage_region(regions[i]), 1));
		}
	}
	/* What stays is the table's own segments. */
	CHECK(mappings() <= before + 14, "%d mappings, %d before", mappings(), before);
	return 0;
}

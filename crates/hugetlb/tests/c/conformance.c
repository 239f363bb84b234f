/* Reservation, fork and copy-on-write: the rules of Gorman and Healy's paper against this kernel's counters, as a table.
 * Needs 4 free pages, no surplus allowed. Fails if a rule does not hold. */
#include "check.h"

static long size;
static int broken;

struct pool {
	long total, free, reserved, surplus;
};

static struct pool now(void)
{
	struct pool pool_now = { pool(size, "nr"), pool(size, "free"), pool(size, "resv"), pool(size, "surplus") };
	return pool_now;
}

static struct pool base;

/* A rule, and the counters that it wants, as differences to the beginning. */
static void row(const char *rule, long free_expected, long reserved_expected, int holds)
{
	struct pool p = now();
	int ok = holds && p.total == base.total && p.surplus == base.surplus && p.free - base.free == free_expected &&
		 p.reserved - base.reserved == reserved_expected;
	printf("| %-85s | %5ld | %4ld | %4ld | %4ld | %-3s |\n", rule, p.total, p.free, p.reserved, p.surplus,
	       ok ? "yes" : "NO");
	if (!ok) {
		printf("|   expected: free %ld, reserved %ld; condition %s |\n", base.free + free_expected,
		       base.reserved + reserved_expected, holds ? "held" : "did not hold");
		broken = 1;
	}
}

static char *map(long pages, int flags, int fd)
{
	int anonymous = fd < 0 ? MAP_ANONYMOUS | MAP_HUGETLB : 0;
	return mmap(NULL, pages * size, PROT_READ | PROT_WRITE, flags | anonymous, fd, 0);
}

/* A child that waits to be told to go on, and says that it did. */
struct child {
	pid_t pid;
	int go, done;
};

static struct child started(void (*run)(char *), char *memory)
{
	int go[2], done[2];
	struct child child;
	CHECK(pipe(go) == 0 && pipe(done) == 0);
	fflush(NULL);
	child.pid = fork();
	CHECK(child.pid >= 0);
	if (child.pid == 0) {
		char byte;
		close(go[1]);
		close(done[0]);
		CHECK(read(go[0], &byte, 1) == 1);
		run(memory);
		CHECK(write(done[1], "x", 1) == 1);
		/* Stays until it is looked at. */
		CHECK(read(go[0], &byte, 1) == 1);
		_exit(0);
	}
	close(go[0]);
	close(done[1]);
	child.go = go[1];
	child.done = done[0];
	return child;
}

/* Lets the child run its part: is it alive afterwards? */
static int ran(struct child *child)
{
	char byte;
	CHECK(write(child->go, "x", 1) == 1);
	return read(child->done, &byte, 1) == 1;
}

/* Lets it end, and says how it did. */
static int ended(struct child *child)
{
	int status;
	void (*before)(int) = signal(SIGPIPE, SIG_IGN);
	if (write(child->go, "x", 1) != 1)
		CHECK(errno == EPIPE);
	signal(SIGPIPE, before);
	CHECK(waitpid(child->pid, &status, 0) == child->pid);
	close(child->go);
	close(child->done);
	return status;
}

static void nothing(char *memory)
{
	(void)memory;
}

static void write_first(char *memory)
{
	memory[0] = 'c';
}

static void read_first(char *memory)
{
	if (memory[0] != 'p')
		_exit(3);
}

static void reservation(void)
{
	char *memory = map(2, MAP_PRIVATE, -1);
	CHECK(memory != MAP_FAILED);
	row("private: mapping 2 pages reserves 2 and takes none", 0, 2, 1);
	memory[0] = 'p';
	row("a fault takes one from the reservation", -1, 1, 1);
	row("with 2 left of 4, mapping 3 is refused, not granted and killed later", -1, 1,
	    map(3, MAP_PRIVATE, -1) == MAP_FAILED && errno == ENOMEM);
	munmap(memory, 2 * size);
	row("unmapping gives back pages and reservation", 0, 0, 1);
	memory = map(4, MAP_PRIVATE | MAP_NORESERVE, -1);
	row("MAP_NORESERVE reserves none", 0, 0, memory != MAP_FAILED);
	munmap(memory, 4 * size);
	memory = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	row("private and read-only: reserved all the same, for mprotect later", 0, 1, memory != MAP_FAILED);
	munmap(memory, size);
}

static void shared_accounting(void)
{
	int fd = hugetlbfs_unlinked_fd();
	CHECK(fd >= 0);
	char *one = map(2, MAP_SHARED, fd);
	row("shared: mapping 2 pages of a file reserves 2", 0, 2, one != MAP_FAILED);
	char *same = map(2, MAP_SHARED, fd);
	row("shared: mapping the same again reserves no more", 0, 2, same != MAP_FAILED);
	char *longer = map(3, MAP_SHARED, fd);
	row("shared: the longest mapping counts: 3 pages, 3 reserved", 0, 3, longer != MAP_FAILED);
	one[0] = 'p';
	row("shared: a fault by any mapping takes the page once", -1, 2, same[0] == 'p' && longer[0] == 'p');
	struct child child = started(write_first, one);
	row("shared: a child shares page and reservation", -1, 2, ran(&child));
	row("shared: what the child writes is seen", -1, 2, one[0] == 'c' && ended_well(ended(&child)));
	char *own = map(3, MAP_PRIVATE, fd);
	row("private to a file whose pages are there: 3 more are wanted, 1 is left", -1, 2,
	    own == MAP_FAILED && errno == ENOMEM);
	munmap(one, 2 * size);
	munmap(same, 2 * size);
	munmap(longer, 3 * size);
	close(fd);
	row("shared: the last mapping and the file gone, all is given back", 0, 0, 1);
}

static void the_child_has_no_reservation(void)
{
	char *memory = map(2, MAP_PRIVATE, -1);
	CHECK(memory != MAP_FAILED);
	memory[0] = 'p';
	struct child child = started(write_first, memory);
	row("fork: the child's mapping reserves nothing", -1, 1, 1);
	row("fork: the child's write copies, with a page from the pool if there is one", -2, 1, ran(&child));
	row("fork: the parent's page is its own", -2, 1, memory[0] == 'p');
	row("fork: the child gone, its copy is given back", -1, 1, ended_well(ended(&child)));
	munmap(memory, 2 * size);
	row("fork: nothing is left", 0, 0, 1);
}

static void a_child_without_a_page_is_killed(void)
{
	/* The parent holds all there is: 3 touched, 1 reserved. */
	char *memory = map(4, MAP_PRIVATE, -1);
	CHECK(memory != MAP_FAILED);
	memory[0] = memory[size] = memory[2 * size] = 'p';
	struct child child = started(write_first, memory);
	row("dry pool: the child that writes is killed (SIGBUS), the parent is not", -3, 1,
	    !ran(&child) && killed_by(ended(&child), SIGBUS) && memory[0] == 'p');
	child = started(read_first, memory);
	row("dry pool: a child that only reads lives", -3, 1, ran(&child) && ended_well(ended(&child)));
	memory[3 * size] = 'p';
	row("dry pool: the parent's reserved fault succeeds", -4, 0, 1);
	munmap(memory, 4 * size);
	row("dry pool: nothing is left", 0, 0, 1);
}

static void the_parent_s_copy_is_guaranteed(void)
{
	char *memory = map(4, MAP_PRIVATE, -1);
	CHECK(memory != MAP_FAILED);
	memset(memory, 'p', 4 * size);
	struct child child = started(read_first, memory);
	memory[0] = 'q';
	row("dry pool: the parent's write to a page shared by fork succeeds, without a page", -4, 0, memory[0] == 'q');
	row("  at the child's cost: the page was unmapped there, its access is killed", -4, 0,
	    !ran(&child) && killed_by(ended(&child), SIGBUS));
	row("  the parent goes on", -4, 0, memory[0] == 'q' && memory[size] == 'p');
	munmap(memory, 4 * size);
	row("  nothing is left", 0, 0, 1);
}

static void dontfork(void)
{
	char *memory = map(2, MAP_PRIVATE, -1);
	CHECK(memory != MAP_FAILED);
	memory[0] = 'p';
	CHECK(madvise(memory, 2 * size, MADV_DONTFORK) == 0);
	struct child child = started(read_first, memory);
	memory[0] = 'q';
	row("MADV_DONTFORK: the parent writes without copying", -1, 1, 1);
	row("MADV_DONTFORK: the child has no such memory (SIGSEGV)", -1, 1,
	    !ran(&child) && killed_by(ended(&child), SIGSEGV));
	munmap(memory, 2 * size);
	row("MADV_DONTFORK: nothing is left", 0, 0, 1);
}

static void the_child_that_execs(void)
{
	char *memory = map(2, MAP_PRIVATE, -1);
	CHECK(memory != MAP_FAILED);
	memset(memory, 'p', 2 * size);
	struct child child = started(nothing, memory);
	CHECK(ran(&child) && ended_well(ended(&child)));
	memory[0] = 'q';
	row("a child that leaves it alone costs nothing, also once it is gone", -2, 0, memory[0] == 'q');
	munmap(memory, 2 * size);
}

static void the_library_s_regions(void)
{
	char *memory = get_huge_pages(2 * size, GHP_DEFAULT);
	row("get_huge_pages reserves", 0, 2, memory != NULL);
	char *other = get_hugepage_region(2 * size - 1, GHR_STRICT);
	row("get_hugepage_region reserves", 0, 4, other != NULL);
	row("GHR_STRICT is refused when all is reserved, though all is free", 0, 4,
	    get_hugepage_region(1, GHR_STRICT) == NULL && errno == ENOMEM);
	free_huge_pages(memory);
	free_hugepage_region(other);
	row("both give all back", 0, 0, 1);
}

static void set_surplus_allowed(long pages)
{
	FILE *file = fopen("/proc/sys/vm/nr_overcommit_hugepages", "we");
	CHECK(file != NULL && fprintf(file, "%ld", pages) > 0 && fclose(file) == 0, "(this needs root)");
}

/* With surplus allowed, a reservation that the pool cannot cover makes the pool grow at once, not at the fault. */
static void surplus(void)
{
	set_surplus_allowed(2);
	char *memory = map(6, MAP_PRIVATE, -1);
	CHECK(memory != MAP_FAILED);
	base.total += 2;
	base.surplus += 2;
	row("surplus of 2 allowed: mapping 6 pages of a pool of 4 adds 2 at once, all reserved", 2, 6, 1);
	row("surplus: a mapping of one more is refused", 2, 6, map(1, MAP_PRIVATE, -1) == MAP_FAILED && errno == ENOMEM);
	memset(memory, 'p', 6 * size);
	row("surplus: all faults succeed", -4, 0, 1);
	munmap(memory, 6 * size);
	base.total -= 2;
	base.surplus -= 2;
	row("surplus: it goes when its pages are given back", 0, 0, 1);
	set_surplus_allowed(0);
}

int main(void)
{
	char there[64], path[128];
	within_seconds(120);
	size = gethugepagesize();
	own_mounts();
	no_hugetlbfs();
	scratch(there);
	snprintf(path, sizeof(path), "%s/huge", there);
	mount_at(path, "");
	base = now();
	CHECK(base.total == 4 && base.free == 4 && base.reserved == 0 && base.surplus == 0);
	printf("| %-85s | %5s | %4s | %4s | %4s | %-3s |\n", "rule", "total", "free", "rsvd", "surp", "so?");
	printf("| --- | ---: | ---: | ---: | ---: | --- |\n");
	reservation();
	shared_accounting();
	the_child_has_no_reservation();
	a_child_without_a_page_is_killed();
	the_parent_s_copy_is_guaranteed();
	dontfork();
	the_child_that_execs();
	surplus();
	the_library_s_regions();
	return broken;
}

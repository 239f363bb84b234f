/* What the test programs share: checks that end the program, counters of the pool, what the kernel shows of an address. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <hugetlbfs.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition, ...)                                                                                          \
	do {                                                                                                           \
		int holds_here = !!(condition), errno_then = errno;                                                    \
		if (!holds_here) {                                                                                     \
			fprintf(stderr, "%s:%d: not so: %s (errno %d) ", __FILE__, __LINE__, #condition, errno_then);  \
			fprintf(stderr, " " __VA_ARGS__);                                                              \
			fputc('\n', stderr);                                                                           \
			exit(1);                                                                                       \
		}                                                                                                      \
		errno = errno_then;                                                                                    \
	} while (0)

/* No errno is this. */
#define UNTOUCHED 4711
/* The call succeeds and leaves errno alone. */
#define QUIET(condition)                                                                                               \
	do {                                                                                                           \
		errno = UNTOUCHED;                                                                                     \
		CHECK(condition);                                                                                      \
		CHECK(errno == UNTOUCHED);                                                                             \
	} while (0)
/* The condition holds and errno says why. */
#define REFUSED(condition, why)                                                                                        \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		CHECK(condition);                                                                                      \
		CHECK(errno == (why));                                                                                 \
	} while (0)

#define UNUSED __attribute__((unused))

static UNUSED long read_number(const char *path)
{
	long number = -1;
	FILE *file = fopen(path, "re");
	CHECK(file != NULL, "%s", path);
	CHECK(fscanf(file, "%ld", &number) == 1, "%s", path);
	fclose(file);
	return number;
}

/* One of the pool's counters, for huge pages of so many bytes. */
static UNUSED long pool(long size, const char *counter)
{
	char path[256];
	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%ldkB/%s_hugepages", size / 1024, counter);
	return read_number(path);
}

/* The page size in KiB with which the kernel maps an address; 0 where nothing is mapped. */
static UNUSED long kernel_page_kib(const void *address)
{
	FILE *smaps = fopen("/proc/self/smaps", "re");
	char line[4096 + 256];
	int within = 0;
	long kib = 0;
	CHECK(smaps != NULL);
	while (fgets(line, sizeof(line), smaps)) {
		uintptr_t from, to;
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			within = from <= (uintptr_t)address && (uintptr_t)address < to;
		else if (within && sscanf(line, "KernelPageSize: %ld kB", &kib) == 1)
			break;
	}
	fclose(smaps);
	return kib;
}

/* Mounts of our own from here on; they end with the process. */
static UNUSED void own_mounts(void)
{
	CHECK(unshare(CLONE_NEWNS) == 0, "(this needs root)");
	CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
}

/* No hugetlbfs is mounted any more. */
static UNUSED void no_hugetlbfs(void)
{
	for (int again = 1; again;) {
		char line[8192], path[4096], kind[64];
		FILE *mounts = fopen("/proc/self/mounts", "re");
		CHECK(mounts != NULL);
		again = 0;
		while (!again && fgets(line, sizeof(line), mounts))
			if (sscanf(line, "%*s %4095s %63s", path, kind) == 2 && strcmp(kind, "hugetlbfs") == 0)
				again = 1;
		fclose(mounts);
		if (again)
			CHECK(umount2(path, MNT_DETACH) == 0, "%s", path);
	}
}

static UNUSED void mount_at(const char *path, const char *options)
{
	CHECK(mkdir(path, 0755) == 0 || errno == EEXIST, "%s", path);
	CHECK(mount("none", path, "hugetlbfs", 0, options) == 0, "%s %s", path, options);
}

/* A place for mounts, which goes away with our mounts. */
static UNUSED void scratch(char path[static 64])
{
	strcpy(path, "/mnt");
	CHECK(mount("none", path, "tmpfs", 0, "size=16m") == 0);
}

/* The status of a child that runs this. */
#define IN_CHILD(...)                                                                                                  \
	({                                                                                                             \
		int status_of_child = -1;                                                                              \
		fflush(NULL);                                                                                          \
		pid_t child_of_us = fork();                                                                            \
		CHECK(child_of_us >= 0);                                                                               \
		if (child_of_us == 0) {                                                                                \
			__VA_ARGS__;                                                                                   \
			_exit(0);                                                                                      \
		}                                                                                                      \
		CHECK(waitpid(child_of_us, &status_of_child, 0) == child_of_us);                                       \
		status_of_child;                                                                                       \
	})

static UNUSED int ended_well(int status)
{
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static UNUSED int killed_by(int status, int signal)
{
	return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

/* A test that hangs has failed. */
static UNUSED void within_seconds(unsigned seconds)
{
	alarm(seconds);
}

#endif

/*
 * Explicit huge pages. The interface of libhugetlbfs 2.24: programs that were built for libhugetlbfs.so.0 run with this
 * library unchanged, and the other way round. See libhugetlbfs(7).
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef _HUGETLBFS_H
#define _HUGETLBFS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What statfs(2) says of a hugetlbfs. */
#define HUGETLBFS_MAGIC 0x958458f6

/* In an ELF segment's flags: to be backed by huge pages. */
#define PF_LINUX_HUGETLB 0x100000

/* The default size in bytes; -1, errno ENOSYS: the kernel has no huge pages. */
long gethugepagesize(void);
/* The sizes, at most n_elem, and how many; (NULL, 0) only counts. -1: errno says why. */
int gethugepagesizes(long pagesizes[], int n_elem);
/* The same, with the base page size first. */
int getpagesizes(long pagesizes[], int n_elem);

/* 1: the path is on hugetlbfs, 0: it is not, -1: errno says why that cannot be told. */
int hugetlbfs_test_path(const char *mount);
/* Where hugetlbfs is mounted, for the default size or another; NULL if it is not. Valid for ever; not to be freed. */
const char *hugetlbfs_find_path(void);
const char *hugetlbfs_find_path_for_size(long page_size);
/* A new file there, already unlinked; -1: errno says why. */
int hugetlbfs_unlinked_fd(void);
int hugetlbfs_unlinked_fd_for_size(long page_size);

/* Memory in whole huge pages. */
typedef unsigned long ghp_t;
/* Of the default size. */
#define GHP_DEFAULT ((ghp_t)0x01UL)
#define GHP_MASK (GHP_DEFAULT)

void *get_huge_pages(size_t len, ghp_t flags);
void free_huge_pages(void *ptr);

/* Memory of any length. */
typedef unsigned long ghr_t;
/* Huge pages or NULL. */
#define GHR_STRICT ((ghr_t)0x10000000U)
/* Base pages if there are no huge ones. */
#define GHR_FALLBACK ((ghr_t)0x20000000U)
/* Begins at some cache line within what rounding up leaves over. */
#define GHR_COLOR ((ghr_t)0x40000000U)
#define GHR_DEFAULT (GHR_FALLBACK | GHR_COLOR)
#define GHR_MASK (GHR_FALLBACK | GHR_STRICT | GHR_COLOR)

void *get_hugepage_region(size_t len, ghr_t flags);
void free_hugepage_region(void *ptr);

#ifdef __cplusplus
}
#endif

#endif

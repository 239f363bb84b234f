/* Page sizes: found at run time, into arrays of any length, errno untouched. */
#include "check.h"

static void arrays_are_filled_as_far_as_they_go(int (*sizes)(long[], int))
{
	long found[32];
	int count = sizes(NULL, 0);
	CHECK(count >= 1 && count < 32);
	for (int room = 0; room < 32; room++) {
		for (int i = 0; i < 32; i++)
			found[i] = 42;
		int expected = room < count ? room : count;
		QUIET(sizes(found, room) == expected);
		for (int i = 0; i < 32; i++) {
			CHECK((found[i] == 42) == (i >= expected));
			for (int j = 0; j < i && i < expected; j++)
				CHECK(found[i] != found[j]);
		}
	}
	REFUSED(sizes(found, -1) == -1, EINVAL);
	REFUSED(sizes(found, INT_MIN) == -1, EINVAL);
	REFUSED(sizes(NULL, -1) == -1, EINVAL);
	REFUSED(sizes(NULL, 1) == -1, EINVAL);
}

int main(void)
{
	long huge[32], all[32];
	QUIET(gethugepagesize() > 0);
	QUIET(gethugepagesizes(NULL, 0) >= 1);
	int count = gethugepagesizes(huge, 32);
	CHECK(huge[0] == gethugepagesize());
	QUIET(getpagesizes(all, 32) == count + 1);
	CHECK(all[0] == sysconf(_SC_PAGESIZE));
	for (int i = 0; i < count; i++) {
		CHECK(all[i + 1] == huge[i]);
		CHECK(pool(huge[i], "nr") >= 0);
	}
	arrays_are_filled_as_far_as_they_go(gethugepagesizes);
	arrays_are_filled_as_far_as_they_go(getpagesizes);
	return 0;
}

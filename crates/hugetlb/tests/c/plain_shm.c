/* A program that knows nothing of the library: the page size of its System V shared memory. */
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>

int main(void)
{
	char line[4096];
	int id = shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600);
	char *memory = shmat(id, NULL, 0);
	unsigned long from, to;
	int within = 0;
	shmctl(id, IPC_RMID, NULL);
	if (id < 0 || memory == (void *)-1)
		return 1;
	memory[0] = 1;
	FILE *smaps = fopen("/proc/self/smaps", "r");
	while (smaps && fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			within = from == (unsigned long)memory;
		else if (within && strncmp(line, "KernelPageSize:", 15) == 0)
			printf("%s", line + 15 + strspn(line + 15, " "));
	}
	return 0;
}

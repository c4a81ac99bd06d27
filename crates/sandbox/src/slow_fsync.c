/* Makes syncs slow: preloaded into a server, every fsync and fdatasync lasts DELAY_NS longer than the disk needs, as on a
 * disk without a write cache or in a cloud. The real sync happens, so durability is as ever.
 *
 * The system call is made here and not through the C library's own function, so that one build serves servers that bring
 * a C library of their own. */
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int slowly(long result) {
    int error = errno;
    struct timespec left = {DELAY_NS / 1000000000L, DELAY_NS % 1000000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    errno = error;
    return (int)result;
}

int fsync(int fd) { return slowly(syscall(SYS_fsync, fd)); }

int fdatasync(int fd) { return slowly(syscall(SYS_fdatasync, fd)); }

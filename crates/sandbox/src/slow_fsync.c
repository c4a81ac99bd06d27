/* Makes disk syncs slow in a server that preloads this library: each fsync and fdatasync takes DELAY_NS longer than the disk
 * needs, as on a disk without a write cache or in a cloud. The real sync is done, so durability does not change.
 *
 * This library makes the system call itself and does not use the C library's function. So one build works in all
 * servers, also in those that have their own C library. */
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

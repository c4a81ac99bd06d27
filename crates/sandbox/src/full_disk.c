/* Simulates a full disk in a server that preloads this library: while the file MARKER exists, no file can grow. Existing
 * bytes can be overwritten, as on a disk that is really full.
 *
 * This library makes the system calls itself and does not use the C library's functions. So one build works in all servers,
 * also in those that have their own C library. File offsets have 64 bits on all machines that run servers. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Whether a write that ends at offset `end` would make the file grow while the disk is full. If `end` is negative, the write
 * of `length` bytes begins at the current offset. Standard output and error are never limited, so messages are written. */
static int no_room(int fd, long end, long length) {
    int error = errno;
    struct stat file;
    int full = fd > 2 && syscall(SYS_faccessat, AT_FDCWD, MARKER, F_OK) == 0 && syscall(SYS_fstat, fd, &file) == 0 &&
               S_ISREG(file.st_mode);
    if (full && end < 0) {
        int appends = syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND;
        end = (appends ? file.st_size : syscall(SYS_lseek, fd, 0, SEEK_CUR)) + length;
    }
    full = full && end > file.st_size;
    errno = full ? ENOSPC : error;
    return full;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    return no_room(fd, -1, length) ? -1 : syscall(SYS_write, fd, bytes, length);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    long length = 0;
    for (int part = 0; part < count; part++) length += parts[part].iov_len;
    return no_room(fd, -1, length) ? -1 : syscall(SYS_writev, fd, parts, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    return no_room(fd, at + length, 0) ? -1 : syscall(SYS_pwrite64, fd, bytes, length, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t at) { return pwrite(fd, bytes, length, at); }

int fallocate(int fd, int mode, off_t at, off_t length) {
    /* A call with a mode, such as one that punches holes, needs no space. */
    return mode == 0 && no_room(fd, at + length, 0) ? -1 : syscall(SYS_fallocate, fd, mode, at, length);
}

int fallocate64(int fd, int mode, off_t at, off_t length) { return fallocate(fd, mode, at, length); }

int posix_fallocate(int fd, off_t at, off_t length) {
    int error = errno;
    int result = fallocate(fd, 0, at, length) == 0 ? 0 : errno;
    errno = error;
    return result;
}

int posix_fallocate64(int fd, off_t at, off_t length) { return posix_fallocate(fd, at, length); }

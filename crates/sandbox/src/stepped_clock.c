/* Changes the wall clock of a program that preloads this library. The file named by the environment variable STEPPED_CLOCK
 * holds the offset from the machine's clock in nanoseconds. The file is mapped into memory, so that a new offset takes effect
 * at once. Monotonic clocks do not change, as with `date --set`.
 *
 * This library makes the system call itself and does not use the C library's function. So one build works in all programs,
 * also in those that have their own C library. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000L

static const volatile int64_t *beside_ns;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("STEPPED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *beside_ns, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) beside_ns = mapped;
    close(file);
}

static int told(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && beside_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_nsec + *beside_ns % SECOND_NS;
        now->tv_sec += *beside_ns / SECOND_NS;
        if (ns < 0) ns += SECOND_NS, now->tv_sec--;
        if (ns >= SECOND_NS) ns -= SECOND_NS, now->tv_sec++;
        now->tv_nsec = ns;
    }
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *now) { return told(clock, now); }

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    if (told(CLOCK_REALTIME, &precise) != 0) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *also) {
    struct timespec precise = {0, 0};
    told(CLOCK_REALTIME, &precise);
    if (also) *also = precise.tv_sec;
    return precise.tv_sec;
}

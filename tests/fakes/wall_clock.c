/* A wall clock that a test sets in mid-run, for all that it starts: LD_PRELOAD=wall_clock.so WALL_CLOCK_FILE=path.
 *
 * The file holds the seconds that are added to the real wall clock. The clocks that nobody sets are left alone; so are
 * the times that the kernel gives to files.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static double offset(void) {
    const char *path = getenv("WALL_CLOCK_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    double seconds = 0;
    if (file) {
        if (fscanf(file, "%lf", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += (time_t)offset();
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    int status = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return status;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}

/* A disk that is full at one write, or slow: preloaded, it answers ENOSPC in the place of the system.

   FULL_DISK_UNDER    only paths that begin with this
   FULL_DISK_BUT      paths that hold this are not counted; a thread writes them, at any time
   FULL_DISK_LOG      a file to which each write is appended, as `what path`
   FULL_DISK_AT       the number of the first write that fails, from 1
   FULL_DISK_FOR      how many fail from there on
   FULL_DISK_SWITCH   a file: while it holds `full`, all writes fail; while it holds a number, each takes so many ms
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long seen;

static void note(const char *what, const char *path) {
    const char *log = getenv("FULL_DISK_LOG");
    if (!log) return;
    char line[5000];
    int size = snprintf(line, sizeof line, "%s %s\n", what, path);
    int fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (fd >= 0) {
        syscall(SYS_write, fd, line, size);
        syscall(SYS_close, fd);
    }
}

static int switched_off(void) {
    const char *path = getenv("FULL_DISK_SWITCH");
    if (!path) return 0;
    char text[16] = {0};
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    if (fd < 0) return 0;
    syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (atoi(text) > 0) usleep(1000 * atoi(text));
    return !strncmp(text, "full", 4);
}

static int is_full(const char *what, const char *path) {
    const char *under = getenv("FULL_DISK_UNDER"), *at = getenv("FULL_DISK_AT"), *count = getenv("FULL_DISK_FOR");
    if (!under || !path || strncmp(path, under, strlen(under))) return 0;
    const char *but = getenv("FULL_DISK_BUT");
    int counts = !but || !strstr(path, but);
    if (counts) note(what, path);
    long number = __atomic_add_fetch(&seen, counts, __ATOMIC_SEQ_CST), many = count ? atol(count) : 1;
    int fails = at && number >= atol(at) && number < atol(at) + many && (counts || many > 1);
    if (!fails && !switched_off()) return 0;
    errno = ENOSPC;
    return 1;
}

static int is_full_at(const char *what, int fd) {
    char link[64], path[4096];
    if (!getenv("FULL_DISK_UNDER")) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return is_full(what, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
    return is_full_at("write", fd) ? -1 : REAL(write)(fd, data, size);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return is_full_at("write", fd) ? -1 : REAL(pwrite64)(fd, data, size, at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    return is_full_at("write", fd) ? -1 : REAL(writev)(fd, parts, count);
}
int fsync(int fd) { return is_full_at("fsync", fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return is_full_at("fsync", fd) ? -1 : REAL(fdatasync)(fd); }
int mkdir(const char *path, mode_t mode) { return is_full("mkdir", path) ? -1 : REAL(mkdir)(path, mode); }
int rename(const char *from, const char *to) { return is_full("rename", to) ? -1 : REAL(rename)(from, to); }

#define OPEN(name, ...)                                                                \
    {                                                                                  \
        va_list rest;                                                                  \
        va_start(rest, flags);                                                         \
        mode_t mode = va_arg(rest, mode_t);                                            \
        va_end(rest);                                                                  \
        if ((flags & (O_CREAT | O_TRUNC)) && is_full("open", path)) return -1;         \
        return REAL(name)(__VA_ARGS__, mode);                                          \
    }
int open(const char *path, int flags, ...) OPEN(open, path, flags)
int open64(const char *path, int flags, ...) OPEN(open64, path, flags)
int openat(int at, const char *path, int flags, ...) OPEN(openat, at, path, flags)
int openat64(int at, const char *path, int flags, ...) OPEN(openat64, at, path, flags)

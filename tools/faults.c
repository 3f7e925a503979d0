/* Faults of file operations below one directory, for `fault_drill.py`: preloaded, it counts what Python, Rust and C++ do
   to files there, and at the n-th operation kills the process, tears a write, loses power, fills the disk, fails once
   or raises a signal. The model of a power loss: bytes that were not flushed are gone, and a rename is taken back if its
   directory was not flushed afterwards. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, BEFORE, AFTER, TORN, POWER, FULL, ERROR, TERMINATE, INTERRUPT };
enum { KILL_AFTERWARDS = -1, TEAR = -2 };
enum { FILES = 4096, LONG = PATH_MAX };
#define NEXT(type, name, ...) \
    static type (*next)(__VA_ARGS__); \
    if (!next) next = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static struct { dev_t device; ino_t inode; off_t flushed; int handle; } written[FILES];
static struct { char from[LONG], to[LONG], old[LONG]; int pending; } renamed[FILES];
static int written_count, renamed_count;
static char root[LONG], backups[LONG];
static int kind, armed, full, log_handle = -1;
static long target, count;
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static __thread int inside;

/* Start: operations below `where` are counted and logged; the n-th has the fault. `keep`: a directory for old files. */
void faults_arm(const char *where, int what, long n, const char *log, const char *keep) {
    snprintf(root, sizeof root, "%s/", where);
    snprintf(backups, sizeof backups, "%s", keep);
    inside = 1;
    log_handle = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    inside = 0;
    kind = what, target = n, count = 0, full = 0, written_count = renamed_count = 0, armed = 1;
}

void faults_disarm(void) {
    armed = 0;
    close(log_handle);
}

static void note(const char *word, const char *path) {
    char line[LONG + 64];
    int length = snprintf(line, sizeof line, "%s %s\n", word, path);
    inside++;
    if (write(log_handle, line, length) < 0) {}
    inside--;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static const char *path_at(int directory, const char *path, char *buffer) {
    char link[64];
    ssize_t length;
    if (path[0] == '/') return path;
    if (directory == AT_FDCWD) length = getcwd(buffer, LONG) ? (ssize_t)strlen(buffer) : -1;
    else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        length = readlink(link, buffer, LONG - 1);
    }
    if (length < 0) return "";
    snprintf(buffer + length, LONG - length, "/%s", path);
    return buffer;
}

static const char *path_of(int handle, char *buffer) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, buffer, LONG - 1);
    buffer[length < 0 ? 0 : length] = 0;
    return buffer;
}

static int watched(const char *path) {
    size_t length = strlen(root);
    return armed && !inside && (!strncmp(path, root, length) || (strlen(path) == length - 1 && !strncmp(path, root, length - 1)));
}

static int entry_of(int handle) {
    struct stat about;
    if (fstat(handle, &about) || !S_ISREG(about.st_mode)) return -1;
    for (int i = 0; i < written_count; i++)
        if (written[i].device == about.st_dev && written[i].inode == about.st_ino) return i;
    if (written_count == FILES) return -1;
    written[written_count].device = about.st_dev, written[written_count].inode = about.st_ino;
    written[written_count].flushed = about.st_size;
    written[written_count].handle = fcntl(handle, F_DUPFD_CLOEXEC, 200);
    return written_count++;
}

static void flushed(int handle, const char *path) {
    struct stat about;
    if (kind != POWER || fstat(handle, &about)) return;
    if (S_ISDIR(about.st_mode)) {
        for (int i = 0; i < renamed_count; i++) {
            char parent[LONG];
            snprintf(parent, sizeof parent, "%s", renamed[i].to);
            *strrchr(parent, '/') = 0;
            if (!strcmp(parent, path)) renamed[i].pending = 0;
        }
        return;
    }
    int i = entry_of(handle);
    if (i >= 0) written[i].flushed = about.st_size;
}

static void lose_power(void) {
    inside++;
    for (int i = renamed_count - 1; i >= 0; i--) {
        if (!renamed[i].pending) continue;
        rename(renamed[i].to, renamed[i].from);
        if (renamed[i].old[0] && link(renamed[i].old, renamed[i].to)) {}
    }
    for (int i = 0; i < written_count; i++) {
        struct stat about;
        if (!fstat(written[i].handle, &about) && about.st_size > written[i].flushed)
            if (ftruncate(written[i].handle, written[i].flushed)) {}
    }
    die();
}

/* The fault of an operation: 0 none, an error number, KILL_AFTERWARDS, or TEAR. */
static int strike(const char *name, const char *path, int grows) {
    int result = 0;
    pthread_mutex_lock(&mutex);
    note(name, path);
    if (full) result = grows ? ENOSPC : 0;
    else if (++count == target) {
        note("fault", path);
        if (kind == BEFORE) die();
        if (kind == POWER) lose_power();
        if (kind == AFTER) result = KILL_AFTERWARDS;
        if (kind == TORN) result = TEAR;
        if (kind == FULL) full = 1, result = grows ? ENOSPC : 0;
        if (kind == ERROR) result = EIO;
        if (kind == TERMINATE || kind == INTERRUPT) kill(getpid(), kind == TERMINATE ? SIGTERM : SIGINT);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

#define STRIKE(name, path, grows, failed) \
    int struck = watched(path) ? strike(name, path, grows) : 0; \
    if (struck > 0) return errno = struck, failed; \
    if (struck == TEAR) die()
#define DONE(result) \
    do { \
        if (struck == KILL_AFTERWARDS) die(); \
        return result; \
    } while (0)

static int changes(int flags) {
    return (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC);
}

static void opened(int handle, int flags) {
    if (kind != POWER || handle < 0) return;
    int i = entry_of(handle);
    if (i >= 0 && flags & O_TRUNC) written[i].flushed = 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        NEXT(int, #name, const char *, int, ...); \
        va_list list; \
        va_start(list, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; \
        va_end(list); \
        char buffer[LONG]; \
        if (!armed || inside || !changes(flags)) return next(path, flags, mode); \
        const char *place = path_at(AT_FDCWD, path, buffer); \
        STRIKE("open", place, access(place, F_OK) != 0, -1); \
        int handle = next(path, flags, mode); \
        if (watched(place)) opened(handle, flags); \
        DONE(handle); \
    }
#define OPENAT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        NEXT(int, #name, int, const char *, int, ...); \
        va_list list; \
        va_start(list, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; \
        va_end(list); \
        char buffer[LONG]; \
        if (!armed || inside || !changes(flags)) return next(directory, path, flags, mode); \
        const char *place = path_at(directory, path, buffer); \
        STRIKE("open", place, access(place, F_OK) != 0, -1); \
        int handle = next(directory, path, flags, mode); \
        if (watched(place)) opened(handle, flags); \
        DONE(handle); \
    }
#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        NEXT(FILE *, #name, const char *, const char *); \
        char buffer[LONG]; \
        if (!armed || inside || !strpbrk(mode, "wa+")) return next(path, mode); \
        const char *place = path_at(AT_FDCWD, path, buffer); \
        STRIKE("open", place, access(place, F_OK) != 0, NULL); \
        FILE *file = next(path, mode); \
        if (file && watched(place)) opened(fileno(file), strchr(mode, 'w') ? O_TRUNC : 0); \
        DONE(file); \
    }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64) FOPEN(fopen) FOPEN(fopen64)

/* A write; a torn one writes the first half of its bytes and kills. */
#define WRITE(type, name, parameters, arguments, half, ...) \
    type name parameters { \
        NEXT(type, #name, __VA_ARGS__); \
        char buffer[LONG]; \
        if (!armed || inside) return next arguments; \
        const char *place = path_of(handle, buffer); \
        int struck = watched(place) ? strike("write", place, 1) : 0; \
        if (struck > 0) return errno = struck, -1; \
        if (watched(place) && kind == POWER) entry_of(handle); \
        if (struck == TEAR) { \
            half; \
            die(); \
        } \
        type result = next arguments; \
        DONE(result); \
    }
WRITE(ssize_t, write, (int handle, const void *bytes, size_t size), (handle, bytes, size),
      if (next(handle, bytes, size / 2)) {}, int, const void *, size_t)
WRITE(ssize_t, pwrite, (int handle, const void *bytes, size_t size, off_t at), (handle, bytes, size, at),
      if (next(handle, bytes, size / 2, at)) {}, int, const void *, size_t, off_t)
WRITE(ssize_t, pwrite64, (int handle, const void *bytes, size_t size, off64_t at), (handle, bytes, size, at),
      if (next(handle, bytes, size / 2, at)) {}, int, const void *, size_t, off64_t)
WRITE(ssize_t, writev, (int handle, const struct iovec *parts, int number), (handle, parts, number),
      if (next(handle, parts, number / 2)) {}, int, const struct iovec *, int)
WRITE(int, ftruncate, (int handle, off_t size), (handle, size), , int, off_t)
WRITE(int, ftruncate64, (int handle, off64_t size), (handle, size), , int, off64_t)

#define FLUSH(name) \
    int name(int handle) { \
        NEXT(int, #name, int); \
        char buffer[LONG]; \
        if (!armed || inside) return next(handle); \
        const char *place = path_of(handle, buffer); \
        STRIKE("flush", place, 0, -1); \
        int result = next(handle); \
        if (!result && watched(place)) flushed(handle, place); \
        DONE(result); \
    }
FLUSH(fsync) FLUSH(fdatasync)

static void remember(const char *from, const char *to) {
    if (kind != POWER || renamed_count == FILES) return;
    struct stat about;
    snprintf(renamed[renamed_count].from, LONG, "%s", from);
    snprintf(renamed[renamed_count].to, LONG, "%s", to);
    renamed[renamed_count].old[0] = 0, renamed[renamed_count].pending = 1;
    if (!stat(to, &about)) {
        snprintf(renamed[renamed_count].old, LONG, "%.*s/%d", LONG - 32, backups, renamed_count);
        if (link(to, renamed[renamed_count].old)) renamed[renamed_count].old[0] = 0;
    }
    renamed_count++;
}

#define RENAME(name, from_directory, to_directory, parameters, arguments, ...) \
    int name parameters { \
        NEXT(int, #name, __VA_ARGS__); \
        char one[LONG], two[LONG]; \
        if (!armed || inside) return next arguments; \
        const char *source = path_at(from_directory, from, one), *place = path_at(to_directory, to, two); \
        STRIKE("rename", place, 0, -1); \
        inside++; \
        if (!strncmp(place, root, strlen(root))) remember(source, place); \
        inside--; \
        int result = next arguments; \
        DONE(result); \
    }
RENAME(rename, AT_FDCWD, AT_FDCWD, (const char *from, const char *to), (from, to), const char *, const char *)
RENAME(renameat, first, second, (int first, const char *from, int second, const char *to), (first, from, second, to),
       int, const char *, int, const char *)
RENAME(renameat2, first, second, (int first, const char *from, int second, const char *to, unsigned flags),
       (first, from, second, to, flags), int, const char *, int, const char *, unsigned)

#define NAMED(name, word, grows, directory, parameters, arguments, ...) \
    int name parameters { \
        NEXT(int, #name, __VA_ARGS__); \
        char buffer[LONG]; \
        if (!armed || inside) return next arguments; \
        const char *place = path_at(directory, path, buffer); \
        STRIKE(word, place, grows, -1); \
        int result = next arguments; \
        DONE(result); \
    }
NAMED(unlink, "unlink", 0, AT_FDCWD, (const char *path), (path), const char *)
NAMED(rmdir, "rmdir", 0, AT_FDCWD, (const char *path), (path), const char *)
NAMED(unlinkat, "unlink", 0, at, (int at, const char *path, int flags), (at, path, flags), int, const char *, int)
NAMED(mkdir, "mkdir", 1, AT_FDCWD, (const char *path, mode_t mode), (path, mode), const char *, mode_t)
NAMED(mkdirat, "mkdir", 1, at, (int at, const char *path, mode_t mode), (at, path, mode), int, const char *, mode_t)

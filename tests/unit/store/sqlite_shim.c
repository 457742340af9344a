/* sqlite_shim.c - a file layer (VFS) of SQLite whose calls fail, or wait, when a test says so. */
#include "sqlite_shim.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>

/* A file of the shim: the real one lies behind it. */
typedef struct shim_file {
    sqlite3_file base;
    sqlite3_file *real;
} shim_file;

static sqlite3_vfs shim, *real_vfs;
static sqlite3_io_methods methods;
static atomic_int kind, countdown, hits; /* which calls fail, from which one on, how many did */
static atomic_bool lasting;              /* all from there on, or just the one */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_holding, was_met; /* guarded by lock */

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((shim_file *)file)->real;
}

static bool strikes(shim_fault f)
{
    if (atomic_load(&kind) != (int)f)
        return false;
    int left = atomic_fetch_sub(&countdown, 1);
    bool strike = left == 0 || (left < 0 && atomic_load(&lasting));
    if (strike)
        atomic_fetch_add(&hits, 1);
    return strike;
}

static int shim_write(sqlite3_file *file, const void *data, int n, sqlite3_int64 at)
{
    if (strikes(SHIM_FAIL_WRITE)) {
        (void)real_of(file)->pMethods->xWrite(real_of(file), data, n / 2, at); /* a torn write */
        return SQLITE_IOERR_WRITE;
    }
    if (strikes(SHIM_FAIL_FULL))
        return SQLITE_FULL;
    return real_of(file)->pMethods->xWrite(real_of(file), data, n, at);
}

/* Waits, if this is the call to hold, until the test lets it go on. */
static void wait_if_held(shim_fault f)
{
    if (!strikes(f))
        return;
    pthread_mutex_lock(&lock);
    was_met = true;
    pthread_cond_broadcast(&changed);
    while (is_holding)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static int shim_sync(sqlite3_file *file, int flags)
{
    wait_if_held(SHIM_HOLD_SYNC);
    return strikes(SHIM_FAIL_SYNC) ? SQLITE_IOERR_FSYNC
                                   : real_of(file)->pMethods->xSync(real_of(file), flags);
}

static int shim_read(sqlite3_file *file, void *data, int n, sqlite3_int64 at)
{
    return strikes(SHIM_FAIL_READ) ? SQLITE_IOERR_READ
                                   : real_of(file)->pMethods->xRead(real_of(file), data, n, at);
}

static int shim_close(sqlite3_file *file)
{
    int rc = real_of(file)->pMethods->xClose(real_of(file));
    sqlite3_free(((shim_file *)file)->real);
    return rc;
}

static int shim_truncate(sqlite3_file *file, sqlite3_int64 n)
{
    return real_of(file)->pMethods->xTruncate(real_of(file), n);
}

static int shim_size(sqlite3_file *file, sqlite3_int64 *n)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), n);
}

static int shim_lock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int shim_unlock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), level);
}

static int shim_reserved(sqlite3_file *file, int *out)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), out);
}

static int shim_control(sqlite3_file *file, int op, void *arg)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), op, arg);
}

static int shim_sector(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int shim_traits(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int shim_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **out)
{
    return real_of(file)->pMethods->xShmMap(real_of(file), page, size, extend, out);
}

/* Lock 0 of the log's index is the one of the writer. */
static int shim_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    if (offset == 0 && (flags & SQLITE_SHM_LOCK))
        wait_if_held(SHIM_HOLD_WRITER);
    return real_of(file)->pMethods->xShmLock(real_of(file), offset, n, flags);
}

static void shim_shm_barrier(sqlite3_file *file)
{
    real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static int shim_shm_unmap(sqlite3_file *file, int remove)
{
    return real_of(file)->pMethods->xShmUnmap(real_of(file), remove);
}

static int shim_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    shim_file *f = (shim_file *)file;
    (void)vfs;
    f->base.pMethods = NULL;
    f->real = sqlite3_malloc(real_vfs->szOsFile);
    if (!f->real)
        return SQLITE_NOMEM;
    memset(f->real, 0, (size_t)real_vfs->szOsFile);
    int rc = real_vfs->xOpen(real_vfs, name, f->real, flags, out);
    if (rc == SQLITE_OK)
        f->base.pMethods = &methods;
    else
        sqlite3_free(f->real);
    return rc;
}

bool sqlite_shim_install(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    methods = (sqlite3_io_methods){.iVersion = 2,
                                   .xClose = shim_close,
                                   .xRead = shim_read,
                                   .xWrite = shim_write,
                                   .xTruncate = shim_truncate,
                                   .xSync = shim_sync,
                                   .xFileSize = shim_size,
                                   .xLock = shim_lock,
                                   .xUnlock = shim_unlock,
                                   .xCheckReservedLock = shim_reserved,
                                   .xFileControl = shim_control,
                                   .xSectorSize = shim_sector,
                                   .xDeviceCharacteristics = shim_traits,
                                   .xShmMap = shim_shm_map,
                                   .xShmLock = shim_shm_lock,
                                   .xShmBarrier = shim_shm_barrier,
                                   .xShmUnmap = shim_shm_unmap};
    shim = *real_vfs;
    shim.zName = "faults";
    shim.szOsFile = (int)sizeof(shim_file);
    shim.xOpen = shim_open;
    return sqlite3_vfs_register(&shim, 1) == SQLITE_OK;
}

void sqlite_shim_remove(void)
{
    sqlite3_vfs_unregister(&shim);
}

void sqlite_shim_arm(shim_fault f, int from, bool all)
{
    pthread_mutex_lock(&lock);
    is_holding = f == SHIM_HOLD_SYNC || f == SHIM_HOLD_WRITER;
    was_met = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    atomic_store(&countdown, from);
    atomic_store(&lasting, all);
    if (f != SHIM_NONE)
        atomic_store(&hits, 0);
    atomic_store(&kind, (int)f);
}

int sqlite_shim_count_hits(void)
{
    return atomic_load(&hits);
}

void sqlite_shim_await_held(void)
{
    pthread_mutex_lock(&lock);
    while (!was_met)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

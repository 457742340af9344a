/* secret_file.c - read a secret, and check who else could. */
#include "os/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"

/* Reads up to n bytes. out: how many; -1: see errno. */
static ssize_t read_secret_bytes(int fd, uint8_t *to, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = read(fd, to + done, n - done);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return -1;
        done += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)done;
}

/* out: the length of the n bytes without a newline at their end. Editors and echo write this
 * newline; it is not part of the secret. */
static size_t len_without_newline(const uint8_t *bytes, size_t n)
{
    if (n && bytes[n - 1] == '\n')
        n--;
    if (n && bytes[n - 1] == '\r')
        n--;
    return n;
}

/* Checks the type and the mode of the open file, not of its path, which may change. out: why the
 * file is refused; NULL: it is accepted. */
static const char *check_type_and_mode(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return strerrordesc_np(errno);
    if (!S_ISREG(status.st_mode))
        return "it is no regular file";
    if (status.st_mode & (S_IROTH | S_IWOTH))
        return "everybody may read or write it; allow only its owner (chmod 600)";
    return NULL;
}

/* Reads the file into *secret. out: why the file is refused; NULL: it is accepted. */
static const char *read_and_check_secret(int fd, size_t len_min, teffi_secret *secret)
{
    /* + 3: two bytes for a newline (CR LF), and one byte that shows that the secret is too long */
    enum { ROOM = TEFFI_SECRET_MAX + 3 };
    uint8_t bytes[ROOM];
    const char *why = check_type_and_mode(fd);
    if (why)
        return why;
    ssize_t n = read_secret_bytes(fd, bytes, sizeof bytes);
    size_t len = n > 0 ? len_without_newline(bytes, (size_t)n) : 0;
    if (n < 0)
        why = strerrordesc_np(errno);
    else if (len == 0)
        why = "it is empty";
    else if (len < len_min)
        why = "it has fewer than 16 bytes"; /* callers pass len_min 1 or TEFFI_SECRET_MIN (16) */
    else if (len > TEFFI_SECRET_MAX)
        why = "it has more than 1024 bytes";
    if (!why) {
        memcpy(secret->bytes, bytes, len);
        secret->len = len;
    }
    explicit_bzero(bytes, sizeof bytes);
    return why;
}

teff_err teffi_secret_read(const char *path, size_t len_min, teffi_secret **out, char *text)
{
    *out = NULL;
    teffi_secret *secret = calloc(1, sizeof *secret);
    if (!secret)
        return teffi_fail(text, TEFF_E_NOMEM, "out of memory");
    /* O_NONBLOCK: the open of a FIFO does not wait */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const char *why = fd < 0 ? strerrordesc_np(errno) : read_and_check_secret(fd, len_min, secret);
    if (fd >= 0)
        close(fd);
    if (why) {
        teffi_secret_free(secret);
        return teffi_fail(text, TEFF_E_INVALID, "secret file '%.300s': %s", path, why);
    }
    *out = secret;
    return TEFF_OK;
}

void teffi_secret_free(teffi_secret *secret)
{
    if (!secret)
        return;
    explicit_bzero(secret, sizeof *secret);
    free(secret);
}

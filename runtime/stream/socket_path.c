/* socket_path.c - whether a listener may have a path. The file of a socket stays when its process
 * is killed, so it is replaced; but no other file is, nor a socket on which somebody listens. If
 * two listeners start at once, both may find the path free; the later one has it. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "stream/stream.h"

/* Does a connect to the socket reach a listener? out: true also if this cannot be found out, so
 * that a socket in use is never replaced. */
static bool is_listened_on(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    memcpy(to.sun_path, path, strlen(path));
    bool refused =
        fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return !refused;
}

bool teffi_path_is_free(const char *path)
{
    struct stat file;
    return lstat(path, &file) != 0 || (S_ISSOCK(file.st_mode) && !is_listened_on(path));
}

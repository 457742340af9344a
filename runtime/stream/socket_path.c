/* socket_path.c - decides whether a new listener may take a path. A process that is killed leaves
 * its socket file behind, so that file is replaced. Other files, and sockets on which a process
 * listens, are not replaced. If two listeners start at once, both may find the path free; then the
 * second one replaces the socket of the first. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "stream/stream.h"

/* Connects to the socket file at path, to find out whether a listener uses it. out: false: the
 * connection was refused, so the listener has ended. true also after any other error, because a
 * file that may be in use must not be replaced. */
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

/* certificates.c - runs openssl. */
#include "certificates.h"

#include <stdio.h>
#include <stdlib.h>

static char folder[] = "wire-tls-XXXXXX";

bool certificates_begin(void)
{
    return mkdtemp(folder);
}

int certificates_end(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

const char *certificates_path(const char *name)
{
    static char paths[4][64];
    static unsigned next;
    char *p = paths[next++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

bool certificates_run(const char *command)
{
    char all[2048];
    snprintf(all, sizeof all, "cd %s && exec 2>/dev/null && %s", folder, command);
    return system(all) == 0;
}

bool certificates_make_ca(const char *name)
{
    char command[512];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
             "-keyout %s.key -out %s.pem -days 2 -subj /CN=%s",
             name, name, name);
    return certificates_run(command);
}

bool certificates_make(const char *ca, const char *name, const char *key, int days,
                       const char *options)
{
    char command[1024];
    snprintf(command, sizeof command,
             "openssl req -newkey %s -nodes -keyout %s.key -out %s.csr -subj /CN=%s && "
             "openssl x509 -req -in %s.csr -CA %s.pem -CAkey %s.key -CAcreateserial -days %d %s "
             "-out %s.crt && cat %s.crt %s.key > %s.pem",
             key ? key : "ec -pkeyopt ec_paramgen_curve:prime256v1", name, name, name, name, ca, ca,
             days, options, name, name, name, name);
    return certificates_run(command);
}

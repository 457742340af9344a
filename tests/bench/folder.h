/* folder.h - a folder for the SQLite files of rows, and the names of these files. */
#pragma once

typedef struct bench_folder {
    char path[200];
} bench_folder;

/* bench_folder_new - below TMPDIR. On an error the program ends. */
bench_folder bench_folder_new(void);

/* bench_folder_remove - with the databases grains.db and loop.db in it. */
void bench_folder_remove(const bench_folder *f);

/* count.c - counts the words of text files with the grains of a cluster; prints "count word" lines.
 * usage: count GATEWAY[,GATEWAY...] FILE...      (a gateway is any silo's host:port) */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "words.teff.h"

enum { FAN_OUT = 1000, WORD_MAX = 200, PROGRESS = 20000 };

typedef struct list {
    char **words;
    size_t n, max;
} list;

static void append(list *words, const char *word)
{
    if (words->n == words->max) {
        words->max = words->max ? words->max * 2 : 1024;
        words->words = realloc(words->words, words->max * sizeof *words->words);
    }
    char *copy = words->words ? strdup(word) : NULL;
    if (!copy) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    words->words[words->n++] = copy;
}

/* Letters of ASCII, in lower case; everything else divides words. */
static int read_words(const char *path, list *words)
{
    char word[WORD_MAX + 1];
    size_t len = 0;
    int c;
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        return 1;
    }
    do {
        c = getc(file);
        if (c < 128 && isalpha(c)) {
            if (len < WORD_MAX)
                word[len++] = (char)tolower(c);
        } else if (len) {
            word[len] = '\0';
            append(words, word);
            len = 0;
        }
    } while (c != EOF);
    fclose(file);
    return 0;
}

static int failed(teff_ctx *ctx, teff_err err)
{
    fprintf(stderr, "%s: %s\n", teff_err_name(err), teff_error(ctx));
    return 1;
}

/* One call for each word, up to FAN_OUT of them under way at once. */
static int add_some(teff_ctx *ctx, char **words, size_t n)
{
    teff_call calls[FAN_OUT];
    teff_err err = TEFF_OK;
    for (size_t i = 0; i < n && !err; i++)
        err = words_word_add_async(ctx, words[i], words_seen(.times = 1), NULL, &calls[i]);
    if (!err)
        err = teff_await_all(ctx, calls, n);
    if (err)
        return failed(ctx, err);
    teff_ctx_reset(ctx); /* the responses are not needed any more */
    return 0;
}

static int add_all(teff_ctx *ctx, const list *words)
{
    for (size_t done = 0; done < words->n;) {
        size_t n = words->n - done < FAN_OUT ? words->n - done : FAN_OUT;
        if (add_some(ctx, words->words + done, n))
            return 1;
        done += n;
        if (done / PROGRESS != (done - n) / PROGRESS || done == words->n)
            fprintf(stderr, "count: %zu of %zu words\n", done, words->n);
    }
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Each distinct word's grain says how often it was seen. */
static int print_all(teff_ctx *ctx, list *words)
{
    size_t distinct = 0;
    if (words->n)
        qsort(words->words, words->n, sizeof *words->words, by_text);
    for (size_t i = 0; i < words->n; i++) {
        words_total *total;
        if (i && strcmp(words->words[i], words->words[i - 1]) == 0)
            continue;
        teff_err err = words_word_get(ctx, words->words[i], &total);
        if (err)
            return failed(ctx, err);
        printf("%llu %s\n", (unsigned long long)total->count, words->words[i]);
        teff_ctx_reset(ctx);
        if (++distinct % 2000 == 0)
            fprintf(stderr, "count: %zu distinct words asked for\n", distinct);
    }
    return 0;
}

static int run(teff_client *client, int n_files, char **files)
{
    list words = {0};
    teff_ctx *ctx = teff_client_new_ctx(client);
    int status = ctx ? 0 : 1;
    for (int i = 0; i < n_files && !status; i++)
        status = read_words(files[i], &words);
    if (!status)
        status = add_all(ctx, &words);
    if (!status)
        status = print_all(ctx, &words);
    for (size_t i = 0; i < words.n; i++)
        free(words.words[i]);
    free(words.words);
    teff_ctx_free(ctx);
    return status;
}

int main(int argc, char **argv)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_client_options options = {.size = sizeof options};
    teff_client *client;
    int n = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: %s GATEWAY[,GATEWAY...] FILE...\n", argv[0]);
        return 2;
    }
    for (char *g = strtok(argv[1], ","); g && n < TEFF_SEEDS_MAX - 1; g = strtok(NULL, ","))
        options.gateways[n++] = g;
    if (teff_client_connect(&options, &client, text)) {
        fprintf(stderr, "no gateway: %s\n", text);
        return 1;
    }
    int status = run(client, argc - 2, argv + 2);
    teff_client_free(client);
    return status;
}
